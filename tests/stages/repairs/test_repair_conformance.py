"""The repairs keep the promises of a stage: alone between channels, on odd payloads, and with bounded state."""

from __future__ import annotations

import json

import pytest
from repair_helpers import (
    CLASSES,
    DONE,
    REGISTRY,
    Repaired,
    body_of,
    check,
    chunk,
    comment,
    e,
    item,
    piece,
    run,
    untouched,
)

from pipeline.chunks import MAX_CHOICES, encode_json
from pipeline.errors import StreamFailure
from pipeline.items import Chunk, StreamError
from pipeline.sse import SseDecoder
from pipeline.testing import RecordingObserver, check_conformance, make_stage, odd_payloads, run_stages
from stages.glued_events import GluedEvents
from stages.repairs import ALL_REPAIRS, RECOMMENDED, STAGE_OF_REPAIR

REQUEST = {"tools": [{"type": "function", "function": {"name": name}} for name in ("get_weather", "f")]}
PAYLOADS = [
    chunk(content=""),
    chunk(reasoning="Which?", x=1),
    chunk(function_call={"name": "f", "arguments": "{}"}, index=1),
    chunk(finish="function_call", index=1),
    chunk(tool_calls=e("0", None, "get_", "")),
    chunk(e("0", 7, "weather", "")),
    chunk(e("0", "other", None, '"{'), content="y"),
    chunk(piece('}"', "0")),
    chunk(e(0, "a", "f", "{}")),
    chunk(e(0, "b", "f", {"k": "\n"}), piece('{"k":"\n"} x', 9)),
    chunk(e(2, "c", "f", '{"k":1}')),
    chunk(e(3, "c", "f", '{"k":')),
    chunk(e(4, "c", "f", "{}")),
    chunk(e(5, "d", "f", "{}")),
    chunk(piece('{"k":1}', 5)),
    chunk(content="z"),
    chunk(finish="stop"),
    {"choices": [], "usage": {"total_tokens": 3}},
]
HOLDING = {"tool_call_name", "tool_call_id", "leading_empty_object", "tool_call_arguments"}
STREAM = [comment(), *map(item, PAYLOADS), DONE]
IDS = pytest.mark.usefixtures("equal_ids")


@pytest.fixture
def equal_ids(monkeypatch):
    """Made-up ids that are the same in each run."""
    monkeypatch.setattr("stages.made_up_id.secrets.token_hex", lambda length: "0" * 2 * length)


@IDS
@pytest.mark.parametrize("name", ALL_REPAIRS)
async def test_conformance(name):
    """Bursts do not matter, frames stay in place, odd payloads are survived, and every ending is clean."""
    stage = REGISTRY.find(name)
    await check_conformance(lambda: make_stage(stage, request=REQUEST), STREAM, may_hold=name in HOLDING)


def test_every_repair_has_something_to_do_in_that_stream():
    """The stream of the conformance test is no right one for anybody."""
    gateway = Repaired(ALL_REPAIRS, REQUEST)
    gateway.all_of([body_of(PAYLOADS)])
    assert {stage for stage, *_ in gateway.repairs()} == set(ALL_REPAIRS) - {"glued_events"}
    assert all(STAGE_OF_REPAIR[repair] == stage for stage, *_, repair in gateway.repairs())
    assert len(set(gateway.repairs())) == len(gateway.repairs())


@pytest.mark.parametrize("repairs", [RECOMMENDED, ALL_REPAIRS], ids=len)
def test_odd_payloads_one_after_the_other(repairs):
    """No JSON value crashes any repair, whatever came before it, and none is lost that no stage would drop."""
    payloads = odd_payloads()
    stages = [make_stage(REGISTRY.find(name), request=REQUEST) for name in repairs]
    given = run_stages(stages, [*map(item, payloads), DONE])
    chunks = [one for one in given if isinstance(one, Chunk)]
    assert len(chunks) >= len([one for one in map(item, payloads) if isinstance(one, Chunk)])
    gateway = Repaired(repairs, REQUEST)
    assert gateway.all_of([body_of([encode_frame(payload) for payload in payloads])])


