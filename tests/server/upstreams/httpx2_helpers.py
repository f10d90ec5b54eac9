"""A server, a proxy and certificates for the tests of the httpx2 upstream, all in the test's own Trio run."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from server.errors import UpstreamError
from server.upstreams.base import UpstreamRequest, UpstreamResponse
from server.upstreams.httpx2 import Httpx2Options, Httpx2Upstream

GET = UpstreamRequest("GET", "/models", [])
POST = UpstreamRequest("POST", "/chat/completions", [(b"content-type", b"application/json")], b'{"model":"m"}')
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n"
LIMIT = 10.0
"""Seconds that a whole test may take."""


@attrs.define(eq=False)
class Received:
    """A request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""


@attrs.define(eq=False)
class Connection:
    """The server's end of a connection."""

    stream: trio.abc.Stream
    number: int
    """1 for the first connection."""
    gone: trio.Event = attrs.field(factory=trio.Event)
    _buffer: bytearray = attrs.field(factory=bytearray)

    async def send(self, *pieces: bytes) -> None:
        """Send bytes as they are."""
        for piece in pieces:
            await self.stream.send_all(piece)

    async def send_chunks(self, *pieces: bytes) -> None:
        """Send each piece as a chunk; an empty one ends the body."""
        for piece in pieces:
            await self.stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def request(self) -> Received | None:
        """The next request with its body; none if the client has closed the connection."""
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        line, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ")
        headers = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
        given = {name.lower(): value for name, value in headers}
        received = Received(method, target, headers)
        if "transfer-encoding" in given:
            while size := int(await self._until(b"\r\n") or b"0", 16):
                received.body += await self._exactly(size + 2)
                received.body = received.body[:-2]
            await self._until(b"\r\n")
        elif method != "CONNECT":
            received.body = await self._exactly(int(given.get("content-length", "0")))
        return received

    async def until_gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass
        self.gone.set()

    async def _until(self, mark: bytes) -> bytes | None:
        while (found := self._buffer.find(mark)) < 0:
            if not await self._more():
                return None
        line = bytes(self._buffer[:found])
        del self._buffer[: found + len(mark)]
        return line

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size and await self._more():
            pass
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        return piece

    async def _more(self) -> bytes:
        try:
            more = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            more = b""
        self._buffer += more
        if not more:
            self.gone.set()
        return bytes(more)


Handler = Callable[[Connection], Awaitable[None]]


@attrs.define(eq=False)
class Server:
    """What listens."""

    port: int
    connections: list[Connection] = attrs.field(factory=list)


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve each connection with ``handler``, then close it, until the block is left or ``LIMIT`` is reached."""

    async def handle(stream: trio.abc.Stream) -> None:
        connection = Connection(stream, len(server.connections) + 1)
        server.connections.append(connection)
        try:
            await handler(connection)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            connection.gone.set()
        finally:
            await trio.aclose_forcefully(stream)

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            if tls is None:
                listeners = await nursery.start(trio.serve_tcp, handle, 0)
            else:
                listeners = await nursery.start(trio.serve_ssl_over_tcp, handle, 0, tls)
            inner = getattr(listeners[0], "transport_listener", listeners[0])
            server = Server(inner.socket.getsockname()[1])
            yield server
            nursery.cancel_scope.cancel()


def answering(*pieces: bytes) -> Handler:
    """Answer each request with the same bytes; keep the connection."""

    async def handler(connection: Connection) -> None:
        while await connection.request():
            await connection.send(*pieces)

    return handler


def proxying(port: int, seen: list[Received]) -> Handler:
    """A proxy that does nothing but ``CONNECT`` to a port of this machine, and notes what it was asked for."""

    async def handler(connection: Connection) -> None:
        asked = await connection.request()
        assert asked is not None
        seen.append(asked)
        await connection.send(b"HTTP/1.1 200 Connected\r\n\r\n")
        async with await trio.open_tcp_stream("127.0.0.1", port) as target, trio.open_nursery() as nursery:
            nursery.start_soon(_pump, target, connection.stream)
            await _pump(connection.stream, target)
            nursery.cancel_scope.cancel()

    return handler


async def _pump(source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
    while data := await source.receive_some(65536):
        await sink.send_all(data)


async def read_all(response: UpstreamResponse) -> bytes:
    """The rest of a body."""
    body = b""
    while piece := await response.receive():
        body += piece
    return body


def make_upstream(port: int, *, scheme: str = "http", **options: Any) -> Httpx2Upstream:
    """An upstream at a port of this machine."""
    return Httpx2Upstream(Httpx2Options(f"{scheme}://127.0.0.1:{port}/v1", **options))


def upstream_at(port: int, **options: Any) -> aclosing[Httpx2Upstream]:
    """One that is closed with the block."""
    return aclosing(make_upstream(port, **options))


async def fetch(upstream: Httpx2Upstream, request: UpstreamRequest = POST) -> bytes:
    """The whole body of the answer to a request."""
    async with aclosing(await upstream.open(request)) as response:
        return await read_all(response)


async def error_of(call: Callable[[], Awaitable[object]]) -> UpstreamError:
    """The error that a call must raise; its message is one line."""
    with pytest.raises(UpstreamError) as caught:
        await call()
    assert "\n" not in caught.value.message
    return caught.value


class Pieces:
    """A request body that arrives piece by piece; an exception among them is raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = iter((*pieces, b""))

    async def receive(self) -> bytes:
        """See ``BodySource``."""
        await trio.lowlevel.checkpoint()
        piece = next(self._pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece
