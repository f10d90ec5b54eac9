"""Clients that take nothing of what was sent to them are cut off (traps, H2).

The kernel's own limit, ``TCP_USER_TIMEOUT``, will not do: Linux adds up the times for which a receive window was shut,
also where it opened a little in between, and so cuts clients that read slowly but read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from typing import Final

import trio

from server.sockets import write_now

if sys.platform != "win32":
    import fcntl
    import termios

__all__ = ["Outgoing", "WriteLimit"]

_LOOKS: Final = 4
"""How often a connection is looked at within the limit; a client is cut off between 1 and 1 + 1/4 of it."""
_LOOKS_AT_A_TIME: Final = 100
_RESET: Final = struct.pack("ii", 1, 0)
"""``SO_LINGER``: what the client has not taken is thrown away, and it gets a reset."""


class WriteLimit:
    """Looks at every connection that has something under way.

    Args:
        seconds: for which a client's system may take nothing; 0 = for ever.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._watched: set[Outgoing] = set()

    def watch(self, outgoing: Outgoing) -> None:
        """Look at it until all is taken."""
        if self._seconds:
            self._watched.add(outgoing)

    def forget(self, outgoing: Outgoing) -> None:
        """Look at it no more."""
        self._watched.discard(outgoing)

    async def run(self) -> None:
        """Look until cancelled.

        Looks are counted, not seconds: where this process was held up, its clients are not to blame.
        """
        while self._seconds:
            await trio.sleep(self._seconds / _LOOKS)
            for number, outgoing in enumerate(list(self._watched), 1):
                outgoing.look()
                if number % _LOOKS_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()


class Outgoing:
    """What is sent on one connection.

    Args:
        sock: the connection's.
        limit: on the client's rest.
    """

    def __init__(self, sock: trio.socket.SocketType, limit: WriteLimit) -> None:
        self._socket = sock
        self._limit = limit
        self._lock = trio.Lock()
        self._sent = 0
        self._seen: tuple[int, int | None] | None = None
        self._unchanged = 0

    async def send_all(self, data: bytes) -> None:  # noqa: ASYNC910 - see below
        """Send all of it. Checkpoints only where it waits. Where it is cancelled the connection is broken, and closed.

        Raises:
            OSError: the connection is broken.
            trio.ClosedResourceError: it was closed meanwhile, perhaps because the client took nothing for too long.
        """
        if not data:
            return  # noqa: ASYNC910 - see above
        if self._lock.locked():
            try:
                await self._lock.acquire()
            except trio.Cancelled:
                self._socket.close()
                raise
        else:
            self._lock.acquire_nowait()  # without the task switch of ``acquire``
        self._limit.watch(self)
        left = len(data)
        try:
            with contextlib.suppress(BlockingIOError):
                sent = write_now(self._socket, data)
                left -= sent
                self._sent += sent
            while left:
                sent = await self._socket.send(memoryview(data)[-left:])
                left -= sent
                self._sent += sent
        finally:
            if left:
                self._socket.close()
            self._lock.release()

    def look(self) -> None:
        """Forget it where all was taken; cut the client off where nothing was, time after time."""
        unsent = _unsent_bytes(self._socket)
        if not unsent and not self._lock.locked():
            self._seen = None
            self._limit.forget(self)
            return
        seen = self._sent, unsent
        self._unchanged = self._unchanged + 1 if seen == self._seen else 0
        self._seen = seen
        if self._unchanged >= _LOOKS:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close()

    def close(self) -> None:
        """Close the connection: whoever sends or receives on it gets an error. Idempotent."""
        self._limit.forget(self)
        self._socket.close()


def _unsent_bytes(sock: trio.socket.SocketType) -> int | None:
    """How much the client's system has not taken; none where this system does not say."""
    if sys.platform == "win32" or sock.fileno() < 0:
        return None
    try:
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return None
