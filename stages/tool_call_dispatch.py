"""Announces each tool call the moment its arguments are complete (spec, dispatch, 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from pipeline.chunks import MAX_CHOICES, choices_of, delta_of, finish_reason_of, reports_error, usable_index
from pipeline.items import Chunk, End, Item, Payload, SideEvent, StreamError
from pipeline.runs import Run
from pipeline.stage import RequestContext, Stage
from stages.refusals import Refusal
from stages.tool_call_assembly import CallBudget, ChoiceCalls

__all__ = ["ToolCallDispatch", "ToolCallDispatchOptions"]

_EVENT: Final = "tool_call_dispatch"


@attrs.frozen
class ToolCallDispatchOptions:
    """How much the stage keeps at most in one request."""

    max_argument_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=attrs.validators.ge(1))
    """The UTF-8 bytes of one call's text. A longer call is not dispatched."""
    max_open_calls: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    """The calls of one request, settled ones included. Those beyond are not dispatched."""


class ToolCallDispatch(Stage):
    """Announces each tool call, exactly once, the moment its arguments are complete JSON.

    Emits: ``tool_call_dispatch`` events, in front of the chunk that completed the call.

    Drops: nothing; every item goes on as it came.

    State: identity and text of each open call, a few words of each settled one; bounded by ``max_argument_bytes``
    and ``max_open_calls``. It ends with the stream: after ``[DONE]`` or an upstream's error nothing is announced.

    On cancel: open calls are forgotten.
    """

    Options: ClassVar[type[Any]] = ToolCallDispatchOptions
    events: ClassVar[frozenset[str]] = frozenset({_EVENT})
    precedes: ClassVar[Mapping[str, str]] = {
        "reasoning_dispatch": "the tool events of a chunk go before its reasoning events",
    }

    def __init__(self, options: ToolCallDispatchOptions, context: RequestContext) -> None:
        super().__init__(options, context)
        self._observer = context.observer
        self._budget = CallBudget(_EVENT, context.observer, options.max_argument_bytes, options.max_open_calls)
        self._choices: dict[int, ChoiceCalls] = {}
        self._finished: set[int] = set()
        self._is_over = False
        self._has_keyless_choice = False

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - no option matters
        """Whether nobody asked for the event."""
        return _EVENT not in context.events

    def wakes_for(self, item: Item) -> bool:
        """Sleep until there is a call; after an error nothing is announced."""
        if not isinstance(item, Chunk):
            return isinstance(item, StreamError)
        if item.shape is not None:
            return item.shape.fragment is not None
        payload = item.payload
        choices = choices_of(payload)
        for choice in choices:
            delta = delta_of(choice)
            if delta is not None and delta.get("tool_calls"):
                return True
        if reports_error(payload):
            return True
        for choice in choices:
            if isinstance(choice, dict) and choice.get("finish_reason"):
                self._note_finish(usable_index(choice.get("index", 0)), finish_reason_of(choice))
        return False

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take chunks without a call, and fragments of an open one up to the first that may settle it."""
        taken = len(run.chunks)
        if run.shape.fragment is not None and not self._is_over:
            calls = self._choices.get(0)
            taken = calls.feed_run(run) if calls else 0
        out += run.chunks[:taken]
        return taken

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the events that a chunk brings about, then the item itself."""
        if not isinstance(item, Chunk):
            if isinstance(item, (StreamError, End)):
                self._end()
            return (item,)
        payload = item.payload
        if reports_error(payload):
            self._end()
        choices = payload.get("choices")
        if self._is_over or not isinstance(choices, list):
            return (item,)
        events: list[Payload] = []
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            fragments = delta.get("tool_calls") if isinstance(delta, dict) else None
            if fragments or choice.get("finish_reason"):
                events += self._feed_choice(choice, fragments)
        return (*(SideEvent(_EVENT, event, item) for event in events), item) if events else (item,)

    def close(self) -> Iterable[Item]:
        """Refuse what is open: an end without a finish reason promises nothing."""
        self._end()
        return ()

    def _end(self) -> None:
        self._is_over = True
        for index in sorted(self._choices):
            self._choices[index].abandon()
        self._choices.clear()

    def _feed_choice(self, choice: Payload, fragments: Any) -> list[Payload]:
        """A choice's fragments, then its finish reason (spec, dispatch, 2.4, step 4)."""
        index = usable_index(choice.get("index", 0))
        if index is None:
            if fragments and isinstance(fragments, (list, dict)) and not self._has_keyless_choice:
                self._has_keyless_choice = True
                self._observer.call_refused(None, None, Refusal.NO_INDEX, None)  # no repair numbers choices
            return []
        calls = self._choices.get(index)
        if calls is None:
            if len(self._choices) >= MAX_CHOICES:
                return []
            calls = self._choices[index] = ChoiceCalls(index, self._budget)
        events = calls.feed(fragments)
        reason = finish_reason_of(choice)
        if reason is None:
            if events:
                self._told(events)
            return events
        events += calls.finish(reason)
        self._told(events)
        self._note_finish(index, reason)
        return events

    def _note_finish(self, index: int | None, reason: str | None) -> None:
        """Tell of the first finish of a choice."""
        if index is None or reason is None or index in self._finished or len(self._finished) >= MAX_CHOICES:
            return
        self._finished.add(index)
        self._observer.choice_finished(index, reason)

    def _told(self, events: list[Payload]) -> None:
        for _ in events:
            self._observer.event_sent(_EVENT)
