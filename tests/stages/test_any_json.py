"""No JSON value in any place crashes a stage, and no run of stages loses, doubles or reorders a frame over it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import SIDE_EVENTS, Gateway, chunk, frames, on_choice, t, told
from wire_helpers import assert_same_frames, default_order

from pipeline.chunks import encode_json, parse_json
from pipeline.sse import sse_frame
from pipeline.stage import EventStyle
from stages.refusals import Refusal
from stages.tool_call_merge import ToolCall, argument_text, merge

KEYS = st.sampled_from(
    [
        "id",
        "object",
        "created",
        "model",
        "choices",
        "index",
        "delta",
        "finish_reason",
        "logprobs",
        "role",
        "content",
        "tool_calls",
        "function",
        "custom",
        "name",
        "input",
        "arguments",
        "type",
        "reasoning",
        "reasoning_content",
        "error",
        "usage",
        "zz",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "stop", "tool_calls", "length", "error", "{}", "{", "}", "[DONE]", 0, 1, -1, 2**63, 2**64, 10**30]
    )
    | st.text(st.characters(codec=None), max_size=4)
)
ANY = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
FUNCTION = ANY | st.fixed_dictionaries({}, optional={"name": ANY, "arguments": ANY})
FRAGMENT = ANY | st.fixed_dictionaries(
    {}, optional={"index": LEAVES, "id": ANY, "type": ANY, "function": FUNCTION, "custom": FUNCTION}
)
DELTA = ANY | st.fixed_dictionaries(
    {},
    optional={
        "role": ANY,
        "content": ANY,
        "reasoning_content": ANY,
        "reasoning": ANY,
        "tool_calls": ANY | st.lists(FRAGMENT, max_size=3),
    },
)
CHOICE = ANY | st.fixed_dictionaries({}, optional={"index": LEAVES, "delta": DELTA, "finish_reason": ANY, "zz": ANY})
PAYLOAD = st.fixed_dictionaries(
    {},
    optional={"id": ANY, "object": ANY, "created": ANY, "choices": ANY | st.lists(CHOICE, max_size=3), "zz": ANY},
)


def text_of(payload):
    """JSON as a careless server writes it: NaN and lone surrogates included."""
    return json.dumps(payload).encode()


@given(
    st.lists(PAYLOAD, max_size=5),
    st.sampled_from(EventStyle),
    st.sampled_from([{}, {"parallel_tool_calls": False}]),
)
def test_no_json_value_crashes_a_stage(payloads, style, request_body):
    """Whatever stands wherever: the ordinary frames are the model's, in order, and the stream ends."""
    gateway = Gateway(request=request_body, style=style)
    out = b"".join(gateway.feed(sse_frame(text_of(payload))) for payload in payloads)
    sent = [(None, text_of(payload)) for payload in payloads]
    got = [frame for frame in frames(out) if not is_side_event(*frame)]
    assert_same_frames(got, default_order(sent, request_body))
    assert len(frames(gateway.close())) <= 1


def is_side_event(name, data):
    value = json.loads(data)
    return name in SIDE_EVENTS or (isinstance(value, dict) and not SIDE_EVENTS.isdisjoint(value))


@given(ANY, st.lists(FRAGMENT.filter(lambda fragment: isinstance(fragment, dict)), max_size=4))
def test_merge_takes_any_fragment(value, fragments):
    """No shape of a fragment raises, and what is kept is text."""
    call = ToolCall()
    for fragment in [*fragments, {"function": value}]:
        merge(call, fragment)
        assert isinstance(argument_text(fragment), str)
    assert all(isinstance(kept, str) for kept in (call.id, call.type, call.name, call.custom_name))
    assert isinstance(call.arguments, (str, type(None)))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from(["{}", "{", "}", "", "x"])), max_size=12)
)
def test_every_call_ends_in_one_way(fragments):
    """Each call that was opened is dispatched or refused, exactly once, by the time the stream has ended."""
    gateway = Gateway()
    for choice, index, text in fragments:
        gateway.send(chunk(on_choice(choice, t(index, f"call_{index}", "f", text))))
    gateway.close()
    opened = told(gateway.observer, "call_opened")
    settled = told(gateway.observer, "call_dispatched") + [key[:2] for key in told(gateway.observer, "call_refused")]
    assert sorted(opened) == sorted(settled)
    assert len(set(opened)) == len(opened)


@given(ANY)
def test_what_was_parsed_can_be_written(value):
    """There is no value that was read and cannot be written, and it reads back as the same."""
    parsed = parse_json(text_of(value))
    assert repr(parse_json(encode_json(parsed))) == repr(parsed)


@pytest.mark.parametrize("refusal", list(Refusal))
def test_a_refusal_is_its_word(refusal):
    """Logs, metrics and code use the same word, and a repair is named by its config key."""
    assert str(refusal) == refusal.value == refusal.name.lower()
    assert refusal.repair is None or refusal.repair.isidentifier()
