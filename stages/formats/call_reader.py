"""Finds the tool calls in one text of one choice (spec, parsers, 1 and 3).

Text goes out at once, but for a tail that may be the beginning of a marker. From a start marker on all is held until
the call is certain, or impossible: then the marker was text, and what stands behind it is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from stages.formats.body import Body, CallMarkup
from stages.formats.cursor import BLANK, Cursor, Ended, Impossible, Steps, finish
from stages.formats.markers import Markers, markers_of
from stages.formats.output import Call, Output
from stages.formats.quotation import Line, held_from
from stages.formats.tools import Tools

__all__ = ["CallReader"]

_MAX_NAME: Final = 256
_NAME: Final = re.compile(r"[^\s\"'`()\[\]{}<>,;=]*+")
_BLANKS: Final = re.compile(rf"[{BLANK}]*+")


class CallReader:
    """Reads one text, tells calls from the rest, and gives both to an output.

    This one reads thoughts: calls of other tools than the declared ones do not count there, and none stands bare (7.7).

    Args:
        markup: the format's.
        tools: the request's.
        output: takes text and calls.
        key: the key of the delta that the text belongs to.
    """

    is_done = False
    """A call may come at any time."""

    _is_thought = True
    _bare: Mapping[str, tuple[Body, ...]] = MappingProxyType({})
    _at_lines: Mapping[str, Body] = MappingProxyType({})
    _thoughts: Sequence[CallReader] = ()

    def __init__(self, markup: CallMarkup, tools: Tools, output: Output, key: str) -> None:
        self.tools = tools
        """The request's."""
        self.stops = markup.stops
        """The markers that cannot be part of a call's arguments."""
        self._markup = markup
        self._output = output
        self._key = key
        self._start()

    def _start(self) -> None:
        self.cursor = Cursor()
        """What bodies read from."""
        self.may_close = False
        """Whether the model has ended the text itself: then what it left out at the end may be taken as said."""
        self._is_announced = False
        self._line = Line()
        self._owe(())
        self._opened = 0
        self._is_begun = False
        self._holds_blanks = not self._is_thought
        self._blanks = ""
        self._plain: Markers | None = None
        self._steps = self._read()
        next(self._steps)

    def passes(self, text: str) -> bool:
        """Whether the text goes out as it is. It counts as read then."""
        if self._plain is None or self._plain.concern(text):
            return False
        for thought in self._thoughts:
            thought.interrupt()
        self._line.add(text)
        return True

    def feed(self, text: str) -> None:
        """Read more text."""
        for thought in self._thoughts:
            thought.interrupt()
        self.cursor.push(text)
        next(self._steps)

    def finish(self, reason: str | None) -> None:
        """Read what is held as the end of the text.

        Args:
            reason: the choice's finish reason; none if it was broken off.
        """
        self.may_close = reason in ("stop", "tool_calls")
        finish(self._steps, self.cursor)

    def interrupt(self) -> None:
        """Read what is held as the end of a thought; the next one is a text of its own."""
        if self._plain is None:
            self.finish(None)
            self._start()

    # --- for bodies ---------------------------------------------------------------------------------------------

    def read_name(self) -> Steps[str]:
        """Take the name of a function, up to a character that no name has.

        Raises:
            Impossible: it is too long, or no tool is called so where one must be.
        """
        return (yield from self.cursor.run(_NAME, self.may_become_name))

    def read_header(self) -> Steps[str]:
        """Take characters that names are made of, up to another one.

        Raises:
            Impossible: there are too many.
        """
        return (yield from self.cursor.run(_NAME, lambda header: len(header) <= _MAX_NAME))

    def may_become_name(self, beginning: str) -> bool:
        """Whether a name that counts here may begin like this."""
        if len(beginning) > _MAX_NAME or not _NAME.fullmatch(beginning):
            return False
        return self._is_announced or self.tools.declares_any(beginning)

    def check_name(self, name: str) -> None:
        """Make sure that a name counts here.

        Raises:
            Impossible: it is none, or no tool is called so where one must be.
        """
        if not name or not self.may_become_name(name) or not (self._is_announced or self.tools.declares(name)):
            raise Impossible

    def open_call(self, name: str, own_id: str | None = None) -> Call:
        """Begin a call: it is certain, and what was held is its markup.

        Args:
            name: the function's.
            own_id: the id that the model wrote, if it wrote one.

        Raises:
            Impossible: that is no name, or no tool is called so where one must be.
        """
        self.check_name(name)
        self.cursor.unmark()
        self._opened += 1
        self._owe(self._markup.ends)
        self._follow_markup()
        return self._output.open_call(name, own_id)

    def attempt(self, steps: Steps[None], skipped: int = 0) -> Steps[bool]:
        """Read what may be a call; whether it was one. If not, the cursor is back at its place.

        Args:
            steps: the reading. A call in which it fails is left open, and text follows.
            skipped: the characters to step over first.
        """
        self.cursor.mark()
        self.cursor.at += skipped
        opened = self._opened
        try:
            yield from steps
            self.cursor.unmark()
        except Impossible:
            self.cursor.go_back()
        return self._opened > opened

    # --- text ---------------------------------------------------------------------------------------------------

    def _read(self) -> Steps[None]:
        try:
            while True:
                yield from self._step()
        except Ended:
            self.cursor.go_back()
            rest = self._blanks + self.cursor.take_rest()
            if rest.strip(BLANK) or not self._is_begun:
                self._output.say(self._key, rest)

    def _step(self) -> Steps[None]:
        """Read text up to a marker, and what follows that; or what there is."""
        cursor = self.cursor
        if self._holds_blanks:
            yield from self._hold_blanks()
            if not self._is_begun and (yield from self._has_bare_call()):
                return
        markers = self._markers
        found = markers.find(cursor.text, cursor.at)
        if found is None:
            tail = markers.held_from(cursor.text, cursor.at)
            if not any(end.startswith(cursor.text[tail:]) for end in self._owed):  # in inline code it still counts
                tail = held_from(markers, self._line, cursor.text, cursor.at)
            self._release(tail)
            self._plain = markers if cursor.at == len(cursor.text) else None
            yield from cursor.more()
            self._plain = None
            return
        place, marker = found
        if marker in self._owed:
            self._release(place)
            cursor.at += len(marker)
            self._owe(end for end in self._owed if end != marker)
            self._follow_markup()
        elif self._counts(place, marker):
            self._release(place)
            yield from self._read_body(marker)
        else:
            self._release(place + len(marker))

    def _owe(self, ends: Iterable[str]) -> None:
        """Set which end markers are owed, and with that which markers count."""
        self._owed = tuple(ends)
        inner = self._markup.inner_starts if self._markup.block_end in self._owed else ()
        self._markers = markers_of((*self._markup.starts, *inner, *self._owed), "".join(self._at_lines))

    def _counts(self, place: int, marker: str) -> bool:
        """Whether a start marker stands where it may begin a body."""
        before = self._blanks + self.cursor.text[self.cursor.at : place]
        if marker in self._at_lines:
            return self._line.last_of(before) == "\n"
        return not self._line.is_quoted(before)

    def _read_body(self, marker: str) -> Steps[None]:
        """Read what a start marker announces, or the bare body that begins with one; else let it go out."""
        is_bare = marker in self._at_lines
        self._is_announced = not is_bare and not self._is_thought
        if is_bare:
            steps, skipped = self._at_lines[marker].read(self, ""), 0
        else:
            body = self._markup.starts.get(marker) or self._markup.inner_starts[marker]
            steps, skipped = body.read(self, marker), len(marker)
        if not (yield from self.attempt(steps, skipped)):
            self._release(self.cursor.at + len(marker))

    def _has_bare_call(self) -> Steps[bool]:
        """Read the bare body that the text may begin with."""
        self._is_announced = False
        for body in self._bare.get(self.cursor.text[self.cursor.at], ()):
            if (yield from self.attempt(body.read(self, ""))):
                return True
        self._is_begun = True
        return False

    def _hold_blanks(self) -> Steps[None]:
        """Keep blanks back until something visible follows (3.1)."""
        cursor = self.cursor
        cursor.mark()
        try:
            self._blanks += yield from cursor.run(_BLANKS)
        except Impossible:  # too many
            cursor.go_back()
            self._release(len(cursor.text))
        cursor.unmark()

    def _release(self, end: int) -> None:
        """Let text go out."""
        cursor = self.cursor
        text = cursor.text[cursor.at : end]
        if text:
            cursor.at = end
            text = self._blanks + text
            self._line.add(text)
            self._output.say(self._key, text)
            self._blanks = ""
            self._is_begun = True
            self._holds_blanks = False

    def _follow_markup(self) -> None:
        self._is_begun = True
        self._holds_blanks = True
        self._blanks = ""
        self._line.follow_markup()
