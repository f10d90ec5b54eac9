"""Turns on the splitting of events that were joined by a single line end (spec, repairs, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pipeline.observer import Observer
from pipeline.plan import Plan
from pipeline.sse import MAX_FRAME_BYTES
from pipeline.stage import RequestContext, Stage
from stages.event_splitter import EventSplitter
from stages.repair_order import later_stages

__all__ = ["GluedEvents", "splitter_for"]


class GluedEvents(Stage):
    """Splits chunks that a server joined by one line feed where a blank line belongs.

    By the standard such chunks are one event, whose data is no JSON
    (https://github.com/anomalyco/opencode/issues/8282). They are told apart in front of the decoder, by whoever reads
    the upstream: see ``splitter_for``. The name in the order only turns it on; the stage is left out of each pipeline.

    Emits: nothing of its own.

    Drops: nothing.

    State: none; the splitter keeps the event that is not complete.

    On cancel: nothing to do.
    """

    precedes: ClassVar[Mapping[str, str]] = later_stages("glued_events")

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - the contract's signature
        """Always: the work is done in front of the decoder."""
        return True


def splitter_for(plan: Plan, observer: Observer, max_event_bytes: int = MAX_FRAME_BYTES) -> EventSplitter | None:
    """The splitter of one request, to stand in front of its decoder; none where the order does not ask for it.

    Args:
        plan: the order of stages.
        observer: the request's.
        max_event_bytes: the decoder's limit of one frame.
    """
    if any(issubclass(step.stage, GluedEvents) for step in plan.steps):
        return EventSplitter(observer, max_event_bytes)
    return None
