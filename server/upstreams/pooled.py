"""What the two HTTP upstreams have in common: a pool of connections to one origin, and the probe."""

from __future__ import annotations

from typing import Final, Generic

import trio

from server.errors import UpstreamError
from server.upstreams.base import UpstreamRequest
from server.upstreams.origin import Origin
from server.upstreams.pool import ConnectionT, Pool, PoolStatistics

__all__ = ["PROBE", "PooledUpstream"]

PROBE: Final = UpstreamRequest("GET", "/models", [])
_PROBE_TIMEOUT: Final = 5.0
_FIRST_SERVER_ERROR: Final = 500


class PooledUpstream(Generic[ConnectionT]):
    """All of an ``Upstream`` but ``open``, which is the subclass's, as ``probe_status`` is.

    Raises:
        ConfigError: the URL cannot be used.
    """

    def __init__(self, url: str, max_connections: int, keep_alive_timeout: float) -> None:
        self._origin = Origin.parse(url)
        self._pool: Pool[ConnectionT] = Pool(max_connections, keep_alive_timeout)
        self.name = self._origin.url

    async def probe(self) -> str | None:
        """See ``Upstream.probe``. Asks for ``/models`` on a connection of its own; any status below 500 will do."""
        with trio.move_on_after(_PROBE_TIMEOUT):
            try:
                status = await self.probe_status()
            except UpstreamError as error:
                await trio.lowlevel.checkpoint()
                return error.message
            if status < _FIRST_SERVER_ERROR:
                return None
            return f"{self.name}/models answered with status {status}"
        return f"{self.name}/models did not answer within {_PROBE_TIMEOUT:g} s"

    async def probe_status(self) -> int:
        """Send ``PROBE`` on a connection of its own, and close it; the status of the answer. Checkpoints.

        Raises:
            UpstreamError: there is none.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """See ``Upstream.aclose``. Connections in use are closed with their responses."""
        self._pool.close()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def statistics(self) -> PoolStatistics:
        """The connections and the requests that wait for one."""
        return self._pool.statistics()
