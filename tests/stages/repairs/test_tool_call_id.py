"""``tool_call_id``: rows ID1 to ID9 of spec, repairs, 8."""

from __future__ import annotations

import json
import re

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
    e,
    made_up,
    piece,
    run,
    untouched,
)

from pipeline.errors import StreamFailure
from pipeline.items import StreamError
from stages.call_entry import without
from stages.tool_call_id import ToolCallId

ANY = "<any>"
FIN = chunk(finish="tool_calls")
STOP = chunk(finish="stop")
LENGTH = chunk(finish="length")
FIVE = '{"eur":5}'
PAY = chunk(e(0, "a", "pay", FIVE))
MISSING, CHANGED, SHARED, DUPLICATE = (
    "synthesize-missing-id",
    "pin-first-id",
    "unique-ids",
    "drop-duplicate-calls",
)
ERROR = {**chunk(), "error": {"message": "x"}}
FAILURE = StreamError(StreamFailure("x"))


def no_id(entry):
    return without(entry, "id")


ROWS = {
    "ID1": ([chunk(e(0, None, "run", "")), chunk(piece("{}"))], [chunk(e(0, ANY, "run", "")), 1], [(0, 0, MISSING)]),
    "ID1 empty": ([chunk(e(0, "", "run", "{}"))], [chunk(e(0, ANY, "run", "{}"))], [(0, 0, MISSING)]),
    "ID1 null": ([chunk(e(0, NULL, "run"))], [chunk(e(0, ANY, "run"))], [(0, 0, MISSING)]),
    "ID1 other types": (
        [chunk(e(0, [1], "run")), chunk(e(1, True, "f"))],
        [chunk(e(0, ANY, "run")), chunk(e(1, ANY, "f"))],
        None,
    ),
    "ID1 arguments first": ([chunk(piece("{}")), chunk(e(0, None, "run"))], [0, chunk(e(0, ANY, "run"))], None),
    "ID1 a custom call": (
        [chunk(e(0, custom={"name": "sh", "input": "ls"}))],
        [chunk(e(0, ANY, custom={"name": "sh", "input": "ls"}))],
        [(0, 0, MISSING)],
    ),
    "ID2": (
        [chunk(e(0, 7, "run", "")), chunk(e(0, 7, None, "{}"))],
        [chunk(e(0, "7", "run", "")), chunk(e(0, "7", None, "{}"))],
        [(0, 0, MISSING)],
    ),
    "ID4": (
        [chunk(e(0, "a", "grep", "")), chunk(e(0, "b", None, '{"p":', x=1)), chunk(e(0, "c", None, "1}"))],
        [0, chunk(e(0, None, None, '{"p":', x=1)), chunk(e(0, None, None, "1}"))],
        [(0, 0, CHANGED)],
    ),
    "ID4 the name comes with another id": (
        [chunk(e(0, "a")), chunk(e(0, "b", "f"))],
        [0, chunk(e(0, None, "f"))],
        None,
    ),
    "ID5": (
        [chunk(e(0, None, "run", "{")), chunk(e(0, "late", None, "}")), chunk(e(0, "later"))],
        [chunk(e(0, ANY, "run", "{")), chunk(piece("}")), chunk(e(0))],
        [(0, 0, MISSING)],
    ),
    "ID8 open": (
        [chunk(e(0, "a", "f", "{")), chunk(e(1, "a", "f", "{")), chunk(e(1, "a", None, "}"))],
        [0, chunk(e(1, ANY, "f", "{")), chunk(piece("}", 1))],
        [(0, 1, SHARED)],
    ),
    "ID8 other name": (
        [chunk(e(0, "a", "lock", "{}")), chunk(e(1, "a", "open", "{}"))],
        [0, chunk(e(1, ANY, "open", "{}"))],
        [(0, 1, SHARED)],
    ),
    "ID8 junk": ([chunk(e(0, "a", "f", "{}x")), chunk(e(1, "a", "f", "{}x"))], [0, chunk(e(1, ANY, "f", "{}x"))], None),
    "ID8 custom": (
        [chunk(e(0, "a", custom={"name": "f"})), chunk(e(1, "a", custom={"name": "f"})), chunk(e(2, "a", "f", "{}"))],
        [0, chunk(e(1, ANY, custom={"name": "f"})), chunk(e(2, ANY, "f", "{}"))],
        None,
    ),
    "ID8 the id comes late": (
        [PAY, chunk(piece("{", 1)), chunk(e(1, "a")), chunk(e(1, None, "pay", "}"))],
        [0, 1, chunk(e(1, ANY)), 3],
        [(0, 1, SHARED)],
    ),
    "ID9 a repeat": (
        [
            PAY,
            chunk(e(1, "a", "pay", '{ "eur": 5 }'), content="x"),
            chunk(piece("x", 1)),
            chunk(e(1, "a", "pay", "{}")),
            FIN,
        ],
        [0, chunk(content="x"), chunk(), chunk(), 4],
        [(0, 1, DUPLICATE)],
    ),
    "ID9 a repeat beside another call": (
        [PAY, chunk(e(1, "a", "pay", FIVE), e(2, "b", "g", "{}"))],
        [0, chunk(e(2, "b", "g", "{}"))],
        [(0, 1, DUPLICATE)],
    ),
    "ID9 key order does not matter": (
        [chunk(e(0, "a", "f", '{"x":1,"y":[2]}')), chunk(e(1, "a", "f", '{"y": [2],"x":1}'), finish="stop")],
        [0, chunk(finish="stop")],
        [(0, 1, DUPLICATE)],
    ),
    "ID9 an object is its text": (
        [chunk(e(0, "a", "f", {"x": 1})), chunk(e(1, "a", "f", '{"x": 1}'))],
        [0, chunk()],
        None,
    ),
    "ID9 in pieces": (
        [PAY, chunk(e(1, "a", "pay", "")), chunk(piece('{"eur":', 1)), chunk(piece("5}", 1)), FIN],
        [0, chunk(), chunk(), chunk(), 4],
        [(0, 1, DUPLICATE)],
    ),
    "ID9 other arguments": (
        [PAY, chunk(e(1, "a", "pay", '{"eur":6}'))],
        [0, chunk(e(1, ANY, "pay", '{"eur":6}'))],
        [(0, 1, SHARED)],
    ),
    "ID9 other arguments in pieces": (
        [
            PAY,
            chunk(e(1, "a", "pay", "", type="function", x=[1])),
            chunk(piece('{"eur":', 1)),
            chunk(e(1, "a", None, "6}", x=[2]), e(2, "c", "g")),
        ],
        [0, chunk(), chunk(), chunk(e(1, ANY, "pay", '{"eur":6}', type="function", x=[1, 2]), e(2, "c", "g"))],
        [(0, 1, SHARED)],
    ),
    "ID9 the name proves different": (
        [PAY, chunk(e(1, "a")), chunk(e(1, None, "get", "{"), content="x"), chunk(e(1, "a", None, "}"))],
        [0, chunk(), chunk(e(1, ANY, "get", "{"), content="x"), chunk(piece("}", 1))],
        [(0, 1, SHARED)],
    ),
    "ID9 numbers are compared as written": (
        [chunk(e(0, "a", "f", '{"n":12345678901234567890}')), chunk(e(1, "a", "f", '{"n":12345678901234567891}'))],
        [0, chunk(e(1, ANY, "f", '{"n":12345678901234567891}'))],
        None,
    ),
    "ID9 true is not 1": (
        [chunk(e(0, "a", "f", "[true]")), chunk(e(1, "a", "f", "[1]"))],
        [0, chunk(e(1, ANY, "f", "[1]"))],
        None,
    ),
    "ID9 no JSON": (
        [chunk(e(0, "a", "f", "{x}")), chunk(e(1, "a", "f", "{x }"))],
        [0, chunk(e(1, ANY, "f", "{x }"))],
        None,
    ),
    "ID9 a repeat without arguments": (
        [chunk(e(0, "a", "f")), chunk(e(1, "a", "f", "")), FIN],
        [0, chunk(), 2],
        [(0, 1, DUPLICATE)],
    ),
    "ID9 the same at stop": ([chunk(e(0, "a", "f", " ")), chunk(e(1, "a", "f"), finish="stop")], [0, STOP], None),
    "ID9 the same at another finish": (
        [chunk(e(0, "a", "f")), chunk(e(1, "a", "f", "")), LENGTH],
        [0, chunk(), chunk(e(1, ANY, "f", ""), finish="length")],
        [(0, 1, SHARED)],
    ),
    "ID9 open at the finish": (
        [PAY, chunk(e(1, "a", "pay", '{"eur"')), chunk(e(2, "a", "pay")), FIN, FIN],
        [0, chunk(), chunk(), chunk(e(1, ANY, "pay", '{"eur"'), e(2, ANY, "pay"), finish="tool_calls"), 4],
        None,
    ),
    "ID9 [DONE] without a finish": (
        [PAY, chunk(e(1, "a", "pay", '{"eur"')), DONE],
        [0, chunk(), made_up(e(1, ANY, "pay", '{"eur"')), DONE],
        [(0, 1, SHARED)],
    ),
    "ID9 a failure": ([PAY, chunk(e(1, "a", "pay", '{"eur"')), FAILURE], [0, chunk(), FAILURE], []),
    "ID9 an error chunk": ([PAY, chunk(e(1, "a", "pay", "{")), ERROR, FIN, DONE], [0, chunk(), 2, 3, DONE], []),
    "ID9 the end without [DONE]": ([PAY, chunk(e(1, "a", "pay", '{"eur"'))], [0, chunk()], []),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    """Each call has one id of its own afterwards, and what was repeated is gone."""
    before, after, repairs = ROWS[row]
    check(ToolCallId, before, after, repairs=repairs)


UNTOUCHED = {
    "ID3": [chunk(piece("{}")), chunk(e(0, "", "", "")), chunk(e(0, "a")), chunk(e(0, None, "f"))],
    "ID6": [PAY, chunk(e(0, "b", None, "x")), chunk(e(0, "c", "g", "{}"))],
    "ID7": [chunk(e(0, "a", "f", "{")), chunk(e(0, "a", "f")), chunk(e(0, "")), chunk(e(0, NULL)), chunk(piece("}"))],
    "no usable index": [chunk(e(None, None, "f", "{}")), chunk(e(-1, "a", "f")), chunk(e("0", None, "f"))],
    "equal calls under different ids": [PAY, chunk(e(1, "b", "pay", FIVE)), FIN],
    "the same id in two choices": [PAY, chunk(e(0, "a", "pay", FIVE), index=1), FIN],
    "no usable choice": [chunk(e(0, None, "f"), index=-1)],
    "odd shapes": [chunk(tool_calls=7), chunk(tool_calls=[7, None, []]), chunk(tool_calls={"index": 0})],
}


@pytest.mark.parametrize("row", UNTOUCHED)
def test_row_that_leaves_alone(row):
    """Ids that are right stay as they are."""
    untouched(ToolCallId, *UNTOUCHED[row])


def test_id_style():
    """A made-up id is random and looks as it was asked for."""
    before = [chunk(e(0, None, "f"), e(1, None, "f"))]
    for style, pattern in (("openai", "call_[0-9a-f]{24}"), ("mistral", "[A-Za-z0-9]{9}")):
        _, (given,) = run(ToolCallId, before, options={"style": style})
        one, two = (call["id"] for call in given.payload["choices"][0]["delta"]["tool_calls"])
        assert one != two
        assert re.fullmatch(pattern, one)
        assert re.fullmatch(pattern, two)
    assert ToolCallId.Options().style == "openai"


OPTION_ROWS = {
    "missing": [chunk(e(0, None, "f")), chunk(e(0, 7, None))],
    "changed": [chunk(e(0, "a", "f")), chunk(e(0, "b"))],
    "shared": [chunk(e(0, "a", "f", "{")), chunk(e(1, "a", "f"))],
}


@pytest.mark.parametrize("option", OPTION_ROWS)
def test_option(option):
    """Each option can be turned off."""
    untouched(ToolCallId, *OPTION_ROWS[option], options={option: False})


def test_without_duplicate_a_shared_id_is_answered_at_once():
    """With duplicate off ID9 is ID8."""
    before = [PAY, chunk(e(1, "a", "pay", FIVE)), chunk(e(1, "a", None, " "))]
    after = [0, chunk(e(1, ANY, "pay", FIVE)), chunk(piece(" ", 1))]
    check(ToolCallId, before, after, options={"duplicate": False}, repairs=[(0, 1, SHARED)])


def test_without_shared_what_is_let_go_keeps_its_id():
    """With shared off a repeat is still dropped; another call goes out under the id that it came with."""
    off = {"shared": False}
    check(ToolCallId, [PAY, chunk(e(1, "a", "pay", FIVE))], [0, chunk()], options=off, repairs=[(0, 1, DUPLICATE)])
    before = [PAY, chunk(e(1, "a", "pay", "")), chunk(e(1, "", None, "[]")), chunk(e(1, "a"))]
    check(ToolCallId, before, [0, chunk(), chunk(e(1, "a", "pay", "[]")), 3], options=off, repairs=[], again=False)


def test_a_made_up_id_is_one_in_stream_and_dispatch():
    """Whatever ids the wire has, the call has one."""
    before = [chunk(e(0, None, "f", "{"), role="assistant"), chunk(e(0, "late", None, "}")), FIN]
    out = Repaired(["tool_call_id"]).all_of([body_of(before)])
    assert len(set(re.findall(rb"call_[0-9a-f]{24}", out))) == 1
    assert out.count(b"event: tool_call_dispatch") == 1
    assert b"late" not in out


def test_a_repeat_is_not_run_twice_and_its_empty_frame_is_skipped():
    """By the letter the same call on another index is dispatched again."""
    body = body_of([chunk(role="assistant"), PAY, chunk(e(1, "a", "pay", FIVE)), FIN])
    assert Repaired([]).all_of([body]).count(b"event: tool_call_dispatch") == 2
    out = Repaired(["tool_call_id"]).all_of([body])
    assert out.count(b"event: tool_call_dispatch") == 1
    assert out.count(b"\n\n") == 5


def test_only_the_repeated_call_waits():
    """Other calls, choices and text of the same frames go on at once."""
    before = [
        PAY,
        {
            **ENVELOPE,
            "choices": [
                choice(e(1, "a", "pay", "{"), e(2, "b", "g", "{}"), content="x"),
                choice(e(0, "a", "f"), index=1),
            ],
        },
    ]
    after = [
        0,
        {**ENVELOPE, "choices": [choice(e(2, "b", "g", "{}"), content="x"), choice(e(0, "a", "f"), index=1)]},
    ]
    check(ToolCallId, before, after)


def test_deep_arguments_are_compared_without_recursion_errors():
    """Arguments nested deeper than the interpreter's stack are another call, unless they are the same text."""
    deep = "[" * 100_000 + "]" * 100_000
    check(ToolCallId, [chunk(e(0, "a", "f", deep)), chunk(e(1, "a", "f", deep + " "))], [0, chunk()])
    other = "[ " + deep[1:]
    check(ToolCallId, [chunk(e(0, "a", "f", deep)), chunk(e(1, "a", "f", other))], [0, chunk(e(1, ANY, "f", other))])


def test_merged_entries_lose_nothing():
    """Text, lists and objects of the entries that were kept back are joined as everywhere."""
    held = [
        {"index": 1, "id": "a", "function": {"name": "pay"}, "extra": {"signature": "x"}},
        {
            "index": 1,
            "id": "",
            "type": "function",
            "function": {"name": "", "arguments": "["},
            "extra": {"signature": "y"},
        },
        {"index": 1, "id": None, "function": {"arguments": "]", "z": 1}},
    ]
    _, given = run(ToolCallId, [PAY, *map(chunk, held)])
    (call,) = given[-1].payload["choices"][0]["delta"]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert json.dumps(call, sort_keys=True) == json.dumps(
        {
            "index": 1,
            "type": "function",
            "function": {"name": "pay", "arguments": "[]", "z": 1},
            "extra": {"signature": "xy"},
        },
        sort_keys=True,
    )
