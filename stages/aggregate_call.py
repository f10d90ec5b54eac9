"""One tool call of a response as far as its fragments have come (spec, dispatch, 3.3 and 4.2)."""

from __future__ import annotations

from typing import Any, Final

import attrs

from pipeline.chunks import encode_json
from pipeline.items import Payload
from stages.merge_values import merge_piece, settled
from stages.tool_call_merge import ToolCall, bare_text, merge

__all__ = ["CallAggregate"]

_MERGED: Final = frozenset({"custom", "function", "id", "index", "type"})
_MERGED_WITHIN: Final = {"custom": frozenset({"input", "name"}), "function": frozenset({"arguments", "name"})}


@attrs.define(eq=False)
class CallAggregate(ToolCall):
    """What fragments add up to: the dispatcher's merge policy, its conflicts ignored, and the keys it does not know."""

    _foreign_arguments: Any = attrs.field(default=None, init=False)
    _others: dict[str, Any] | None = attrs.field(default=None, init=False)
    _others_within: dict[str, dict[str, Any]] | None = attrs.field(default=None, init=False)

    def feed(self, fragment: Payload) -> None:
        """Add a fragment."""
        text = bare_text(fragment)
        if text is not None:
            self.add_arguments(text)
            return
        merge(self, fragment)
        if not fragment.keys() <= _MERGED:
            self._others = _added(self._others, fragment, _MERGED)
        for kind, merged in _MERGED_WITHIN.items():
            parts = fragment.get(kind)
            if isinstance(parts, dict):
                if not parts.keys() <= merged:
                    within = self._others_within = self._others_within or {}
                    within[kind] = _added(within.get(kind), parts, merged)
                if kind == "function" and not isinstance(parts.get("arguments", ""), str):
                    self._foreign_arguments = merge_piece(self._foreign_arguments, parts["arguments"], "arguments")

    @property
    def is_named(self) -> bool:
        """Whether it can be called: a function or a custom tool was named."""
        return bool(self.name or self.custom_name)

    @property
    def argument_text(self) -> str:
        """The arguments; what came as another JSON value than a text is written as one (1.2)."""
        text = self.arguments
        if not text and self._foreign_arguments is not None:
            return encode_json(settled(self._foreign_arguments)).decode()
        return text or ""

    def function(self) -> Payload:
        """The call's ``function`` object; in old streams the message's ``function_call``."""
        return {"name": self.name, "arguments": self.argument_text, **self._within("function")}

    def response(self) -> Payload:
        """The element of the message's ``tool_calls``."""
        kind = "function" if self.name or not self.custom_name else "custom"
        response: Payload = {"id": self.id, "type": self.type or kind}
        if kind == "function":
            response["function"] = self.function()
        if self.custom_name:
            response["custom"] = {"name": self.custom_name, "input": self.input or "", **self._within("custom")}
        return response if self._others is None else response | _settled(self._others)

    def _within(self, kind: str) -> dict[str, Any]:
        return _settled((self._others_within or {}).get(kind, {}))


def _added(known: dict[str, Any] | None, parts: Payload, merged: frozenset[str]) -> dict[str, Any]:
    """What is known of the keys that the merge policy does not know, with those of one fragment added."""
    known = {} if known is None else known
    for key, value in parts.items():
        if key not in merged:
            known[key] = merge_piece(known.get(key), value, key)
    return known


def _settled(values: dict[str, Any]) -> dict[str, Any]:
    return {key: settled(value) for key, value in values.items()}
