"""The source of one request's pipeline: an upstream's response, decoded, timed and bounded."""

from __future__ import annotations

import math

import attrs
import structlog
import trio

from pipeline.decode import ItemDecoder
from pipeline.errors import StageFailed, StreamFailure
from pipeline.items import Chunk, Item, StreamError
from server.errors import ShuttingDown, UpstreamError, UpstreamErrorKind
from server.exchange import Exchange
from server.upstreams.base import UpstreamResponse

__all__ = ["Deadlines", "UpstreamSource", "read_within"]

_log = structlog.get_logger("callahead")


@attrs.define(eq=False)
class Deadlines:
    """The three limits on an upstream that talks too slowly; each in seconds, 0 = no limit.

    The clock of ``first_chunk_timeout`` and ``total_timeout`` starts with the object, that of ``idle_timeout`` with
    each frame; it does not run before the first. Limits are applied around reads only: a client that reads slowly
    costs the upstream nothing.
    """

    first_chunk_timeout: float = 0.0
    idle_timeout: float = 0.0
    total_timeout: float = 0.0
    started: float = attrs.field(factory=trio.current_time)
    waits_for_first_chunk: bool = True
    last_frame: float | None = None

    def next(self) -> tuple[float, UpstreamErrorKind]:
        """When to give up waiting, in Trio's time, and why that would be."""
        total = self.started + self.total_timeout if self.total_timeout else math.inf
        deadline, kind = total, UpstreamErrorKind.TOTAL_TIMEOUT
        if self.waits_for_first_chunk and self.first_chunk_timeout:
            first = self.started + self.first_chunk_timeout
            if first < deadline:
                deadline, kind = first, UpstreamErrorKind.FIRST_CHUNK_TIMEOUT
        if self.last_frame is not None and self.idle_timeout:
            idle = self.last_frame + self.idle_timeout
            if idle < deadline:
                deadline, kind = idle, UpstreamErrorKind.IDLE_TIMEOUT
        return deadline, kind

    def expired(self, kind: UpstreamErrorKind) -> UpstreamError:
        """The error for a limit that was reached."""
        match kind:
            case UpstreamErrorKind.FIRST_CHUNK_TIMEOUT:
                what = f"no chunk within upstream.first_chunk_timeout = {self.first_chunk_timeout:g} s"
            case UpstreamErrorKind.IDLE_TIMEOUT:
                what = f"silence for upstream.idle_timeout = {self.idle_timeout:g} s"
            case _:
                what = f"no end within upstream.total_timeout = {self.total_timeout:g} s"
        return UpstreamError(kind, f"the upstream stalled: {what}")


async def read_within(response: UpstreamResponse, deadlines: Deadlines) -> bytes:
    """``response.receive()`` within the limits. Checkpoints.

    Raises:
        UpstreamError: as ``receive``, or a limit was reached.
    """
    deadline, kind = deadlines.next()
    if deadline == math.inf:
        return await response.receive()
    with trio.CancelScope(deadline=deadline):
        return await response.receive()
    raise deadlines.expired(kind)


class UpstreamSource:
    """Callable as ``pipeline.assembly.Source``: one read of the upstream is one burst.

    It closes the response when the stream has ended, before whoever reads the pipeline has taken the last burst. Any
    failure becomes a ``StreamError`` behind what had arrived.

    Args:
        response: an event stream.
        first: what was already read of it.
        exchange: told of chunks.
        deadlines: the limits on waiting.
        max_frame_bytes: the limit of one frame.
    """

    def __init__(
        self,
        response: UpstreamResponse,
        first: bytes,
        exchange: Exchange,
        deadlines: Deadlines,
        max_frame_bytes: int,
    ) -> None:
        self._response = response
        self._first = first
        self._exchange = exchange
        self._deadlines = deadlines
        self._decoder = ItemDecoder(max_frame_bytes)
        self._has_news = False
        self._scope = trio.CancelScope()

    def stop(self) -> None:
        """End the stream with an error frame: the gateway is shutting down."""
        self._scope.cancel()

    async def __call__(self, send: trio.MemorySendChannel[list[Item]]) -> None:
        """Read to the end. Checkpoints."""
        try:
            with self._scope:
                await self._read_all(send)
            last = self._decoder.close()
            if self._scope.cancelled_caught:
                last.append(StreamError(ShuttingDown()))
        except trio.BrokenResourceError:
            raise
        except StreamFailure as failure:
            last = [*self._decoder.close(), StreamError(failure)]
        except Exception as error:  # noqa: BLE001 - a bug of ours must not look like a clean end
            _log.exception("source failed", request_id=self._exchange.request_id)
            last = [StreamError(StageFailed("source", error))]
        await self._response.aclose()
        if last:
            self._note(last)
            await send.send(last)

    async def _read_all(self, send: trio.MemorySendChannel[list[Item]]) -> None:  # noqa: ASYNC910 - each read is one
        feed, response, deadlines = self._decoder.feed, self._response, self._deadlines
        data = self._first or await read_within(response, deadlines)
        while data:
            items = feed(data)
            if items:
                self._note(items)
                try:
                    send.send_nowait(items)
                except trio.WouldBlock:
                    await send.send(items)
            if self._decoder.ended:
                return  # noqa: ASYNC910 - see above
            if self._has_news:  # silence begins when there is nothing more to send, however slow the client was
                self._has_news = False
                deadlines.last_frame = trio.current_time()
            data = await read_within(response, deadlines)

    def _note(self, items: list[Item]) -> None:
        chunks = sum(type(item) is Chunk for item in items)
        self._has_news = True
        if chunks:
            self._deadlines.waits_for_first_chunk = False
            self._exchange.chunks_received(chunks)
