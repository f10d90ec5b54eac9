"""The source of one request's pipeline: an upstream's response, decoded, timed and bounded."""

from __future__ import annotations

import structlog
import trio

from pipeline.decode import ItemDecoder
from pipeline.errors import StageFailed, StreamFailure
from pipeline.items import Chunk, Item, StreamError
from server.deadlines import Deadlines, read_within
from server.demand import Demand
from server.errors import ShuttingDown
from server.event_stream import begins_as_json, begins_with_nothing, stream_of_whole
from server.exchange import Exchange
from server.upstreams.base import UpstreamResponse

__all__ = ["UpstreamSource"]

_log = structlog.get_logger("callahead")


class UpstreamSource:
    """Callable as ``pipeline.assembly.Source``: one read of the upstream is one burst.

    It closes the response when the stream has ended, before whoever reads the pipeline has taken the last burst. Any
    failure becomes a ``StreamError`` behind what had arrived.

    Args:
        response: an event stream.
        first: what was already read of it.
        exchange: told of chunks.
        deadlines: the limits on waiting.
        decoder: a fresh one.
    """

    def __init__(
        self,
        response: UpstreamResponse,
        first: bytes,
        exchange: Exchange,
        deadlines: Deadlines,
        decoder: ItemDecoder,
    ) -> None:
        self._response = response
        self._first = first
        self._exchange = exchange
        self._deadlines = deadlines
        self._decoder = decoder
        self.demand: Demand | None = None
        """Set it to have the source wait for the client."""
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
        while begins_with_nothing(data) and (more := await read_within(response, deadlines)):
            data += more
        if begins_as_json(data):
            data = await stream_of_whole(response, deadlines, data, "text/event-stream")
        demand, has_sent = self.demand, False
        while data:
            if has_sent and demand is not None:
                await demand.wait()
            items = feed(data)
            if items:
                has_sent = True
                self._note(items)
                try:
                    send.send_nowait(items)
                except trio.WouldBlock:
                    await send.send(items)
                items = []  # what waits for the next read holds nothing
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
