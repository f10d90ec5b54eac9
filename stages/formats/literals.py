"""Literals of other languages, written as JSON while they are read (spec, parsers, 6, P and G)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from stages.formats.cursor import Cursor, Ended, Impossible, Steps, finish
from stages.formats.escapes import JSON_ESCAPES, PYTHON_ESCAPES, EscapeRules, escaped, quoted, read_escape
from stages.formats.markers import markers_of

__all__ = ["GEMMA", "PYTHON", "Dialect", "converted", "read_key", "transcode"]

Emit: TypeAlias = Callable[[str], None]

_NUMBER: Final = re.compile(r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")


@attrs.frozen
class Quotes:
    """One way of writing strings."""

    mark: str
    """What stands at both ends."""
    escapes: EscapeRules | None
    """None: everything between the marks is raw."""


@attrs.frozen(eq=False)
class Dialect:
    """How one language writes its literals."""

    quotes: tuple[Quotes, ...]
    """Longer marks first."""
    brackets: Mapping[str, str]
    """For each opening bracket its closing one. All but ``{`` are lists."""
    bare_key: re.Pattern[str] | None
    """What an object's key without quotes may be; none if it must have some."""
    word: re.Pattern[str]
    """What else a value may be made of."""
    read_word: Callable[[str], str | None]
    """The JSON that such a word stands for, if it is a literal."""

    def may_quote(self, character: str) -> bool:
        """Whether a string may begin with that character."""
        return any(quotes.mark[0] == character for quotes in self.quotes)


def transcode(cursor: Cursor, emit: Emit, dialect: Dialect) -> Steps[None]:
    """Read one value and write it as compact JSON, as it comes; any depth, without recursion.

    Args:
        cursor: stands at the value, or at blanks before it. Its mark is used.
        emit: takes the JSON, piece by piece.
        dialect: the language.

    Raises:
        Impossible: something is no literal. The mark is there; all before it was written.
        Ended: the value is cut off. It was written but for what stands at the mark, or at the cursor if there is none.
    """
    stack: list[str] = []
    while True:
        opening = yield from cursor.visible()
        cursor.mark()
        closing = dialect.brackets.get(opening)
        if closing is not None:
            cursor.at += 1
            cursor.mark()
            emit("{" if closing == "}" else "[")
            stack.append(closing)
            if not (yield from _is_closed(cursor, emit, stack)):
                if closing == "}":
                    emit(f"{(yield from read_key(cursor, dialect))}:")
                cursor.unmark()
                continue
        else:
            yield from _read_scalar(cursor, emit, dialect)
        while stack:
            cursor.mark()
            if (yield from _is_closed(cursor, emit, stack)):
                continue
            yield from cursor.expect(",")
            if not (yield from _is_closed(cursor, emit, stack)):
                key = f"{(yield from read_key(cursor, dialect))}:" if stack[-1] == "}" else ""
                emit(f",{key}")
                cursor.unmark()
                break
        else:
            cursor.unmark()
            return


def _is_closed(cursor: Cursor, emit: Emit, stack: list[str]) -> Steps[bool]:
    """Step over the closing bracket of the innermost container, if it is next."""
    if (yield from cursor.visible()) != stack[-1]:
        return False
    cursor.at += 1
    emit("}" if stack.pop() == "}" else "]")
    return True


def read_key(cursor: Cursor, dialect: Dialect) -> Steps[str]:
    """Read the key of an object's member and the colon behind it; give the key as JSON.

    Raises:
        Impossible: there is none.
        Ended: it is cut off.
    """
    character = yield from cursor.visible()
    if dialect.bare_key is None or dialect.may_quote(character):
        pieces: list[str] = []
        yield from _read_string(cursor, pieces.append, (yield from _enter_string(cursor, dialect)))
        key = "".join(pieces)
    else:
        word = yield from cursor.run(dialect.bare_key)
        if not word:
            raise Impossible
        key = quoted(word)
    yield from cursor.skip_blanks()
    yield from cursor.expect(":")
    return key


def _read_scalar(cursor: Cursor, emit: Emit, dialect: Dialect) -> Steps[None]:
    if dialect.may_quote((yield from cursor.peek())):
        quotes = yield from _enter_string(cursor, dialect)
        cursor.unmark()
        yield from _read_string(cursor, emit, quotes)
        return
    word = yield from cursor.run(dialect.word)
    value = dialect.read_word(word)
    if value is None:
        raise Impossible
    emit(value)


def _enter_string(cursor: Cursor, dialect: Dialect) -> Steps[Quotes]:
    """Step over the mark that begins a string, the longest there can be."""
    ahead = yield from cursor.peek()
    options = [quotes for quotes in dialect.quotes if quotes.mark[0] == ahead]
    while any(len(quotes.mark) > len(ahead) and quotes.mark.startswith(ahead) for quotes in options):
        shorter, ahead = ahead, (yield from cursor.ahead(len(ahead) + 1))
        if ahead == shorter:  # the text ends there
            break
    found = next((quotes for quotes in options if ahead.startswith(quotes.mark)), None)
    if found is None:
        raise Impossible
    cursor.at += len(found.mark)
    return found


def _read_string(cursor: Cursor, emit: Emit, quotes: Quotes) -> Steps[None]:
    """Pass on a string as JSON, as it comes, and step over the mark that ends it."""
    emit('"')
    marks = markers_of((quotes.mark, "\\") if quotes.escapes else (quotes.mark,))
    try:
        while True:
            found = marks.find(cursor.text, cursor.at)
            end = marks.held_from(cursor.text, cursor.at) if found is None else found[0]
            emit(escaped(cursor.text[cursor.at : end]))
            cursor.at = end
            if found is None:
                yield from cursor.more()
            elif found[1] == quotes.mark:
                break
            else:
                assert quotes.escapes is not None, "else no backslash is looked for"
                emit(escaped((yield from read_escape(cursor, quotes.escapes))))
    except Ended:
        emit(escaped(cursor.take_rest()))
        raise
    cursor.at += len(quotes.mark)
    emit('"')


def converted(text: str, dialect: Dialect) -> str | None:
    """The JSON that a whole text stands for; none if it is not one literal."""
    cursor = Cursor()
    cursor.push(text)
    pieces: list[str] = []
    is_whole = finish(transcode(cursor, pieces.append, dialect), cursor) and cursor.at == len(text)
    return "".join(pieces) if is_whole else None


def _read_python_word(word: str) -> str | None:
    constant = _PYTHON_CONSTANTS.get(word)
    if constant is not None or _NUMBER.fullmatch(word):
        return constant or word
    if not _PYTHON_NUMBER.fullmatch(word):
        return None
    sign = "-" if word.startswith("-") else ""
    digits = word.lstrip("+-").replace("_", "").lower()
    try:
        if digits.startswith(("0x", "0o", "0b")):
            return f"{sign}{int(digits, 0)}"
    except ValueError:  # longer than int() or str() take
        return None
    whole, dot, rest = digits.partition(".")
    if dot:
        fraction, exponent, power = rest.partition("e")
        digits = f"{whole or '0'}.{fraction or '0'}{exponent}{power}"
    return sign + digits if _NUMBER.fullmatch(digits) else None


def _read_gemma_word(word: str) -> str | None:
    bare = word.rstrip(" \t")
    if bare in ("true", "false", "null") or _NUMBER.fullmatch(bare):
        return bare
    return quoted(bare) if bare else None


_PYTHON_CONSTANTS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_DIGITS: Final = r"[0-9](?:_?[0-9])*"
_PYTHON_NUMBER: Final = re.compile(
    rf"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"
    rf"|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)"
)

PYTHON: Final = Dialect(
    quotes=tuple(Quotes(mark, PYTHON_ESCAPES) for mark in ('"""', "'''", '"', "'")),
    brackets={"{": "}", "[": "]", "(": ")"},
    bare_key=None,
    word=re.compile(r"[\w.+-]*+"),
    read_word=_read_python_word,
)
GEMMA: Final = Dialect(
    quotes=(Quotes('<|"|>', None), Quotes('"', JSON_ESCAPES)),
    brackets={"{": "}", "[": "]"},
    bare_key=re.compile(r"[^\s:,{}\[\]<>\"]*+"),
    word=re.compile(r"[^\r\n,{}\[\]<>\"]*+"),
    read_word=_read_gemma_word,
)
