"""A connection of the httpx2 upstream: one request after the other. Imported only where the package is.

httpx2 has a pool of its own, but never resets an HTTP/2 stream that is abandoned: the server would go on
generating, and what nobody takes would use up the connection's flow-control window
(https://github.com/encode/httpcore/pull/944). So each connection has a transport to itself, carries one request at
a time whatever its protocol, and is closed together with a response that was not read to its end.
"""

from __future__ import annotations

import math
import string
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import trio

from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.httpx2_errors import failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.upstreams.base import BodySource, Headers, UpstreamRequest
    from server.upstreams.origin import Origin

__all__ = ["Httpx2Connection"]


class Httpx2Connection:
    """A ``Poolable``; it connects with its first request.

    Args:
        transport: its own.
        connect_timeout: seconds to a connection, 0 = no limit.
    """

    def __init__(self, transport: httpx2.AsyncHTTPTransport, connect_timeout: float) -> None:
        self._transport = transport
        self._connect_timeout = connect_timeout or math.inf
        self._connecting = trio.CancelScope()
        self._socket: trio.socket.SocketType | None = None

    def is_quiet(self) -> bool:
        """See ``Poolable``."""
        if self._socket is None or self._socket.fileno() < 0 or self._socket.is_readable():
            return False
        return not self._has_surplus()

    def _has_surplus(self) -> bool:
        """Whether bytes behind the last response were read with it: they would be taken for the next one's answer.

        Only h11 knows of them, and neither httpx2 nor its core has a public way to it.
        """
        for outer in self._transport._pool.connections:  # noqa: SLF001 - see above
            connection: Any = outer
            while (inner := getattr(connection, "_connection", None)) is not None:  # a proxy's is one deeper
                connection = inner
            state = getattr(connection, "_h11_state", None)  # HTTP/2 has none, and numbers its streams
            if state is not None and state.trailing_data[0]:
                return True
        return False

    def close(self) -> None:
        """See ``Poolable``. A read that waits for it fails."""
        if self._socket is not None:
            self._socket.close()

    async def exchange(self, request: UpstreamRequest, origin: Origin) -> httpx2.Response:
        """Send a request to its end, then wait for status and headers.

        Checkpoints. To be closed where it raises or is cancelled.

        Raises:
            UpstreamError: no connection, no response, or no HTTP.
            ClientError: the request cannot be sent as it is, or its body's source broke off.
        """
        try:
            outgoing = httpx2.Request(
                request.method,
                origin.url,
                headers=_headers(request, origin),
                content=request.body if isinstance(request.body, bytes) else _Pieces(request.body),
                extensions={
                    "target": quote(origin.prefix + request.target, safe=string.punctuation),
                    "timeout": {"connect": self._connect_timeout},
                    "trace": self._trace,
                },
            )
            with trio.CancelScope() as self._connecting:
                return await self._transport.handle_async_request(outgoing)
        except Exception as error:
            raise failure_of(error, origin.url) from error
        raise UpstreamError(
            UpstreamErrorKind.CONNECT_TIMEOUT,
            f"no connection to {origin.url} within upstream.connect_timeout = {self._connect_timeout:g} s",
        )

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Told by httpx2 of each step: https://www.encode.io/httpcore/extensions/#trace.

        Its own timeout is for each step, and a proxy's answer to ``CONNECT`` has none. It also forgets a socket
        whose TLS handshake is cancelled.
        """
        await trio.lowlevel.cancel_shielded_checkpoint()
        match event.partition(".")[2]:
            case "connect_tcp.started":
                self._connecting.deadline = trio.current_time() + self._connect_timeout
            case "connect_tcp.complete":
                self._socket = info["return_value"].get_extra_info("socket")
            case "send_request_headers.started" if info["request"].method != b"CONNECT":
                self._connecting.deadline = math.inf


def _headers(request: UpstreamRequest, origin: Origin) -> Headers:
    headers = [*request.headers, (b"accept-encoding", b"identity")]
    if origin.credentials is not None and not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", origin.credentials))
    return headers


class _Pieces:
    """A body that is still arriving, as httpx2 takes it. It can be read once."""

    def __init__(self, source: BodySource) -> None:
        self._source = source
        self._is_begun = False

    def __aiter__(self) -> _Pieces:
        if self._is_begun:  # httpx2 would send what is left of it on a second connection
            raise UpstreamError(
                UpstreamErrorKind.RESET, "the upstream closed the connection while the request was being sent"
            )
        return self

    async def __anext__(self) -> bytes:
        self._is_begun = True
        if piece := await self._source.receive():
            return piece
        raise StopAsyncIteration
