"""The invented wire cases that a repair changes, or must leave alone, over repairs, default stages and encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from repair_helpers import Repaired, matches
from wire_helpers import default_order, is_error, writes_of

from pipeline.errors import StreamFailure
from pipeline.sse import SseDecoder
from stages.aggregate import Aggregate, AggregateOptions
from stages.repairs import RECOMMENDED, STAGE_OF_REPAIR

BUILT_IN = {"role-dedup", "parallel-tool-call-filter", "append-done"}
IN_PRESET = {*RECOMMENDED, "recommended"}
SIDE_EVENTS = {"tool_call_dispatch", "reasoning_dispatch"}


def load():
    """Every case that names a repair, by its file's name."""
    found = {}
    for path in sorted(Path(__file__).parents[2].joinpath("cases").glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        named = case.get("repair") or []
        repairs = [named] if isinstance(named, str) else named
        if repairs and not set(repairs) & BUILT_IN:
            found[path.stem] = case, repairs
    return found


CASES = load()


def stages_of(repairs):
    return [STAGE_OF_REPAIR.get(repair, repair) for repair in repairs]


def frames_of(data):
    decoder = SseDecoder()
    tail = [*decoder.feed(data), decoder.close()]
    return [(frame.event, frame.data) for frame in tail if frame is not None and frame.data]


def answer(case, repairs, reads):
    """The frames that the client receives, name and data."""
    breaks = case["upstream"].get("then", "close") != "close"
    failure = StreamFailure("the connection broke") if breaks else None
    return frames_of(Repaired(repairs, case["request"]).all_of(reads, failure))


def same_dispatch(want, have):
    """Equal, where ``<any>`` stands for an id that no other call has."""
    ids = [event["tool_call"]["id"] for event in have]
    is_made_up = [event["tool_call"]["id"] == "<any>" for event in want]
    return matches(want, have) and all(
        ids.count(one) == 1 for one, made_up in zip(ids, is_made_up, strict=True) if made_up
    )


def streamed_ids(ordinary):
    """For each choice and call the ids in the ordinary frames."""
    found = {}
    for _, data in ordinary:
        if data == b"[DONE]":
            continue
        payload = json.loads(data)
        for choice in payload.get("choices") or []:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                if isinstance(call, dict) and call.get("id"):
                    found.setdefault((choice.get("index", 0), call.get("index")), set()).add(call["id"])
    return found


def check(case, got, expect):
    """Compare what the client got with what the case expects."""
    sent = frames_of(b"".join(writes_of(case)))
    for key, event in (("dispatch", "tool_call_dispatch"), ("reasoning", "reasoning_dispatch")):
        have = [json.loads(data) for name, data in got if name == event]
        if key in expect:
            assert same_dispatch(expect[key], have) if key == "dispatch" else have == expect[key]
    ordinary = [(name, data) for name, data in got if name not in SIDE_EVENTS]
    done = sum(data == b"[DONE]" for _, data in ordinary)
    assert done == bool(expect.get("done"))
    own_errors = sum(is_error(*frame) for frame in sent)
    errors = sum(is_error(*frame) for frame in ordinary)
    assert errors == (max(1, own_errors) if expect.get("error") else 0)
    if errors and not own_errors:
        ordinary.pop()
    if expect.get("passthrough"):
        want = [value for _, value in default_order(sent, case["request"])]
        check_frames(want, [data for _, data in sent], ordinary, done)
    if "frames" in expect:
        check_frames(expect["frames"], [data for _, data in sent], ordinary, done=False)
    for call in expect.get("dispatch") or []:
        if call["tool_call"]["id"] == "<any>":
            key = call["choice_index"], call["tool_call"]["index"]
            dispatched = {
                json.loads(data)["tool_call"]["id"]
                for name, data in got
                if name == "tool_call_dispatch" and json.loads(data)["tool_call"]["index"] == key[1]
            }
            assert streamed_ids(ordinary)[key] == dispatched


def check_frames(want, sent, ordinary, done):
    """A number is the frame of that place, an object an edited one, bytes or ``[DONE]`` themselves."""
    have = [data for _, data in ordinary]
    if done and b"[DONE]" not in want:
        assert have.pop() == b"[DONE]"
    assert len(have) == len(want), have
    for one, data in zip(want, have, strict=True):
        if isinstance(one, dict):
            assert matches(one, json.loads(data)), f"\nwant {json.dumps(one)}\nhave {data.decode()}"
        else:
            assert data == (sent[one] if isinstance(one, int) else one if isinstance(one, bytes) else one.encode())


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    """With its repair the case gives what it promises, however the body is cut into reads."""
    case, repairs = CASES[name]
    writes = writes_of(case)
    body = b"".join(writes)
    for reads in (writes, [body], [body[i : i + 1] for i in range(len(body))]):
        check(case, answer(case, stages_of(repairs), reads), case["expect_repaired"])


@pytest.mark.parametrize(
    "name", [name for name, (case, _) in CASES.items() if case["expect_repaired"].get("aggregate")]
)
def test_fold_of_a_case(name):
    """A request that does not stream is answered with the repaired stream's calls, text and finish reason."""
    case, repairs = CASES[name]
    fold = Aggregate(AggregateOptions.of_request(case["request"]))
    for event, data in answer(case, stages_of(repairs), writes_of(case)):
        if event is None and data != b"[DONE]":
            fold.feed(json.loads(data))
    (choice,) = fold.response()["choices"][:1]
    message = choice["message"]
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", [])]
    want = case["expect_repaired"]["aggregate"]
    assert matches(want["tool_calls"], calls)
    assert (message["content"] or None, choice["finish_reason"]) == (want["content"] or None, want["finish_reason"])


@pytest.mark.parametrize("name", CASES)
def test_case_without_its_repair(name):
    """Without its repair the same stream gives what it gives by default."""
    case, _ = CASES[name]
    check(case, answer(case, [], writes_of(case)), case["expect"])


@pytest.mark.parametrize("name", [name for name, (_, repairs) in CASES.items() if set(stages_of(repairs)) <= IN_PRESET])
def test_case_with_the_preset(name):
    """The whole preset dispatches what the one repair does, with {} where a call has no arguments."""
    case, _ = CASES[name]
    want = json.loads(json.dumps(case["expect_repaired"]["dispatch"]))
    for event in want:
        function = event["tool_call"]["function"]
        function["arguments"] = function.get("arguments") or "{}"
    got = answer(case, ["recommended"], writes_of(case))
    assert same_dispatch(want, [json.loads(data) for name, data in got if name == "tool_call_dispatch"])


def test_every_repair_has_a_case():
    """Each quirk is tested from outside."""
    assert {repair for _, repairs in CASES.values() for repair in repairs} >= STAGE_OF_REPAIR.keys()
