"""Cuts stray text behind complete arguments (spec, repairs, 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from pipeline.chunks import usable_index
from pipeline.items import Payload
from stages.call_entry import entry_text, is_custom, with_arguments
from stages.call_text import TextScanner, TextState, trimmed
from stages.repair_order import later_stages
from stages.repair_stage import CallRepair, CallStates, ChoiceRepair, RepairContext, RepairStage

__all__ = ["TrimToolCallArguments"]


@attrs.define(eq=False)
class _Call:
    scanner: TextScanner = attrs.field(factory=TextScanner)
    is_trimmed: bool = False
    is_left_alone: bool = False


class _ChoiceTrim(CallRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._calls: CallStates[_Call] = CallStates(context, _Call)

    def repair_entry(self, entry: Payload) -> Payload:
        """Rows TR1 to TR7."""
        index = usable_index(entry.get("index"))
        text = "" if is_custom(entry) else entry_text(entry)
        call = self._calls.of(index) if text and index is not None else None
        if call is None or call.is_left_alone:
            return entry
        left = "" if call.is_trimmed else _cut(call, text)
        if left == text:
            return entry
        call.is_trimmed = True
        self.report(index, "trim-trailing-text")
        return with_arguments(entry, left)


def _cut(call: _Call, text: str) -> str:
    """The text as far as it belongs to the root."""
    scanner = call.scanner
    scanner.feed(text)
    if scanner.state is not TextState.JUNK:
        return text
    end = scanner.root_end or 0
    if scanner.root not in "{[" or scanner.has_empty_root or trimmed(text[end:])[0] in '{["':
        call.is_left_alone = True
        return text
    return text[:end]


class TrimToolCallArguments(RepairStage):
    """Cuts what follows the complete arguments of a call: a brace too many, a stray token, prose.

    Seen at https://github.com/pydantic/pydantic-ai/pull/5763 and https://github.com/nearai/ironclaw/pull/5951. Left
    alone are: another JSON value behind the first, which is a lost call and no trailing text; what follows ``{}``;
    scalars.

    Emits: nothing of its own.

    Drops: text of the model behind the root of a call's arguments, all of it once any was dropped.

    State: for each call how far its text is.

    On cancel: nothing to do.
    """

    name: ClassVar[str] = "trim_tool_call_arguments"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceTrim
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
