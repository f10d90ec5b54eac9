"""The repairs without state per call: rows FC, FR, RO and RF of spec, repairs, 5 and 12 to 14."""

from __future__ import annotations

import pytest
from repair_helpers import DONE, ENVELOPE, NULL, check, choice, chunk, e, untouched

from stages.finish_reason import FinishReason
from stages.legacy_function_call import LegacyFunctionCall
from stages.missing_role import MissingRole
from stages.reasoning_fields import ReasoningFields

WHOLE = {"name": "get_moon", "arguments": '{"d":1}'}
FC_REPAIR = [(0, 0, "function-call-to-tool-call")]


def converted(function, **keys):
    """The entry that the first function_call of a choice becomes."""
    return {"index": 0, "id": "<any>", "type": "function", "function": function, **keys}


FC_ROWS = {
    "FC1": (
        [chunk(function_call=WHOLE), chunk(finish="function_call")],
        [chunk(converted(WHOLE)), chunk(finish="tool_calls")],
    ),
    "FC1 in one chunk": (
        [chunk(function_call=WHOLE, finish="function_call", content=None)],
        [chunk(converted(WHOLE), finish="tool_calls", content=None)],
    ),
    "FC2": (
        [chunk(function_call={"name": "f", "arguments": "{"}), chunk(function_call={"name": "f", "arguments": "}"})],
        [
            chunk(converted({"name": "f", "arguments": "{"})),
            chunk({"index": 0, "function": {"name": "f", "arguments": "}"}}),
        ],
    ),
    "FC3": (
        [chunk(function_call={"name": "f"}), chunk(finish="function_call")],
        [chunk(converted({"name": "f"})), chunk(finish="tool_calls")],
    ),
    "unknown keys and an empty list beside it stay and go": (
        [chunk(function_call={**WHOLE, "x": 1}, tool_calls=[], y=2)],
        [chunk(converted({**WHOLE, "x": 1}), y=2)],
    ),
    "other finish reasons stay": (
        [chunk(function_call=WHOLE), chunk(finish="stop"), chunk(finish="length")],
        [chunk(converted(WHOLE)), 1, 2],
    ),
}
FC_UNTOUCHED = {
    "FC4": [
        chunk(function_call=None),
        chunk(function_call={}),
        chunk(function_call="f"),
        chunk(finish="function_call"),
    ],
    "FC5 both": [chunk(e(0, "a", "f", "{}"), function_call=WHOLE)],
    "FC5 later": [chunk(e(0, "a", "f", "{}")), chunk(function_call=WHOLE), chunk(finish="function_call")],
    "FC6": [chunk(content="x"), chunk(finish="function_call")],
    "a choice without a usable index": [chunk(function_call=WHOLE, index=-1), chunk(function_call=WHOLE, index="0")],
    "an error": [{**chunk(function_call=WHOLE), "error": {"message": "x"}}],
}


@pytest.mark.parametrize("row", FC_ROWS)
def test_legacy_function_call(row):
    """The delta becomes an entry, the first one with a made-up id."""
    before, after = FC_ROWS[row]
    check(LegacyFunctionCall, before, after, repairs=FC_REPAIR)


@pytest.mark.parametrize("row", FC_UNTOUCHED)
def test_legacy_function_call_leaves_alone(row):
    """What is no legacy call stays as it is."""
    untouched(LegacyFunctionCall, *FC_UNTOUCHED[row])


def test_legacy_function_call_by_choice():
    """Real calls on one choice say nothing of another one; each gets an id of its own."""
    before = {
        **ENVELOPE,
        "choices": [choice(e(0, "a", "f", "{}")), *(choice(index=n, function_call=WHOLE) for n in (1, 2))],
    }
    (given,) = check(
        LegacyFunctionCall,
        [before],
        [
            {
                **ENVELOPE,
                "choices": [choice(e(0, "a", "f", "{}")), *(choice(converted(WHOLE), index=n) for n in (1, 2))],
            }
        ],
        repairs=[(1, 0, "function-call-to-tool-call"), (2, 0, "function-call-to-tool-call")],
    )
    ids = [one["delta"]["tool_calls"][0]["id"] for one in given.payload["choices"]]
    assert len(set(ids)) == 3


