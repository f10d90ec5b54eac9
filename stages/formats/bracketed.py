"""Arguments in brackets as two families write them: keys, values in the family's literals, commas."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from stages.formats.call_reader import CallReader
from stages.formats.cursor import Cursor, Ended, Steps
from stages.formats.literals import Dialect, transcode
from stages.formats.output import Call

__all__ = ["BracketedArguments"]


@attrs.frozen(eq=False)
class BracketedArguments:
    """``KEY value, KEY value CLOSE``, made a JSON object while it is read."""

    dialect: Dialect
    close: str
    read_key: Callable[[Cursor], Steps[str]]
    """Reads a key and what stands between it and its value; gives it as JSON."""

    def read(self, reader: CallReader, name: str) -> Steps[None]:
        """Read from behind the opening bracket; the first key, or the bracket of none, makes the call certain."""
        cursor = reader.cursor
        if (yield from cursor.visible()) == self.close:
            cursor.at += 1
            call = reader.open_call(name)
            call.write("{}")
            call.close()
            return
        key = yield from self.read_key(cursor)
        call = reader.open_call(name)
        call.write("{")
        try:
            yield from self._read_members(cursor, call, key)
        except Ended:
            cursor.go_back()
            call.write(cursor.take_rest())
            raise
        call.write("}")
        call.close()

    def _read_members(self, cursor: Cursor, call: Call, key: str) -> Steps[None]:
        """Read the values, from behind the first key to the closing bracket."""
        while True:
            call.write(f"{key}:")
            yield from transcode(cursor, call.write, self.dialect)
            cursor.mark()
            if (yield from cursor.visible()) == ",":
                cursor.at += 1
                if (yield from cursor.visible()) != self.close:
                    key = yield from self.read_key(cursor)
                    cursor.unmark()
                    call.write(",")
                    continue
            yield from cursor.expect(self.close)
            cursor.unmark()
            return
