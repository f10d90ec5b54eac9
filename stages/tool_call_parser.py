"""Turns calls in the model's raw text into fragments of tool calls (spec, parsers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from stages.formats.format import Format
from stages.formats.registry import find_call_format
from stages.text_parser import TextParser

__all__ = ["ToolCallParser", "ToolCallParserOptions"]


def _check(_options: object, _attribute: object, name: str) -> None:
    find_call_format(name)


@attrs.frozen
class ToolCallParserOptions:
    """How the model marks its calls."""

    format: str = attrs.field(default="hermes", validator=_check)
    """The name of a tool-call format."""


class ToolCallParser(TextParser):
    """Moves calls from delta.content to delta.tool_calls, for servers that leave the model's text as it is.

    Calls of declared tools are found in thoughts as well, since models forget to close these.

    Emits: chunks, edited where their text changes; the same objects elsewhere. Each call's opener goes out as soon as
    the call is certain, its arguments as they come, with evidence of both. Where the stream ends without a finish
    reason, one made-up chunk for each choice of which something is held.

    Drops: the markup of calls; never a chunk. A finish reason of ``stop`` becomes ``tool_calls`` behind a whole call.

    State: per choice what may be markup: a marker, a call's header, a value whose kind only its end can tell; at most
    ``stages.formats.cursor.MAX_HELD`` characters in one piece.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ToolCallParserOptions
    precedes: ClassVar[Mapping[str, str]] = {
        "reasoning_fields": "calls must be taken out of thoughts before these are mirrored",
        "parallel_call_filter": "the filter must see the calls that are found here",
        "role_dedup": "text that is held goes out in frames that later stages must see",
        "empty_skip": "a chunk that held nothing but markup becomes empty",
        "tool_call_dispatch": "the calls that it announces are found here",
        "reasoning_dispatch": "a call inside a thought is taken out of it here",
    }

    @classmethod
    def format_of(cls, options: ToolCallParserOptions) -> Format:
        """The format that the options name."""
        return find_call_format(options.format)