# --- finish_reason --------------------------------------------------------------------------------------------------

FR_REPAIR = [(0, None, "finish-reason-tool-calls")]
FR_ROWS = {
    "FR1": ([chunk(e(0, "a", "f", "{}")), chunk(finish="stop")], [0, chunk(finish="tool_calls")]),
    "FR1 this chunk": ([chunk(e(0, "a"), finish="stop")], [chunk(e(0, "a"), finish="tool_calls")]),
    "FR1 a name alone": ([chunk(e(0, None, "f"), finish="stop")], [chunk(e(0, None, "f"), finish="tool_calls")]),
    "FR1 without an index": ([chunk(e(None, "a"), finish="stop")], [chunk(e(None, "a"), finish="tool_calls")]),
    "FR1 a custom call": (
        [chunk(e(0, custom={"name": "sh", "input": "ls"}), finish="stop")],
        [chunk(e(0, custom={"name": "sh", "input": "ls"}), finish="tool_calls")],
    ),
    "FR1 every later stop": (
        [chunk(e(0, "a"), finish="stop"), chunk(finish="stop"), chunk(finish="length"), chunk(finish="stop")],
        [chunk(e(0, "a"), finish="tool_calls"), chunk(finish="tool_calls"), 2, chunk(finish="tool_calls")],
    ),
}
FR_UNTOUCHED = {
    "FR2": [chunk(content="x"), chunk(finish="stop")],
    "FR2 an empty list": [chunk(tool_calls=[]), chunk(tool_calls=None), chunk(finish="stop")],
    "FR2 no identity": [chunk(e(0, "", "", "{}")), chunk(e(0, NULL, NULL, "")), chunk(finish="stop")],
    "FR2 a stop in front of the first call": [chunk(finish="stop"), chunk(e(0, "a", "f", "{}"))],
    "FR3": [
        chunk(e(0, "a")),
        *(chunk(finish=one) for one in ("length", "content_filter", "function_call", "", None, "eos")),
    ],
    "another choice": [chunk(e(0, "a")), chunk(finish="stop", index=1)],
    "an error beside it": [chunk(e(0, "a")), {**chunk(finish="stop"), "error": {"code": 502}}],
}


@pytest.mark.parametrize("row", FR_ROWS)
def test_finish_reason(row):
    """A choice that called a tool did not stop."""
    before, after = FR_ROWS[row]
    check(FinishReason, before, after, repairs=FR_REPAIR)


@pytest.mark.parametrize("row", FR_UNTOUCHED)
def test_finish_reason_leaves_alone(row):
    """Other reasons, and choices without calls, stay as they are."""
    untouched(FinishReason, *FR_UNTOUCHED[row])


def test_finish_reason_keeps_other_keys():
    """What else a server says of the end stays."""
    before = chunk(e(0, "a"), finish="stop")
    before["choices"][0] |= {"native_finish_reason": "STOP", "stop_reason": 7}
    after = {**before, "choices": [{**before["choices"][0], "finish_reason": "tool_calls"}]}
    check(FinishReason, [before], [after])


# --- missing_role ---------------------------------------------------------------------------------------------------

RO_REPAIR = [(0, None, "add-missing-role")]
RO_ROWS = {
    "RO1": ([chunk(content="x"), chunk(content="y")], [chunk(role="assistant", content="x"), 1]),
    "RO1 null": ([chunk(role=None, content="x")], [chunk(role="assistant", content="x")]),
    "RO1 an empty delta": ([chunk(), chunk(content="x")], [chunk(role="assistant"), 1]),
    "RO3": (
        [{"choices": []}, {"x": 1}, {"choices": [{"index": 0}, {"index": 0, "delta": None}, 7]}, chunk(content="x")],
        [0, 1, 2, chunk(role="assistant", content="x")],
    ),
    "RO4": (
        [chunk(content="x"), chunk(role="assistant", content="y"), DONE],
        [chunk(role="assistant", content="x"), 1, DONE],
    ),
    "RO1 after an error": (
        [{**chunk(content="x"), "error": {"code": 1}}, chunk(content="y")],
        [0, chunk(role="assistant", content="y")],
    ),
}
RO_UNTOUCHED = {
    "RO2": [chunk(role="assistant", content=""), chunk(content="x")],
    "RO2 another role": [chunk(role="tool"), chunk(content="x")],
    "RO2 an odd role": [chunk(role=""), chunk(role=7), chunk(content="x")],
    "a choice without a usable index": [chunk(content="x", index=-1), chunk(content="x", index=None)],
}


