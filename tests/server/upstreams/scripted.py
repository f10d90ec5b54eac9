"""A server that does as it is told, byte by byte, on a real socket; bounded in time."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

__all__ = ["Peer", "ScriptedServer", "SeenRequest", "chunked", "scripted_server", "whole"]

LIMIT = 10
"""Seconds that a test may take; all of them take far less."""


@attrs.frozen
class SeenRequest:
    """A request as it was on the wire."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header."""
        return next((value for each, value in self.headers if each == name), None)


@attrs.define(eq=False)
class Peer:
    """The server's end of one connection."""

    stream: trio.abc.Stream
    socket: trio.socket.SocketType
    number: int
    buffer: bytearray = attrs.field(factory=bytearray)

    async def request(self) -> SeenRequest:
        """The next request, body and all; ``EOFError`` if the client closes instead, ``BrokenResourceError`` if it breaks off."""
        line, headers = await self.head()
        names = dict(headers)
        if names.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(await self._until(b"\r\n"), 16):
                body += await self._exactly(size + 2)
                body = body[:-2]
            await self._until(b"\r\n")
        else:
            body = await self._exactly(int(names.get(b"content-length", b"0")))
        return SeenRequest(line, headers, body)

    async def head(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The request line and the header lines only."""
        line, *rest = (await self._until(b"\r\n\r\n")).split(b"\r\n")
        return line, [(name, value) for name, _, value in (each.partition(b": ") for each in rest)]

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def gone(self) -> None:
        """Wait until the client closes or resets the connection."""
        await trio.lowlevel.checkpoint()
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass

    def reset(self) -> None:
        """Break the connection off with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def _until(self, mark: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        while (found := self.buffer.find(mark)) < 0:
            await self._more()
        taken = bytes(self.buffer[:found])
        del self.buffer[: found + len(mark)]
        return taken

    async def _exactly(self, size: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while len(self.buffer) < size:
            await self._more()
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        if not data:
            raise EOFError
        self.buffer += data


Handler = Callable[[Peer], Awaitable[None]]


@attrs.define(eq=False)
class ScriptedServer:
    """Runs a handler for each connection, and closes it behind it."""

    handler: Handler
    tls: ssl.SSLContext | None
    port: int = 0
    connections: int = 0
    requests: list[SeenRequest] = attrs.field(factory=list)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def handle(self, stream: trio.SocketStream) -> None:
        """One connection from its beginning to its end."""
        await trio.lowlevel.checkpoint()
        self.connections += 1
        wrapped: trio.abc.Stream = stream
        if self.tls is not None:
            wrapped = trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
        try:
            await self.handler(Peer(wrapped, stream.socket, self.connections))
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.socket.close()


@asynccontextmanager
async def scripted_server(
    handler: Handler, *, tls: ssl.SSLContext | None = None, limit: float = LIMIT
) -> AsyncIterator[ScriptedServer]:
    """A server on a port of its own; everything inside must be over within the limit."""
    server = ScriptedServer(handler, tls)
    with trio.fail_after(limit):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            server.port = listeners[0].socket.getsockname()[1]
            await nursery.start(trio.serve_listeners, server.handle, listeners)
            yield server
            nursery.cancel_scope.cancel()


def whole(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with its length."""
    lines = [b"HTTP/1.1 " + status, *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*pieces: bytes, headers: tuple[bytes, ...] = (), end: bytes = b"0\r\n\r\n") -> bytes:
    """A response in chunked coding."""
    head = b"\r\n".join([b"HTTP/1.1 200 OK", *headers, b"transfer-encoding: chunked"]) + b"\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + end
