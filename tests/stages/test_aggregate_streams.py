"""Any stream folded into one response: any cut, any value, any length, and recorded ones."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest
from folding import fold
from hypothesis import given
from hypothesis import strategies as st
from notation import Gateway, chunk, on_choice

from pipeline.chunks import encode_json, reports_error
from pipeline.items import Chunk
from pipeline.testing import items_of, odd_payloads
from stages.aggregate import Aggregate, AggregateOptions

STREAMS = Path(__file__).parents[3] / "shared" / "streams"
OPTIONS = AggregateOptions(nonempty_content=True, parallel_tool_calls=False)


TEXT = {"type": "text", "text": "a"}
PICTURE = {"type": "image_url", "image_url": {"url": "p"}}
WORDS = st.text(max_size=4)
PIECES = st.one_of(
    st.tuples(st.sampled_from(["content", "reasoning", "refusal", "signature"]), WORDS),
    st.tuples(st.just("content"), st.lists(st.sampled_from([TEXT, PICTURE]), max_size=3)),
    st.tuples(st.just("role"), st.sampled_from(["assistant", "user"])),
    st.tuples(st.just("finish_reason"), st.sampled_from(["stop", "length", "tool_calls"])),
    st.tuples(
        st.just("tool_calls"),
        st.fixed_dictionaries(
            {"function": st.fixed_dictionaries({"arguments": WORDS}, optional={"name": WORDS})},
            optional={"index": st.integers(0, 2) | st.none(), "id": WORDS},
        ),
    ),
)
PIECES_OF_A_STREAM = st.lists(st.tuples(st.integers(0, 1), PIECES), max_size=16)


def cut_in_two(piece, place):
    """The same piece as two, where it can be cut: text, lists, and the arguments of a fragment."""
    key, value = piece
    if key in ("role", "finish_reason"):
        return [piece]
    if key != "tool_calls":
        return [(key, value[:place]), (key, value[place:])]
    arguments = value["function"]["arguments"]
    more = {"function": {"arguments": arguments[place:]}}
    if "index" in value:
        more["index"] = value["index"]
    return [(key, {**value, "function": {**value["function"], "arguments": arguments[:place]}}), (key, more)]


def in_chunks(pieces, ends):
    """Chunks of several pieces each, as long as their keys allow."""
    open_parts = ()
    for (choice, (key, value)), is_end in itertools.zip_longest(pieces, ends[: len(pieces)]):
        is_taken = key != "tool_calls" and any(each[:2] == (choice, key) for each in open_parts)
        if is_end or is_taken:
            yield chunk(open_parts)
            open_parts = ()
        open_parts += on_choice(choice, [(0, key, value)])
    yield chunk(open_parts)


@given(PIECES_OF_A_STREAM, st.lists(st.integers(0, 3), min_size=16, max_size=16), st.lists(st.booleans(), max_size=32))
def test_any_cut_folds_to_the_same(stream, places, ends):
    """However text, lists and fragments are cut, and the pieces put into chunks, the response is the same."""
    one_by_one = [chunk(on_choice(choice, [(0, *piece)])) for choice, piece in stream]
    halves = [
        (choice, half)
        for (choice, piece), place in zip(stream, places, strict=False)
        for half in cut_in_two(piece, place)
    ]
    assert fold(in_chunks(halves, ends))["choices"] == fold(one_by_one)["choices"]


def test_odd_payloads():
    """No value of any kind under any key crashes a fold, alone or behind others, and what comes of it is JSON."""
    together = Aggregate(OPTIONS)
    for payload in odd_payloads():
        encode_json(fold([payload, payload], OPTIONS))
        together.feed(payload)
    encode_json(together.response())


@pytest.mark.parametrize("key", ["zz", "content", "function_call", "tool_calls", "refusal"])
@pytest.mark.parametrize("is_thinking", [False, True])
def test_depth(key, is_thinking):
    """What is nested as deep as no parser takes it is kept, and costs no stack."""
    deep = {}
    for _ in range(5000):
        thinking = {"type": "thinking", "thinking": [deep]}
        deep = thinking if is_thinking else {"index": 0, "a": deep, "function": {"name": "f"}}
    delta = {key: [deep] if key in ("tool_calls", "content") else deep}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [deep]}, "beside": [deep]}
    response = encode_json(fold([{"choices": [choice], "nvext": deep}] * 2))
    assert response.count(b'"thinking":' if is_thinking else b'"a":') > 5000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["index", "type", "text", "name", "function", "delta", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
KEYS = ["role", "content", "refusal", "tool_calls", "function_call", "reasoning", "zz"]
DELTAS = JSON | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4)
CHOICES = JSON | st.fixed_dictionaries(
    {}, optional={"index": JSON, "delta": DELTAS, "finish_reason": JSON, "logprobs": JSON, "zz": JSON}
)
PAYLOADS = st.fixed_dictionaries(
    {}, optional={"choices": JSON | st.lists(CHOICES, max_size=2), "id": JSON, "usage": JSON, "zz": JSON}
)


@given(st.lists(PAYLOADS, max_size=5))
def test_any_json(payloads):
    """No JSON value in any place crashes a fold, and what comes of it is JSON."""
    aggregate = Aggregate(OPTIONS)
    for payload in payloads:
        aggregate.feed(payload)
        aggregate.cut()
    encode_json(aggregate.response())


@pytest.mark.parametrize("key", ["content", "reasoning", "refusal", "zz", "tool_calls"])
def test_memory(key):
    """A fold holds what the response says, not the chunks that said it: 20,000 of them cost less than twice the text."""
    value = {"index": 0, "function": {"name": "f", "arguments": "tide "}} if key == "tool_calls" else "tide "
    tracemalloc.start()
    try:
        aggregate = Aggregate()
        for _ in range(20_000):
            aggregate.feed(chunk([(0, key, value)]))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    size = len(encode_json(aggregate.response()))
    assert size > 100_000
    assert held < 2 * size


def test_memory_of_many_calls():
    """Of many short calls a fold holds less than twice what their response takes once it is parsed."""
    tracemalloc.start()
    try:
        aggregate = Aggregate()
        for index in range(1000):
            opener = {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": "f", "arguments": ""},
            }
            aggregate.feed(chunk([(0, "tool_calls", json.loads(json.dumps(opener)))]))
            for _ in range(10):
                aggregate.feed(chunk([(0, "tool_calls", {"index": index, "function": {"arguments": "tide "}})]))
        held = tracemalloc.get_traced_memory()[0]
        encoded = encode_json(aggregate.response())
        before = tracemalloc.get_traced_memory()[0]
        parsed = json.loads(encoded)
        size = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(parsed["choices"][0]["message"]["tool_calls"]) == 1000
    assert held < 2 * size


# --- recorded streams ---------------------------------------------------------------------------------------------

recorded = pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not part of the repository")


def recordings():
    """Name, body and what is written beside each recording."""
    for path in sorted([*STREAMS.glob("*.sse"), *STREAMS.glob("*.jsonl")]):
        body = path.read_bytes()
        if path.suffix == ".jsonl":
            body = b"".join(b"data: %b\n\n" % line for line in body.splitlines() if line.strip())
        yield path.name, body, json.loads(path.with_suffix(".json").read_text("utf-8"))


def fold_body(body, request):
    """The response of a body's chunks, up to an error."""
    payloads = [item.payload for item in items_of(body) if isinstance(item, Chunk)]
    payloads = itertools.takewhile(lambda payload: not reports_error(payload), payloads)
    return fold(payloads, AggregateOptions.of_request(request))


