"""Tool calls folded into one response: what the rows A1 to A16 and A25 do not say."""

from __future__ import annotations

import pytest
from folding import fold, fold_message
from notation import FIN, chunk, t

from pipeline.chunks import encode_json
from stages.aggregate import Aggregate

WHOLE = t(0, "x", "n", '{"a":1}')


def calls_of(*fragments):
    """The calls of fragments in one delta each."""
    return fold_message(*({"tool_calls": [fragment]} for fragment in fragments)).get("tool_calls")


def test_calls_without_an_index():
    """Each fragment that names a tool is a call; one that does not goes on with the last; they follow those with one."""
    assert calls_of(
        {"id": "", "function": {"name": "f", "arguments": "{"}},
        {"index": None, "function": {"arguments": "}"}},
        {"index": -1, "id": "b", "function": {"name": "f", "arguments": "{}"}},
        {"index": 4, "id": "c", "type": "function", "function": {"name": "g"}},
        {"function": {"arguments": "[]"}},
        {"index": "0", "custom": {"name": "h", "input": "x"}},
    ) == [
        {"id": "c", "type": "function", "function": {"name": "g", "arguments": "[]"}},
        {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "", "type": "custom", "custom": {"name": "h", "input": "x"}},
    ]


def test_null_objects():
    """A null where a function or a custom tool may be says nothing of either."""
    assert calls_of(
        {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}, "custom": None},
        {"index": 0, "function": None},
        {"index": 0, "function": "f"},
    ) == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_calls_without_an_index_in_one_delta():
    """Gemini's form: two whole calls, no index, the same empty id."""
    call = {"id": "", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    assert fold_message({"tool_calls": [call, call]})["tool_calls"] == [call, call]


def test_a_custom_tool():
    """A free-form call keeps its form; its input is joined, and no length cuts it off: any text is whole."""
    fragments = [
        {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "select "}},
        {"index": 0, "custom": {"input": "1", "dialect": "lite"}},
    ]
    payloads = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in fragments]
    (choice,) = fold([*payloads, chunk(FIN("length"))])["choices"]
    custom = {"name": "sql", "input": "select 1", "dialect": "lite"}
    assert choice["message"]["tool_calls"] == [{"id": "c", "type": "custom", "custom": custom}]


def test_unknown_keys_of_a_call():
    """A thought signature survives: without it the next turn fails."""
    assert calls_of(
        {"index": 0, "id": "c", "function": {"name": "f", "strict": True}},
        {"index": 0, "extra_content": {"google": {"thought_signature": "AB"}}, "function": {"arguments": "{}"}},
        {"index": 0, "extra_content": {"google": {"thought_signature": "CD"}}, "odd": None},
    ) == [
        {
            "id": "c",
            "type": "function",
            "function": {"name": "f", "arguments": "{}", "strict": True},
            "extra_content": {"google": {"thought_signature": "ABCD"}},
            "odd": None,
        }
    ]


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ([{"b": 1, "a": [1, 2.5]}], '{"b":1,"a":[1,2.5]}'),
        ([None, {"a": 1}, {"b": {"c": 2}}], '{"a":1,"b":{"c":2}}'),
        ([{}, '{"a":', "1}"], '{"a":1}'),
        ([[1], [2]], "[1,2]"),
        ([0], "0"),
    ],
)
def test_arguments_that_are_no_text(pieces, wanted):
    """They become text, as the API has it; text that came wins; and they count as whole on `length`."""
    fragments = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": each}} for each in pieces]
    payloads = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in fragments]
    (choice,) = fold([*payloads, chunk(FIN("length"))])["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == wanted


def test_a_dropped_call():
    """5.6: what was taken for a call and is none is left out, and so is what was never there."""
    aggregate = Aggregate()
    aggregate.feed(chunk(t(None, "z", "l", "{}") + WHOLE + t(1, "y", "m", "{}") + FIN("stop")))
    for choice_index, call_index in ((0, 0), (0, 9), (5, 0)):
        aggregate.drop_call(choice_index, call_index)
    assert [call["id"] for call in aggregate.response()["choices"][0]["message"]["tool_calls"]] == ["y", "z"]


def test_more_chunks_may_follow():
    """A response is a copy: what is fed later does not change it."""
    aggregate = Aggregate()
    deltas = [
        {"content": "a", "signature": "s", "ids": [{"index": 0, "x": "p"}], "audio": {"data": "d"}},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}, "extra": {"a": "b"}}]},
    ]
    payloads = [
        {"choices": [{"index": 0, "delta": delta, "logprobs": {"content": [1]}, "ids": [1]}], "nvext": {"a": {}}}
        for delta in deltas
    ]
    for payload in payloads:
        aggregate.feed(payload)
    response = aggregate.response()
    before = encode_json(response)
    for payload in payloads:
        aggregate.feed(payload)
    assert encode_json(response) == before
    assert aggregate.response() == fold(payloads * 2)
    assert aggregate.chunks == 4
