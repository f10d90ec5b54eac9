"""Family P: calls as Python writes them (spec, parsers, 6)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from stages.formats.body import Body
from stages.formats.bracketed import BracketedArguments
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Cursor, Impossible, Steps
from stages.formats.escapes import quoted
from stages.formats.literals import PYTHON

__all__ = ["PythonCalls"]

_WORD: Final = re.compile(r"\w*+")


@attrs.frozen(eq=False)
class PythonCalls(Body):
    """Calls in a list, or one a line."""

    starts: tuple[str, ...] = ()
    is_list: bool = True
    """Whether they must stand in a list."""

    def read(self, reader: CallReader, start: str) -> Steps[None]:  # noqa: ARG002 - all starts are alike
        """Read the calls; the first makes the body certain."""
        cursor = reader.cursor
        is_list = (yield from cursor.visible()) == "["
        if is_list:
            cursor.at += 1
        elif self.is_list:
            raise Impossible
        yield from self._read_call(reader)
        while (yield from reader.attempt(self._read_next(reader, is_list=is_list))):
            pass
        if is_list:
            yield from self._leave_list(reader)

    def _read_next(self, reader: CallReader, *, is_list: bool) -> Steps[None]:
        if is_list:
            yield from reader.cursor.skip_blanks()
            yield from reader.cursor.expect(",")
        yield from self._read_call(reader)

    @staticmethod
    def _leave_list(reader: CallReader) -> Steps[None]:
        cursor = reader.cursor
        cursor.mark()
        try:
            if (yield from cursor.visible()) == ",":
                cursor.at += 1
                yield from cursor.skip_blanks()
            yield from cursor.expect("]")
        except Impossible:
            cursor.go_back()
        cursor.unmark()

    @staticmethod
    def _read_call(reader: CallReader) -> Steps[None]:
        """Read one call; a bracket behind the name's one, or a keyword, makes it certain."""
        cursor = reader.cursor
        yield from cursor.skip_blanks()
        name = yield from reader.read_name()
        reader.check_name(name)
        yield from cursor.expect("(")
        yield from _ARGUMENTS.read(reader, name)


def _read_keyword(cursor: Cursor) -> Steps[str]:
    """A keyword and its sign, as a JSON key."""
    keyword = yield from cursor.run(_WORD)
    if not keyword.isidentifier():
        raise Impossible
    yield from cursor.skip_blanks()
    yield from cursor.expect("=")
    if (yield from cursor.visible()) == "=":
        raise Impossible
    return quoted(keyword)


_ARGUMENTS: Final = BracketedArguments(PYTHON, ")", _read_keyword)
