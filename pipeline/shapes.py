"""Frames of one stream that differ in one text and in nothing else.

Nearly every frame of a long answer repeats the one before it byte for byte, but for the few characters that the model
has just said. A frame that begins and ends like one that was parsed, with one JSON string in between, is that one with
another text: neither has the rest of it to be parsed again, nor need a stage look at it again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import orjson

from pipeline.items import Chunk, Item, Payload, Shape

__all__ = ["Shapes"]

_REMEMBERED: Final = 4
"""Shapes of one stream that are known at a time: calls in parallel take turns."""
_FREE_LESSONS: Final = 8
"""Frames that are looked at closely before shapes must have been of use; else none is known any more."""
_USES_A_LESSON: Final = 8
_FREE_LOOKS: Final = 32
"""Frames in a row that can have no shape after which one of eight is looked at."""
_TEXT_KEYS: Final = ("content", "reasoning_content", "reasoning")
_IDENTITY_KEYS: Final = frozenset({"id", "type"})
# No float: it may stand for an integer of more than 64 bits, see pipeline.chunks.exact_payload.
_SCALARS: Final = frozenset({str, int, bool, type(None)})
# A key and the string that is its value.
_PLACES: Final = {
    key: re.compile(rb'"%b"[ \t]*+:[ \t]*+("(?:[^"\\]++|\\.)*+")' % key.encode()) for key in (*_TEXT_KEYS, "arguments")
}
_SENTINEL: Final = "\0"

_Found: TypeAlias = tuple[str, str, Payload, Payload | None]


class Shapes:
    """The shapes of one stream."""

    def __init__(self) -> None:
        self._known: list[Shape] = []
        self._lessons = 0
        self._uses = 0
        self._misses = 0

    def take(self, raws: Sequence[bytes], at: int, items: list[Item]) -> int:
        """Append the chunks of the frames from ``at`` on while each has a known shape; gives where that ends."""
        known = self._known
        begin, found = at, True
        while found:
            found = False
            for place, shape in enumerate(known):
                after = _take_run(shape, raws, at, items)
                if after > at:
                    at, found = after, True
                    if place:
                        known.insert(0, known.pop(place))
                    break
        self._uses += at - begin
        return at

    def learn(self, payload: Payload, raw: bytes) -> Chunk:
        """The chunk of a frame that is one line of data, with a JSON object and no error; its shape is noted.

        It has one itself, too, if that was worth a look.
        """
        chunk = Chunk(payload, raw)
        if self._lessons > _FREE_LESSONS + self._uses // _USES_A_LESSON:
            self._known.clear()
            return chunk
        if self._misses > _FREE_LOOKS and self._misses % _USES_A_LESSON:
            self._misses += 1
            return chunk
        found = _text_in(payload)
        if found is None:
            self._misses += 1
            return chunk
        self._misses = 0
        self._lessons += 1
        key, text, delta, fragment = found
        match = _PLACES[key].search(raw)
        if match is None or text == _SENTINEL or _PLACES[key].search(raw, match.end()) is not None:
            return chunk  # one place is looked at: frames with more are odd, and may have very many
        start, end = match.span(1)
        prefix, suffix = raw[: start + 1], raw[end - 1 :]
        other = orjson.loads(prefix.removeprefix(b"data: ") + b"\\u0000" + suffix)
        if other == _with_text(payload, key, delta, fragment):  # so this is the place, and nothing else has changed
            shape = Shape(key, payload, delta, fragment, prefix, suffix)
            self._known = [shape, *self._known[: _REMEMBERED - 1]]
            chunk.shape, chunk.text = shape, text
        return chunk


def _take_run(shape: Shape, raws: Sequence[bytes], at: int, items: list[Item]) -> int:
    """Append the chunks of the frames from ``at`` on that have a shape; gives where that ends."""
    prefix, suffix = shape.prefix, shape.suffix
    first, last = len(prefix) - 1, 1 - len(suffix)
    while at < len(raws):
        raw = raws[at]
        if not (raw.startswith(prefix) and raw.endswith(suffix)):
            break
        try:
            text = orjson.loads(raw[first:last])
        except orjson.JSONDecodeError:
            break
        if not text:
            break
        items.append(Chunk.repeated(raw, shape, text))
        at += 1
    return at


def _text_in(payload: Payload) -> _Found | None:
    """Key, text, delta and fragment of the only text in a chunk, if a chunk with another text there means no more."""
    delta = _only_delta(payload)
    if delta is None:
        return None
    said = {key: value for key, value in delta.items() if not (_is_nothing(value) or key == "role")}
    if not isinstance(delta.get("role", ""), (str, type(None))) or len(said) != 1:
        return None
    ((key, value),) = said.items()
    if key in _TEXT_KEYS:
        return (key, value, delta, None) if type(value) is str else None
    if key != "tool_calls" or type(value) is not list or len(value) != 1 or not _is_plain_fragment(value[0]):
        return None
    return "arguments", value[0]["function"]["arguments"], delta, value[0]


def _only_delta(payload: Payload) -> Payload | None:
    """The delta of a chunk that has one choice, with index 0, and says nothing else that could mean something."""
    choices = payload.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if type(delta) is not dict or type(choice.get("index")) is not int or choice["index"] != 0:
        return None
    is_plain = all(type(value) in _SCALARS for key, value in payload.items() if key != "choices") and all(
        value is None for key, value in choice.items() if key not in ("index", "delta")
    )
    return delta if is_plain else None


def _is_plain_fragment(fragment: Any) -> bool:
    """Whether a fragment has a usable index, arguments, and of all else nothing but an identity."""
    if type(fragment) is not dict:
        return False
    index, function = fragment.get("index"), fragment.get("function")
    if type(index) is not int or index < 0 or type(function) is not dict:
        return False
    arguments = function.get("arguments")
    if type(arguments) is not str or not arguments:
        return False
    if not all(_is_nothing(value) for key, value in function.items() if key != "arguments"):  # an opener comes but once
        return False
    others = {key: value for key, value in fragment.items() if key not in ("index", "function")}
    return all(_is_nothing(value) or (key in _IDENTITY_KEYS and type(value) is str) for key, value in others.items())


def _is_nothing(value: Any) -> bool:
    return value is None or (type(value) is str and not value)


def _with_text(payload: Payload, key: str, delta: Payload, fragment: Payload | None) -> Payload:
    """The payload with the sentinel as its text."""
    if fragment is None:
        delta = {**delta, key: _SENTINEL}
    else:
        function = {**fragment["function"], "arguments": _SENTINEL}
        delta = {**delta, "tool_calls": [{**fragment, "function": function}]}
    (choice,) = payload["choices"]
    return {**payload, "choices": [{**choice, "delta": delta}]}
