"""The upstream ``http``: an inference server, reached over HTTP/1.1.

From the bottom up: ``streams`` and ``tls`` carry bytes, ``request_head`` and ``response_parser`` give them meaning,
``connection`` exchanges one request for one response, ``pool`` keeps connections, ``codings`` undoes what the body is
wrapped in. There are no tasks beside those of the requests and no generators: one read of the socket is one burst.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import attrs
import trio

from server.errors import UpstreamError, UpstreamErrorKind
from server.hop_headers import end_to_end
from server.upstreams.base import UpstreamRequest
from server.upstreams.codings import ContentDecoder, content_decoder, undone_headers
from server.upstreams.connection import Connection
from server.upstreams.pool import Place
from server.upstreams.pooled import PROBE, PooledUpstream
from server.upstreams.request_head import encode_head
from server.upstreams.response_parser import ResponseParser
from server.upstreams.streams import ByteStream, connect_tcp
from server.upstreams.tls import TlsStream, client_context

__all__ = ["HttpResponse", "HttpUpstream", "HttpUpstreamOptions"]


@attrs.frozen
class HttpUpstreamOptions:
    """Where the server is, and how to deal with it."""

    url: str
    """The base URL, ``http://host:8000/v1``. Credentials in it are sent as basic authorization, unless a request
    brings its own."""
    connect_timeout: float = 10
    """Seconds for name, connection and TLS handshake together; 0 = no limit."""
    max_connections: int = 0
    """The most connections at a time; 0 = no limit. Requests beyond it wait, the first come served first."""
    keep_alive_timeout: float = 15
    """Seconds that an idle connection may be used again; 0 = a connection serves one request."""
    ca_file: str | Path | None = None
    """PEM certificates to trust instead of the system's."""
    read_bytes: int = 96 * 1024
    """The most that one read takes from the socket."""


class HttpUpstream(PooledUpstream[Connection]):
    """An ``Upstream``: one server behind a base URL.

    Redirects are not followed and no cookies kept. Where a kept connection turns out to be dead before a byte of the
    answer has come, the request is sent once more on a new one (RFC 9112, section 9.3.1), if its body is whole.

    Raises:
        ConfigError: the URL or the certificates cannot be used.
    """

    def __init__(self, options: HttpUpstreamOptions) -> None:
        super().__init__(options.url, options.max_connections, options.keep_alive_timeout)
        self._options = options
        self._tls = client_context(options.ca_file) if self._origin.tls else None

    async def open(self, request: UpstreamRequest) -> HttpResponse:
        """See ``Upstream.open``. Waits for a place first, for as long as it takes.

        Raises:
            UpstreamError: no connection within ``connect_timeout``, TLS failure, reset, or no HTTP.
            ClientError: the request cannot be sent as it is, or its body's source broke off.
        """
        head = encode_head(request, self._origin)
        place = await self._pool.acquire()
        with ExitStack() as undo:
            undo.callback(place.release)
            connection = self._pool.take_idle() or await self._connect()
            place.occupy(connection)
            try:
                parsed = await connection.exchange(head, request.body)
            except UpstreamError:
                if not connection.is_stale or not isinstance(request.body, bytes):
                    raise
                connection = await self._connect()
                place.occupy(connection)
                parsed = await connection.exchange(head, request.body)
            response = HttpResponse(place, connection, parsed)
            undo.pop_all()
        return response

    async def probe_status(self) -> int:
        """See ``PooledUpstream``."""
        head = encode_head(PROBE, self._origin)
        with ExitStack() as undo:
            connection = await self._connect()
            undo.callback(connection.close)
            return (await connection.exchange(head, b"")).status

    async def _connect(self) -> Connection:
        """A new connection. Checkpoints; leaves nothing behind if cancelled."""
        limit = self._options.connect_timeout
        with trio.move_on_after(limit or float("inf")):
            return Connection(await self._open_stream(), self._options.read_bytes)
        raise UpstreamError(
            UpstreamErrorKind.CONNECT_TIMEOUT,
            f"no connection to {self._origin.authority} within upstream.connect_timeout = {limit:g} s",
        )

    async def _open_stream(self) -> ByteStream:
        tcp = await connect_tcp(self._origin.host, self._origin.port)
        if self._tls is None:
            return tcp
        with ExitStack() as undo:
            undo.callback(tcp.close)
            stream = TlsStream(tcp, self._tls, self._origin.host)
            await stream.do_handshake()
            undo.pop_all()
        return stream


class HttpResponse:
    """An ``UpstreamResponse``, with its place in the pool."""

    def __init__(self, place: Place[Connection], connection: Connection, parsed: ResponseParser) -> None:
        self.status = parsed.status
        self._place = place
        self._connection: Connection | None = connection
        self._decoder = None if parsed.bodiless else content_decoder(parsed.headers)
        self.headers = end_to_end(parsed.headers, undone_headers(self._decoder))

    async def receive(self) -> bytes:
        """See ``UpstreamResponse.receive``. A body whose coding is undone comes in pieces of ``codings.PIECE_BYTES``.

        Raises:
            UpstreamError: the connection broke, or the bytes make no sense.
            trio.ClosedResourceError: the response is closed.
        """
        if self._connection is None:
            raise trio.ClosedResourceError("the response is closed")
        if self._decoder is None:
            return await self._connection.receive()
        return await self._receive_decoded(self._connection, self._decoder)

    async def aclose(self) -> None:
        """See ``UpstreamResponse.aclose``. Not while another task is in ``receive``."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._place.release(keep=connection.finish())
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _receive_decoded(self, connection: Connection, decoder: ContentDecoder) -> bytes:
        if piece := decoder.pull():
            await trio.lowlevel.cancel_shielded_checkpoint()
            return piece
        while data := await connection.receive():
            decoder.push(data)
            if piece := decoder.pull():
                return piece
        decoder.finish()
        return b""
