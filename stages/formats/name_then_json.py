"""Family N: a header with the name, then the arguments as JSON (spec, parsers, 6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from stages.formats.body import Body
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Cursor, Impossible, Steps
from stages.formats.json_body import STRAYS, JsonBody
from stages.formats.json_text import pass_object, skip_strays

__all__ = ["NameThenJson", "mistral_header", "name_header", "numbered_header", "typed_header"]

Header: TypeAlias = Callable[[CallReader, str], Steps[tuple[str, str | None]]]
"""Reads a header and the separator behind it; gives the name, and the id if the model writes one."""

_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"\w*+")
_NUMBER: Final = re.compile(r":[0-9]++\Z")


@attrs.frozen(eq=False, kw_only=True)
class NameThenJson(Body):
    """A call's token, its header, and the object of its arguments, perhaps in a code fence."""

    call: str
    """The token that begins a call."""
    sections: tuple[str, ...] = ()
    """Tokens that begin a section, in which a call must follow."""
    header: Header
    separator: str = ""
    """What ends the header."""
    call_end: str = ""
    """The token that ends a call; straight behind the header it means that there are no arguments."""
    is_fenced: bool = False
    """Whether the arguments may stand in a code fence."""
    array: JsonBody | None = None
    """What may follow the call's token in place of a header."""
    others: tuple[str, ...] = ()
    """More tokens that headers are made of."""
    starts: tuple[str, ...] = attrs.field(init=False)
    markers: tuple[str, ...] = attrs.field(init=False)

    @starts.default
    def _starts(self) -> tuple[str, ...]:
        return (*self.sections, self.call)

    @markers.default
    def _markers(self) -> tuple[str, ...]:
        markers = (self.separator if len(self.separator) > 1 else "", self.call_end, *self.others)
        return tuple(filter(None, markers))

    def read(self, reader: CallReader, start: str) -> Steps[None]:
        """Read one call; the next one has a token of its own."""
        cursor = reader.cursor
        if start in self.sections:
            yield from cursor.skip_blanks()
            yield from cursor.expect(self.call)
        if self.array is not None and (yield from cursor.visible()) in "[{":
            yield from self.array.read(reader, start)
            return
        name, own_id = yield from self.header(reader, self.separator)
        reader.check_name(name)
        is_fenced = self.is_fenced and (yield from _enters_fence(cursor))
        if (yield from cursor.visible()) == "{":
            yield from pass_object(cursor, reader.open_call(name, own_id), reader.stops)
            yield from skip_strays(cursor, STRAYS)
            if is_fenced:
                yield from _leave_fence(cursor)
        elif self.call_end:
            yield from cursor.expect(self.call_end)
            cursor.at -= len(self.call_end)
            call = reader.open_call(name, own_id)
            call.write("{}")
            call.close()
        else:
            raise Impossible


def name_header(reader: CallReader, separator: str) -> Steps[tuple[str, str | None]]:
    """The name, up to the separator."""
    name = yield from reader.read_name()
    yield from reader.cursor.skip_blanks()
    yield from reader.cursor.expect(separator)
    return name, None


def typed_header(reader: CallReader, separator: str) -> Steps[tuple[str, str | None]]:
    """A type, the separator, and the name on the rest of the line."""
    if not (yield from reader.read_header()):
        raise Impossible
    yield from reader.cursor.skip_blanks()
    yield from reader.cursor.expect(separator)
    return (yield from reader.read_name()), None


def numbered_header(reader: CallReader, separator: str) -> Steps[tuple[str, str | None]]:
    """``functions.NAME:NUMBER``, which is the id as well; both ends may be missing."""
    yield from reader.cursor.skip_blanks()
    header = yield from reader.read_header()
    yield from reader.cursor.skip_blanks()
    yield from reader.cursor.expect(separator)
    return _NUMBER.sub("", header.removeprefix("functions.")), header


def mistral_header(reader: CallReader, separator: str) -> Steps[tuple[str, str | None]]:
    """The name, perhaps ``[CALL_ID]`` and the id, perhaps the separator."""
    cursor = reader.cursor
    name = yield from reader.read_name()
    own_id = None
    if (yield from cursor.visible()) == "[" and (yield from cursor.expect("[CALL_ID]", separator)) != separator:
        yield from cursor.skip_blanks()
        own_id = yield from reader.read_header()
        if (yield from cursor.visible()) == "[":
            yield from cursor.expect(separator)
    return name, own_id


def _enters_fence(cursor: Cursor) -> Steps[bool]:
    if (yield from cursor.visible()) != _FENCE[0]:
        return False
    yield from cursor.expect(_FENCE)
    yield from cursor.run(_LANGUAGE)
    return True


def _leave_fence(cursor: Cursor) -> Steps[None]:
    cursor.mark()
    try:
        yield from cursor.skip_blanks()
        yield from cursor.expect(_FENCE)
    except Impossible:
        cursor.go_back()
    cursor.unmark()
