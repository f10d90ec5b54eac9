"""``leading_empty_object``: rows EO1 to EO7 of spec, repairs, 9."""

from __future__ import annotations

import pytest
from repair_helpers import DONE, ENVELOPE, Repaired, body_of, check, choice, chunk, e, made_up, piece, untouched

from pipeline.errors import StreamFailure
from pipeline.items import StreamError
from stages.leading_empty_object import LeadingEmptyObject

STRIPPED = [(0, 0, "strip-empty-object-prefix")]
OPEN = chunk(e(0, "a", "steer", "{}"))
KEPT = chunk(e(0, "a", "steer", ""))
FIN = chunk(finish="tool_calls")
ERROR = {**chunk(), "error": {"message": "x"}}
FAILURE = StreamError(StreamFailure("x"))
REAL = chunk(piece('{"deg":'))

ROWS = {
    "EO2": ([OPEN, REAL, chunk(piece("45}")), FIN], [KEPT, 1, 2, 3], STRIPPED),
    "EO2 behind an empty opening": (
        [chunk(e(0, "a", "steer", "")), chunk(piece("{}")), REAL],
        [0, chunk(piece("")), 2],
        STRIPPED,
    ),
    "EO2 blanks around": (
        [chunk(e(0, "a", "f", " {}\n")), chunk(piece(' {"k":1}'))],
        [chunk(e(0, "a", "f", "")), 1],
        STRIPPED,
    ),
    "EO2 another {}": ([OPEN, chunk(piece("{}")), FIN], [KEPT, 1, 2], STRIPPED),
    "EO2 objects": (
        [chunk(e(0, "a", "f", {})), chunk(piece({"k": 1}))],
        [chunk(e(0, "a", "f", "")), 1],
        STRIPPED,
    ),
    "EO2 in one delta": ([chunk(e(0, "a", "f", "{}"), piece("{"))], [chunk(e(0, "a", "f", ""), piece("{"))], STRIPPED),
    "EO3": ([OPEN, chunk(piece("}"))], [KEPT, chunk(piece("{}}"))], []),
    "EO3 an array": ([OPEN, chunk(piece([1]))], [KEPT, chunk(piece("{}[1]"))], []),
    "EO4": (
        [OPEN, chunk(piece(" ")), chunk(e(1, "b", "g", "[]")), chunk(content="x"), chunk(index=1, finish="stop"), FIN],
        [KEPT, 1, 2, 3, 4, chunk(piece("{}"), finish="tool_calls")],
        [],
    ),
    "EO5": ([OPEN, FIN, chunk(finish="stop")], [KEPT, chunk(piece("{}"), finish="tool_calls"), 2], []),
    "EO5 length": ([OPEN, chunk(finish="length")], [KEPT, chunk(piece("{}"), finish="length")], []),
    "EO5 several calls": (
        [chunk(e(2, "a", "f", "{}"), e(1, "b", "g", " {}")), FIN],
        [chunk(e(2, "a", "f", ""), e(1, "b", "g", "")), chunk(piece(" {}", 1), piece("{}", 2), finish="tool_calls")],
        [],
    ),
    "EO5 an entry in the finishing delta": (
        [OPEN, chunk(piece(" "), piece("x", 1), finish="stop")],
        [KEPT, chunk(piece(" {}"), piece("x", 1), finish="stop")],
        [],
    ),
    "EO5 an entry without text there": (
        [OPEN, chunk({"index": 0, "type": "function"}, finish="stop")],
        [KEPT, chunk({"index": 0, "type": "function", "function": {"arguments": "{}"}}, finish="stop")],
        [],
    ),
    "EO5 a null delta": (
        [OPEN, {"choices": [{"index": 0, "delta": None, "finish_reason": "stop", "x": 1}]}],
        [KEPT, {"choices": [{"index": 0, "delta": {"tool_calls": [piece("{}")]}, "finish_reason": "stop", "x": 1}]}],
        [],
    ),
    "EO5 no delta": (
        [OPEN, {"choices": [{"finish_reason": "stop"}]}],
        [KEPT, {"choices": [{"finish_reason": "stop", "delta": {"tool_calls": [piece("{}")]}}]}],
        [],
    ),
    "EO5 an odd list": (
        [OPEN, chunk(tool_calls="x", content="y", finish="stop")],
        [KEPT, chunk(piece("{}"), content="y", finish="stop")],
        [],
    ),
    "EO6": ([OPEN, DONE], [KEPT, made_up(piece("{}")), DONE], []),
    "EO6 two choices and two calls": (
        [
            {
                "id": "x",
                "choices": [choice(e(1, "a", "f", "{}"), index=1), choice(e(0, "b", "g", "{}"), e(3, "c", "h", {}))],
            },
            DONE,
        ],
        [
            {
                "id": "x",
                "choices": [choice(e(1, "a", "f", ""), index=1), choice(e(0, "b", "g", ""), e(3, "c", "h", ""))],
            },
            {"id": "x", "choices": [choice(piece("{}"), piece("{}", 3))]},
            {"id": "x", "choices": [choice(piece("{}", 1), index=1)]},
            DONE,
        ],
        [],
    ),
    "EO6 opened behind a finish": ([FIN, OPEN, DONE], [0, KEPT, made_up(piece("{}")), DONE], []),
    "EO7": ([chunk(e(0, "a", "f", '{}{"k":1}'))], [chunk(e(0, "a", "f", '{"k":1}'))], STRIPPED),
    "EO7 blanks": ([chunk(e(0, "a", "f", ' {} {"k":'))], [chunk(e(0, "a", "f", '{"k":'))], STRIPPED),
    "a failure": ([OPEN, FAILURE], [KEPT, FAILURE], []),
    "an error chunk": ([OPEN, ERROR, FIN, DONE], [KEPT, 1, 2, DONE], []),
    "the end without [DONE]": ([OPEN], [KEPT], []),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    """A ``{}`` waits until it is known what it is."""
    before, after, repairs = ROWS[row]
    # What comes out in a made-up chunk is kept back again and comes out again, and so is the second of two {}.
    check(LeadingEmptyObject, before, after, repairs=repairs, again=DONE not in before and "another" not in row)


UNTOUCHED = {
    "an inner {}": [chunk(e(0, "a", "f", '{"a":')), chunk(piece("{}")), chunk(piece("}")), FIN],
    "not exactly {}": [chunk(e(0, "a", "f", "{ }")), chunk(piece('{"a":1}')), chunk(e(1, "b", "g", "[]")), FIN],
    "in pieces": [chunk(e(0, "a", "f", "{")), chunk(piece("}")), chunk(piece('{"a":1}'))],
    "{} and something else in one piece": [chunk(e(0, "a", "f", "{}x")), chunk(e(1, "b", "g", "{}[]")), FIN],
    "on the finishing chunk": [chunk(e(0, "a", "f", "{}"), finish="tool_calls"), DONE],
    "other types": [chunk(e(0, "a", "f", 7)), chunk(piece(True)), chunk(piece(None)), FIN],
    "no usable index": [chunk(e(None, "a", "f", "{}")), chunk(e(-1, "a", "f", "{}")), FIN],
    "a custom call": [chunk(e(0, "a", custom={"name": "f", "input": "{}"})), FIN],
    "no usable choice": [chunk(e(0, "a", "f", "{}"), index="0"), chunk(finish="stop", index="0"), DONE],
}


@pytest.mark.parametrize("row", UNTOUCHED)
def test_row_that_leaves_alone(row):
    """Nothing but a lone ``{}`` in front of all text waits."""
    untouched(LeadingEmptyObject, *UNTOUCHED[row])


def test_dispatch():
    """The tool does not run without its arguments; a genuine {} goes out at the finish, whatever the reason."""
    body = body_of([OPEN, REAL, chunk(piece("45}")), FIN])
    assert rb'"arguments":"{}"' in Repaired([]).all_of([body]).partition(b"event: tool_call_dispatch")[2]
    out = Repaired(["leading_empty_object"]).all_of([body])
    assert out.count(b"event: tool_call_dispatch") == 1
    assert rb"{\"deg\":45}" in out
    body = body_of([OPEN, chunk(finish="length")])
    assert Repaired(["leading_empty_object"]).all_of([body]).count(b"event: tool_call_dispatch") == 1


def test_the_made_up_chunk_has_what_the_last_one_had():
    """The envelope is that of the upstream's last chunk; the gateway's own encoding follows."""
    last = {"model": "m", "id": None, "choices": [choice(e(0, "a", "f", "{}"))], "system_fingerprint": "fp"}
    check(
        LeadingEmptyObject,
        [last, DONE],
        [
            {**last, "choices": [choice(e(0, "a", "f", ""))]},
            {"id": None, "model": "m", "choices": [choice(piece("{}"))]},
            DONE,
        ],
        again=False,
    )
    assert "system_fingerprint" not in ENVELOPE
