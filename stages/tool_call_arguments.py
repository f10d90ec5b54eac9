"""Makes the arguments of each call JSON text (spec, repairs, 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from pipeline.chunks import usable_index
from pipeline.items import Payload
from stages.argument_text import ArgumentText
from stages.call_entry import argument_entry, compact, entry_name, is_custom, with_arguments
from stages.declared_tools import takes_an_object
from stages.repair_order import later_stages
from stages.repair_stage import CallRepair, CallStates, ChoiceRepair, RepairContext, RepairStage

__all__ = ["ToolCallArguments", "ToolCallArgumentsOptions"]

# The finish reasons that promise whole calls (spec, dispatch, 3.6).
_PROMISING: Final = frozenset({"tool_calls", "stop"})


@attrs.frozen
class ToolCallArgumentsOptions:
    """The quirks that are repaired."""

    stringify: bool = True
    """Arguments that are an object or an array become text."""
    empty: bool = True
    """A call that never gets any text gets ``{}`` when its choice finishes."""
    cumulative: bool = True
    """Of text that repeats all that came before, only what is new goes on."""
    decode: bool = True
    """A JSON string that holds an object becomes that object. It is kept back until it ends."""
    escape: bool = True
    """Raw control characters inside strings are escaped."""


@attrs.define(eq=False)
class _Call:
    name: str = ""
    text: ArgumentText = attrs.field(factory=ArgumentText)
    is_left_alone: bool = False


class _ChoiceArguments(CallRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._calls: CallStates[_Call] = CallStates(context, _Call)

    def repair_entry(self, entry: Payload) -> Payload:
        """Rows AR1 to AR6."""
        function = entry.get("function")
        if is_custom(entry) or not isinstance(function, dict):
            return entry
        index = usable_index(entry.get("index"))
        call = None if index is None else self._calls.of(index)
        given = function.get("arguments")
        if call is not None:
            call.name = call.name or entry_name(entry)
            if call.is_left_alone:
                return entry
        if isinstance(given, str):
            text = given
        elif self.options.stringify and isinstance(given, (dict, list)):
            text = compact(given)
            self.report(index, "stringify-arguments")
        else:
            if call is not None:
                call.is_left_alone = given is not None
            return entry
        if call is not None:
            text = self._repaired(index, call, text)
        return entry if text == given else with_arguments(entry, text)

    def _repaired(self, index: int | None, call: _Call, piece: str) -> str:
        options, text = self.options, call.text
        if options.cumulative:
            new = text.what_is_new(piece)
            if new is not piece:
                self.report(index, "replace-cumulative-arguments")
                if text.scanner.is_done:
                    return ""
                piece = new
        may_decode = options.decode and not text.scanner.root and takes_an_object(self.context.request, call.name)
        sent = text.feed(piece, may_decode=may_decode, escape=options.escape)
        if text.received.is_lost:
            call.is_left_alone = True
        for repair in text.repairs:
            self.report(index, repair)
        text.repairs.clear()
        return sent

    def finish(self, reason: str) -> list[Payload]:
        """Rows AR7 and AR8."""
        entries: list[Payload] = []
        for index in sorted(self._calls):
            call = self._calls[index]
            text = call.text.let_go()
            is_empty = call.name and not text and not call.text.has_sent and not call.is_left_alone
            if is_empty and self.options.empty and reason in _PROMISING:
                text = call.text.feed("{}", may_decode=False, escape=False)
                self.report(index, "empty-arguments-to-object")
            if text:
                entries.append(argument_entry(index, text))
        return entries

    def release(self) -> list[Payload]:
        """Strings that never ended."""
        kept = [(index, self._calls[index].text.let_go()) for index in sorted(self._calls)]
        return [argument_entry(index, text) for index, text in kept if text]

    def drop(self) -> None:
        """Nothing of what is kept back is sent any more."""
        for call in self._calls.values():
            call.text.let_go()


class ToolCallArguments(RepairStage):
    """Makes arguments JSON text where they are an object, absent, sent again, encoded twice, or hold raw controls.

    Objects: TGI (https://github.com/huggingface/text-generation-inference/issues/2136). Absent: Databricks, vLLM
    (https://github.com/vllm-project/vllm/issues/28806). Sent again: https://github.com/vllm-project/vllm/issues/51697.
    Encoded twice: https://github.com/vllm-project/vllm/pull/54964. Raw control characters:
    https://github.com/earendil-works/pi/issues/2981.

    Emits: chunks, edited where a repair applies. A string that may hold the arguments is kept back until it ends; the
    rest of its frames goes on.

    Drops: text that repeats what came before. What is kept back when the stream fails.

    State: the text of each call, once, up to ``stages.call_text.MAX_TEXT`` characters.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ToolCallArgumentsOptions
    name: ClassVar[str] = "tool_call_arguments"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceArguments
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
