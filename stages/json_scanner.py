"""Finds where a JSON text that arrives in fragments ends, never going back to an earlier one (spec, dispatch, 3.4)."""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["JsonScanner", "Verdict"]


class Verdict(enum.Enum):
    """What is known of a text after its latest fragment."""

    INCOMPLETE = "incomplete"
    """The root is not closed; or it is a scalar, whose end no fragment can tell."""
    CLOSED = "closed"
    """The root object or array is closed and only whitespace follows. Its syntax is still to be checked."""
    MALFORMED = "malformed"
    """It can never become JSON: it begins with a closing bracket, or something follows the root."""


_INCOMPLETE: Final = Verdict.INCOMPLETE
_CLOSED: Final = Verdict.CLOSED
_MALFORMED: Final = Verdict.MALFORMED

_SIGNIFICANT: Final = re.compile(r"[^ \t\n\r]")
# To the next bracket outside of strings, or to the end of the fragment, also in the middle of a string: then the group
# takes part, and holds a backslash whose other half is in the next fragment. Repetitions are possessive: no character
# is read twice.
_OUTSIDE: Final = re.compile(r'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+(?:"|(\\?)\Z))*+(?:[{}\[\]]|\Z)', re.DOTALL)
# The same from the middle of a string to its end.
_INSIDE: Final = re.compile(r'(?:[^"\\]++|\\.)*+(?:"|(\\?)\Z)', re.DOTALL)


class JsonScanner:
    """Structural state of one JSON text: brackets are counted, strings are skipped, whitespace is JSON's own.

    Kinds of brackets are not matched and nothing else is checked; ``stages.json_syntax`` does that once, at the
    first ``CLOSED``. The cost is linear in the fragments; what is kept is a few flags.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "_is_scalar", "_verdict")

    def __init__(self) -> None:
        self._verdict = _INCOMPLETE
        self._is_scalar = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_open(self) -> bool:
        """Whether a root object or array has begun and is not closed."""
        return self._depth > 0

    def feed(self, text: str) -> Verdict:
        """Take the next fragment, which may be empty, and judge all text so far."""
        if self._in_string:
            if '"' not in text and "\\" not in text:
                if text:
                    self._escaped = False
                return _INCOMPLETE
            return self._scan(text, 0)
        if self._depth:
            return self._scan(text, 0)
        if self._verdict is _CLOSED:
            return self._follow_root(text, 0)
        if self._is_scalar or self._verdict is _MALFORMED:
            return self._verdict
        return self._begin_root(text)

    def _begin_root(self, text: str) -> Verdict:
        first = _SIGNIFICANT.search(text)
        if first is None:
            return _INCOMPLETE
        character = first[0]
        if character in "{[":
            self._depth = 1
            return self._scan(text, first.end())
        if character in "}]":
            self._verdict = _MALFORMED
        else:
            self._is_scalar = True
        return self._verdict

    def _scan(self, text: str, position: int) -> Verdict:
        if self._escaped and text:
            self._escaped = False
            position = 1
        if self._in_string:
            found = _INSIDE.match(text, position)
            assert found is not None
            if found.lastindex:
                self._escaped = found[1] != ""
                return _INCOMPLETE
            self._in_string = False
            position = found.end()
        depth = self._depth
        while found := _OUTSIDE.match(text, position):
            if found.lastindex:
                self._in_string = True
                self._escaped = found[1] != ""
                break
            if found.end() == position:
                break
            position = found.end()
            character = text[position - 1]
            if character in "{[":
                depth += 1
            elif character in "}]":
                depth -= 1
                if not depth:
                    self._depth = 0
                    return self._follow_root(text, position)
            else:
                break
        self._depth = depth
        return _INCOMPLETE

    def _follow_root(self, text: str, position: int) -> Verdict:
        self._verdict = _MALFORMED if _SIGNIFICANT.search(text, position) else _CLOSED
        return self._verdict
