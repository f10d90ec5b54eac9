"""Captures what was sent: one outcome for each request (spec, dispatch, section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipeline.chunks import error_of, reports_error
from pipeline.decode import reported_failure
from pipeline.errors import StreamFailure
from pipeline.items import Chunk, End, Evidence, Item, Payload, StreamError
from pipeline.runs import Run, runs_in
from pipeline.stage import RequestContext
from pipeline.watching import WatchingStage
from stages.aggregate import Aggregate, AggregateOptions

__all__ = ["PayloadCapture"]


class PayloadCapture(WatchingStage):
    """Folds the stream into one response for the record of the request; passes everything on untouched.

    Emits: every item as it came. The outcome goes to ``Observer.payload_captured``, exactly once: at the first error,
    at the end, or, as ``response_stream_dropped``, when the request ends without either.

    Drops: nothing.

    State: the response so far, not the stream; and of which calls it is not known that they are calls (5.6).

    On cancel: the outcome is settled on the way out, without awaiting anything.
    """

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._aggregate = Aggregate(AggregateOptions.of_request(context.request))
        self._unconfirmed: set[tuple[int, int]] = set()
        self._is_settled = False

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - the contract's signature
        """Idle unless the request is to be captured."""
        return not context.capture

    def watch(self, burst: list[Item]) -> None:
        """Fold a burst."""
        self._see(burst)

    def end(self) -> None:
        """Settle at the end of the stream."""
        self._see(None)

    def leave(self) -> None:
        """Settle where nothing else has."""
        self._settle(None, "response_stream_dropped")

    def _see(self, items: list[Item] | None) -> None:
        """Fold items; none is the end of the source. A bug here is the record's, not the client's."""
        if self._is_settled:
            return
        try:
            if items is None:
                self._settle_close()
            else:
                self._fold(items)
        except Exception as error:  # noqa: BLE001 - the reason says what it was
            self._settle(None, f"aggregation_failed:{type(error).__name__}: {error}")

    def _fold(self, burst: list[Item]) -> None:
        for item in runs_in(burst):
            if type(item) is Run:
                self._aggregate.feed_run(item)
            elif type(item) is Chunk:
                if reports_error(item.payload):
                    self._settle_failure(reported_failure(error_of(item.payload), item.raw or b""))
                    return
                self._aggregate.feed(item.payload)
                if item.evidence:
                    self._weigh(item.evidence)
            elif isinstance(item, StreamError):
                self._settle_failure(item.failure)
                return
            elif isinstance(item, End):
                self._settle_end()
                return

    def _weigh(self, evidence: Iterable[Evidence]) -> None:
        for each in evidence:
            call = each.choice_index, each.call_index
            self._unconfirmed.discard(call) if each.complete else self._unconfirmed.add(call)

    def _settle_close(self) -> None:
        cut = self._aggregate.cut() if self._aggregate.chunks else None
        if cut is None:
            self._settle_end()
        else:
            self._settle_failure(cut)

    def _settle_end(self) -> None:
        reason = None if self._aggregate.chunks else "empty_response_stream"
        self._settle(self._response(), reason)

    def _settle_failure(self, failure: StreamFailure) -> None:
        self._settle(self._response(), f"aggregation_failed:{failure.code}: {failure.message}")

    def _response(self) -> Payload | None:
        """The response so far; none if nothing came."""
        for choice_index, call_index in self._unconfirmed:
            self._aggregate.drop_call(choice_index, call_index)
        return self._aggregate.response() if self._aggregate.chunks else None

    def _settle(self, response: Payload | None, drop_reason: str | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            self.context.observer.payload_captured(response, drop_reason)
