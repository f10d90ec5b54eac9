"""What the repair stages share (spec, repairs, 2): a state for each choice, edits that leave the rest alone, reports.

A subclass names its ``ChoiceRepair``; the rules are there. ``RepairStage`` runs it over the choices of each chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import attrs

from pipeline.chunks import (
    MAX_CHOICES,
    delta_of,
    encode_json,
    exact_payload,
    finish_reason_of,
    replace_choices,
    replace_delta,
    reports_error,
    usable_index,
)
from pipeline.items import Chunk, End, Item, Payload, StreamError
from pipeline.observer import Observer
from pipeline.stage import RequestContext, Stage
from stages.call_entry import without
from stages.made_up_chunk import made_up_chunk, with_entries

__all__ = ["MAX_CALLS", "CallRepair", "CallStates", "ChoiceRepair", "RepairContext", "RepairStage"]

MAX_CALLS: Final = 1024
"""The calls of one request that a repair tells apart; the dispatcher's default limit. It leaves the rest alone."""

StateT = TypeVar("StateT")


@attrs.define(eq=False)
class RepairContext:
    """What the choices of one request share in one stage."""

    stage: str
    options: Any
    request: Mapping[str, Any]
    observer: Observer
    calls: int = 0
    """Calls so far."""


class CallStates(dict[int, StateT], Generic[StateT]):
    """The state of each call of one choice by its index; the request has at most ``MAX_CALLS``."""

    def __init__(self, context: RepairContext, new: type[StateT]) -> None:
        self._context = context
        self._new = new

    def of(self, index: int) -> StateT | None:
        """The state of a call, made at its first use; none where there are too many."""
        state = self.get(index)
        if state is None and self._context.calls < MAX_CALLS:
            self._context.calls += 1
            state = self[index] = self._new()
        return state


class ChoiceRepair:
    """Repairs one choice of one request; never sees another one.

    Args:
        index: the choice's own.
        context: shared with the other choices.
    """

    def __init__(self, index: int, context: RepairContext) -> None:
        self.index = index
        self.context = context
        self.options = context.options
        self.is_over = False
        """Whether nothing of the choice can need a repair any more."""
        self._reported: set[tuple[int | None, str]] = set()

    def repair(self, choice: Payload) -> Payload:
        """The choice of one chunk, the same object where it needs no repair."""
        raise NotImplementedError

    def release(self) -> list[Payload]:
        """The entries made of all that is kept back: the stream has ended, the choice has not finished."""
        return []

    def drop(self) -> None:
        """Forget what is kept back: the stream has failed."""

    def report(self, call_index: int | None, repair: str) -> None:
        """Tell the observer of a repair, once for each call."""
        if (call_index, repair) not in self._reported:
            self._reported.add((call_index, repair))
            self.context.observer.call_repaired(self.context.stage, self.index, call_index, repair)


class CallRepair(ChoiceRepair):
    """Repairs a choice entry by entry. What it keeps back of a call goes out with the choice's finish."""

    def repair(self, choice: Payload) -> Payload:
        """The choice with its entries repaired, then with what its finish lets go."""
        delta, repaired = delta_of(choice), choice
        entries = delta.get("tool_calls") if delta else None
        if delta and isinstance(entries, list) and entries:
            pairs = [(self.repair_entry(entry) if isinstance(entry, dict) else entry, entry) for entry in entries]
            if any(new is not old for new, old in pairs):
                kept = [new for new, old in pairs if new is not None or old is None]
                calls_gone = without(delta, "tool_calls")
                repaired = replace_delta(choice, {**delta, "tool_calls": kept} if kept else calls_gone)
        reason = finish_reason_of(choice)
        if reason is not None:
            repaired = with_entries(repaired, self.finish(reason))
            if repaired is not choice and encode_json(repaired) == encode_json(choice):
                return choice  # what was kept back went out again at once
        return repaired

    def repair_entry(self, entry: Payload) -> Payload | None:
        """The entry, the same object where it needs no repair; none where it is taken out."""
        raise NotImplementedError

    def finish(self, reason: str) -> list[Payload]:  # noqa: ARG002 - for subclasses
        """The entries made of what a finish reason lets go, in ascending index."""
        return self.release()


class RepairStage(Stage):
    """Runs a ``ChoiceRepair`` over each choice that has a usable index.

    Emits: chunks, edited where a repair applies; the same objects elsewhere. In front of ``[DONE]`` one made-up chunk
    for each choice that never finished and of which something is kept back.

    Drops: what is kept back when the stream fails or ends without ``[DONE]``.

    State: that of at most ``pipeline.chunks.MAX_CHOICES`` choices and ``MAX_CALLS`` calls.

    On cancel: nothing to do.
    """

    name: ClassVar[str]
    """The stage's own name, for reports."""
    choice_repair: ClassVar[type[ChoiceRepair]]
    """What is run for each choice."""

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._shared = RepairContext(self.name, options, context.request, context.observer)
        self._choices: dict[int, ChoiceRepair] = {}
        self._last: Payload = {}

    def concerns(self, choice: Any) -> bool:
        """Whether there can be anything to do; asked of every choice of every chunk, so it must be quick."""
        if not isinstance(choice, dict):
            return False
        delta = choice.get("delta")
        return bool(choice.get("finish_reason") or (isinstance(delta, dict) and delta.get("tool_calls")))

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk."""
        if isinstance(item, Chunk):
            return (self._repaired(item),)
        if isinstance(item, End):
            return (*self._made_up(), item)
        if isinstance(item, StreamError):
            self._drop()
        return (item,)

    def _repaired(self, chunk: Chunk) -> Chunk:
        payload = chunk.payload
        if reports_error(payload):
            self._drop()
            return chunk
        self._last = payload
        choices = payload.get("choices")
        if not isinstance(choices, list) or not any(map(self.concerns, choices)):
            return chunk
        payload = exact_payload(chunk)
        choices = payload["choices"]
        edited: list[Any] | None = None
        for position, choice in enumerate(choices):
            repair = self._repair_of(choice) if isinstance(choice, dict) else None
            repaired = choice if repair is None else repair.repair(choice)
            if repaired is not choice:
                edited = list(choices) if edited is None else edited
                edited[position] = repaired
        return chunk if edited is None else chunk.edited(replace_choices(payload, edited))

    def _repair_of(self, choice: Payload) -> ChoiceRepair | None:
        index = usable_index(choice.get("index", 0))
        if index is None:
            return None
        repair = self._choices.get(index)
        if repair is None and len(self._choices) < MAX_CHOICES:
            repair = self._choices[index] = self.choice_repair(index, self._shared)
        return repair

    def _made_up(self) -> Iterable[Chunk]:
        for index in sorted(self._choices):
            if entries := self._choices[index].release():
                yield made_up_chunk(self._last, index, entries)

    def _drop(self) -> None:
        for repair in self._choices.values():
            repair.drop()
