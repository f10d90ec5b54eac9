"""What the request says of tools, and so of the calls to look for (spec, parsers, 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stages.formats.schema_types import STRING, types_of_parameter

__all__ = ["Tools"]

_GUIDES: Final = frozenset(
    {
        "ebnf",
        "grammar",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "json_schema",
        "regex",
        "structured_outputs",
    }
)
"""The fields with which vLLM, SGLang, llama.cpp and Dynamo are told what an answer must look like."""


class Tools:
    """The tools of one request. The request may be any JSON object.

    Args:
        request: its body.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._schemas: dict[str, Any] = dict(_declared(request))
        choice = request.get("tool_choice")
        self.are_allowed: bool = isinstance(request.get("tools"), list) and bool(request["tools"]) and choice != "none"
        """Whether there may be calls at all."""
        self.forced: str | None = self._forced(choice)
        """The tool that the request names."""
        self.is_required: bool = self.forced is not None or choice == "required"
        """Whether the answer must be a call, so that the server may have guided it to bare JSON."""
        self.is_answer_guided: bool = _is_guided(request)
        """Whether the request says what the answer itself looks like: then bare JSON is the answer."""

    def _forced(self, choice: Any) -> str | None:
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        return name if isinstance(name, str) and name in self._schemas else None

    def declares(self, name: str) -> bool:
        """Whether a tool has that name."""
        return name in self._schemas

    def declares_any(self, beginning: str) -> bool:
        """Whether the name of some tool begins like this."""
        return any(name.startswith(beginning) for name in self._schemas)

    def types_of(self, name: str, key: str) -> frozenset[str]:
        """The types that the schema of a tool allows for a parameter; a tool that is not declared takes strings."""
        return types_of_parameter(self._schemas[name], key) if name in self._schemas else STRING


def _declared(request: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name of each function with the schema of its parameters."""
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if name and isinstance(name, str):
            assert isinstance(function, dict)
            yield name, function.get("parameters")


def _is_guided(request: Mapping[str, Any]) -> bool:
    wanted = request.get("response_format")
    if isinstance(wanted, dict) and wanted.get("type") in ("json_object", "json_schema"):
        return True
    extension = request.get("nvext")
    fields = {**extension, **request} if isinstance(extension, dict) else request
    return any(fields.get(field) is not None for field in _GUIDES)
