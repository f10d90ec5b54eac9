"""Finds the tool calls in the answer itself, bare ones too (spec, parsers, 3, 6 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.formats.body import Body, CallMarkup
from stages.formats.call_reader import CallReader
from stages.formats.output import Output
from stages.formats.tools import Tools

__all__ = ["AnswerReader"]


class AnswerReader(CallReader):
    """Reads the answer itself, in which any call counts that a marker announces, and some stand bare.

    Args:
        markup: the format's.
        tools: the request's.
        output: takes text and calls.
        bare: for an opening character the bodies that may stand without a marker, at the start of the text.
        at_lines: the same, for the start of any line.
        thoughts: the readers of thoughts, those made so far; thoughts are over where the answer goes on.
    """

    _is_thought = False

    def __init__(  # noqa: PLR0913 - that much decides what is a call
        self,
        markup: CallMarkup,
        tools: Tools,
        output: Output,
        bare: Mapping[str, tuple[Body, ...]],
        *,
        at_lines: Mapping[str, Body],
        thoughts: Sequence[CallReader],
    ) -> None:
        self._bare = bare
        self._at_lines = at_lines
        self._thoughts = thoughts
        super().__init__(markup, tools, output, "content")
