"""JSON that a model writes, read as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from stages.formats.argument_scanner import ArgumentScanner, Found
from stages.formats.cursor import BLANK, Cursor, Ended, Impossible, Steps
from stages.formats.escapes import JSON_ESCAPES, read_escape
from stages.formats.markers import Markers

__all__ = ["Arguments", "enter_string", "pass_object", "pass_string", "read_string", "skip_strays", "skip_value"]

_PLAIN: Final = re.compile(r'[^"\\]*+')
_SCALAR: Final = re.compile(r"[\w.+-]*+")


class Arguments(Protocol):
    """Takes the text of an object; ``stages.formats.output.Call`` is one."""

    def write(self, text: str) -> None:
        """Add text."""

    def close(self) -> None:
        """The object is whole."""


def pass_object(cursor: Cursor, arguments: Arguments, stops: Markers) -> Steps[None]:
    """Pass on an object's text as it comes, byte for byte, up to the bracket that closes it.

    Args:
        cursor: stands at the opening bracket.
        arguments: takes the text.
        stops: the markers that break it off where they stand outside of strings.

    Raises:
        Impossible: a marker breaks it off; the cursor stands there.
        Ended: the text has ended inside of it.
    """
    scanner = ArgumentScanner(stops)
    while True:
        end, found = scanner.scan(cursor.text, cursor.at)
        arguments.write(cursor.text[cursor.at : end])
        cursor.at = end
        if found is Found.END:
            arguments.close()
            return
        if found is Found.MARKER:
            raise Impossible
        try:
            yield from cursor.more()
        except Ended:
            rest = cursor.text[cursor.at : cursor.at + 1]
            if rest == "[" or rest.isalnum():  # half a marker, but JSON may have that too
                arguments.write(cursor.take_rest())
            raise


def enter_string(cursor: Cursor) -> Steps[None]:
    """Step over a quote and what is blank behind it, up to the bracket of an object that is written as a string.

    Raises:
        Impossible: the string holds something else.
    """
    yield from cursor.expect('"')
    while (yield from cursor.visible()) == "\\":
        if (yield from read_escape(cursor, JSON_ESCAPES)) not in BLANK:
            raise Impossible
    if cursor.text[cursor.at] != "{":
        raise Impossible


def pass_string(cursor: Cursor, arguments: Arguments) -> Steps[None]:
    """Pass on an object that is written as a string, decoded once, up to the quote that ends the string.

    Args:
        cursor: stands at the object's opening bracket.
        arguments: takes the text. It is not closed if the string ends inside of the object.

    Raises:
        Impossible: something else than blanks follows the object in the string.
        Ended: the text has ended inside of the string.
    """
    scanner = ArgumentScanner()
    while True:
        match = _PLAIN.match(cursor.text, cursor.at)
        assert match is not None, "the pattern matches the empty text"
        piece = match[0]
        end, found = scanner.scan(piece, 0)
        arguments.write(piece[:end])
        cursor.at += end
        if found is not Found.END:
            if (yield from cursor.peek()) == '"':
                cursor.at += 1
                return
            if cursor.text[cursor.at] != "\\":
                continue
            piece = yield from read_escape(cursor, JSON_ESCAPES)
            end, found = scanner.scan(piece, 0)
            arguments.write(piece)
        if found is Found.END:
            arguments.close()
            yield from _leave_string(cursor)
            return


def _leave_string(cursor: Cursor) -> Steps[None]:
    is_undecided = cursor.is_marked
    if not is_undecided:
        cursor.mark()
    yield from cursor.skip_blanks()
    yield from cursor.expect('"')
    if not is_undecided:
        cursor.unmark()


def read_string(cursor: Cursor, is_fine: Callable[[str], bool] | None = None) -> Steps[str]:
    """Read a string; give what it says.

    Args:
        cursor: stands at its quote.
        is_fine: asked, whenever text has come, whether what was read so far may go on.

    Raises:
        Impossible: it is no string, or ``is_fine`` says no.
    """
    yield from cursor.expect('"')
    parts: list[str] = []
    checked = None if is_fine is None else lambda piece: is_fine("".join((*parts, piece)))
    while True:
        parts.append((yield from cursor.run(_PLAIN, checked)))
        if cursor.text[cursor.at] == '"':
            cursor.at += 1
            return "".join(parts)
        parts.append((yield from read_escape(cursor, JSON_ESCAPES)))


def skip_value(cursor: Cursor) -> Steps[str]:
    """Step over any value and the blanks before it; give its first character.

    Raises:
        Impossible: there is none.
    """
    first = yield from cursor.visible()
    if first == '"':
        yield from read_string(cursor)
    elif first in "{[":
        scanner = ArgumentScanner()
        while True:
            cursor.at, found = scanner.scan(cursor.text, cursor.at)
            if found is Found.END:
                break
            yield from cursor.more()
    elif not (yield from cursor.run(_SCALAR)):
        raise Impossible
    return first


def skip_strays(cursor: Cursor, strays: str) -> Steps[None]:
    """Step over brackets too many, and the blanks before each (3.6)."""
    while True:
        cursor.mark()
        if (yield from cursor.visible()) not in strays:
            cursor.go_back()
            return
        cursor.at += 1
        cursor.unmark()