@recorded
def test_recordings_with_a_known_result():
    """Where a source states what its stream comes to, the fold comes to the same."""
    checked = 0
    for name, body, beside in recordings():
        expected = beside["expected"]
        if not expected:
            continue
        response = fold_body(body, beside["request"] or {})
        first = response["choices"][0]
        message = first["message"]
        found = {
            "content": message["content"] or "",
            "reasoning": message.get("reasoning_content", ""),
            "tool_calls": [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", [])],
            "finish_reason": first["finish_reason"],
        }
        if "made up" in expected.get("about", ""):
            expected["tool_calls"] = [{**call, "id": ""} for call in expected["tool_calls"]]
        stated = {key: expected[key] for key in found if key in expected}
        assert {key: found[key] for key in stated} == stated, name
        assert found["content"].startswith(expected.get("content_starts_with", "")), name
        assert response.get("usage", {}) | expected.get("usage_raw", {}) == response.get("usage", {}), name
        for choice in expected.get("choices", []):
            assert choice == {key: {**first, **message}[key] for key in choice}, name
        checked += 1
    assert checked >= 12


@recorded
def test_recordings_through_the_default_order():
    """What clients receive folds to what the upstream sent: no stage loses or adds anything."""
    for name, body, beside in recordings():
        request = beside["request"] or {}
        gateway = Gateway(request=request, events=frozenset())
        received = gateway.feed(body) + gateway.close()
        assert fold_body(received, request) == fold_body(body, request), name
