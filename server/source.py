"""The source of one request's pipeline: an upstream's response, decoded, timed and bounded."""

from __future__ import annotations

import attrs
import structlog
import trio

from pipeline.decode import ItemDecoder
from pipeline.errors import StageFailed, StreamFailure
from pipeline.items import Chunk, Item, StreamError
from server.burst_gate import LARGE_BURST_BYTES
from server.deadlines import Deadlines, read_within
from server.demand import Demand
from server.errors import ShuttingDown
from server.event_stream import begins_as_json, begins_with_nothing, stream_of_whole
from server.exchange import Exchange
from server.upstreams.base import UpstreamResponse

__all__ = ["UpstreamSource"]

_log = structlog.get_logger("callahead")


@attrs.define(eq=False)
class UpstreamSource:
    """Callable as ``pipeline.assembly.Source``: one read of the upstream is one burst.

    It closes the response when the stream has ended, before whoever reads the pipeline has taken the last burst. Any
    failure becomes a ``StreamError`` behind what had arrived.
    """

    _response: UpstreamResponse
    """An event stream."""
    _first: bytes
    """What was already read of it."""
    _exchange: Exchange
    """Told of chunks."""
    _deadlines: Deadlines
    """The limits on waiting."""
    _decoder: ItemDecoder
    """A fresh one."""
    _demand: Demand
    """What it waits for between two bursts."""
    _has_news: bool = attrs.field(default=False, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

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
        response, deadlines = self._response, self._deadlines
        data = self._first or await read_within(response, deadlines)
        while begins_with_nothing(data) and (more := await read_within(response, deadlines)):
            data += more
        if begins_as_json(data):
            data = await stream_of_whole(response, deadlines, data, "text/event-stream")
        demand = self._demand
        while data:
            if len(data) < LARGE_BURST_BYTES:
                if demand.is_busy:
                    await demand.wait_until_wanted()
                waiting = self._pass_on(data, send)
            else:
                await demand.wait()
                async with demand.gate:
                    waiting = self._pass_on(data, send)
                    if not waiting:
                        await demand.wait_until_taken()
            if waiting:
                await send.send(waiting)
                waiting = []  # what waits for the next read holds nothing
            if self._decoder.ended:
                return  # noqa: ASYNC910 - see above
            if self._has_news:
                self._has_news = False
                deadlines.silence = 0.0
            data = await read_within(response, deadlines)

    def _pass_on(self, data: bytes, send: trio.MemorySendChannel[list[Item]]) -> list[Item]:
        """Decode what was read and send it; gives the burst back where there is no room yet."""
        items = self._decoder.feed(data)
        if items:
            self._note(items)
            self._demand.sent()
            try:
                send.send_nowait(items)
            except trio.WouldBlock:
                return items
        return []

    def _note(self, items: list[Item]) -> None:
        chunks = list(map(type, items)).count(Chunk)
        self._has_news = True
        if chunks:
            self._deadlines.waits_for_first_chunk = False
            self._exchange.chunks_received(chunks)
