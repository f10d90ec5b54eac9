"""Family G: Gemma's calls, JSON with bare keys and tokens for quotes (spec, parsers, 6)."""

from __future__ import annotations

import attrs

from stages.formats.body import Body
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Cursor, Ended, Steps
from stages.formats.literals import GEMMA, read_key, transcode
from stages.formats.output import Call

__all__ = ["GemmaCall"]


@attrs.frozen(eq=False)
class GemmaCall(Body):
    """``call:NAME{KEY:value, ...}``."""

    starts: tuple[str, ...]

    def read(self, reader: CallReader, start: str) -> Steps[None]:  # noqa: ARG002 - there is one start
        """Read one call; the first key, or the bracket of a call without arguments, makes it certain."""
        cursor = reader.cursor
        yield from cursor.expect("call:")
        name = yield from reader.read_name()
        reader.check_name(name)
        yield from cursor.expect("{")
        if (yield from cursor.visible()) == "}":
            cursor.at += 1
            call = reader.open_call(name)
            call.write("{}")
            call.close()
            return
        key = yield from read_key(cursor, GEMMA)
        call = reader.open_call(name)
        call.write("{")
        try:
            yield from _read_members(cursor, call, key)
        except Ended:
            cursor.go_back()
            call.write(cursor.take_rest())
            raise
        call.write("}")
        call.close()


def _read_members(cursor: Cursor, call: Call, key: str) -> Steps[None]:
    """Read the values, from behind the first key to the closing bracket."""
    while True:
        call.write(f"{key}:")
        yield from transcode(cursor, call.write, GEMMA)
        cursor.mark()
        if (yield from cursor.visible()) == ",":
            cursor.at += 1
            if (yield from cursor.visible()) != "}":
                key = yield from read_key(cursor, GEMMA)
                cursor.unmark()
                call.write(",")
                continue
        yield from cursor.expect("}")
        cursor.unmark()
        return
