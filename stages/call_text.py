"""The text of a tool call as it comes: how far it is, and what it was (spec, repairs, 2, "Words")."""

from __future__ import annotations

import enum
import io
import re
from typing import Final

__all__ = ["MAX_TEXT", "PLACEHOLDER", "KeptText", "TextScanner", "TextState", "begins_object", "is_blank", "trimmed"]

MAX_TEXT: Final = 16 * 1024 * 1024
"""The characters of one call that are kept; the dispatcher's default limit. A longer call is left alone."""

_BLANKS: Final = " \t\n\r"
_SIGNIFICANT: Final = re.compile(r"[^ \t\n\r]")

PLACEHOLDER: Final = re.compile(r"[ \t\n\r]*+\{\}[ \t\n\r]*+(?=\{)")
"""An empty object in front of the real one (spec, repairs, 9)."""

# To the next bracket outside of strings, or to the end of the piece, also in the middle of a string: then the group
# takes part, and holds a backslash whose other half is in the next piece. No character is read twice.
_OUTSIDE: Final = re.compile(r'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+(?:"|(\\?)\Z))*+(?:[{}\[\]]|\Z)', re.DOTALL)
# The same from the middle of a string to its end.
_INSIDE: Final = re.compile(r'(?:[^"\\]++|\\.)*+(?:"|(\\?)\Z)', re.DOTALL)


def is_blank(text: str) -> bool:
    """Whether a text is nothing but JSON's whitespace, or nothing at all."""
    return _SIGNIFICANT.search(text) is None


def trimmed(text: str) -> str:
    """The text without the blanks at its ends."""
    return text.strip(_BLANKS)


def begins_object(text: str) -> bool:
    """Whether an object begins the text, blanks aside."""
    first = _SIGNIFICANT.search(text)
    return first is not None and first[0] == "{"


class TextState(enum.Enum):
    """How far the text of a call is."""

    BLANK = "blank"
    OPEN = "open"
    """The root has begun. A number, ``true``, ``false`` or ``null`` stays open for good."""
    CLOSED = "closed"
    """The root object, array or string is complete; only blanks follow it."""
    JUNK = "junk"
    """Something else follows the root, or a closing bracket began the text."""


class TextScanner:
    """The dispatcher's structural state of a text, with one addition: a string root closes too.

    Unlike ``stages.json_scanner`` it says where a root ended and whether a piece ends inside a string. Nothing of
    the text is kept. The cost is linear in the pieces.
    """

    __slots__ = ("_depth", "_length", "escaped", "in_string", "root", "root_end", "state")

    def __init__(self) -> None:
        self.state = TextState.BLANK
        self.root = ""
        """The first character that is not blank."""
        self.root_end: int | None = None
        """Where in the latest piece the root ended, if it did."""
        self.in_string = False
        """Whether the text so far ends inside a string."""
        self.escaped = False
        """Whether it ends with a backslash that escapes what is to come."""
        self._depth = 0
        self._length = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing can be added to the text any more."""
        return self.state is TextState.CLOSED or self.state is TextState.JUNK

    @property
    def has_empty_root(self) -> bool:
        """Whether the root is complete and is exactly ``{}``."""
        return self.is_done and self.root == "{" and self._length == len("{}")

    def feed(self, piece: str) -> None:
        """Take the next piece, which may be empty."""
        self.root_end = None
        position = self._begin(piece) if self.state is TextState.BLANK else 0
        if self.state is TextState.OPEN and (self._depth or self.in_string):
            end = self._scan(piece, position)
            self._length += len(piece) if end is None else end
            if end is None:
                return
            self.state, self.root_end, position = TextState.CLOSED, end, end
        if self.state is TextState.CLOSED and _SIGNIFICANT.search(piece, position):
            self.state = TextState.JUNK

    def _begin(self, piece: str) -> int:
        first = _SIGNIFICANT.search(piece)
        if first is None:
            return 0
        self.root = first[0]
        self.state = TextState.JUNK if self.root in "}]" else TextState.OPEN
        self._depth = int(self.root in "{[")
        self.in_string = self.root == '"'
        self._length = -first.start()
        return first.end()

    def _scan(self, piece: str, position: int) -> int | None:
        """Where the root ends, or none."""
        if self.escaped and piece:
            self.escaped = False
            position = 1
        if self.in_string:
            found = _INSIDE.match(piece, position)
            assert found is not None
            if found.lastindex:
                self.escaped = found[1] != ""
                return None
            self.in_string = False
            position = found.end()
            if not self._depth:
                return position
        while (found := _OUTSIDE.match(piece, position)) and found.end() > position:
            if found.lastindex:
                self.in_string = True
                self.escaped = found[1] != ""
                break
            position = found.end()
            character = piece[position - 1]
            if character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if not self._depth:
                    return position
        return None


class KeptText:
    """A text that grows by pieces, up to ``MAX_TEXT`` characters; a longer one is forgotten."""

    __slots__ = ("_pieces", "is_lost", "length")

    def __init__(self) -> None:
        self._pieces = io.StringIO()
        self.length = 0
        self.is_lost = False

    def add(self, piece: str) -> None:
        """Append a piece."""
        self.length += len(piece)
        if self.length > MAX_TEXT:
            self.is_lost = True
            self._pieces = io.StringIO()
        elif not self.is_lost:
            self._pieces.write(piece)

    @property
    def value(self) -> str:
        """The whole text, joined anew at each call; empty where it was forgotten."""
        return self._pieces.getvalue()
