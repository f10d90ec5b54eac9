"""``tool_call_name``: rows NM1 to NM6 of spec, repairs, 7."""

from __future__ import annotations

import pytest
from repair_helpers import (
    DONE,
    ENVELOPE,
    NULL,
    Repaired,
    body_of,
    check,
    choice,
    chunk,
    comment,
    e,
    item,
    piece,
    run,
    show,
)

from pipeline.errors import StreamFailure
from pipeline.items import SideEvent, StreamError
from pipeline.testing import items_of, make_stage
from stages.tool_call_name import ToolCallName

DECLARED = ["edit_existing_file", "list", "list_charts", "edit", "é_long_name"]
REQUEST = {"tools": [{"type": "function", "function": {"name": name}} for name in DECLARED]}
FIRST = chunk(e(0, "a", "edit_ex", ""))
SECOND = chunk(e(0, None, "isting_file", ""))
WHOLE = [chunk(e(0, "a", "edit_existing_file", "")), chunk(e(0, None, None, ""))]
JOINED = [(0, 0, "join-name-fragments")]
COMMENT = comment()
EVENT = items_of(b"event: trace\ndata: 1\n\n")[0]
ERROR = {**chunk(), "error": {"message": "x"}}
FAILURE = StreamError(StreamFailure("x"))
CHANGED = {
    "NM1": ([FIRST, SECOND, chunk(piece("{}"))], [*WHOLE, 2]),
    "NM1 text beside the last piece": (
        [FIRST, chunk(e(0, None, "isting_file", '{"f":'))],
        [WHOLE[0], chunk(piece('{"f":'))],
    ),
    "NM1 three pieces": (
        [chunk(e(0, "a", "edit_ex")), chunk(e(0, None, "isting_", x=1)), chunk(e(0, None, "file"))],
        [
            chunk(e(0, "a", "edit_existing_file")),
            chunk({"index": 0, "x": 1, "function": {}}),
            chunk({"index": 0, "function": {}}),
        ],
    ),
    "NM1 in one delta": (
        [chunk(e(0, "a", "edit_ex"), e(0, None, "isting_file", "{"))],
        [chunk(e(0, "a", "edit_existing_file"), piece("{"))],
    ),
    "NM1 on the finish": (
        [FIRST, chunk(e(0, None, "isting_file", "{}"), finish="tool_calls")],
        [WHOLE[0], chunk(piece("{}"), finish="tool_calls")],
    ),
    "NM1 all frames between come out in order": (
        [FIRST, COMMENT, chunk(content="x"), chunk(piece("", 1)), SECOND],
        [WHOLE[0], COMMENT, 2, 3, WHOLE[1]],
    ),
    "the shorter of two declared names wins": (
        [chunk(e(0, "a", "ed")), chunk(e(0, None, "it")), chunk(e(0, None, "_existing_file"))],
        [chunk(e(0, "a", "edit")), chunk({"index": 0, "function": {}}), 2],
    ),
}


@pytest.mark.parametrize("row", CHANGED)
def test_row_that_joins(row):
    """The first entry gets the whole name, the others lose their piece, and nothing else changes."""
    before, after = CHANGED[row]
    check(ToolCallName, before, after, request=REQUEST, repairs=JOINED)


UNCHANGED = {
    "NM2 then nothing": [FIRST, chunk(e(0, None, "isting_"))],
    "NM3 the same piece again": [FIRST, FIRST, SECOND],
    "NM3 text beside a piece that does not end it": [
        FIRST,
        chunk(e(0, None, "isting_", "{")),
        chunk(e(0, None, "file")),
    ],
    "NM4": [FIRST, chunk(piece("{")), SECOND],
    "NM4 an object": [FIRST, chunk(piece({"a": 1})), SECOND],
    "NM5 then another piece of text": [
        FIRST,
        chunk(piece(" ")),
        chunk(e(0, "a", "")),
        chunk(e(0, NULL, NULL)),
        chunk(piece("{")),
    ],
    "NM6 a finish": [FIRST, chunk(finish="stop"), SECOND],
    "NM6 [DONE]": [FIRST, DONE],
    "NM6 an error chunk": [FIRST, ERROR, SECOND],
    "NM6 a failure": [FIRST, FAILURE],
    "NM6 a foreign event": [FIRST, EVENT, SECOND],
    "NM6 the end": [FIRST],
    "a declared name": [chunk(e(0, "a", "list", "")), chunk(e(0, None, "_charts"))],
    "a name repeated in full": [chunk(e(0, "a", "list_charts", "")), chunk(e(0, "a", "list_charts", "{}"))],
    "an undeclared name": [chunk(e(0, "a", "edits", "")), chunk(e(0, None, "x"))],
    "text beside the first piece": [chunk(e(0, "a", "edit_ex", "{")), SECOND],
    "only the first name of a call is judged": [chunk(e(0, "a", "other", "")), FIRST, SECOND],
    "a custom call": [chunk(e(0, "a", custom={"name": "edit_ex"})), chunk(e(0, custom={"name": "isting_file"}))],
    "no usable index": [
        chunk(e(None, "a", "edit_ex")),
        chunk(e(-1, "b", "edit_ex")),
        chunk(e(None, None, "isting_file")),
    ],
    "no usable choice": [chunk(e(0, "a", "edit_ex"), index=-1), chunk(e(0, None, "isting_file"), index=-1)],
    "odd shapes": [chunk({"index": 0, "function": "edit_ex"}), chunk(tool_calls="x"), {"choices": [7, {"delta": 7}]}],
}


