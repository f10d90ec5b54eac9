"""The three stages that change or drop ordinary frames: the calls, roles and chunks that go, and all that stays."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import FIN, C, Gateway, R, c1, chunk, frames, t
from wire_helpers import assert_same_frames, default_order

from pipeline.chunks import MAX_CHOICES, encode_json
from pipeline.items import Chunk
from pipeline.sse import sse_frame
from pipeline.stage import NoOptions, RequestContext
from stages.empty_skip import EmptySkip
from stages.parallel_call_filter import ParallelCallFilter
from stages.role_dedup import RoleDedup

NO_PARALLEL = {"parallel_tool_calls": False}
ROLE = ((0, "role", "assistant"),)


def arrives(*payloads, request=None):
    """What becomes of these chunks: payloads, None for a dropped one."""
    gateway = Gateway(request=request)
    seen = []
    for payload in payloads:
        got = [json.loads(data) for name, data in gateway.send(payload) if name is None]
        seen.append(got[0] if got else None)
    return seen


def choice(delta, **keys):
    return {**chunk(()), "choices": [{"index": 0, "delta": delta, **keys}]}


# --- consequences worth testing (spec, dispatch, 2.4) -----------------------------------------------------------------

TABLE = [
    ("no-choices", chunk(()), False),
    ("no-choices-fingerprint", {**chunk(()), "system_fingerprint": "fp"}, False),
    ("usage", {**chunk(()), "usage": {"total_tokens": 1}}, True),
    ("nvext", {**chunk(()), "nvext": {"timing": {}}}, True),
    ("content-empty", choice({"content": ""}), False),
    ("content-no-parts", choice({"content": []}), False),
    ("delta-empty", choice({}), False),
    ("tool_calls-empty", choice({"tool_calls": []}), True),
    ("reasoning_content-empty", choice({"reasoning_content": ""}), True),
    ("refusal-empty", choice({"refusal": ""}), True),
    ("function_call-empty", choice({"function_call": {}}), True),
    ("logprobs", choice({}, logprobs={"content": []}), True),
    ("one-of-two-choices", {**chunk(()), "choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"content": "x"}}]}, True),
    # The rows of the first table: Callahead keeps what it does not know.
    ("unknown-key", {**chunk(()), "x_groq": {"id": 1}}, True),
    ("unknown-key-null", {**chunk(()), "usage": None}, False),
    ("unknown-key-in-choice", choice({}, content_filter_results={}), True),
    ("unknown-key-in-choice-null", choice({}, finish_reason=None, logprobs=None), False),
    ("unknown-key-in-delta", choice({"audio": {}}), True),
    ("unknown-key-in-delta-null", choice({"content": None, "tool_calls": None, "role": None}), False),
    ("no-choices-key", {"id": "x", "usage": None}, True),
    ("choices-null", {"id": "x", "choices": None}, True),
    ("delta-null", {**chunk(()), "choices": [{"index": 0, "delta": None}]}, False),
    ("delta-absent", {**chunk(()), "choices": [{"index": 0}]}, False),
    ("delta-is-text", choice("x"), True),
    ("choice-is-no-object", {**chunk(()), "choices": [None]}, True),
    ("content-zero", choice({"content": 0}), True),
    ("content-blank", choice({"content": " "}), True),
    ("finish-reason-empty", choice({}, finish_reason=""), True),
    ("tier", {**chunk(()), "service_tier": "default"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "is_forwarded"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_empty_chunks_are_dropped(payload, is_forwarded):
    """A chunk is forwarded, the very same, unless nothing in it is set."""
    assert arrives(payload) == [payload if is_forwarded else None]


def test_a_repeated_role_alone_is_empty():
    """The second chunk with nothing but a role is dropped, since its role is taken out first."""
    assert arrives(chunk(ROLE), chunk(ROLE)) == [chunk(ROLE), None]


def test_an_empty_delta_beside_another_is_written_as_an_empty_object():
    """A role that is taken out leaves {} where another choice still says something."""
    second = chunk(ROLE + c1(C("x")))
    expected = copy.deepcopy(second)
    expected["choices"][0]["delta"] = {}
    assert arrives(chunk(ROLE), second) == [chunk(ROLE), expected]


def test_a_filtered_call_alone_is_empty():
    """A chunk that held nothing but a forbidden call is dropped."""
    assert arrives(chunk(t(1, "c", "f", "{}")), request=NO_PARALLEL) == [None]


def test_a_filtered_call_with_a_finish_is_forwarded():
    """The finish stays, the emptied list goes."""
    assert arrives(chunk(t(1, "c", "f", "{}") + FIN("tool_calls")), request=NO_PARALLEL) == [chunk(FIN("tool_calls"))]


# --- parallel_call_filter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, True, 0, "false", "absent"])
def test_only_an_explicit_false_turns_the_filter_on(value):
    """Anything else leaves the stage out of the pipeline."""
    request = {} if value == "absent" else {"parallel_tool_calls": value}
    assert ParallelCallFilter.is_idle(NoOptions(), RequestContext(request=request))
    assert not ParallelCallFilter.is_idle(NoOptions(), RequestContext(request=NO_PARALLEL))


@pytest.mark.parametrize(
    ("calls", "kept"),
    [
        ([{"index": 0}, {"index": 1}], [{"index": 0}]),
        ([{"index": 1}, {"index": 0}, {"index": 0}], [{"index": 0}, {"index": 0}]),
        ([{"index": 1}], None),
        ([{}, {"index": None}, {"index": "0"}], [{}]),
        ([None, 7, {"index": 2}], [None, 7]),
        ([], []),
        ({"index": 1}, {"index": 1}),
        ([{"index": -1}, {"index": 0.0}, {"index": False}], [{"index": 0.0}, {"index": False}]),
    ],
)
def test_index_zero_stays(calls, kept):
    """What is no object stays, an absent index counts as 0, an emptied list is removed, an empty one is not."""
    delta = {"content": "x", "tool_calls": calls, "extra": 1}
    expected = {key: value for key, value in {**delta, "tool_calls": kept}.items() if value is not None}
    assert arrives(choice(delta), request=NO_PARALLEL) == [choice(expected)]


# --- role_dedup -------------------------------------------------------------------------------------------------------


def test_each_choice_has_its_role_once():
    """State is per choice; null is no role; other roles than the first go too."""
    user = ((0, "role", "user"),)
    null = ((0, "role", None),)
    assert arrives(*map(chunk, [null + C("a"), user + C("b"), ROLE + C("c"), c1(ROLE + C("d")), null + C("e")])) == [
        chunk(null + C("a")),
        chunk(user + C("b")),
        chunk(C("c")),
        chunk(c1(ROLE + C("d"))),
        chunk(null + C("e")),
    ]


def test_choices_beyond_the_limit_keep_their_roles():
    """State does not grow with the numbers that an upstream makes up."""
    many = {**chunk(()), "choices": [{"index": i, "delta": {"role": "a"}} for i in range(MAX_CHOICES + 1)]}
    _, second = arrives(many, many)
    assert [c["delta"] for c in second["choices"][-2:]] == [{}, {"role": "a"}]


# --- edits lose nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "-Infinity",
        "1e999",
        "123456789012345678901234567890",
        "-18446744073709551616",
        '"\\ud800"',
        '{"\\udc00":["é",1e999]}',
        "[" * 700 + "]" * 700,
        '"\u2028\x7f"',
        "[[],{}]",
    ],
)
def test_an_edited_chunk_keeps_every_value_as_written(value):
    """Numbers that no float holds, long integers, lone surrogates and depth survive an edit."""
    frame = f'data: {{"choices":[{{"index":0,"delta":{{"role":"a","content":"x"}}}}],"odd":{value}}}\n\n'.encode()
    gateway = Gateway()
    assert gateway.feed(frame) == frame
    assert gateway.feed(frame) == frame.replace(b'"role":"a",', b"")


def test_a_filtered_chunk_keeps_every_value_as_written():
    """The same holds where calls are taken out."""
    calls = b'{"index":0,"n":123456789012345678901234567890},{"index":1}'
    frame = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%b]}}],"odd":[1e999,NaN]}\n\n' % calls
    assert Gateway(request=NO_PARALLEL).feed(frame) == frame.replace(b',{"index":1}', b"")


def test_an_edit_keeps_key_order_and_unknown_keys():
    """Only the role goes; everything else stands where it stood."""
    first = b'data: {"z":1,"choices":[{"a":[],"index":0,"delta":{"y":2,"role":"assistant","x":3},"b":{}}],"k":null}\n\n'
    gateway = Gateway()
    gateway.feed(first)
    assert gateway.feed(first) == first.replace(b'"role":"assistant",', b"")


@pytest.mark.parametrize("stage", [ParallelCallFilter, RoleDedup, EmptySkip])
def test_a_chunk_that_needs_no_change_is_the_same_object(stage):
    """Not a copy: its raw bytes go on with it."""
    running = stage(NoOptions(), RequestContext(request=NO_PARALLEL))
    for payload in map(chunk, [ROLE + C("a"), C("b"), t(0, "c", "f", "{}"), FIN("stop")]):
        item = Chunk(payload, b"raw")
        (given_item,) = running.feed(item)
        assert given_item is item


def test_an_edit_leaves_the_payload_that_came_alone():
    """Items are shared: other holders of the chunk still see what the upstream sent."""
    running = RoleDedup(NoOptions(), RequestContext())
    items = [Chunk(chunk(ROLE + C("a")), None) for _ in range(2)]
    before = copy.deepcopy(items[1].payload)
    _, (edited,) = (running.feed(item) for item in items)
    assert items[1].payload == before
    assert edited.payload == chunk(C("a"))
    assert edited.raw is None


# --- any stream -------------------------------------------------------------------------------------------------------

SCALAR = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "0", "assistant", "x", 0.0, [], {}])
CALL = SCALAR | st.fixed_dictionaries({}, optional={"index": SCALAR, "id": SCALAR, "function": SCALAR})
DELTA = SCALAR | st.fixed_dictionaries(
    {},
    optional={
        "role": SCALAR,
        "content": SCALAR,
        "tool_calls": SCALAR | st.lists(CALL, max_size=3),
        "reasoning": SCALAR,
        "zz": SCALAR,
    },
)
CHOICE = SCALAR | st.fixed_dictionaries(
    {}, optional={"index": SCALAR, "delta": DELTA, "finish_reason": SCALAR, "logprobs": SCALAR}
)
PAYLOAD = st.fixed_dictionaries(
    {}, optional={"id": SCALAR, "choices": SCALAR | st.lists(CHOICE, max_size=3), "usage": SCALAR, "created": SCALAR}
)


@given(st.lists(PAYLOAD, max_size=6), st.sampled_from([{}, NO_PARALLEL]))
def test_any_stream_agrees_with_the_model(payloads, request_body):
    """The ordinary frames are those of a plain model of the three rules, byte for byte where nothing changed."""
    sent = [(None, encode_json(payload)) for payload in payloads]
    gateway = Gateway(request=request_body, events=frozenset())
    got = frames(b"".join(gateway.feed(sse_frame(data)) for _, data in sent))
    assert_same_frames(got, default_order(sent, request_body))


def test_reasoning_alone_is_not_empty():
    """A chunk that only thinks is forwarded."""
    assert arrives(chunk(R("hm"))) == [chunk(R("hm"))]
