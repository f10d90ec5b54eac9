"""Splits the text of one choice into thoughts and the rest (spec, parsers, 7)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from stages.formats.cursor import BLANK, Cursor, Ended, Impossible, Steps, finish
from stages.formats.markers import Markers, markers_of
from stages.formats.output import Output
from stages.formats.quotation import Line

__all__ = ["ThoughtMarkup", "ThoughtReader"]

_BLANKS: Final = re.compile(rf"[{BLANK}]*+")


@attrs.frozen
class ThoughtMarkup:
    """How one format marks its thoughts."""

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    counts_anywhere: bool = False
    """Whether an opener counts behind visible text, too; else it is text there, since an answer may speak of it."""


class ThoughtReader:
    """Reads one text and gives thoughts and the rest to an output.

    Args:
        markup: the format's.
        output: takes both.
        is_inside: whether the prompt has opened the first thought.
    """

    def __init__(self, markup: ThoughtMarkup, output: Output, *, is_inside: bool = False) -> None:
        self._cursor = Cursor()
        self._openers = markers_of(markup.openers)
        self._closers = markers_of(markup.closers)
        self._counts_anywhere = markup.counts_anywhere
        self._output = output
        self._is_inside = is_inside
        self._line = Line()
        self._key = "reasoning_content" if is_inside else "content"
        self._plain: Markers | None = None
        self._steps = self._read()
        next(self._steps)
"""
