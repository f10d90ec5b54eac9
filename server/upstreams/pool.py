"""Places for connections to one upstream, and the connections that wait for their next request."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

import attrs
import trio

__all__ = ["Place", "Pool", "PoolStatistics", "Poolable"]


class Poolable(Protocol):
    """A connection, as far as the pool is concerned."""

    def is_quiet(self) -> bool:
        """Whether it is still open with nothing to read. Never waits."""
        ...

    def close(self) -> None:
        """Close at once."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Poolable)


@attrs.frozen
class PoolStatistics:
    """A pool at one moment."""

    open: int
    """Connections in use, being made or idle."""
    idle: int
    """Connections that wait for a request."""
    waiting: int
    """Requests that wait for a place."""


class Pool(Generic[ConnectionT]):
    """Hands out places, first come first served, and keeps connections, the last used first.

    A place is a request's right to one connection. A new connection is made only where none is idle, or in a dead
    one's stead, so that there are never more connections than places. Expired ones are closed when the pool is next
    used: there is no task that waits for it.

    Args:
        max_connections: the number of places; 0 = no limit.
        keep_alive_timeout: how long a connection may be idle, seconds; 0 = connections are not kept.
    """

    def __init__(self, max_connections: int, keep_alive_timeout: float) -> None:
        self._free = trio.Semaphore(max_connections, max_value=max_connections) if max_connections else None
        self._keep_alive_timeout = keep_alive_timeout
        self._in_use = 0
        self._idle: deque[tuple[ConnectionT, float]] = deque()
        self._is_closed = False

    async def acquire(self) -> Place[ConnectionT]:
        """Wait for a place. Checkpoints; a wait that is cancelled takes none."""
        if self._free is not None:
            await self._free.acquire()
        else:
            await trio.lowlevel.checkpoint()
        self._in_use += 1
        return Place(self)

    def take_idle(self) -> ConnectionT | None:
        """The connection that was used last of those that can still be used, for whoever has a place."""
        self._close_expired()
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close the idle connections, and the others once they are given back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop()[0].close()

    def statistics(self) -> PoolStatistics:
        """How many connections and requests there are."""
        return PoolStatistics(
            open=self._in_use + len(self._idle),
            idle=len(self._idle),
            waiting=self._free.statistics().tasks_waiting if self._free is not None else 0,
        )

    def _give_back(self, connection: ConnectionT | None, *, keep: bool) -> None:
        self._in_use -= 1
        if connection is not None:
            if keep and self._keep_alive_timeout and not self._is_closed:
                self._idle.append((connection, trio.current_time()))
            else:
                connection.close()
        self._close_expired()
        if self._free is not None:
            self._free.release()

    def _close_expired(self) -> None:
        deadline = trio.current_time() - self._keep_alive_timeout
        while self._idle and self._idle[0][1] <= deadline:
            self._idle.popleft()[0].close()


class Place(Generic[ConnectionT]):
    """A request's right to one connection, until ``release``."""

    def __init__(self, pool: Pool[ConnectionT]) -> None:
        self._pool: Pool[ConnectionT] | None = pool
        self._connection: ConnectionT | None = None

    def occupy(self, connection: ConnectionT) -> None:
        """Put a connection on the place; the one before it is closed."""
        if self._connection is not None:
            self._connection.close()
        self._connection = connection

    def release(self, *, keep: bool = False) -> None:
        """Give the place back, at once. Idempotent.

        Args:
            keep: whether the connection may serve another request; otherwise it is closed.
        """
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool._give_back(self._connection, keep=keep)  # noqa: SLF001 - the two are one concept
