"""One tool call of a response as far as its fragments have come (spec, dispatch, 3.3 and 4.2)."""

from __future__ import annotations

from typing import Any, Final

from pipeline.chunks import encode_json
from pipeline.items import Payload
from stages.merge_values import merge_piece, settled
from stages.tool_call_merge import ToolCall, bare_text, merge

__all__ = ["CallAggregate"]

_MERGED: Final = frozenset({"custom", "function", "id", "index", "type"})
_MERGED_WITHIN: Final = {"custom": ("input", "name"), "function": ("arguments", "name")}


class CallAggregate:
    """What fragments add up to: the dispatcher's merge policy, its conflicts ignored, and the keys it does not know."""

    __slots__ = ("_call", "_foreign_arguments", "_others", "_others_within")

    def __init__(self) -> None:
        self._call = ToolCall()
        self._foreign_arguments: Any = None
        self._others: dict[str, Any] = {}
        self._others_within: dict[str, dict[str, Any]] = {}

    def feed(self, fragment: Payload) -> None:
        """Add a fragment."""
        text = bare_text(fragment)
        if text is not None:
            self._call.add_arguments(text)
            return
        merge(self._call, fragment)
        for key, value in fragment.items():
            if key not in _MERGED:
                self._others[key] = merge_piece(self._others.get(key), value, key)
            elif key in _MERGED_WITHIN and isinstance(value, dict):
                self._add_within(key, value)

    def add_arguments(self, text: str) -> None:
        """Add argument text alone."""
        self._call.add_arguments(text)

    def _add_within(self, kind: str, parts: Payload) -> None:
        merged = _MERGED_WITHIN[kind]
        for key, value in parts.items():
            if key not in merged:
                others = self._others_within.setdefault(kind, {})
                others[key] = merge_piece(others.get(key), value, key)
            elif key == "arguments" and not isinstance(value, str):
                self._foreign_arguments = merge_piece(self._foreign_arguments, value, key)

    @property
    def name(self) -> str:
        """The function's name, empty where there is none."""
        return self._call.name

    @property
    def is_named(self) -> bool:
        """Whether it can be called: a function or a custom tool was named."""
        return bool(self._call.name or self._call.custom_name)

    @property
    def arguments(self) -> str:
        """The argument text; what came as another JSON value than a text is written as one (1.2)."""
        text = self._call.arguments
        if not text and self._foreign_arguments is not None:
            return encode_json(settled(self._foreign_arguments)).decode()
        return text or ""

    def function(self) -> Payload:
        """The call's ``function`` object; in old streams the message's ``function_call``."""
        others = _settled(self._others_within.get("function", {}))
        return {"name": self._call.name, "arguments": self.arguments, **others}

    def response(self) -> Payload:
        """The element of the message's ``tool_calls``."""
        call = self._call
        kind = "function" if call.name or not call.custom_name else "custom"
        response: Payload = {"id": call.id, "type": call.type or kind}
        if kind == "function":
            response["function"] = self.function()
        if call.custom_name:
            custom = _settled(self._others_within.get("custom", {}))
            response["custom"] = {"name": call.custom_name, "input": call.input or "", **custom}
        return {**response, **_settled(self._others)}


def _settled(values: dict[str, Any]) -> dict[str, Any]:
    return {key: settled(value) for key, value in values.items()}
