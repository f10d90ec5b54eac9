"""Finds markers in a text, and the tail of it that may be the beginning of one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

__all__ = ["Markers", "markers_of"]


class Markers:
    """A set of markers to look for.

    Args:
        texts: the markers, none of which begins with another one.
        line_starts: characters that count as markers at the start of a line, and nowhere else.
        tail: a pattern for what else may not go out yet, in front of a marker or of the text's end.
    """

    __slots__ = ("_any", "_longest", "_tail", "concern", "firsts", "texts")

    def __init__(self, texts: tuple[str, ...], line_starts: str = "", tail: str = "") -> None:
        self.texts = texts
        """The markers."""
        options = [re.escape(text) for text in texts]
        self.firsts = "".join(sorted({text[0] for text in texts} | set(line_starts)))
        """The characters that markers begin with."""
        if line_starts:
            options.append(f"(?m:^)[{re.escape(line_starts)}]")
        self._any = re.compile("|".join(options) or "(?!)")
        self.concern: Callable[[str], object] = _search_of(self.firsts)
        """Whether a marker may begin anywhere in a text; quick to say no, which is a false value."""
        self._tail = re.compile(rf"{tail}{_beginnings(texts)}\Z")
        self._longest = max(map(len, texts), default=0) + 2

    def find(self, text: str, start: int) -> tuple[int, str] | None:
        """The place of the first marker from ``start`` on, and the marker itself."""
        match = self._any.search(text, start)
        return None if match is None else (match.start(), match[0])

    def held_from(self, text: str, start: int) -> int:
        """Where the longest tail begins that may be the beginning of a marker; the text's end if there is none."""
        match = self._tail.search(text, max(start, len(text) - self._longest))
        return len(text) if match is None else match.start()

    def is_at(self, text: str, start: int) -> bool | None:
        """Whether a marker begins at that place; none where the text is too short to say."""
        if text.startswith(self.texts, start):
            return True
        ahead = text[start : start + self._longest]
        return None if any(marker.startswith(ahead) for marker in self.texts) else False


def _search_of(characters: str) -> Callable[[str], object]:
    """What finds any of the characters in a text; a pattern reads it ten times slower than ``in``."""
    if not characters:
        return lambda _: False
    if len(characters) == 1:
        return lambda text: characters in text
    if len(characters) == 2:  # noqa: PLR2004 - two are still quicker than a pattern
        first, second = characters[0], characters[1]
        return lambda text: first in text or second in text
    return re.compile(f"[{re.escape(characters)}]").search


@functools.lru_cache(maxsize=512)
def markers_of(texts: tuple[str, ...], line_starts: str = "", tail: str = "") -> Markers:
    """The set of these markers, compiled once."""
    return Markers(texts, line_starts, tail)


def _beginnings(texts: tuple[str, ...]) -> str:
    """A pattern for every proper beginning of every marker, the empty one too."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        if len(text) > 1:
            groups.setdefault(text[0], []).append(text[1:])
    options = [re.escape(first) + _beginnings(tuple(rest)) for first, rest in groups.items()]
    return f"(?:{'|'.join(options)})?" if options else ""
