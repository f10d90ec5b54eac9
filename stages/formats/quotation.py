"""Whether a marker stands in inline code (spec, parsers, 3.4)."""

from __future__ import annotations

from stages.formats.markers import Markers

__all__ = ["Line", "held_from"]

_TICK = "`"


class Line:
    """The line of text that has gone out last, as far as quotations need it."""

    __slots__ = ("_has_odd_ticks", "_last")

    def __init__(self) -> None:
        self._last = ""
        self._has_odd_ticks = False

    def add(self, text: str) -> None:
        """Go on with more text, which is not empty."""
        self._last = text[-1]
        if _TICK in text or "\n" in text:
            self._has_odd_ticks = self._is_odd_after(text)

    def follow_markup(self) -> None:
        """Markup stands between the text so far and what follows."""
        self._last = ""

    def last_of(self, text: str) -> str:
        """The last character of the line and a text behind it."""
        return text[-1] if text else self._last

    def is_quoted(self, text: str) -> bool:
        """Whether a marker behind that text is in inline code: a backtick before it, of an odd number in the line."""
        return self.last_of(text) == _TICK and self._is_odd_after(text)

    def _is_odd_after(self, text: str) -> bool:
        line = text.rfind("\n") + 1
        ticks = text.count(_TICK, line)
        return ticks % 2 == 1 if line else (ticks + self._has_odd_ticks) % 2 == 1


def held_from(markers: Markers, line: Line, text: str, start: int) -> int:
    """Where the tail of a text begins that may be the beginning of a marker; one in inline code cannot be.

    Args:
        markers: what is looked for.
        line: what stands before the text.
        text: what is looked at.
        start: where in it.
    """
    place = markers.held_from(text, start)
    while place < len(text) and line.is_quoted(text[start:place]):
        place = markers.held_from(text, place + 1)
    return place
