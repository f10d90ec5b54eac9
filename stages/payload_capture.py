"""Captures what was sent: one outcome for each request (spec, dispatch, section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from pipeline.chunks import error_of
from pipeline.completeness import Completeness
from pipeline.decode import reported_failure
from pipeline.errors import StreamFailure
from pipeline.items import Chunk, End, Item, StreamError
from pipeline.stage import RequestContext, Stage
from stages.aggregate import Aggregate, AggregateOptions

__all__ = ["PayloadCapture"]


class PayloadCapture(Stage):
    """Folds the stream into one response for the record of the request; passes everything on untouched.

    Emits: every item as it came. The outcome goes to ``Observer.payload_captured``, exactly once: at the first error,
    at the end, or, as ``response_stream_dropped``, when the request ends without either.

    Drops: nothing.

    State: the response so far, not the stream; and whether a call was ever confirmed (5.6).

    On cancel: the outcome is settled on the way out, without awaiting anything.
    """

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._aggregate = Aggregate(AggregateOptions.of_request(context.request))
        self._completeness = Completeness()
        self._evidence: dict[tuple[int, int], bool] = {}
        self._is_settled = False

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - the contract's signature
        """Idle unless the request is to be captured."""
        return not context.capture

    def feed(self, item: Item) -> Iterable[Item]:
        """Fold one item, and pass it on."""
        self._see(item)
        return (item,)

    def close(self) -> Iterable[Item]:
        """Settle at the end of the stream."""
        cut = self._completeness.cut() if self._aggregate.chunks else None
        self._settle_end() if cut is None else self._settle_failure(cut)
        return ()

    async def run(
        self,
        receive: trio.MemoryReceiveChannel[list[Any]],
        send: trio.MemorySendChannel[list[Any]],
    ) -> None:
        """Send each burst on before it is folded. Checkpoints; settles also when cancelled."""
        try:
            async for burst in receive:
                try:
                    await send.send(burst)
                finally:
                    for item in burst:
                        self._see(item)
            self.close()
        finally:
            self._settle(None, "response_stream_dropped")

    def _see(self, item: Item) -> None:
        if self._is_settled:
            return
        if isinstance(item, Chunk):
            error = error_of(item.payload)
            if error is not None:
                self._settle_failure(reported_failure(error, item.raw or b""))
                return
            self._aggregate.feed(item.payload)
            self._completeness.see(item.payload)
            for each in getattr(item,"evidence",()):
                self._evidence[each.choice_index, each.call_index] = each.complete
        elif isinstance(item, StreamError):
            self._settle_failure(item.failure)
        elif isinstance(item, End):
            self._settle_end()

    def _settle_end(self) -> None:
        if self._aggregate.chunks:
            self._settle(self._response(), None)
        else:
            self._settle(None, "empty_response_stream")

    def _settle_failure(self, failure: StreamFailure) -> None:
        response = self._response() if self._aggregate.chunks else None
        self._settle(response, f"aggregation_failed:{failure.code}: {failure.message}")

    def _response(self) -> dict[str, Any]:
        for (choice_index, call_index), complete in self._evidence.items():
            if not complete:
                self._aggregate.drop_call(choice_index, call_index)
        return self._aggregate.response()

    def _settle(self, response: dict[str, Any] | None, drop_reason: str | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            self.context.observer.payload_captured(response, drop_reason)
