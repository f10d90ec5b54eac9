"""The merge policy of tool-call fragments (spec, dispatch, 3.3).

Shared by the dispatcher, which fails closed on a conflict, and by the aggregator, which ignores it.
"""

from __future__ import annotations

import io
from typing import Any

import attrs

from pipeline.items import Payload

__all__ = ["ToolCall", "argument_text", "bare_text", "merge", "utf8_length"]


@attrs.define(eq=False)
class ToolCall:
    """What the fragments of one call have said so far. An empty text means: not known yet."""

    id: str = ""
    type: str = ""
    name: str = ""
    """``function.name``."""
    custom_name: str = ""
    """``custom.name``; a free-form call has no ``function``."""
    has_function: bool = False
    """Whether any fragment carried a ``function`` object."""
    has_foreign_arguments: bool = False
    """Whether any fragment carried ``function.arguments`` that are neither text nor null; they are not merged."""
    text_bytes: int = 0
    """How long arguments and input are together, in UTF-8."""
    _arguments: io.StringIO | None = attrs.field(default=None, init=False)
    _input: io.StringIO | None = attrs.field(default=None, init=False)

    @property
    def arguments(self) -> str | None:
        """All argument text, joined anew at each call; none if no fragment ever carried the key with a text."""
        return None if self._arguments is None else self._arguments.getvalue()

    @property
    def input(self) -> str | None:
        """All ``custom.input`` text; none if no fragment ever carried it."""
        return None if self._input is None else self._input.getvalue()

    def add_arguments(self, text: str) -> None:
        """Append argument text; an empty one counts as arguments that arrived."""
        if self._arguments is None:
            self._arguments = io.StringIO()
            self.has_function = True
        self._arguments.write(text)
        self.text_bytes += utf8_length(text)

    def add_input(self, text: str) -> None:
        """Append free-form input."""
        if self._input is None:
            self._input = io.StringIO()
        self._input.write(text)
        self.text_bytes += utf8_length(text)


def merge(call: ToolCall, fragment: Payload) -> str | None:
    """Add a fragment to its call.

    The first non-empty value of an identity field stays for good. Null and values of another type count as absent.
    Text is appended whatever else the fragment says.

    Returns:
        The first identity field, in the order ``id``, ``type``, ``function.name``, in which the fragment contradicts
        the call; none if it contradicts nothing.
    """
    call.id, is_other_id = _first(call.id, fragment.get("id"))
    call.type, is_other_type = _first(call.type, fragment.get("type"))
    is_other_name = False
    function = fragment.get("function")
    if isinstance(function, dict):
        call.has_function = True
        call.name, is_other_name = _first(call.name, function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.add_arguments(arguments)
        elif arguments is not None:
            call.has_foreign_arguments = True
    custom = fragment.get("custom")
    if isinstance(custom, dict):
        call.custom_name, _ = _first(call.custom_name, custom.get("name"))
        if isinstance(custom.get("input"), str):
            call.add_input(custom["input"])
    if is_other_id:
        return "id"
    if is_other_type:
        return "type"
    return "function.name" if is_other_name else None


def bare_text(fragment: Payload) -> str | None:
    """The argument text of a fragment that has nothing else to merge, as nearly every one; else none."""
    if len(fragment) != 2 or "index" not in fragment:  # noqa: PLR2004 - index and function
        return None
    function = fragment.get("function")
    if type(function) is not dict or len(function) != 1:
        return None
    text = function.get("arguments")
    return text if type(text) is str else None


def argument_text(fragment: Payload) -> str:
    """The argument text of one fragment, empty where it has none."""
    function = fragment.get("function")
    text = function.get("arguments") if isinstance(function, dict) else None
    return text if isinstance(text, str) else ""


def _first(known: str, given: Any) -> tuple[str, bool]:
    """The value that stays, and whether the given one contradicts it."""
    if not given or not isinstance(given, str):
        return known, False
    if not known:
        return given, False
    return known, given != known


def utf8_length(text: str) -> int:
    """The length of a text in bytes; of lone surrogates too."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
