"""Reading and editing a chunk whose shape nobody guarantees.

Real chunks lack keys, carry nulls and hold any JSON value anywhere (recorded: spec, real-streams). The readers here
answer for every shape; the writers copy the path down to what they change and keep everything else.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import orjson

from pipeline.items import Chunk, Payload
from pipeline.sse import SseDecoder

__all__ = [
    "MAX_CHOICES",
    "choice_key",
    "choices_of",
    "delta_of",
    "encode_json",
    "error_of",
    "exact_object",
    "exact_payload",
    "finish_reason_of",
    "numbered_choices",
    "parse_json",
    "replace_choices",
    "replace_delta",
    "reports_error",
    "usable_index",
]

MAX_CHOICES: Final = 1024
"""How many choices of one response are told apart; OpenAI's API allows 128. What needs state leaves the rest alone."""

# orjson reads an integer of more than 64 bits as a float.
_LONG_INTEGER: Final = re.compile(rb"\d{19}")


class _WrittenNumber(float):
    """A number that no float holds (``NaN``, ``Infinity``, ``1e999``), with the text it came as."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_json(data: bytes) -> Any:
    """Any JSON value, read once and fast; what orjson refuses (``NaN``, lone surrogates) the standard library reads.

    Raises:
        ValueError: it is not JSON in UTF-8.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _parse_exactly(data)


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8; a text with a lone surrogate is escaped to ASCII. Never raises for what was parsed."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, an integer over 64 bits, a number as written, depth over 254
        return _encode_exactly(value)


def exact_payload(chunk: Chunk) -> Payload:
    """The payload to build an edit from: as ``chunk.payload``, but with integers of any length as they came."""
    if chunk.shape is not None or chunk.raw is None or _LONG_INTEGER.search(chunk.raw) is None:
        return chunk.payload
    return exact_object(chunk.payload, SseDecoder().read(chunk.raw).data or b"")


def exact_object(payload: Payload, data: bytes) -> Payload:
    """A parsed object, but with integers of any length as they stand in the text that it was parsed from."""
    if _LONG_INTEGER.search(data) is None:
        return payload
    try:
        exact = _parse_exactly(data)
    except ValueError:  # longer than int() takes
        return payload
    return exact if isinstance(exact, dict) else payload


def _parse_exactly(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), parse_float=_read_float, parse_constant=_WrittenNumber)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _read_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _WrittenNumber(text)


def _encode_exactly(value: Any) -> bytes:
    """Without recursion, since a payload may be nested deeper than the interpreter's stack."""
    parts: list[bytes] = []
    pending: list[tuple[bool, Any]] = [(False, value)]
    while pending:
        is_written, item = pending.pop()
        if is_written:
            parts.append(item)
        elif isinstance(item, dict) and item:
            inner: list[tuple[bool, Any]] = []
            for key, child in item.items():
                inner += (True, (b"," if inner else b"{") + _encode_leaf(key) + b":"), (False, child)
            pending.append((True, b"}"))
            pending += reversed(inner)
        elif isinstance(item, list) and item:
            pending.append((True, b"]"))
            for position in range(len(item) - 1, -1, -1):
                pending += (False, item[position]), (True, b"," if position else b"[")
        else:
            parts.append(_encode_leaf(item))
    return b"".join(parts)


def _encode_leaf(value: Any) -> bytes:
    if isinstance(value, _WrittenNumber):
        return value.text.encode()
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def choices_of(payload: Payload) -> Sequence[Any]:
    """The list of choices, empty where there is none."""
    choices = payload.get("choices")
    return choices if isinstance(choices, list) else ()


def delta_of(choice: Any) -> Payload | None:
    """The delta object of a choice, or none."""
    if not isinstance(choice, dict):
        return None
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else None


def choice_key(choice: Payload) -> int | str:
    """What tells a choice from its siblings: its index; 0 where that is absent or of no use."""
    index = choice.get("index", 0)
    return index if isinstance(index, (int, str)) else 0


def usable_index(value: Any) -> int | None:
    """A non-negative integer, or none; ``True`` is no number."""
    return value if type(value) is int and value >= 0 else None


def numbered_choices(payload: Payload) -> Iterator[tuple[int | None, Payload]]:
    """Each choice object with its index; none where the index is not a non-negative integer, 0 where it is absent."""
    for choice in choices_of(payload):
        if isinstance(choice, dict):
            yield usable_index(choice.get("index", 0)), choice


def finish_reason_of(choice: Payload) -> str | None:
    """The finish reason, or none. An empty text or another type is none."""
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def error_of(payload: Payload) -> Any:
    """What the upstream says went wrong: the ``error`` of a chunk, or vLLM's ``{"object": "error", ...}``; else none.

    ``"error": null`` is no error (openai-go thinks otherwise; servers that send it do not).
    """
    error = payload.get("error")
    if error is not None:
        return error
    return payload if payload.get("object") == "error" else None


def reports_error(payload: Payload) -> bool:
    """Whether ``error_of`` finds an error; quick to say no."""
    return ("error" in payload or payload.get("object") == "error") and error_of(payload) is not None


def replace_choices(payload: Payload, choices: list[Any]) -> Payload:
    """The payload with other choices, everything else kept, key order too."""
    return {**payload, "choices": choices}


def replace_delta(choice: Payload, delta: Payload) -> Payload:
    """The choice with another delta, everything else kept, key order too."""
    return {**choice, "delta": delta}
