"""What a request says of its tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["declared_names", "takes_an_object"]


def declared_names(request: Mapping[str, Any]) -> frozenset[str]:
    """The names of all functions that the request declares."""
    return frozenset(name for name, _ in _functions(request))


def takes_an_object(request: Mapping[str, Any], name: str) -> bool:
    """Whether nothing declares that the arguments of this function are something else than an object."""
    for declared, function in _functions(request):
        parameters = function.get("parameters")
        if declared == name and isinstance(parameters, dict):
            return parameters.get("type") in (None, "object")
    return True


def _functions(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(function, dict) and name and isinstance(name, str):
            yield name, function
