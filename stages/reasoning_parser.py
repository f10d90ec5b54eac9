"""Splits the model's raw text into thoughts and the answer (spec, parsers, 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from stages.formats.format import Format
from stages.formats.registry import find_reasoning_format
from stages.text_parser import TextParser

__all__ = ["ReasoningParser", "ReasoningParserOptions"]


def _check(_options: object, _attribute: object, name: str) -> None:
    find_reasoning_format(name)


@attrs.frozen
class ReasoningParserOptions:
    """How the model marks its thoughts."""

    format: str = attrs.field(default="basic", validator=_check)
    """The name of a reasoning format."""


class ReasoningParser(TextParser):
    """Moves thoughts from delta.content to delta.reasoning_content, for servers that leave the model's text as it is.

    With the format ``gpt_oss`` it reads calls, too: harmony's channels hold all in one.

    Emits: chunks, edited where their text changes; the same objects elsewhere. Where the stream ends without a finish
    reason, one made-up chunk for each choice of which something is held.

    Drops: tags, the blanks next to them, and harmony's headers; never a chunk.

    State: per choice, at most the length of a tag, and the blanks before the first one.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ReasoningParserOptions
    precedes: ClassVar[Mapping[str, str]] = {
        "tool_call_parser": "calls inside a thought count only where their tools are declared",
        "reasoning_fields": "thoughts must be split off before they are mirrored",
        "parallel_call_filter": "harmony's calls are found here",
        "role_dedup": "text that is held goes out in frames that later stages must see",
        "empty_skip": "a chunk that held nothing but a tag becomes empty",
        "tool_call_dispatch": "harmony's calls are found here",
        "reasoning_dispatch": "thoughts are found here",
    }

    @classmethod
    def format_of(cls, options: ReasoningParserOptions) -> Format:
        """The format that the options name."""
        return find_reasoning_format(options.format)
