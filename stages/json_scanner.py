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
_PLAIN: Final = re.compile(r'[^"{}\[\]]*+')
# Each bracket outside of strings, as the third group. A string that the fragment leaves open shows in the first group,
# if the fragment ends in a backslash whose other half is in the next one, or else in the second, as any character.
# Repetitions are possessive: no character is read twice.
_BRACKETS: Final = re.compile(r'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+(?:"|(\\)\Z|\Z(?<=(.))))*+([{}\[\]]|\Z)', re.DOTALL)
# The match at the end, behind one that reached it.
_EMPTY: Final = ("", "", "")
# From the middle of a string to its end; the group takes part where the fragment ends before it.
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

    def copy(self) -> JsonScanner:
        """Another scanner in the same state."""
        other = JsonScanner()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def is_open(self) -> bool:
        """Whether a root object or array has begun and is not closed."""
        return self._depth > 0

    def feed(self, text: str) -> Verdict:
        """Take the next fragment, which may be empty, and judge all text so far."""
        position = 0
        if self._in_string:
            if '"' not in text and "\\" not in text:
                if text:
                    self._escaped = False
                return _INCOMPLETE
            position = self._leave_string(text)
            if self._in_string:
                return _INCOMPLETE
        if self._depth:
            return self._count(text, position)
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
            return self._count(text, first.end())
        if character in "}]":
            self._verdict = _MALFORMED
        else:
            self._is_scalar = True
        return self._verdict

    def _leave_string(self, text: str) -> int:
        """Where the string ends that the text begins in; the end of the text where it does not."""
        position = 1 if self._escaped else 0
        self._escaped = False
        found = _INSIDE.match(text, position)
        assert found is not None
        if found.lastindex:
            self._escaped = found[1] != ""
        else:
            self._in_string = False
        return found.end()

    def _count(self, text: str, position: int) -> Verdict:
        """Follow the brackets from a place outside of strings."""
        plain = _PLAIN.match(text, position)
        assert plain is not None
        if plain.end() == len(text):
            return _INCOMPLETE
        found: list[tuple[str, str, str]] = _BRACKETS.findall(text, plain.end())
        tail = found[-1] if found[-1] != _EMPTY or len(found) == 1 else found[-2]
        opens_string = tail[0] != "" or tail[1] != ""
        depth = self._depth
        for place, (_, _, bracket) in enumerate(found):
            if not bracket:
                break
            depth += 1 if bracket in "{[" else -1
            if not depth:
                self._depth = 0
                if opens_string or found[place + 1][2]:
                    self._verdict = _MALFORMED
                    return _MALFORMED
                return self._follow_root(text, text.rindex(bracket) + 1)
        self._depth = depth
        self._in_string = opens_string
        self._escaped = tail[0] != ""
        return _INCOMPLETE

    def _follow_root(self, text: str, position: int) -> Verdict:
        self._verdict = _MALFORMED if _SIGNIFICANT.search(text, position) else _CLOSED
        return self._verdict