def encode_frame(payload):
    return b"data: %b\n\n" % encode_json(payload)


@pytest.mark.parametrize("stage", [stage for stage in CLASSES if stage is not GluedEvents])
def test_other_items_pass(stage):
    """Comments, foreign events and failures are nobody's business."""
    failure = StreamError(StreamFailure("x"))
    untouched(stage, comment(), chunk(role="assistant", content="x"), failure, request=REQUEST)


@pytest.mark.parametrize(("stage", "quirk"), [(stage, PAYLOADS) for stage in CLASSES if stage is not GluedEvents])
def test_an_error_chunk_is_left_alone(stage, quirk):
    """Whatever quirk stands beside an error."""
    for error in ({"error": {"message": "x"}}, {"error": "x"}, {"object": "error"}):
        for payload in quirk:
            broken = item({**payload, **error})
            untouched(stage, broken, request=REQUEST)


def test_choices_beyond_the_limit_are_left_alone():
    """At most so many choices are told apart."""
    before = [chunk(content="x", index=index) for index in range(MAX_CHOICES + 2)]
    after = [chunk(role="assistant", content="x", index=index) for index in range(MAX_CHOICES)]
    check(REGISTRY.find("missing_role"), before, [*after, MAX_CHOICES, MAX_CHOICES + 1], again=False)


@pytest.mark.parametrize(
    "name", ["tool_call_id", "leading_empty_object", "tool_call_arguments", "trim_tool_call_arguments"]
)
def test_calls_beyond_the_limit_are_left_alone(name):
    """At most 1024 calls of a request are told apart."""
    spoilt = ['{"a":1}x', "{}", '"{}"']
    before = [chunk(e(index, None, "f", spoilt[index % 3]), index=index % 2) for index in range(1024)]
    beyond = [chunk(e(5000, None, "f", text)) for text in spoilt]
    items, given = run(REGISTRY.find(name), [*before, *beyond])
    assert given[-3:] == items[-3:]
    assert given[:-3] != items[:-3]


def test_unknown_keys_are_never_lost():
    """Each repair edits its own key only; what stands beside it comes through all of them."""
    payloads = json.loads(json.dumps(PAYLOADS))
    for number, payload in enumerate(payloads):
        payload["p"] = f"mark-{number}-payload"
        for one in payload["choices"]:
            one["q"] = f"mark-{number}-choice"
            one["delta"]["r"] = f"mark-{number}-delta"
            entries = one["delta"].get("tool_calls") or []
            for place, entry in enumerate([entries] if isinstance(entries, dict) else entries):
                entry["s"] = f"mark-{number}-entry-{place}"
                entry["function"]["t"] = f"mark-{number}-function-{place}"
    out = Repaired(ALL_REPAIRS, REQUEST).all_of([body_of(payloads)]).decode()
    marks = json.dumps(payloads).split("mark-")[1:]
    assert [mark for mark in (one.partition('"')[0] for one in marks) if f"mark-{mark}" not in out] == []


def test_reports_say_which_call():
    """The observer is told the choice and the call by the numbers that the client sees."""
    observer = RecordingObserver()
    run(
        REGISTRY.find("tool_call_index"),
        [chunk(e(0, "a", "f", "{}")), chunk(e(0, "b", "g", "{}"), index=0)],
        observer=observer,
    )
    assert observer.records == [("call_repaired", "tool_call_index", 0, 1, "reindex-parallel-calls")]


def test_frames_keep_their_other_lines():
    """An id or a comment in an edited frame stays."""
    data = b": hi\nid: 7\ndata: %b\n\n" % encode_json(chunk(content="x"))
    out = Repaired(["missing_role"]).feed(data)
    (frame,) = SseDecoder().feed(out)
    assert frame.last_event_id == "7"
    assert b": hi\n" in out
