"""Gives each tool call one id of its own (spec, repairs, 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from pipeline.chunks import usable_index
from pipeline.items import Payload
from stages.call_entry import entry_id, entry_name, entry_text, is_custom, without
from stages.identified_call import IdentifiedCall
from stages.made_up_id import IdStyle, made_up_id
from stages.repair_order import later_stages
from stages.repair_stage import CallRepair, CallStates, ChoiceRepair, RepairContext, RepairStage

__all__ = ["ToolCallId", "ToolCallIdOptions"]

# The finish reasons that promise whole calls (spec, dispatch, 3.6).
_PROMISING: Final = frozenset({"tool_calls", "stop"})


@attrs.frozen
class ToolCallIdOptions:
    """The quirks that are repaired, and what a made-up id looks like."""

    missing: bool = True
    """A call without an id gets one."""
    changed: bool = True
    """Ids that follow a call's first one are taken out."""
    shared: bool = True
    """A call with another call's id gets one of its own."""
    duplicate: bool = True
    """A call that is sent again under its id is dropped. It is kept back until that is known."""
    style: IdStyle = "openai"


class _ChoiceIds(CallRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._calls: CallStates[IdentifiedCall] = CallStates(context, IdentifiedCall)
        self._owners: dict[str, IdentifiedCall] = {}

    def repair_entry(self, entry: Payload) -> Payload | None:
        """Rows ID1 to ID9."""
        index = usable_index(entry.get("index"))
        if index is None:
            return entry
        is_opening = index not in self._calls
        call = self._calls.of(index)
        if call is None:
            return entry
        if call.is_repeat:
            return None
        if self.options.missing and type(entry.get("id")) is int:
            entry = {**entry, "id": str(entry["id"])}
            self.report(index, "synthesize-missing-id")
        if call.held is None:
            entry = self._identified(index, call, entry, is_opening=is_opening)
        call.add(entry_name(entry), entry_text(entry), is_custom=is_custom(entry))
        return entry if call.held is None else self._held(index, call, entry)

    def _identified(self, index: int, call: IdentifiedCall, entry: Payload, *, is_opening: bool) -> Payload:
        """The entry with an id that is right; or the call begins to be held."""
        given, options = entry_id(entry), self.options
        if call.id:
            return self._with_first_id(index, call, entry)
        if not given:
            return self._with_new_id(index, call, entry) if entry_name(entry) and options.missing else entry
        owner = self._owners.setdefault(given, call)
        call.id = given
        if owner is call:
            return entry
        if options.duplicate and is_opening and owner.may_be_repeated_by(entry_name(entry), is_custom=is_custom(entry)):
            call.hold(owner)
            return entry
        return self._with_new_id(index, call, entry, "unique-ids") if options.shared else entry

    def _with_first_id(self, index: int, call: IdentifiedCall, entry: Payload) -> Payload:
        """The entry of a call that has its id; some clients join ids as they join text, so another one goes."""
        if entry_id(entry) in ("", call.id):
            return entry
        if not call.is_made_up:
            if call.is_done or not self.options.changed:
                return entry
            self.report(index, "pin-first-id")
        return without(entry, "id")

    def _with_new_id(
        self, index: int, call: IdentifiedCall, entry: Payload, repair: str = "synthesize-missing-id"
    ) -> Payload:
        call.id, call.is_made_up = made_up_id(self.options.style), True
        self.report(index, repair)
        return {**entry, "id": call.id}

    def _held(self, index: int, call: IdentifiedCall, entry: Payload) -> Payload | None:
        """The whole call, if this entry settles that it is none that came before."""
        assert call.held is not None
        call.held.append(entry)
        if call.may_still_be_repeat:
            return None
        if not call.repeats_its_owner:
            return self._let_go(index, call)
        self._forget(index, call)
        return None

    def _forget(self, index: int, call: IdentifiedCall) -> None:
        call.held, call.is_repeat = None, True
        self.report(index, "drop-duplicate-calls")

    def _let_go(self, index: int, call: IdentifiedCall) -> Payload:
        entry = call.take_held()
        return self._with_new_id(index, call, entry, "unique-ids") if self.options.shared else entry

    def finish(self, reason: str) -> list[Payload]:
        """What is held: a repeat without arguments is dropped, all else goes out."""
        for index, call in self._calls.items():
            if reason in _PROMISING and call.held is not None and call.repeats_its_blank_owner:
                self._forget(index, call)
        return self.release()

    def release(self) -> list[Payload]:
        """All that is held."""
        held = [index for index in sorted(self._calls) if self._calls[index].held is not None]
        return [self._let_go(index, self._calls[index]) for index in held]

    def drop(self) -> None:
        """Nothing of what is held is sent any more."""
        for call in self._calls.values():
            call.held = None


class ToolCallId(RepairStage):
    """Gives each tool call one id of its own where it has none, a changing one or another call's; drops repeats.

    None: vLLM with a named tool (https://github.com/vllm-project/vllm/issues/18412), LM Studio, llama.cpp, Gemini.
    Another one on each chunk: https://github.com/vllm-project/vllm/pull/23522. One for several calls:
    https://github.com/HKUDS/nanobot/pull/3943. A call again: https://github.com/RooCodeInc/Roo-Code/pull/10760.

    Emits: chunks, edited where a repair applies. A call that opens with the id of a complete one is kept back until its
    text is complete, while the rest of its frames goes on.

    Drops: a call that repeats id, name and arguments of another one. What is kept back when the stream fails.

    State: for each call its id, name and text, the latter up to ``stages.call_text.MAX_TEXT`` characters; the entries
    of calls that are kept back.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ToolCallIdOptions
    name: ClassVar[str] = "tool_call_id"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceIds
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
