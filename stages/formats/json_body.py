"""Family J: an object of name and arguments, several, or an array of them (spec, parsers, 6)."""

from __future__ import annotations

from typing import Final

import attrs

from stages.formats.body import Body
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Impossible, Steps
from stages.formats.json_objects import read_call_object
from stages.formats.json_text import skip_strays

__all__ = ["STRAYS", "JsonBody"]

STRAYS: Final = "}]"
"""The brackets that may be one too many behind a body (3.6)."""


@attrs.frozen(eq=False)
class JsonBody(Body):
    """One call object, or several after another or in an array."""

    starts: tuple[str, ...] = ()
    is_array: bool = False
    """Whether it must be an array."""
    strays: str = STRAYS
    """What is dropped straight behind an object, or between two."""

    def read(self, reader: CallReader, start: str) -> Steps[None]:
        """Read the objects; the first makes the body certain."""
        cursor = reader.cursor
        if (yield from cursor.visible()) == "[":
            cursor.at += 1
            yield from cursor.skip_blanks()
        elif self.is_array:
            raise Impossible
        yield from read_call_object(reader, is_bare=not start)
        yield from skip_strays(cursor, self.strays)
        while (yield from reader.attempt(self._read_next(reader, start))):
            yield from skip_strays(cursor, self.strays)

    @staticmethod
    def _read_next(reader: CallReader, start: str) -> Steps[None]:
        if (yield from reader.cursor.visible()) == ",":
            reader.cursor.at += 1
            yield from reader.cursor.skip_blanks()
        yield from read_call_object(reader, is_bare=not start)
