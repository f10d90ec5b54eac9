"""``trim_tool_call_arguments``: rows TR1 to TR7 of spec, repairs, 11."""

from __future__ import annotations

import pytest
from repair_helpers import Repaired, body_of, check, chunk, e, piece, untouched

from stages.trim_tool_call_arguments import TrimToolCallArguments

TRIMMED = [(0, 0, "trim-trailing-text")]
ROWS = {
    "TR1": (['{"a":1} ok'], ['{"a":1}']),
    "TR1 in pieces": (['{"a":', "1}} x", "y"], [None, "1}", ""]),
    "TR2": (['{"a":1}', "}", " "], [None, "", ""]),
    "TR3": (["[1] ", "that ", "is all {}"], [None, "", ""]),
    "TR3 blanks that were sent stay": (['{"a":1}\n', " \n", " x"], [None, None, ""]),
    "an object": ([{"a": 1}, "x", {"b": 2}], [None, "", ""]),
    "a string with braces": (['{"a":"}"}', "}"], [None, ""]),
    "an escape across pieces": (['{"a":"\\', '"}"} x'], [None, '"}"}']),
    "{ } is not exactly {}": (["{ }", "x"], [None, ""]),
    "[] neither": (["[]", "x"], [None, ""]),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    """The text ends right behind the root, and all that follows goes."""
    texts, left = ROWS[row]
    before = [chunk(e(0, "a", "f", texts[0])), *map(chunk, map(piece, texts[1:]))]
    after = [
        place if one is None else chunk(e(0, "a", "f", one) if not place else piece(one))
        for place, one in enumerate(left)
    ]
    check(TrimToolCallArguments, before, after, repairs=TRIMMED)


UNTOUCHED = {
    "TR4 an object": ['{"a":1}', ' {"b":2}', "x"],
    "TR4 an array": ['{"a":1} [2]', "x"],
    "TR4 a string": ['{"a":1}', '"', "x"],
    "TR5": ["{}", "oops", "x"],
    "TR5 blanks": [" {} ", "x"],
    "TR6": ['{"a":1}', " \t\r\n", ""],
    "TR7 scalars": ["1", " x"],
    "TR7 a string": ['"a" x'],
    "TR7 a stray closer": ['}{"x":1}', "x"],
    "open": ['{"a":"} x'],
    "no text": [None, "", 7, True],
}


@pytest.mark.parametrize("row", UNTOUCHED)
def test_row_that_leaves_alone(row):
    """What may be another call's arguments, or is no object or array, stays."""
    untouched(TrimToolCallArguments, *[chunk(piece(text)) for text in UNTOUCHED[row]], chunk(finish="stop"))


def test_only_the_call_itself_is_trimmed():
    """Calls, choices, unusable indexes and custom calls do not influence each other."""
    before = [
        chunk(piece('{"a":1}', 0), piece('{"a":1', 1)),
        chunk(piece("x", 1), piece("x", 0), piece("x", None), piece("x", -1)),
        chunk(piece("x", 0), index=1),
        chunk(e(2, "c", custom={"name": "sh", "input": "{} x"})),
    ]
    after = [0, chunk(piece("x", 1), piece("", 0), piece("x", None), piece("x", -1)), 2, 3]
    check(TrimToolCallArguments, before, after, repairs=TRIMMED)


@pytest.mark.parametrize(("text", "count"), [('{"a":1} ok', 1), ("{}oops", 0), ('{"a":1}{"b":2}', 0), ('}{"x":1}', 0)])
def test_dispatch(text, count):
    """A trimmed call goes out at once; D12, D13 and D15 stay refused."""
    body = body_of([chunk(e(0, "a", "f", text), role="assistant"), chunk(finish="tool_calls")])
    out = Repaired(["trim_tool_call_arguments"]).all_of([body])
    assert out.count(b"event: tool_call_dispatch") == count
    assert b"event: tool_call_dispatch" not in Repaired([]).all_of([body])
