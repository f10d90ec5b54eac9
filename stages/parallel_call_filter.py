"""Keeps one tool call where the client asked for no parallel ones (spec, dispatch, 2.4, step 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pipeline.chunks import choices_of, delta_of, exact_payload, replace_choices, replace_delta
from pipeline.items import Chunk, Item
from pipeline.runs import Run
from pipeline.stage import RequestContext, Stage

__all__ = ["ParallelCallFilter"]


class ParallelCallFilter(Stage):
    """Keeps only the tool call with index 0 where the request says parallel_tool_calls: false.

    The test is "index 0", not "first call seen"; an absent index counts as 0, and what is no object stays.

    Emits: nothing of its own.

    Drops: fragments of other calls, and a ``tool_calls`` list that loses its last one; never a chunk.

    State: none.

    On cancel: nothing to do.
    """

    precedes: ClassVar[Mapping[str, str]] = {
        "empty_skip": "a chunk whose only calls are filtered out is empty",
        "tool_call_dispatch": "a call that the client never sees must not be announced",
    }

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - it has no options
        """Whether parallel calls are allowed, as they are unless the request forbids them."""
        return context.request.get("parallel_tool_calls") is not False

    def wakes_for(self, item: Item) -> bool:
        """Sleep until there is another call."""
        if not isinstance(item, Chunk):
            return False
        if item.shape is not None:
            return item.shape.fragment is not None and not _is_kept(item.shape.fragment)
        return any(map(_has_parallel_calls, choices_of(item.payload)))

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take chunks without a call, or of the one that is kept."""
        if run.shape.fragment is not None and not _is_kept(run.shape.fragment):
            return 0
        out += run.chunks
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk."""
        if not isinstance(item, Chunk) or not any(map(_has_parallel_calls, choices_of(item.payload))):
            return (item,)
        payload = exact_payload(item)
        choices = [_filtered(choice) if _has_parallel_calls(choice) else choice for choice in payload["choices"]]
        return (item.edited(replace_choices(payload, choices)),)


def _has_parallel_calls(choice: Any) -> bool:
    delta = delta_of(choice)
    calls = delta.get("tool_calls") if delta is not None else None
    return isinstance(calls, list) and not all(map(_is_kept, calls))


def _is_kept(call: Any) -> bool:
    return not isinstance(call, dict) or call.get("index", 0) == 0


def _filtered(choice: dict[str, Any]) -> dict[str, Any]:
    delta = dict(choice["delta"])
    delta["tool_calls"] = [call for call in delta["tool_calls"] if _is_kept(call)]
    if not delta["tool_calls"]:
        del delta["tool_calls"]
    return replace_delta(choice, delta)
