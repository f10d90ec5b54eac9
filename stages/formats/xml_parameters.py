"""Family X: parameters between tags, their values as text (spec, parsers, 4 and 6)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from stages.formats.body import Body
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Cursor, Ended, Impossible, Steps
from stages.formats.escapes import quoted
from stages.formats.output import Call
from stages.formats.schema_types import ANY, STRING
from stages.formats.xml_values import ValueTags, read_value

__all__ = ["QUOTED_KEY", "XmlParameters"]

MAX_KEY: Final = 1024
"""The longest key of a parameter, with what stands beside it in its tag."""

QUOTED_KEY: Final = re.compile(r'(?P<key>[^"]+)"(?:\s+string="(?P<string>true|false)")?\s*')
"""A key in quotes, of which the first belongs to the tag, and perhaps DSML's attribute."""

_UP_TO_TAG: Final = re.compile(r"[^<>\r\n]*+")


@attrs.frozen(eq=False, kw_only=True)
class XmlParameters(Body):
    """The tags of one format. Each is written here as far as it is always the same."""

    block: tuple[str, str]
    """Start and end of a block of calls."""
    call: tuple[str, str] = ("", "")
    """What stands around a call's name; nothing where it follows the block's start."""
    call_end: str
    """The end tag of a call."""
    may_lack_block: bool = False
    """Whether a call counts without its block's start."""
    parameter: tuple[str, str]
    """What stands around a parameter's key."""
    key: re.Pattern[str] = re.compile(r"(?P<key>.+)")
    """What stands there: the key, and perhaps whether the value is a ``string`` (``true`` or ``false``)."""
    value: str = ""
    """What then begins the value, behind blanks."""
    value_end: str
    """The end tag of a value."""
    has_line_breaks: bool = False
    """Whether one line break at each end of a value is markup."""
    starts: tuple[str, ...] = attrs.field(init=False)
    inner_starts: tuple[str, ...] = attrs.field(init=False)
    _tags: ValueTags = attrs.field(init=False)

    @starts.default
    def _starts(self) -> tuple[str, ...]:
        return (self.block[0], self.call[0]) if self.may_lack_block else (self.block[0],)

    @inner_starts.default
    def _inner_starts(self) -> tuple[str, ...]:
        return (self.call[0],) if self.call[0] and not self.may_lack_block else ()

    @_tags.default
    def _make_tags(self) -> ValueTags:
        followers = dict.fromkeys((self.parameter[0], self.call_end, self.block[1]))
        return ValueTags(self.value_end, tuple(followers), self.has_line_breaks)

    def read(self, reader: CallReader, start: str) -> Steps[None]:
        """Read one call; the first key, or the end of a call without parameters, makes it certain."""
        cursor = reader.cursor
        if start == self.block[0]:
            yield from cursor.skip_blanks()
            yield from cursor.expect(self.call[0])
        name = yield from reader.read_name()
        yield from cursor.expect(self.call[1])
        reader.check_name(name)
        yield from cursor.skip_blanks()
        if (yield from self._has_parameter(cursor)):
            key, types = yield from self._read_key(reader, name)
            call = reader.open_call(name)
            call.write(f"{{{quoted(key)}:")
            yield from read_value(cursor, call, types, self._tags)
            yield from self._read_parameters(reader, name, call)
            call.write("}")
        else:
            call = reader.open_call(name)
            call.write("{}")
        call.close()

    def _read_parameters(self, reader: CallReader, name: str, call: Call) -> Steps[None]:
        """Read parameters up to the call's end, which may lack where the model has finished."""
        cursor = reader.cursor
        while True:
            cursor.mark()
            try:
                yield from cursor.skip_blanks()
            except Ended:
                if reader.may_close:
                    call.write("}")
                    call.close()
                raise
            if not (yield from self._has_parameter(cursor)):
                cursor.unmark()
                return
            key, types = yield from self._read_key(reader, name)
            cursor.unmark()
            call.write(f",{quoted(key)}:")
            yield from read_value(cursor, call, types, self._tags)

    def _has_parameter(self, cursor: Cursor) -> Steps[bool]:
        """Step over what begins a parameter, or over the end of the call; the block's end, which is owed, stays."""
        follower = yield from cursor.expect(*self._tags.followers)
        if follower not in (self.parameter[0], self.call_end):
            cursor.at -= len(follower)
        return follower == self.parameter[0]

    def _read_key(self, reader: CallReader, name: str) -> Steps[tuple[str, frozenset[str]]]:
        """Read a parameter's key, up to its value; give it and the types that the value may have."""
        cursor = reader.cursor
        text = yield from cursor.run(_UP_TO_TAG, lambda text: len(text) <= MAX_KEY)
        yield from cursor.expect(self.parameter[1])
        match = self.key.fullmatch(text)
        if match is None:
            raise Impossible
        if self.value:
            yield from cursor.skip_blanks()
            yield from cursor.expect(self.value)
        key, is_string = match["key"], match.groupdict().get("string")
        if is_string is not None:
            return key, STRING if is_string == "true" else ANY
        return key, reader.tools.types_of(name, key)
