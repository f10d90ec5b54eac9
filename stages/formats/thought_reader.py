"""Splits the text of one choice into thoughts and the rest (spec, parsers, 7)."""

from __future__ import annotations

from typing import Final

import attrs

from stages.formats.cursor import Cursor, Ended, Impossible, Steps, finish
from stages.formats.markers import Markers, markers_of
from stages.formats.output import Output
from stages.formats.quotation import Line, held_from

__all__ = ["ThoughtMarkup", "ThoughtReader"]

_CONTENT: Final = "content"
_REASONING: Final = "reasoning_content"
_NOTHING: Final = markers_of(())


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
        self._key = _REASONING if is_inside else _CONTENT
        self._line = Line()
        self._plain: Markers | None = None
        self._steps = self._read()
        next(self._steps)

    @property
    def is_done(self) -> bool:
        """Whether no thought can come any more."""
        return self._plain is _NOTHING

    def passes(self, text: str) -> bool:
        """Whether the text goes out as it is. It counts as read then."""
        if self._plain is None or self._plain.concern(text):
            return False
        self._line.add(text)
        return True

    def feed(self, text: str) -> None:
        """Read more text."""
        self._cursor.push(text)
        next(self._steps)

    def finish(self, reason: str | None) -> None:  # noqa: ARG002 - the reason makes no difference here
        """Read what is held as the end of the text."""
        finish(self._steps, self._cursor)

    def _read(self) -> Steps[None]:
        cursor = self._cursor
        try:
            while True:
                is_opened = yield from self._is_opened()
                if is_opened or self._key == _REASONING:
                    cursor.unmark()
                    yield from self._think()
                else:
                    cursor.go_back()
                    yield from self._answer()
        except Ended:
            cursor.go_back()
            self._say(len(cursor.text))

    def _is_opened(self) -> Steps[bool]:
        """Step over an opener and the blanks before it; sets the mark in front of these."""
        self._cursor.mark()
        try:
            yield from self._cursor.skip_blanks()
            yield from self._cursor.expect(*self._openers.texts)
        except Impossible:
            return False
        return True

    def _think(self) -> Steps[None]:
        """Pass on a thought, and step over its closer and the blanks at both ends of it."""
        self._key = _REASONING
        self._line = Line()
        yield from self._cursor.skip_blanks()
        yield from self._pass_up_to(self._closers)
        self._key = _CONTENT
        self._line = Line()
        yield from self._cursor.skip_blanks()

    def _answer(self) -> Steps[None]:
        """Pass on text up to the next opener, if one can come, and step over that; the thought follows."""
        yield from self._pass_up_to(self._openers if self._counts_anywhere else _NOTHING)
        yield from self._think()

    def _pass_up_to(self, markers: Markers) -> Steps[None]:
        cursor = self._cursor
        while True:
            found = markers.find(cursor.text, cursor.at)
            if found is None:
                is_closer = markers is self._closers
                held = markers.held_from(cursor.text, cursor.at)
                self._say(held if is_closer else held_from(markers, self._line, cursor.text, cursor.at))
                is_empty = cursor.at == len(cursor.text)
                self._plain = markers if is_empty and self._key == _CONTENT else None
                yield from cursor.more()
                self._plain = None
                continue
            place, marker = found
            self._say(place)
            if not (yield from self._is_quoted(marker)):
                cursor.at += len(marker)
                return
            self._say(cursor.at + len(marker))

    def _is_quoted(self, marker: str) -> Steps[bool]:
        """Whether the marker at the cursor is a quotation: a closer needs a backtick at both ends."""
        if not self._line.is_quoted(""):
            return False
        if self._key == _CONTENT:
            return True
        ahead = yield from self._cursor.ahead(len(marker) + 1)
        return ahead.endswith("`")

    def _say(self, end: int) -> None:
        cursor = self._cursor
        text = cursor.text[cursor.at : end]
        if text:
            cursor.at = end
            self._line.add(text)
            self._output.say(self._key, text)
