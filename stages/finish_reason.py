"""Says ``tool_calls`` where a choice that called tools claims to have stopped (spec, repairs, 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pipeline.chunks import delta_of
from pipeline.items import Payload
from stages.call_entry import entry_id, entry_name
from stages.repair_order import later_stages
from stages.repair_stage import ChoiceRepair, RepairContext, RepairStage

__all__ = ["FinishReason"]


class _ChoiceFinish(ChoiceRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._has_calls = False

    def repair(self, choice: Payload) -> Payload:
        """Rows FR1 to FR3."""
        delta = delta_of(choice)
        entries = delta.get("tool_calls") if delta else None
        if not self._has_calls and isinstance(entries, list):
            self._has_calls = any(
                isinstance(entry, dict) and (entry_id(entry) or entry_name(entry)) for entry in entries
            )
        if not self._has_calls or choice.get("finish_reason") != "stop":
            return choice
        self.report(None, "finish-reason-tool-calls")
        return {**choice, "finish_reason": "tool_calls"}


class FinishReason(RepairStage):
    """Turns the finish reason stop into tool_calls on a choice that sent a tool call.

    Seen at Gemini (https://github.com/googleapis/python-genai/issues/2868), older Ollama, TGI, and at vLLM and OpenAI
    with a named tool choice. Other reasons and other keys stay, and so does a ``stop`` in front of the first call.

    Emits: nothing of its own.

    Drops: nothing.

    State: one flag a choice.

    On cancel: nothing to do.
    """

    name: ClassVar[str] = "finish_reason"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceFinish
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
