"""The second HTTP upstream, on httpx2: for proxies and HTTP/2. The first, ``http``, carries more chunks.

The package is optional, so only the constructor imports the modules that need it. Pool, codings and the reading
of URLs are those of ``http``.
"""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from server.errors import ConfigError, UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.pooled import PROBE, PooledUpstream

if TYPE_CHECKING:
    from pathlib import Path

    from server.upstreams.httpx2_connection import Httpx2Connection
    from server.upstreams.httpx2_response import Httpx2Response

__all__ = ["Httpx2Options", "Httpx2Upstream"]


@attrs.frozen
class Httpx2Options:
    """Where the server is, and how to deal with it."""

    url: str
    """The base URL, ``http://host:8000/v1``. Credentials in it are sent as basic authorization, unless a request
    brings its own."""
    connect_timeout: float = 10
    """Seconds for name, connection, proxy and TLS handshake together; 0 = no limit."""
    max_connections: int = 0
    """The most connections at a time; 0 = no limit. Requests beyond it wait, the first come served first."""
    keep_alive_timeout: float = 15
    """Seconds that an idle connection may be used again; 0 = a connection serves one request."""
    ca_file: str | Path | None = None
    """PEM certificates to trust instead of the system's."""
    proxy: str | None = None
    """The proxy's URL: ``http``, ``https`` or ``socks5``. None: what ``HTTP_PROXY``, ``HTTPS_PROXY``,
    ``ALL_PROXY`` and ``NO_PROXY`` say."""
    http2: bool = True
    """Whether HTTP/2 is offered in the TLS handshake; without TLS it is never spoken."""


class Httpx2Upstream(PooledUpstream["Httpx2Connection"]):
    """An ``Upstream``: an OpenAI-compatible server, reached with httpx2.

    Redirects are not followed, cookies not kept. Where a kept connection turns out to be closed, a request whose
    body is whole is sent once more on a new one (RFC 9112, section 9.3.1).

    Raises:
        ConfigError: a package is not installed, or an option cannot be used.
    """

    def __init__(self, options: Httpx2Options) -> None:
        _require("httpx2", 'upstream.client = "httpx2"')
        if options.http2:
            _require("h2", "upstream.http2 = true")
        from server.upstreams.httpx2_connection import Httpx2Connection  # noqa: PLC0415 - optional
        from server.upstreams.httpx2_response import Httpx2Response  # noqa: PLC0415 - optional
        from server.upstreams.httpx2_transport import transport_factory  # noqa: PLC0415 - optional

        super().__init__(options.url, options.max_connections, options.keep_alive_timeout)
        make_transport = transport_factory(self._origin, options.ca_file, options.proxy, http2=options.http2)

        def make_connection() -> Httpx2Connection:
            return Httpx2Connection(make_transport(), options.connect_timeout)

        self._make_connection = make_connection
        self._make_response = Httpx2Response

    async def open(self, request: UpstreamRequest) -> Httpx2Response:
        """See ``Upstream.open``. The response is waited for once the request has been sent to its end.

        Raises:
            UpstreamError: no connection within ``connect_timeout``, TLS failure, reset, or no HTTP.
            ClientError: the request cannot be sent as it is, or its body's source broke off.
        """
        place = await self._pool.acquire()
        with ExitStack() as undo:
            undo.callback(place.release)
            idle = self._pool.take_idle()
            connection = idle or self._make_connection()
            place.occupy(connection)
            try:
                answer = await connection.exchange(request, self._origin)
            except UpstreamError as error:
                is_stale = connection is idle and error.kind is UpstreamErrorKind.RESET
                if not is_stale or not isinstance(request.body, bytes):
                    raise
                connection = self._make_connection()
                place.occupy(connection)
                answer = await connection.exchange(request, self._origin)
            response = self._make_response(answer, place, self.name)
            undo.pop_all()
        return response

    async def probe_status(self) -> int:
        """See ``PooledUpstream``."""
        connection = self._make_connection()
        with ExitStack() as undo:
            undo.callback(connection.close)
            return (await connection.exchange(PROBE, self._origin)).status_code


def _require(module: str, wanted_by: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"{wanted_by} needs the package {module}, which is not installed: pip install 'callahead[httpx2]'"
        )
