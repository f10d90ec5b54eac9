"""Rows R1 to R17 (spec, dispatch, 2.5) through the default order of stages, and what the tables do not say."""

from __future__ import annotations

import json

import pytest
from notation import FIN, A, C, E, Gateway, R, T, as_lists, c1, chunk, events_per_chunk, frames, t, told

from pipeline.sse import sse_frame
from stages.reasoning_dispatch import ReasoningDispatch, ReasoningDispatchOptions

STOP = FIN("stop")
USAGE = {**chunk(()), "usage": {"total_tokens": 3}}

ROWS = [
    ("R1", [R("Let "), R("me see"), C("ok")], [0, 0, T(0, "Let me see")]),
    ("R2", [R("half"), R(" done") + FIN("length")], [0, T(0, "half done")]),
    ("R3", [R("half"), R(" done") + STOP], [0, T(0, "half done")]),
    ("R4", [C("only"), C("text"), STOP], [0, 0, 0]),
    ("R5", [R(""), C("x"), STOP], [0, 0, 0]),
    ("R6", [R("A"), R(""), R("B"), STOP], [0, T(0, "A"), 0, T(0, "B")]),
    ("R7", [R("A"), C(""), C("x")], [0, 0, T(0, "A")]),
    ("R8", [R("A") + C("B"), C("D")], [0, T(0, "A")]),
    ("R9", [R("A"), USAGE, STOP], [0, 0, T(0, "A")]),
    ("R10", [R("A")], [0]),
    ("R12", [R("one"), C("x"), R("two"), C("y")], [0, T(0, "one"), 0, T(0, "two")]),
    ("R13", [R("zero") + c1(R("one")), c1(C("x")), C("y")], [0, T(1, "one"), T(0, "zero")]),
    ("R14", [R("zero") + c1(R("one")), C("x") + c1(R("more"))], [0, T(0, "zero")]),
    ("R16", [R("考え"), R("る🦊"), C("x")], [0, 0, T(0, "考える🦊")]),
    ("R17", [R("A"), (), C("x")], [0, 0, T(0, "A")]),
    ("alias", [A("Hm"), C("x")], [0, T(0, "Hm")]),
    ("both-names", [R("this") + A("not this"), C("x")], [0, T(0, "this")]),
    ("null-beside-alias", [R(None) + A("Hm"), C("x")], [0, T(0, "Hm")]),
    ("empty-beside-alias", [R("") + A("Hm"), C("x")], [0, T(0, "Hm")]),
    ("empty-finish-reason", [R("A"), R("B") + FIN(""), C("x")], [0, 0, T(0, "AB")]),
    ("all-in-one", [R("A") + FIN("stop")], [T(0, "A")]),
]


@pytest.mark.parametrize(("chunks", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(chunks, expected):
    """The events of each chunk are those of the table, and nothing comes of the end."""
    gateway = Gateway()
    payloads = [parts if isinstance(parts, dict) else chunk(parts) for parts in chunks]
    assert events_per_chunk(gateway, payloads) == as_lists(expected)
    assert b"event:" not in gateway.close()


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(sse_frame(b'{"error":{"message":"out of memory"}}'), id="R11-error-object"),
        pytest.param(sse_frame(b'{"message":"out of memory"}', "error"), id="R11-named-error"),
        pytest.param(sse_frame(json.dumps({**chunk(C("x")), "error": {"code": 503}}).encode()), id="R11-in-a-chunk"),
    ],
)
def test_an_error_drops_the_block(failure):
    """A block that an error cuts off is never announced, whatever follows."""
    gateway = Gateway()
    gateway.send(chunk(R("A")))
    gateway.feed(failure)
    assert events_per_chunk(gateway, [chunk(C("x")), chunk(R("B")), chunk(STOP)]) == [[], [], []]


@pytest.mark.parametrize("row", [pytest.param("R15", id="R15")])
def test_tool_events_go_before_reasoning_events(row):
    """One chunk that ends a block and completes a call gives the tool event, the reasoning event, the frame."""
    gateway = Gateway()
    gateway.send(chunk(R("A")))
    names = [name for name, _ in gateway.send(chunk(t(0, "c", "f", "{}")))]
    assert names == ["tool_call_dispatch", "reasoning_dispatch", None]


@pytest.mark.parametrize("row", [pytest.param("R17", id="R17-no-data")])
def test_an_item_without_data_flushes_nothing(row):
    """A comment inside a block does not end it."""
    gateway = Gateway()
    gateway.send(chunk(R("A")))
    assert gateway.feed(b": waiting\n\n") == b": waiting\n\n"
    assert events_per_chunk(gateway, [chunk(R("B") + STOP)]) == [[T(0, "AB")]]


def test_every_row_is_here():
    """No row of R1 to R17 is missing."""
    assert {row[0] for row in ROWS} | {"R11", "R15"} >= {f"R{number}" for number in range(1, 18)}


def test_a_block_over_the_limit_is_not_announced():
    """One byte too many: no event for that block, one warning, and the next block is announced again."""
    gateway = Gateway(options={ReasoningDispatch: ReasoningDispatchOptions(max_reasoning_bytes=4)})
    seen = events_per_chunk(gateway, map(chunk, [R("ab"), R("é!"), R("more"), C("x"), R("abé"), C("y")]))
    assert seen == [[], [], [], [], [], [T(0, "abé")]]
    assert told(gateway.observer, "warned") == [
        ("reasoning_dispatch", "choice 0: a block is longer than max_reasoning_bytes = 4; not announced")
    ]


def test_done_ends_the_block():
    """[DONE] without a finish announces nothing."""
    gateway = Gateway()
    gateway.send(chunk(R("A")))
    assert frames(gateway.feed(b"data: [DONE]\n\n")) == [(None, b"[DONE]")]


def test_a_choice_without_a_usable_index_is_left_alone():
    """Reasoning on a choice whose index is no number is passed on and never announced."""
    gateway = Gateway()
    odd = [{**chunk(()), "choices": [{"index": "0", "delta": {key: "x"}}]} for key in ("reasoning", "content")]
    assert events_per_chunk(gateway, odd) == [[], []]


def test_an_absent_choice_index_counts_as_zero():
    """A choice that does not say its index is choice 0."""
    gateway = Gateway()
    bare = {**chunk(()), "choices": [{"delta": {"reasoning_content": "A"}}]}
    assert events_per_chunk(gateway, [bare, chunk(C("x"))]) == [[], [T(0, "A")]]


def test_it_is_left_out_unless_asked_for():
    """Without the event in force, reasoning brings nothing but its frames."""
    gateway = Gateway(events=frozenset({"tool_call_dispatch"}))
    assert events_per_chunk(gateway, map(chunk, [R("A"), C("x"), t(0, "c", "f", "{}")])) == [
        [],
        [],
        [E(0, 0, "c", "f", "{}")],
    ]


def test_each_event_is_reported():
    """The observer hears of every reasoning event."""
    gateway = Gateway()
    events_per_chunk(gateway, map(chunk, [R("A"), C("x"), R("B"), STOP]))
    assert told(gateway.observer, "event_sent") == [("reasoning_dispatch",)] * 2
