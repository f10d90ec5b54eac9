"""What holds for every stream: right ones stay as they are, quirks are mended, and nothing is invented."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from repair_helpers import CLASSES, DONE, ENVELOPE, NULL, Repaired, body_of, choice, e, item
from spoilt_streams import QUIRKS, REQUEST, calls, plain, right_streams, whole

from pipeline.chunks import encode_json
from pipeline.items import Chunk
from pipeline.sse import SseDecoder
from pipeline.testing import make_stage, run_stages
from stages.repairs import ALL_REPAIRS, RECOMMENDED

ORDERS = {name: [stage] for name, stage in zip(ALL_REPAIRS, CLASSES, strict=True)}
ORDERS["recommended"] = [stage for name, stage in zip(ALL_REPAIRS, CLASSES, strict=True) if name in RECOMMENDED]


def made(order):
    return [make_stage(stage, request=REQUEST) for stage in order]


def events_of(out):
    """The tool events that the client receives."""
    return [json.loads(frame.data) for frame in SseDecoder().feed(out) if frame.event == "tool_call_dispatch"]


@given(right_streams())
def test_a_right_stream_is_untouched_by_all_repairs_together(payloads):
    """Every chunk comes out as the same object, at once; the bytes are the same, and no repair is told of."""
    stages = made(CLASSES)
    for one in map(item, payloads):
        given = [one]
        for stage in stages:
            given = [single for each in given for single in stage.feed(each)]
        assert given == [one]
    gateway = Repaired(ALL_REPAIRS, REQUEST)
    body = body_of(payloads)
    assert gateway.all_of([body]) == Repaired([], REQUEST).all_of([body])
    assert gateway.repairs() == []


@pytest.mark.parametrize("quirk", QUIRKS)
@settings(max_examples=20)
@given(calls())
def test_a_quirk_is_mended(quirk, calls):
    """All repairs together dispatch what the right stream holds, each call once, under an id of its own."""
    if quirk.startswith("replace-cumulative"):
        calls = [(name, plain(text)) for name, (text,) in whole(calls)]
    if quirk == "reattach-orphan-fragments":  # a higher index in front of any text is a call that has no identity yet
        assume(all(pieces[0].strip() for _, pieces in calls))
    if quirk == "function-call-to-tool-call":
        calls = calls[:1]
    out = Repaired(ALL_REPAIRS, REQUEST).all_of([body_of(QUIRKS[quirk](calls))])
    got = [event["tool_call"] for event in events_of(out)]
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in got] == [
        (name, json.loads("".join(pieces))) for name, pieces in calls
    ]
    assert len({call["id"] for call in got}) == len(got)
    assert all(call["id"] for call in got)
    assert b'"finish_reason":"tool_calls"' in out
    assert b'"role":"assistant"' in out


@pytest.mark.parametrize("quirk", QUIRKS)
@settings(max_examples=10)
@given(calls())
def test_repairs_are_idempotent(quirk, calls):
    """Each repair alone, and the preset in its order, changes nothing in what it gave."""
    items = [*map(item, QUIRKS[quirk](calls)), DONE]
    for order in ORDERS.values():
        once = run_stages(made(order), items)
        twice = run_stages(made(order), once)
        assert list(map(written, twice)) == list(map(written, once))


def written(one):
    return encode_json(one.payload) if isinstance(one, Chunk) else one


# --- any stream -----------------------------------------------------------------------------------------------------

TEXTS = ['{"k":', "1}", '{"k":1}', "{}", "}", " ", "", '"{}"', '"{', "[2", "]", "x", {"k": 3}, {}, [4], None, 5]
ENTRIES = st.builds(
    e,
    st.sampled_from([None, 0, 1, 2, "0", -1, 1.0]),
    st.sampled_from([None, "", "a", "b", "c", NULL, 7]),
    st.sampled_from([None, "", "f", "get_", "weather", "list_charts"]),
    st.sampled_from(TEXTS),
)
DELTAS = [{}, {"role": None}, {"content": "x"}, {"reasoning": "r"}, {"function_call": {"name": "f"}}]
REASONS = [None, None, None, "stop", "tool_calls", "length", "function_call", ""]


@st.composite
def any_choices(draw):
    """A choice of any shape of those that repairs look at."""
    entries = draw(st.lists(ENTRIES, max_size=3))
    index, finish = draw(st.sampled_from([0, 0, 0, 1, -1])), draw(st.sampled_from(REASONS))
    built = choice(*entries, index=index, finish=finish, **draw(st.sampled_from(DELTAS)))
    if len(entries) == 1 and draw(st.booleans()):
        built["delta"]["tool_calls"] = entries[0]
    return built


ANY_STREAMS = st.lists(
    st.lists(any_choices(), min_size=1, max_size=2).map(lambda choices: {**ENVELOPE, "choices": choices}), max_size=8
)


def texts_of(payloads, choice_index, call_index=None):
    """All argument text of a choice, or of one call of it, in order; an object counts as its compact text."""
    texts = []
    for payload in payloads:
        for one in payload.get("choices", []):
            entries = (one["delta"].get("tool_calls") if one["index"] == choice_index else None) or []
            has_key = isinstance(entries, list)  # one object where the list would be belongs to no call
            for entry in entries if has_key else [entries]:
                text, index = entry.get("function", {}).get("arguments"), entry.get("index")
                is_of_call = has_key and type(index) is int and index == call_index
                if text is not None and (call_index is None or is_of_call):
                    texts.append(text if isinstance(text, str) else encode_json(text).decode())
    return "".join(texts)


def is_subsequence(text, of):
    rest = iter(of)
    return all(character in rest for character in text)


@pytest.mark.parametrize("name", ["recommended", "all", *ALL_REPAIRS])
@settings(max_examples=40)
@given(ANY_STREAMS)
def test_nothing_is_invented(name, payloads):
    """A dispatched call has no arguments that the stream did not hold, but {} for none; the client's stream says so too."""
    repairs = ALL_REPAIRS if name == "all" else [name]
    out = Repaired(repairs, REQUEST).all_of([body_of(payloads)])
    ordinary = [frame.data for frame in SseDecoder().feed(out) if frame.event is None and frame.data != b"[DONE]"]
    received = [json.loads(data) for data in ordinary]
    for event in events_of(out):
        own, call = event["choice_index"], event["tool_call"]
        text = call["function"].get("arguments", "")
        assert text.strip() == "{}" or is_subsequence(text, texts_of(payloads, own))
        assert texts_of(received, own, call["index"]).startswith(text)


@given(ANY_STREAMS)
def test_what_comes_out_is_right_for_good(payloads):
    """Indexes, finish reasons and roles that were mended are right: a second run leaves any stream alone."""
    order = [*ORDERS["tool_call_index"], *ORDERS["missing_role"], *ORDERS["finish_reason"]]
    once = run_stages(made(order), map(item, payloads))
    twice = run_stages(made(order), once)
    assert list(map(written, twice)) == list(map(written, once))
