"""The preset on recorded streams of real providers, against the table in ``recordings.json``.

The table holds for each recording the quirks that the preset mends in it and the calls that are then dispatched:
choice, index, id (``<any>`` where it is made up), name, arguments. None of the recordings that can be had is left out.
The specification counts over 150 recordings, of which these are 75; of its seven streams that gain calls four are here.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from repair_helpers import Repaired, matches

from pipeline.sse import SseDecoder

STREAMS = Path(__file__).parents[4] / "shared" / "streams"
TABLE = json.loads(Path(__file__).with_name("recordings.json").read_text("utf-8"))

pytestmark = pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not part of the repository")


def body_of_recording(name):
    data = STREAMS.joinpath(name).read_bytes()
    if name.endswith(".jsonl"):
        lines = [b"data: %b\n\n" % line for line in data.splitlines() if line.strip()]
        return b"".join([*lines, b"data: [DONE]\n\n"])
    return data


def request_of(name):
    return json.loads(STREAMS.joinpath(name).with_suffix(".json").read_text("utf-8")).get("request") or {}


def answer(name, repairs, reads=None):
    """What the client receives, and what the observer was told of repairs."""
    gateway = Repaired(repairs, request_of(name))
    return gateway.all_of(reads or [body_of_recording(name)]), gateway.repairs()


def dispatched(out):
    """The calls, as the table has them."""
    found = []
    for frame in SseDecoder().feed(out):
        if frame.event == "tool_call_dispatch":
            event = json.loads(frame.data)
            call = event["tool_call"]
            function = call["function"]
            found.append(
                [event["choice_index"], call["index"], call["id"], function["name"], function.get("arguments")]
            )
    return found


@pytest.mark.parametrize("name", TABLE)
def test_recording(name):
    """The preset mends what the table says, and gives the calls that it says, however the reads are cut."""
    out, repairs = answer(name, ["recommended"])
    assert sorted({repair for *_, repair in repairs}) == TABLE[name]["repairs"]
    assert matches(TABLE[name]["dispatch"], dispatched(out))
    body, chance = body_of_recording(name), random.Random(name)
    places = sorted(chance.sample(range(len(body)), min(len(body), 40)))
    reads = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    cut, cut_repairs = answer(name, ["recommended"], reads)
    assert sorted(map(str, cut_repairs)) == sorted(map(str, repairs))
    assert matches(TABLE[name]["dispatch"], dispatched(cut))
    plain, none = answer(name, [])
    assert none == []
    if not repairs:
        assert out == cut == plain


def test_the_table_is_complete():
    """Every recording is in it."""
    assert set(TABLE) == set(json.loads(STREAMS.joinpath("EXPECT.json").read_text("utf-8")))


def test_what_the_preset_does_in_all():
    """Calls are gained, none is lost or changed but for ``{}``; most streams are not touched at all."""
    gains, repairs = Counter(), Counter()
    for name, row in TABLE.items():
        before, after = dispatched(answer(name, [])[0]), row["dispatch"]
        repairs.update(row["repairs"] or ["none"])
        if len(before) != len(after):
            gains[len(before), len(after)] += 1
        elif before != after:
            assert [call[:-1] for call in before] == [call[:-1] for call in after]
            assert {call[-1] for call in before} == {""}
            assert {call[-1] for call in after} == {"{}"}
    assert gains == {(0, 1): 3, (0, 2): 1}
    assert repairs == {
        "none": 64,
        "add-missing-role": 5,
        "infer-missing-index": 4,
        "synthesize-missing-id": 1,
        "empty-arguments-to-object": 1,
        "finish-reason-tool-calls": 2,
    }


@pytest.mark.parametrize("name", TABLE)
def test_the_repairs_by_name(name):
    """Those outside of the preset lose no call of any recording; the one legacy call is gained."""
    for repair in ("legacy_function_call", "leading_empty_object", "trim_tool_call_arguments", "reasoning_fields"):
        wanted = dispatched(answer(name, [])[0])
        got = dispatched(answer(name, [repair])[0])
        if repair == "legacy_function_call" and "legacy-function-call" in name:
            assert (len(wanted), len(got)) == (0, 1)
        else:
            assert sorted(map(str, got)) == sorted(map(str, wanted))
