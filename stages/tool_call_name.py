"""Joins a function name that comes in pieces (spec, repairs, 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from pipeline.chunks import (
    choices_of,
    delta_of,
    exact_payload,
    finish_reason_of,
    replace_choices,
    replace_delta,
    reports_error,
    usable_index,
)
from pipeline.items import Chunk, End, Item, Payload, StreamError, Verbatim
from pipeline.stage import RequestContext, Stage
from stages.call_entry import entry_name, entry_text, is_custom, without
from stages.call_text import is_blank
from stages.declared_tools import declared_names
from stages.repair_order import later_stages
from stages.repair_stage import MAX_CALLS

__all__ = ["ToolCallName", "ToolCallNameOptions"]


@attrs.frozen
class ToolCallNameOptions:
    """How long frames may be kept back."""

    max_held: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    """The frames that are kept back at most."""


@attrs.frozen(eq=False)
class _Place:
    """Where an entry is: the frame among those that are held, the choice and the entry in their lists."""

    frame: int
    choice: int
    entry: int


@attrs.define(eq=False)
class _Unsettled:
    """A call whose name may go on."""

    name: str
    places: list[_Place]
    """The entries that its pieces came in."""


class ToolCallName(Stage):
    """Joins a function name that comes in pieces, if the request declares the whole name and not the first piece.

    Seen at https://github.com/continuedev/continue/pull/5849 and https://github.com/openai/openai-agents-python/issues/326.

    Emits: frames in their order. From an undeclared name that begins a declared one until it is known whether it goes
    on, all frames are kept back.

    Drops: the ``name`` of the entries with the later pieces; never a frame.

    State: the frames that are kept back, at most ``max_held``; which calls have been judged.

    On cancel: what is kept back is forgotten.
    """

    Options: ClassVar[type[Any]] = ToolCallNameOptions
    precedes: ClassVar[Mapping[str, str]] = later_stages("tool_call_name")

    def __init__(self, options: ToolCallNameOptions, context: RequestContext) -> None:
        super().__init__(options, context)
        self._max_held = options.max_held
        self._declared = declared_names(context.request)
        self._judged: set[tuple[int, int]] = set()
        self._unsettled: dict[tuple[int, int], _Unsettled] = {}
        self._held: list[Item] = []
        self._names: list[tuple[_Place, str]] = []

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - no option matters
        """Whether the request declares no function."""
        return not declared_names(context.request)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give all frames up to the item, or none while a name is unsettled."""
        if _ends_waiting(item):
            self._unsettled.clear()
        elif isinstance(item, Chunk):
            self._look(item.payload)
        if not (self._unsettled or self._held or self._names):
            return (item,)
        self._held.append(item)
        if len(self._held) > self._max_held:
            self._unsettled.clear()
        return () if self._unsettled else self._release()

    def close(self) -> Iterable[Item]:
        """Give all that is kept back, as it came."""
        return self._release()

    def _look(self, payload: Payload) -> None:
        """Judge the entries of a chunk, which is to be the next frame that is held."""
        for position, choice in enumerate(choices_of(payload)):
            index = usable_index(choice.get("index", 0)) if isinstance(choice, dict) else None
            if index is None:
                continue
            entries = (delta_of(choice) or {}).get("tool_calls")
            for place, entry in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(entry, dict) and isinstance(entry.get("function"), dict) and not is_custom(entry):
                    self._judge(index, entry, _Place(len(self._held), position, place))
            if self._unsettled and finish_reason_of(choice) is not None:
                self._unsettled = {key: call for key, call in self._unsettled.items() if key[0] != index}

    def _judge(self, choice_index: int, entry: Payload, place: _Place) -> None:
        call_index = usable_index(entry.get("index"))
        if call_index is None:
            return
        key = (choice_index, call_index)
        name, has_text = entry_name(entry), not is_blank(entry_text(entry))
        call = self._unsettled.get(key)
        if call is not None:
            self._go_on(key, call, name, place, has_text=has_text)
        elif name and key not in self._judged and len(self._judged) < MAX_CALLS:
            self._judged.add(key)
            if not has_text and name not in self._declared and self._begins_declared(name):
                self._unsettled[key] = _Unsettled(name, [place])

    def _go_on(self, key: tuple[int, int], call: _Unsettled, name: str, place: _Place, *, has_text: bool) -> None:
        if not name:
            if has_text:
                del self._unsettled[key]  # NM4
            return  # NM5
        call.name += name
        call.places.append(place)
        if call.name in self._declared:  # NM1
            first, *others = call.places
            self._names += [(first, call.name), *((other, "") for other in others)]
            self.context.observer.call_repaired("tool_call_name", *key, "join-name-fragments")
            del self._unsettled[key]
        elif has_text or not self._begins_declared(call.name):
            del self._unsettled[key]  # NM3

    def _begins_declared(self, name: str) -> bool:
        return any(declared.startswith(name) for declared in self._declared)

    def _release(self) -> list[Item]:
        held, names = self._held, self._names
        self._held, self._names = [], []
        for place, name in names:
            chunk = held[place.frame]
            assert isinstance(chunk, Chunk)
            held[place.frame] = chunk.edited(_renamed(exact_payload(chunk), place, name))
        return held


def _ends_waiting(item: Item) -> bool:
    """Whether no name can go on behind this item (NM6)."""
    if isinstance(item, Chunk):
        return reports_error(item.payload)
    return isinstance(item, (End, StreamError)) or (isinstance(item, Verbatim) and bool(item.frame.data))


def _renamed(payload: Payload, place: _Place, name: str) -> Payload:
    """The payload with another name in one entry, or with none."""
    choices = list(choices_of(payload))
    choice = choices[place.choice]
    entries = list(choice["delta"]["tool_calls"])
    entry = entries[place.entry]
    function = {**entry["function"], "name": name} if name else without(entry["function"], "name")
    entries[place.entry] = {**entry, "function": function}
    choices[place.choice] = replace_delta(choice, {**choice["delta"], "tool_calls": entries})
    return replace_choices(payload, choices)
