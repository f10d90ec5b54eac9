"""Turns the deprecated ``function_call`` into a tool call (spec, repairs, 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pipeline.chunks import delta_of, replace_delta
from pipeline.items import Payload
from stages.made_up_id import made_up_id
from stages.repair_order import later_stages
from stages.repair_stage import ChoiceRepair, RepairContext, RepairStage

__all__ = ["LegacyFunctionCall"]


class _ChoiceFunctionCall(ChoiceRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._has_tool_calls = False
        self._is_converted = False

    def repair(self, choice: Payload) -> Payload:
        """Rows FC1 to FC6."""
        delta = delta_of(choice) or {}
        calls = delta.get("tool_calls")
        self._has_tool_calls = self._has_tool_calls or (isinstance(calls, (list, dict)) and bool(calls))
        function = delta.get("function_call")
        if isinstance(function, dict) and function and not self._has_tool_calls:
            choice = replace_delta(choice, self._converted(delta, function))
        if self._is_converted and choice.get("finish_reason") == "function_call":
            return {**choice, "finish_reason": "tool_calls"}
        return choice

    def _converted(self, delta: Payload, function: Payload) -> Payload:
        entry: Payload = {"index": 0, "function": function}
        if not self._is_converted:
            self._is_converted = True
            entry = {"index": 0, "id": made_up_id(), "type": "function", "function": function}
            self.report(0, "function-call-to-tool-call")
        return {
            "tool_calls" if key == "function_call" else key: [entry] if key == "function_call" else value
            for key, value in delta.items()
            if key != "tool_calls"
        }


class LegacyFunctionCall(RepairStage):
    """Turns function_call deltas into tool_calls, and the finish reason of such a choice too.

    Servers of 2023 send this form (https://github.com/microsoft/autogen/issues/1178). So does every server that was
    asked with ``functions``, whose client expects it: only an operator can say that it does not.

    Emits: nothing of its own.

    Drops: nothing.

    State: two flags a choice.

    On cancel: nothing to do.
    """

    name: ClassVar[str] = "legacy_function_call"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceFunctionCall
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)

    def concerns(self, choice: Any) -> bool:
        """Whether there is a call of either kind, or a finish."""
        delta = delta_of(choice)
        return super().concerns(choice) or (delta is not None and bool(delta.get("function_call")))
