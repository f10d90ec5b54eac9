"""A call as a JSON object of name and arguments (spec, parsers, 6, J)."""

from __future__ import annotations

from typing import Final

from stages.formats.call_reader import CallReader
from stages.formats.cursor import Impossible, Steps
from stages.formats.json_text import (
    Arguments,
    enter_string,
    pass_object,
    pass_string,
    read_string,
    skip_value,
)
from stages.formats.output import Call

__all__ = ["read_call_object"]

_ARGUMENTS: Final = frozenset({"arguments", "parameters"})
_KNOWN: Final = ("name", "function", "arguments", "parameters", "type", "id")


def read_call_object(reader: CallReader, *, is_bare: bool) -> Steps[None]:
    """Read an object, which is a call if it says so.

    Args:
        reader: whose cursor stands at the opening bracket.
        is_bare: whether a key that calls do not have makes it an answer.

    Raises:
        Impossible: it is no call; or what follows its arguments does not belong to it, and stands at the cursor.
    """
    yield from _ObjectReader(reader, is_bare=is_bare).read()


class _Held:
    """Arguments that came before their name."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.is_closed = False

    def write(self, text: str) -> None:
        self.pieces.append(text)

    def close(self) -> None:
        self.is_closed = True


class _ObjectReader:
    """Members come in any order; the call is certain as soon as its name and the beginning of its arguments are."""

    def __init__(self, reader: CallReader, *, is_bare: bool) -> None:
        self._reader = reader
        self._cursor = reader.cursor
        self._is_bare = is_bare
        self._name: str | None = None
        self._held: _Held | None = None
        self._depth = 0

    def read(self) -> Steps[None]:
        cursor = self._cursor
        yield from cursor.expect("{")
        self._depth = 1
        while not (yield from self._makes_certain()):
            while (yield from cursor.visible()) == "}":
                cursor.at += 1
                self._depth -= 1
                if not self._depth:
                    call = self._open()
                    call.write("{}")
                    call.close()
                    return
            yield from cursor.expect(",")
        yield from self._skip_rest()

    def _makes_certain(self) -> Steps[bool]:
        """Read a member; whether the call is certain with it, and its arguments are read."""
        cursor = self._cursor
        yield from cursor.skip_blanks()
        key = yield from read_string(cursor, self._may_become_key if self._is_bare else None)
        yield from cursor.skip_blanks()
        yield from cursor.expect(":")
        first = yield from cursor.visible()
        if key == "function" and first == "{" and self._depth == 1:
            cursor.at += 1
            self._depth += 1
            return (yield from cursor.visible()) != "}" and (yield from self._makes_certain())
        if key in ("name", "function") and self._name is None:
            return (yield from self._read_name())
        if key in _ARGUMENTS and self._held is None:
            return (yield from self._read_arguments(first))
        if self._is_bare and key not in _KNOWN:
            raise Impossible
        yield from skip_value(cursor)
        return False

    @staticmethod
    def _may_become_key(beginning: str) -> bool:
        return any(key.startswith(beginning) for key in _KNOWN)

    def _read_name(self) -> Steps[bool]:
        self._name = yield from read_string(self._cursor, self._reader.may_become_name)
        self._reader.check_name(self._name)
        if self._held is None:
            return False
        call = self._open()
        call.write("".join(self._held.pieces))
        if self._held.is_closed:
            call.close()
        return True

    def _read_arguments(self, first: str) -> Steps[bool]:
        cursor = self._cursor
        if first == "n":
            yield from cursor.expect("null")
            return False
        if first == '"':
            yield from enter_string(cursor)
            yield from pass_string(cursor, self._arguments())
        elif first == "{":
            yield from pass_object(cursor, self._arguments(), self._reader.stops)
        else:
            raise Impossible
        return self._held is None

    def _arguments(self) -> Arguments:
        if self._name is not None:
            return self._open()
        self._held = _Held()
        return self._held

    def _open(self) -> Call:
        if self._name is None:
            raise Impossible
        return self._reader.open_call(self._name)

    def _skip_rest(self) -> Steps[None]:
        """Step over the other members and the brackets that close the object, as far as they are there."""
        cursor = self._cursor
        while self._depth:
            cursor.mark()
            try:
                if (yield from cursor.visible()) == "}":
                    cursor.at += 1
                    self._depth -= 1
                else:
                    yield from self._skip_member()
            except Impossible:
                cursor.go_back()
                return
            cursor.unmark()

    def _skip_member(self) -> Steps[None]:
        cursor = self._cursor
        yield from cursor.expect(",")
        yield from cursor.skip_blanks()
        yield from read_string(cursor)
        yield from cursor.skip_blanks()
        yield from cursor.expect(":")
        cursor.unmark()
        yield from skip_value(cursor)
