"""Takes a placeholder ``{}`` away from in front of the real arguments (spec, repairs, 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from pipeline.chunks import usable_index
from pipeline.items import Payload
from stages.call_entry import argument_entry, compact, is_custom, with_arguments
from stages.call_text import PLACEHOLDER, begins_object, is_blank, trimmed
from stages.repair_order import later_stages
from stages.repair_stage import CallRepair, CallStates, ChoiceRepair, RepairContext, RepairStage

__all__ = ["LeadingEmptyObject"]


@attrs.define(eq=False)
class _Call:
    kept: str = ""
    """The ``{}`` that is kept back."""
    is_decided: bool = False
    """Whether text has come that settles the matter."""


class _ChoicePlaceholders(CallRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._calls: CallStates[_Call] = CallStates(context, _Call)

    def repair_entry(self, entry: Payload) -> Payload:
        """Rows EO1 to EO4 and EO7."""
        function = entry.get("function")
        index = usable_index(entry.get("index"))
        call = None if index is None or is_custom(entry) or not isinstance(function, dict) else self._calls.of(index)
        if call is None or call.is_decided:
            return entry
        assert isinstance(function, dict)
        given = function.get("arguments")
        text = compact(given) if isinstance(given, (dict, list)) else given
        if not isinstance(text, str) or is_blank(text):
            return entry
        left = self._without_placeholder(index, call, text)
        return entry if left == text else with_arguments(entry, left)

    def _without_placeholder(self, index: int | None, call: _Call, text: str) -> str:
        if not call.kept and trimmed(text) == "{}":
            call.kept = text
            return ""
        call.is_decided = True
        kept, call.kept = call.kept, ""
        found = None if kept else PLACEHOLDER.match(text)
        if found or (kept and begins_object(text)):
            self.report(index, "strip-empty-object-prefix")
            return text[found.end() :] if found else text
        return kept + text

    def release(self) -> list[Payload]:
        """What rows EO5 and EO6 let go."""
        entries: list[Payload] = []
        for index in sorted(self._calls):
            call = self._calls[index]
            if call.kept:
                entries.append(argument_entry(index, call.kept))
                call.kept, call.is_decided = "", True
        return entries

    def drop(self) -> None:
        """Nothing of what is kept back is sent any more."""
        for call in self._calls.values():
            if call.kept:
                call.kept, call.is_decided = "", True


class LeadingEmptyObject(RepairStage):
    """Drops the {} that some proxies send in front of a call's real arguments.

    Seen at LiteLLM in front of Anthropic (https://github.com/BerriAI/litellm/issues/4537): such a call closes at once,
    and its tool runs without arguments. A genuine ``{}`` looks the same until more comes, so it is kept back until its
    choice finishes.

    Emits: chunks, edited where a ``{}`` is kept back or let go.

    Drops: a ``{}`` that is followed by another object. What is kept back when the stream fails.

    State: for each call whether its first text has come, and that text if it is ``{}``.

    On cancel: nothing to do.
    """

    name: ClassVar[str] = "leading_empty_object"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoicePlaceholders
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