@pytest.mark.parametrize("row", UNCHANGED)
def test_row_that_leaves_alone(row):
    """Whatever was kept back goes out as the same objects, in order."""
    before = UNCHANGED[row]
    check(ToolCallName, before, list(range(len(before))), request=REQUEST, repairs=[])


def released(before, request=None, options=None):
    """How many items came out after each one that went in."""
    stage = make_stage(ToolCallName, request=request or REQUEST, options=options)
    return [len(list(stage.feed(item(payload)))) for payload in before]


@pytest.mark.parametrize(
    ("before", "counts"),
    [
        ([FIRST, COMMENT, SECOND], [0, 0, 3]),
        ([FIRST, chunk(piece("{"))], [0, 2]),
        ([FIRST, chunk(content="x"), chunk(finish="stop"), chunk()], [0, 0, 3, 1]),
        ([FIRST, DONE], [0, 2]),
        ([FIRST, chunk(index=1, finish="stop")], [0, 0]),
        ([chunk(e(0, "a", "list")), chunk(content="x")], [1, 1]),
        ([chunk(e(0, "a", "ed"), e(1, "b", "edit_ex")), chunk(piece("{", 1)), chunk(piece("{", 0))], [0, 0, 3]),
    ],
    ids=[
        "comments wait too",
        "NM4",
        "NM6 finish",
        "NM6 DONE",
        "a finish elsewhere",
        "nothing to wait for",
        "two calls",
    ],
)
def test_when_frames_go_out(before, counts):
    """Frames wait from the first piece until no call is unsettled."""
    assert released(before) == counts


def test_nm6_at_most_max_held_frames_wait():
    """The frame that is one too many settles everything."""
    before = [FIRST, *[chunk(content="x")] * 16, SECOND]
    assert released(before) == [0] * 16 + [17, 1]
    assert released([FIRST, COMMENT, SECOND], options={"max_held": 1}) == [0, 2, 1]


def test_side_events_of_others_wait_in_their_place():
    """A stage of somebody's that stands in front may send events; their order stays."""
    event = SideEvent("x", {}, item(FIRST))
    check(ToolCallName, [FIRST, event, SECOND], [WHOLE[0], event, WHOLE[1]], request=REQUEST)


@pytest.mark.parametrize("tools", [None, [], "x", [7, {"function": 7}, {"function": {"name": ""}}]])
def test_without_tools_it_has_nothing_to_do(tools):
    """A request that declares no function does not get the stage."""
    stage = make_stage(ToolCallName)
    stage.context = type(stage.context)(request={"tools": tools})
    assert ToolCallName.is_idle(stage.options, stage.context)
    check(ToolCallName, [FIRST, SECOND], [0, 1], request={"tools": tools})


def test_choices_have_names_of_their_own():
    """Two choices are joined apart from each other."""
    before = [
        {**ENVELOPE, "choices": [choice(e(0, "a", "edit_ex"), index=n) for n in (0, 1)]},
        chunk(e(0, None, "isting_file"), index=1),
        chunk(piece("{"), index=0),
    ]
    after = [
        {**ENVELOPE, "choices": [choice(e(0, "a", "edit_ex")), choice(e(0, "a", "edit_existing_file"), index=1)]},
        chunk({"index": 0, "function": {}}, index=1),
        2,
    ]
    check(ToolCallName, before, after, request=REQUEST, repairs=[(1, 0, "join-name-fragments")])


def test_long_integers_survive_two_edits_of_one_frame():
    """An edit is built from the frame's own digits."""
    before = chunk(e(0, "a", "edit_ex"), e(1, "b", "edit_ex"), x=12345678901234567890123)
    second = chunk(e(0, None, "isting_file"), e(1, None, "isting_file"))
    _, given = run(ToolCallName, [before, second], request=REQUEST)
    assert given[0].payload["choices"][0]["delta"]["x"] == 12345678901234567890123, show(given)
    assert [call["function"]["name"] for call in given[0].payload["choices"][0]["delta"]["tool_calls"]] == [
        "edit_existing_file"
    ] * 2


def test_dispatch():
    """By the letter the second piece is a clash; joined, the call is dispatched under its name."""
    body = body_of([FIRST, SECOND, chunk(piece('{"file":"x.py"}')), chunk(finish="tool_calls")])
    assert b"tool_call_dispatch" not in Repaired([], REQUEST).all_of([body])
    assert b'"name":"edit_existing_file"' in Repaired(["tool_call_name"], REQUEST).all_of([body])
