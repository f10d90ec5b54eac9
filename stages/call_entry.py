"""Reading and writing one entry of a delta's ``tool_calls``, whatever its shape."""

from __future__ import annotations

from typing import Any

from pipeline.chunks import encode_json
from pipeline.items import Payload

__all__ = [
    "argument_entry",
    "compact",
    "entry_id",
    "entry_name",
    "entry_text",
    "is_custom",
    "with_arguments",
    "without",
]


def entry_id(entry: Payload) -> str:
    """The id, empty where there is none; null and other types than text are none."""
    given = entry.get("id")
    return given if isinstance(given, str) else ""


def entry_name(entry: Payload) -> str:
    """The name of the function or of the custom tool, empty where there is none."""
    for key in ("function", "custom"):
        holder = entry.get(key)
        name = holder.get("name") if isinstance(holder, dict) else None
        if name and isinstance(name, str):
            return name
    return ""


def entry_text(entry: Payload) -> str:
    """The argument text, empty where there is none; of an object or an array its compact text."""
    function = entry.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, str):
        return arguments
    return compact(arguments) if isinstance(arguments, (dict, list)) else ""


def is_custom(entry: Payload) -> bool:
    """Whether the entry is of a call with free-form input."""
    return isinstance(entry.get("custom"), dict)


def compact(value: Any) -> str:
    """A JSON value as text: no blanks, key order kept, letters outside ASCII raw."""
    return encode_json(value).decode()


def with_arguments(entry: Payload, text: str) -> Payload:
    """The entry with other argument text, everything else kept."""
    function = entry.get("function")
    return {**entry, "function": {**(function if isinstance(function, dict) else {}), "arguments": text}}


def without(holder: Payload, key: str) -> Payload:
    """The object without one key."""
    return {name: value for name, value in holder.items() if name != key}


def argument_entry(index: int, text: str) -> Payload:
    """An entry that holds nothing but argument text of a call."""
    return {"index": index, "function": {"arguments": text}}
