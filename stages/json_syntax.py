"""Whether a text is JSON by RFC 8259, and nothing but that."""

from __future__ import annotations

import re
from typing import Final

import orjson

__all__ = ["is_json"]

_BLANK: Final = r"[ \t\n\r]*+"
_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_NUMBER: Final = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_KEY: Final = rf"{_BLANK}{_STRING}{_BLANK}:"

# Where a value must begin. A run of "[" is taken at once: depth is what an attacker has most of.
_VALUE: Final = re.compile(
    rf"{_BLANK}(?:(?P<whole>{_STRING}|{_NUMBER}|true|false|null|\{{{_BLANK}\}})"
    rf"|(?P<arrays>\[++)(?P<empty>{_BLANK}\])?+"
    rf"|\{{{_KEY})"
)
# What may follow a value: the next one, or the ends of the containers around it.
_AFTER_IN_ARRAY: Final = re.compile(rf"{_BLANK}(?:,|(?P<closers>[\]}}]++))")
_AFTER_IN_OBJECT: Final = re.compile(rf"{_BLANK}(?:,{_KEY}|(?P<closers>[\]}}]++))")
_REST: Final = re.compile(_BLANK)

_ARRAY: Final = ord("]")


def is_json(text: str) -> bool:
    r"""Whether ``text`` is one JSON value: RFC 8259 syntax, with whitespace around it.

    Fine are: numbers of any size and exponent, any depth, duplicate keys, ``\ud800`` alone, and every character
    from space upwards in strings. Not fine are: a byte-order mark, raw control characters in strings, other
    whitespace than space, tab, LF and CR, and whatever else the grammar lacks (``NaN``, ``01``, ``[1,]``). Nothing is
    said of what the value means. Linear in the length; no recursion.
    """
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _follows_grammar(text)  # orjson also refuses 1e999, lone surrogates and depth over 1024
    return True


def _follows_grammar(text: str) -> bool:
    """A walk over the tokens, with the closing brackets that are still to come on a stack."""
    stack = bytearray()
    position = 0
    while True:
        value = _VALUE.match(text, position)
        if value is None:
            return False
        position = value.end()
        arrays = value["arrays"]
        if arrays is not None:
            is_whole = value["empty"] is not None
            stack += b"]" * (len(arrays) - is_whole)
        elif value["whole"] is not None:
            is_whole = True
        else:
            is_whole = False
            stack += b"}"
        if is_whole:
            after = _after_value(text, position, stack)
            if after is None:
                return False
            position = after
            if not stack:
                return _REST.fullmatch(text, position) is not None


def _after_value(text: str, position: int, stack: bytearray) -> int | None:
    """Step over what follows a value, unwinding the stack; none where it is no JSON."""
    while stack:
        pattern = _AFTER_IN_ARRAY if stack[-1] == _ARRAY else _AFTER_IN_OBJECT
        after = pattern.match(text, position)
        if after is None:
            return None
        position = after.end()
        closers = after["closers"]
        if closers is None:
            return position
        if not stack.endswith(closers[::-1].encode()):
            return None
        del stack[-len(closers) :]
    return position
