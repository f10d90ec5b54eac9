"""``glued_events``: rows GE1 to GE7 of spec, repairs, 4, over splitter, decoder and encoder."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_helpers import REGISTRY, Repaired, chunk, e, piece

from pipeline.observer import Observer
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.stage import RequestContext
from pipeline.testing import RecordingObserver, check_conformance, cut_everywhere, make_stage, text_chunk
from stages.event_splitter import EventSplitter
from stages.glued_events import GluedEvents, splitter_for

A, B = b'{"choices":[],"x":1}', b'{"choices":[],"x":"\xc3\xa9"}'
FIN = json.dumps(chunk(finish="stop")).encode()


def split(data, reads=None):
    splitter = EventSplitter(Observer())
    return b"".join(map(splitter.feed, reads or [data])) + splitter.close()


ROWS = [
    ("GE1", b"data: %b\ndata: %b\n\n" % (A, B), b"data: %b\n\ndata: %b\n\n" % (A, B)),
    (
        "GE2",
        b"data: %b\ndata: %b\ndata: [DONE]\n\n" % (A, FIN),
        b"data: %b\n\ndata: %b\n\ndata: [DONE]\n\n" % (A, FIN),
    ),
    ("GE3", b"data: %b\ndata: %b\ndata: [DONE]\n" % (A, FIN), b"data: %b\n\ndata: %b\n\ndata: [DONE]\n" % (A, FIN)),
    ("GE3 no line end", b"data: %b\ndata: %b" % (A, FIN), b"data: %b\n\ndata: %b" % (A, FIN)),
    ("GE4", b"data: %b\r\ndata: %b\r\n\r\n" % (A, B), b"data: %b\r\n\r\ndata: %b\r\n\r\n" % (A, B)),
    ("GE4 CR alone", b"data: %b\rdata: %b\r\r" % (A, B), b"data: %b\r\rdata: %b\r\r" % (A, B)),
    ("GE5", b'data: {\ndata: "id":1}\n\n', None),
    ("GE5 many lines", b'data: {\ndata: "choices": [\ndata: {}\ndata: ]\ndata: }\n\n', None),
    ("GE6", b"event: trace\ndata: %b\ndata: %b\n\n" % (A, B), None),
    ("GE6 named later", b"data: %b\nevent: trace\ndata: %b\n\n" % (A, B), None),
    ("GE6 error", b"event: error\ndata: %b\ndata: %b\n\n" % (A, B), None),
    (
        "GE7",
        b"data: %b\ndata: {broken\ndata: %b\n\n" % (A, B),
        b"data: %b\n\ndata: {broken\ndata: %b\n\n" % (A, B),
    ),
    (
        "named message",
        b"event: message\ndata: %b\ndata: %b\n\n" % (A, B),
        b"event: message\ndata: %b\n\ndata: %b\n\n" % (A, B),
    ),
    (
        "fields and comments stay in front of their piece",
        b": a\nid: 1\ndata: %b\n: b\nretry: 5\nid: 2\ndata:%b\nid: 3\n\n" % (A, B),
        b": a\nid: 1\ndata: %b\n\n: b\nretry: 5\nid: 2\ndata:%b\nid: 3\n\n" % (A, B),
    ),
    ("an empty data line ends the text with a line feed", b"data: %b\ndata:\ndata: \n\n" % A, None),
    (
        "and then another object",
        b"data: %b\ndata: \ndata: %b\n\n" % (A, B),
        b"data: %b\ndata: \n\ndata: %b\n\n" % (A, B),
    ),
    ("another field that begins alike", b"data: %b\ndatabase: %b\n\n" % (A, B), None),
    ("arrays are no chunks", b"data: [1]\ndata: [2]\n\n", None),
    ("closed, but no JSON", b"data: {a}\ndata: %b\n\n" % A, None),
    ("blank lines where they belong", b"data: %b\n\n: c\n\ndata: %b\n\ndata: [DONE]\n\n" % (A, B), None),
]


@pytest.mark.parametrize(("row", "data", "after"), ROWS, ids=[row[0] for row in ROWS])
def test_row(row, data, after):
    """A blank line comes between two events, and nowhere else, whatever the cut into reads."""
    for reads in cut_everywhere(data):
        assert split(data, reads) == (after or data)
    assert split(after or data) == (after or data)


def test_ge3_each_chunk_comes_as_soon_as_the_next_line_begins():
    """A stream without any blank line is not kept until its end."""
    gateway = Repaired(["glued_events"])
    first, second = (json.dumps(chunk(content=text)).encode() for text in "ab")
    assert gateway.feed(b"data: %b\n" % first) == b""
    assert gateway.feed(b"data: %b" % second[:1]) == b"data: %b\n\n" % first
    assert gateway.feed(second[1:] + b"\ndata: " + FIN) == b"data: %b\n\n" % second
    assert gateway.close() == b"data: %b\n\ndata: [DONE]\n\n" % FIN


def test_ge2_the_end_that_was_hidden_ends_the_stream():
    """Without the repair the finish is lost and the stream counts as cut; with it, it is complete."""
    opener = json.dumps(chunk(e(0, "a", "f", '{"n":'))).encode()
    data = b"data: %b\ndata: %b\ndata: %b\ndata: [DONE]\n\n" % (opener, json.dumps(chunk(piece("3}"))).encode(), FIN)
    assert b'"error"' in Repaired([]).all_of([data])
    whole = Repaired(["glued_events"]).all_of([data])
    assert b'"error"' not in whole
    assert whole.endswith(b"data: [DONE]\n\n")
    assert whole.count(b"event: tool_call_dispatch\n") == 1
    assert whole.index(b"event: tool_call_dispatch") < whole.index(b'"3}"')


def test_it_is_told_once():
    """The observer hears of a stream that needs the repair, not of each event."""
    observer = RecordingObserver()
    splitter = EventSplitter(observer)
    splitter.feed(b"data: %b\n\n" % A)
    assert observer.records == []
    splitter.feed(b"data: %b\ndata: %b\ndata: %b\n\n" % (A, B, A))
    assert observer.records == [("call_repaired", "glued_events", None, None, "split-glued-events")]


def test_an_event_over_the_limit_is_not_kept():
    """What no decoder would accept is given out as it came."""
    splitter = EventSplitter(Observer(), max_event_bytes=20)
    assert splitter.feed(b"data: " + b"x" * 30) == b"data: " + b"x" * 30
    assert splitter.close() == b""


def test_many_lines_cost_their_length():
    """Each line is read once: an event of many lines that look complete is no attack."""
    data = b'data: {"a":[{}\n' + b"data: ,{}\n" * 100_000 + b"\n"
    assert split(data) == data


@given(st.lists(st.sampled_from([A, B, b"[DONE]", b"{", b"", b"x"]), max_size=8), st.data())
def test_any_cut_gives_the_same(lines, data):
    """Whatever the lines and their ends, reads do not matter, and what was split once stays as it is."""
    ends = st.sampled_from([b"\n", b"\n\n", b"\r\n", b"\r", b"\r\n\r\n"])
    body = b"".join(b"data: %b%b" % (line, data.draw(ends)) for line in lines)
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    reads = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    whole = split(body)
    assert split(body, reads) == whole
    assert split(whole) == whole


def test_the_name_in_the_order_turns_it_on():
    """A plan with the stage has a splitter, and the stage itself is in no pipeline."""
    plan = make_plan(["glued_events", *DEFAULT_STAGES], {}, REGISTRY)
    assert isinstance(splitter_for(plan, Observer()), EventSplitter)
    assert "glued_events" not in [name for name, _ in plan.stages_for(RequestContext())]
    assert splitter_for(make_plan(DEFAULT_STAGES, {}, REGISTRY), Observer()) is None


async def test_conformance():
    """Even where it is run, it keeps the promises of a stage."""
    await check_conformance(lambda: make_stage(GluedEvents), [text_chunk("a"), text_chunk("b", finish="stop")])
