"""Escapes in the strings of JSON and of Python, in both directions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from stages.formats.cursor import Cursor, Ended, Steps

__all__ = ["JSON_ESCAPES", "PYTHON_ESCAPES", "EscapeRules", "escaped", "quoted", "read_escape"]

_HEX: Final = re.compile(r"[0-9A-Fa-f]+")
_OCTAL: Final = re.compile(r"[0-7]{1,3}")
_HIGH_SURROGATE: Final = re.compile(r"[dD][89abAB][0-9A-Fa-f]{2}")
_LOW_SURROGATE: Final = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
_MAX_CODE_POINT: Final = 0x10FFFF


@attrs.frozen
class EscapeRules:
    """The escapes of one language. One that it does not have stands for itself, backslash and all."""

    simple: Mapping[str, str]
    """What a character behind a backslash stands for."""
    digits: Mapping[str, int]
    """How many hexadecimal digits a character behind a backslash asks for."""
    has_octal: bool = False


JSON_ESCAPES: Final = EscapeRules(
    {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"},
    {"u": 4},
)
PYTHON_ESCAPES: Final = EscapeRules(
    {
        "'": "'",
        '"': '"',
        "\\": "\\",
        "\n": "",
        "a": "\a",
        "b": "\b",
        "f": "\f",
        "n": "\n",
        "r": "\r",
        "t": "\t",
        "v": "\v",
    },
    {"x": 2, "u": 4, "U": 8},
    has_octal=True,
)


def quoted(text: str) -> str:
    """The text as a JSON string: everything raw but quotes, backslashes and control characters."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """A piece of text as a piece of a JSON string, without the quotes."""
    return quoted(text)[1:-1]


def read_escape(cursor: Cursor, rules: EscapeRules) -> Steps[str]:
    """Step over an escape, and over the second one of a surrogate pair; give what it stands for.

    Args:
        cursor: stands at the backslash.
        rules: the language's.

    Raises:
        Ended: it is cut off; the cursor stays.
    """
    head = yield from cursor.ahead(2)
    if len(head) < len("\\n"):
        raise Ended
    count = rules.digits.get(head[1])
    if count is not None:
        return (yield from _read_code_point(cursor, head, count))
    if rules.has_octal and _OCTAL.match(head[1]):
        octal = _OCTAL.match((yield from cursor.ahead(4))[1:])
        assert octal is not None, "its first digit was there"
        cursor.at += 1 + len(octal[0])
        return chr(int(octal[0], 8))
    cursor.at += 2
    return rules.simple.get(head[1], head)


def _read_code_point(cursor: Cursor, head: str, count: int) -> Steps[str]:
    whole = yield from cursor.ahead(2 + count)
    digits = whole[2:]
    if not _HEX.fullmatch(digits) and digits:
        cursor.at += 2
        return head
    if len(digits) < count:
        raise Ended
    code = int(digits, 16)
    if code > _MAX_CODE_POINT:
        cursor.at += 2
        return head
    cursor.at += 2 + count
    if _HIGH_SURROGATE.fullmatch(digits):
        low = _LOW_SURROGATE.fullmatch((yield from cursor.ahead(6)))
        if low is not None:
            cursor.at += 6
            code = 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
    return chr(code)