@pytest.mark.parametrize("row", RO_ROWS)
def test_missing_role(row):
    """The first delta of a choice says whose it is."""
    before, after = RO_ROWS[row]
    check(MissingRole, before, after, repairs=RO_REPAIR)


@pytest.mark.parametrize("row", RO_UNTOUCHED)
def test_missing_role_leaves_alone(row):
    """A choice that has a role keeps its bytes."""
    untouched(MissingRole, *RO_UNTOUCHED[row])


def test_missing_role_comes_first_or_where_the_null_was():
    """The key stands where servers write it."""
    given = check(MissingRole, [chunk(content="x")], [chunk(role="assistant", content="x")])
    assert list(given[0].payload["choices"][0]["delta"]) == ["role", "content"]
    given = check(MissingRole, [chunk(content="x", role=None)], [chunk(role="assistant", content="x")])
    assert list(given[0].payload["choices"][0]["delta"]) == ["content", "role"]


def test_missing_role_by_choice():
    """Each choice gets its own; an absent index counts as 0."""
    before = {"choices": [{"delta": {"content": "a"}}, choice(index=1, role="assistant"), choice(index=2, content="c")]}
    after = {
        "choices": [
            {"delta": {"role": "assistant", "content": "a"}},
            choice(index=1, role="assistant"),
            choice(index=2, role="assistant", content="c"),
        ]
    }
    check(MissingRole, [before, chunk(content="b")], [after, 1])


# --- reasoning_fields -----------------------------------------------------------------------------------------------

R, RC = "reasoning", "reasoning_content"
RF_ROWS = [
    ("RF1", {R: "x"}, {R: "x", RC: "x"}, {RC: "x"}, None),
    ("RF1 null", {R: "x", RC: None, "content": ""}, {R: "x", RC: "x", "content": ""}, {RC: "x", "content": ""}, None),
    ("RF2", {RC: "x"}, {R: "x", RC: "x"}, None, {R: "x"}),
    ("RF2 null", {RC: "x", R: None}, {R: "x", RC: "x"}, None, {R: "x"}),
    ("RF3 equal", {R: "x", RC: "x"}, None, None, None),
    ("RF3 not equal", {R: "x", RC: "y"}, None, None, None),
    ("RF4 null", {R: None}, None, None, None),
    ("RF4 empty", {R: "", RC: ""}, None, None, None),
    ("RF4 one is empty", {R: "x", RC: ""}, None, None, None),
    ("RF4 no text", {R: {"text": "x"}, RC: 7}, None, None, None),
    ("details", {"reasoning_details": [{"text": "x"}], "content": "<think>x"}, None, None, None),
]
RF_CASES = [
    (row, write, before, after)
    for row, before, *results in RF_ROWS
    for write, after in zip(("both", RC, R), results, strict=True)
]


@pytest.mark.parametrize(
    ("row", "write", "before", "after"), RF_CASES, ids=[f"{row} {write}" for row, write, *_ in RF_CASES]
)
def test_reasoning_fields(row, write, before, after):
    """The text stands under the names that were asked for, and is never lost."""
    payloads = [chunk(content="a"), chunk(**before)]
    if after is None:
        untouched(ReasoningFields, *payloads, options={"write": write})
    else:
        check(
            ReasoningFields,
            payloads,
            [0, chunk(**after)],
            options={"write": write},
            repairs=[(0, None, "mirror-reasoning-fields")],
        )


def test_reasoning_fields_writes_both_by_default():
    """Without an option the text is mirrored."""
    check(ReasoningFields, [chunk(reasoning="x")], [chunk(reasoning="x", reasoning_content="x")])
