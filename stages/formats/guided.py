"""Bare JSON from servers that guide their model to it where a call is required (spec, parsers, 8)."""

from __future__ import annotations

from typing import Final

from stages.formats.body import Body
from stages.formats.call_reader import CallReader
from stages.formats.cursor import BLANK, MAX_HELD, Cursor, Impossible, Steps
from stages.formats.json_body import JsonBody
from stages.formats.json_text import pass_object, read_string, skip_strays
from stages.formats.reader import Reader

__all__ = ["GuidedReader", "guided_bodies"]

_CALLS: Final = JsonBody()


class _ArgumentObject(Body):
    """The arguments of the one tool that the request names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self, reader: CallReader, start: str) -> Steps[None]:  # noqa: ARG002 - it stands bare only
        """Read an object, unless it wraps the arguments in a call of that very tool."""
        cursor = reader.cursor
        if (yield from self._is_call(cursor)):
            raise Impossible
        cursor.go_back()
        yield from pass_object(cursor, reader.open_call(self._name), reader.stops)
        yield from skip_strays(cursor, _CALLS.strays)

    def _is_call(self, cursor: Cursor) -> Steps[bool]:
        yield from cursor.expect("{")
        first = yield from cursor.visible()
        if first not in '"}':
            raise Impossible
        try:
            yield from cursor.expect('"name"')
            yield from cursor.skip_blanks()
            yield from cursor.expect(":")
            yield from cursor.skip_blanks()
            if (yield from read_string(cursor, self._name.startswith)) != self._name:
                return False
            yield from cursor.skip_blanks()
            yield from cursor.expect(",")
            yield from cursor.skip_blanks()
            yield from cursor.expect('"arguments"', '"parameters"')
        except Impossible:
            return False
        return True


def guided_bodies(forced: str | None) -> dict[str, tuple[Body, ...]]:
    """What may stand bare at the start of the text, by its first character.

    Args:
        forced: the tool that the request names, if it names one.
    """
    objects: tuple[Body, ...] = (_CALLS,) if forced is None else (_ArgumentObject(forced), _CALLS)
    return {"{": objects, "[": (_CALLS,)}


class GuidedReader:
    """Reads a text by its first visible character: as bare JSON, or as the format's own.

    Args:
        guided: reads bare JSON.
        other: reads anything else.
    """

    is_done = False
    """A call may come at any time."""

    def __init__(self, guided: Reader, other: Reader) -> None:
        self._guided = guided
        self._other = other
        self._chosen: Reader | None = None
        self._blanks: list[str] = []
        self._length = 0

    def passes(self, text: str) -> bool:
        """Whether the text goes out as it is. It counts as read then."""
        return self._chosen is not None and self._chosen.passes(text)

    def feed(self, text: str) -> None:
        """Read more text."""
        if self._chosen is None:
            self._blanks.append(text)
            self._length += len(text)
            visible = text.lstrip(BLANK)
            if not visible and self._length < MAX_HELD:
                return
            self._chosen = self._guided if visible.startswith(("{", "[")) else self._other
            text = "".join(self._blanks)
            self._blanks.clear()
        self._chosen.feed(text)

    def finish(self, reason: str | None) -> None:
        """Read what is held as the end of the text."""
        chosen = self._chosen or self._other
        if self._blanks:
            chosen.feed("".join(self._blanks))
        chosen.finish(reason)
