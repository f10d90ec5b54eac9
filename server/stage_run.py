"""A whole recorded stream through stages at once, one stage after the other, with what each of them changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from pipeline.decode import ItemDecoder
from pipeline.driver import outcome
from pipeline.items import Item, SideEvent
from pipeline.observer import Observer
from pipeline.plan import Plan
from pipeline.stage import Flow, RequestContext
from stages.glued_events import splitter_for

__all__ = ["Seen", "StageRun", "run_stages"]

_EVENT = "tool_call_dispatch"


class Seen(Observer):
    """What the stages of one stream said."""

    def __init__(self) -> None:
        self.dispatched = 0
        """The calls that were announced."""
        self.refused: Counter[str] = Counter()
        """The calls that were not, by reason."""
        self.quirks: dict[str, set[str]] = {}
        """What each repair mended, by the quirks' names."""
        self.calls: dict[str, set[tuple[int | None, int]]] = {}
        """The calls that each repair changed."""
        self.failed: dict[str, Exception] = {}
        """The stages that raised."""

    def call_dispatched(self, choice_index: int, call_index: int) -> None:  # noqa: ARG002 - the observer's signature
        """Count it."""
        self.dispatched += 1

    def call_refused(self, choice_index: int | None, call_index: int | None, reason: str, repair: str | None) -> None:  # noqa: ARG002 - the observer's signature
        """Count it."""
        self.refused[reason] += 1

    def call_repaired(self, stage: str, choice_index: int | None, call_index: int | None, repair: str) -> None:
        """Note the quirk and the call."""
        self.quirks.setdefault(stage, set()).add(repair)
        calls = self.calls.setdefault(stage, set())
        if call_index is not None:
            calls.add((choice_index, call_index))

    def stage_failed(self, stage: str, error: Exception) -> None:
        """Note it."""
        self.failed[stage] = error


@attrs.frozen
class StageRun:
    """What became of a stream."""

    decoded: list[Item]
    """What the stages were given."""
    items: list[Item]
    """What reaches the encoder."""
    changed: Mapping[str, int]
    """The frames that each stage changed, dropped or added; side events are none."""
    seen: Seen


def run_stages(plan: Plan, body: bytes, request: Mapping[str, Any]) -> StageRun:
    """Decode a body, and run its items through the stages of a plan, up to the encoder.

    A stage that raises is noted, and those behind it go on with what it gave before. Tool calls are announced if the
    plan can do it.
    """
    seen = Seen()
    context = RequestContext(request, plan.events & {_EVENT}, observer=seen)
    decoder = ItemDecoder(len(body) + 1, splitter_for(plan, seen, len(body) + 1))
    decoded: list[Item] = [*decoder.feed(body), *decoder.close()]
    items = decoded
    changed: dict[str, int] = {}
    for name, stage in plan.stages_for(context):
        if stage.gives is Flow.BYTES:
            break
        given, error = outcome(stage, items)
        if error is None and not stage.finished:
            rest, error = outcome(stage, None)
            given += rest
        if error is not None:
            seen.stage_failed(name, error)
        before, after = {id(item) for item in items}, {id(item) for item in given if not isinstance(item, SideEvent)}
        changed[name] = max(len(after - before), len(before - after))
        items = given
    return StageRun(decoded, items, changed, seen)
