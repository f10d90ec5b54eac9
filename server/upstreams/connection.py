"""One HTTP/1.1 connection to an upstream: one request and its response at a time."""

from __future__ import annotations

from typing import Final

import trio

from pipeline.errors import StreamFailure
from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.base import BodySource
from server.upstreams.request_head import LAST_CHUNK, encode_chunk
from server.upstreams.response_parser import ResponseParser
from server.upstreams.streams import ByteStream

__all__ = ["Connection"]

_SMALL_BODY_BYTES: Final = 64 * 1024
"""What goes out in one piece before the answer is waited for; any system's buffers hold about as much."""
_SMALL_READ_BYTES: Final = 8 * 1024
"""What a read asks for where the one before it got less: to make room for much costs more than to read a little."""
_LAST_READS: Final = 2
"""How often a response that is to be closed is read from once more."""
_LAST_READ_BYTES: Final = 64 * 1024


class Connection:
    """Requests go out and responses come in, in turn.

    Args:
        stream: a connected stream; owned from here on.
        read_bytes: the most that one read takes.
    """

    def __init__(self, stream: ByteStream, read_bytes: int) -> None:
        self._stream = stream
        self._read_bytes = read_bytes
        self._small_read_bytes = min(_SMALL_READ_BYTES, read_bytes)
        self._is_behind = False
        """Whether the last read found more than a little: there is likely to be more."""
        self._parser = ResponseParser()
        self._requests = 0
        self._is_sent = False

    @property
    def is_stale(self) -> bool:
        """Whether this was not the connection's first request, and no byte has come in answer to it.

        It tells a connection that the server closed while it was idle from a server that does not answer.
        """
        return self._requests > 1 and not self._parser.has_begun

    async def exchange(self, head: bytes, body: bytes | BodySource) -> ResponseParser:
        """Send a request and wait for status and headers of its response.

        A long body is sent while the answer is already waited for; once that has come, the rest of the body is not
        sent, and the connection not used again. A body that cannot be sent is no failure as long as there is an
        answer. Checkpoints. After a cancellation the connection can only be closed.

        Raises:
            UpstreamError: the connection broke, or what came is not HTTP.
            ClientError: the body's source broke off.
        """
        self._parser = ResponseParser(bodiless=head.startswith(b"HEAD "))
        self._requests += 1
        self._is_sent = False
        if isinstance(body, bytes) and len(body) <= _SMALL_BODY_BYTES:
            await self._send(head, body)
            await self._receive_head()
        else:
            await self._send_while_receiving(head, body)
        return self._parser

    async def receive(self) -> bytes:
        """What one read gave of the body, ``b""`` at its end and ever after. Checkpoints; cancellation loses nothing.

        Raises:
            UpstreamError: the connection broke, or what came is not HTTP.
        """
        parser = self._parser
        if parser.has_news():
            await trio.lowlevel.checkpoint()
            return parser.take_body()
        while True:
            await self._read()
            if parser.has_news():
                return parser.take_body()

    def finish(self) -> bool:
        """Whether the connection can be used for another request. Never waits.

        A reader of events stops at the last one, and the end of the body behind it, a few bytes, may have arrived but
        not been read: so what is there already is read.
        """
        try:
            for _ in range(_LAST_READS):
                if self._parser.done or self._parser.failure is not None:
                    break
                self._parser.feed(self._stream.receive_nowait(_LAST_READ_BYTES))
        except (trio.WouldBlock, trio.BrokenResourceError):
            return False
        return self._is_sent and self._parser.reusable

    def is_quiet(self) -> bool:
        """Whether an idle connection is still open, and the server has sent nothing unasked. Never waits."""
        try:
            self._stream.receive_nowait(_LAST_READ_BYTES)
        except trio.WouldBlock:
            return True
        except trio.BrokenResourceError:
            return False
        return False

    def close(self) -> None:
        """Close at once. Idempotent."""
        self._stream.close()

    async def _send_while_receiving(self, head: bytes, body: bytes | BodySource) -> None:
        failure: StreamFailure | None = None

        async def send() -> None:
            nonlocal failure
            try:
                await self._send(head, body)
            except StreamFailure as error:
                failure = error
                nursery.cancel_scope.cancel()
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            try:
                await self._receive_head()
            except UpstreamError as error:
                failure = failure or error
            nursery.cancel_scope.cancel()
        if failure is not None and not self._parser.head_done:
            raise failure

    async def _send(self, head: bytes, body: bytes | BodySource) -> None:
        """Send the request. If the connection breaks the answer may have come all the same, so that is no failure."""
        try:
            if isinstance(body, bytes):
                await self._stream.send_all(head + body)
            else:
                await self._stream.send_all(head)
                while piece := await body.receive():
                    await self._stream.send_all(encode_chunk(piece))
                await self._stream.send_all(LAST_CHUNK)
            self._is_sent = True
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()

    async def _receive_head(self) -> None:
        parser = self._parser
        while True:
            await self._read()
            if parser.head_done:
                return
            if parser.failure is not None:
                raise parser.failure

    async def _read(self) -> None:
        try:
            data = await self._stream.receive_some(self._read_bytes if self._is_behind else self._small_read_bytes)
        except trio.BrokenResourceError as error:
            reason = str(error).removeprefix("socket connection broken: ")
            raise UpstreamError(UpstreamErrorKind.RESET, f"the connection to the upstream broke: {reason}") from error
        self._is_behind = len(data) >= self._small_read_bytes
        self._parser.feed(data)
