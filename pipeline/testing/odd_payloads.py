"""Chunks that no specification foresees and some provider may send."""

from __future__ import annotations

from typing import Any, Final

from pipeline.chunks import parse_json
from pipeline.items import Payload

__all__ = ["odd_payloads"]

_VALUES: Final = (
    *(b"null", b"true", b"false", b"0", b"-1", b"0.5", b"1180591620717411303424", b"NaN", b"-Infinity", b"1e999"),
    *(b'""', b'"0"', b'"tool_calls"', b'"{}"', b'"a\\ud800b\\u0000\\r\\n"'),
    *(b"[]", b"[null]", b"[[]]", b"[{}]", b"{}", b'{"":null}', b'{"index":{}}', b"[" * 900 + b"]" * 900),
)
_CALL: Final = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TEXTS: Final = ("role", "content", "reasoning_content", "reasoning", "refusal", "function_call", "tool_calls")


def odd_payloads() -> list[Payload]:
    """Every key that a stage may look at, with a value of every kind; made anew for each call.

    Example::

        for payload in odd_payloads():
            run_stage(make_stage(Redact), [chunk(payload)])
    """
    payloads: list[Payload] = [{}, {"choices": [{"index": 0, "delta": {}}] * 3}]
    for text in _VALUES:
        payloads += _payloads_with(parse_json(text))
    return payloads


def _payloads_with(value: Any) -> list[Payload]:
    fragments: list[Any] = [{**_CALL, key: value} for key in _CALL]
    fragments += [{**_CALL, "function": {key: value}} for key in ("name", "arguments")]
    deltas: list[Any] = [{key: value} for key in _TEXTS]
    deltas += [{"tool_calls": [value]}, {"tool_calls": fragments}]
    choices: list[Any] = [{"index": 0, "delta": delta} for delta in (value, *deltas)]
    choices += [{"index": value, "delta": delta} for delta in deltas]
    choices += [{"index": 0, "delta": {}, key: value} for key in ("finish_reason", "logprobs")]
    payloads: list[Payload] = [{"choices": [choice]} for choice in choices]
    payloads += [{"choices": choices}, {"choices": value}, {"choices": [value]}]
    payloads += [{"choices": [], key: value} for key in ("id", "created", "usage", "error", "x")]
    return payloads
