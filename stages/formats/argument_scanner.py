"""Follows the text of an object, byte for byte as a model writes it, to the bracket that closes it (spec, parsers, 2).

Unlike ``stages.json_scanner`` it tells where that bracket is, and stops at a marker outside of strings.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Final

from stages.formats.markers import Markers, markers_of

__all__ = ["ArgumentScanner", "Found"]


class Found(enum.Enum):
    """Why a scan ended where it ended."""

    NOTHING = "nothing"
    """The text is used up, but for a tail that may be the beginning of a marker."""
    END = "end"
    """The object's closing bracket is the last character."""
    MARKER = "marker"
    """A marker follows: the object is broken off."""


_NO_MARKERS: Final = markers_of(())
# To the end of a string, or to a backslash whose other half is in the next piece.
_INSIDE: Final = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


class ArgumentScanner:
    """Knows strings, escapes and depth, nothing more. Kinds of brackets are not matched. Linear; keeps a few flags.

    Args:
        stops: the markers that cannot be part of the object, outside of its strings.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "_outside", "_stops")

    def __init__(self, stops: Markers = _NO_MARKERS) -> None:
        self._stops = stops
        self._outside = _outside_of_strings(stops.firsts)
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def scan(self, text: str, at: int) -> tuple[int, Found]:
        """Go on from ``at``; where it ended, and why. What lies before that place is the object's for sure."""
        if self._escaped and at < len(text):
            self._escaped = False
            at += 1
        while True:
            match = (_INSIDE if self._in_string else self._outside).match(text, at)
            assert match is not None, "the patterns match the empty text"
            at = match.end()
            if at == len(text):
                return at, Found.NOTHING
            character = text[at]
            if self._in_string:
                self._in_string = False if character == '"' else self._in_string
                self._escaped = character == "\\"
            elif character in self._stops.firsts and (is_marker := self._stops.is_at(text, at)) is not False:
                return at, Found.MARKER if is_marker else Found.NOTHING
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1, Found.END
            at += 1


@functools.lru_cache(maxsize=512)
def _outside_of_strings(stops: str) -> re.Pattern[str]:
    """To the next bracket or possible marker; whole strings are stepped over."""
    special = re.escape('"{}[]' + stops)
    return re.compile(rf'(?:[^{special}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
