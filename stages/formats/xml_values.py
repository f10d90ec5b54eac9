"""Where the value of a parameter between tags ends, and what it becomes (spec, parsers, 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from stages.formats.cursor import MAX_HELD, Cursor, Ended, Impossible, Steps
from stages.formats.escapes import escaped
from stages.formats.markers import markers_of
from stages.formats.output import Call
from stages.formats.schema_types import STRING
from stages.formats.typed_values import typed_value

__all__ = ["ValueTags", "read_value"]

_LINE_BREAKS: Final = ("\r\n", "\n")


@attrs.frozen
class ValueTags:
    """What stands behind a value."""

    end: str
    """The value's end tag."""
    followers: tuple[str, ...]
    """The tags of which one must follow it, behind blanks; else the end tag is part of the value."""
    has_line_breaks: bool
    """Whether one line break at each end of the value is markup."""


def read_value(cursor: Cursor, call: Call, types: frozenset[str], tags: ValueTags) -> Steps[None]:
    """Read a value and write it as JSON: a string as it comes, anything else once it is there.

    Args:
        cursor: stands at the value; then behind its end tag.
        call: takes the value.
        types: those that the value may have.
        tags: what stands behind it.

    Raises:
        Ended: the value is cut off. It was written as far as it came.
    """
    if types == STRING:
        call.write('"')
        yield from _read(cursor, lambda text: call.write(escaped(text)), tags)
        call.write('"')
        return
    waiting = _Waiting(call)
    try:
        yield from _read(cursor, waiting.write, tags)
    except Ended:
        waiting.give_up()
        raise
    waiting.settle(types)


class _Waiting:
    """A value whose kind only its end can tell. One that is too long goes out as it is."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._pieces: list[str] | None = []
        self._length = 0

    def write(self, text: str) -> None:
        if self._pieces is None:
            self._call.write(text)
            return
        self._pieces.append(text)
        self._length += len(text)
        if self._length > MAX_HELD:
            self.give_up()

    def give_up(self) -> None:
        self._call.write("".join(self._pieces or ()))
        self._pieces = None

    def settle(self, types: frozenset[str]) -> None:
        if self._pieces is not None:
            self._call.write(typed_value("".join(self._pieces), types))


def _read(cursor: Cursor, write: Callable[[str], None], tags: ValueTags) -> Steps[None]:
    try:
        if tags.has_line_breaks:
            yield from _skip_line_break(cursor)
        yield from _read_text(cursor, write, tags)
    except Ended:
        write(cursor.take_rest())
        raise


def _read_text(cursor: Cursor, write: Callable[[str], None], tags: ValueTags) -> Steps[None]:
    markers = markers_of((tags.end,), tail=r"(?:\r\n|[\r\n])?" if tags.has_line_breaks else "")
    while True:
        found = markers.find(cursor.text, cursor.at)
        if found is None:
            end = markers.held_from(cursor.text, cursor.at)
            write(cursor.text[cursor.at : end])
            cursor.at = end
            yield from cursor.more()
            continue
        text = cursor.text[cursor.at : found[0]]
        line_breaks = _LINE_BREAKS if tags.has_line_breaks else ()
        line_break = next((each for each in line_breaks if text.endswith(each)), "")
        write(text.removesuffix(line_break))
        cursor.at = found[0]
        if (yield from _is_end(cursor, tags)):
            return
        write(line_break + tags.end)


def _is_end(cursor: Cursor, tags: ValueTags) -> Steps[bool]:
    """Step over an end tag; whether it ends the value. At the end of the text it does."""
    cursor.mark()
    cursor.at += len(tags.end)
    try:
        yield from cursor.skip_blanks()
        yield from cursor.expect(*tags.followers)
        is_end = True
    except Ended:
        is_end = True
    except Impossible:
        is_end = False
    cursor.go_back()
    cursor.at += len(tags.end)
    return is_end


def _skip_line_break(cursor: Cursor) -> Steps[None]:
    ahead = yield from cursor.peek()
    if ahead == "\r":
        ahead = yield from cursor.ahead(2)
    if ahead in _LINE_BREAKS:
        cursor.at += len(ahead)
