"""Invented and recorded streams through the default order of stages, in process."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from notation import Gateway, frames
from wire_helpers import check, writes_of

from pipeline.errors import StreamFailure
from pipeline.sse import SseDecoder

CASES = sorted(Path(__file__).parents[1].joinpath("cases").glob("*.json"))
STREAMS = Path(__file__).parents[3] / "shared" / "streams"
# What the default order does by itself: there the cases call the right answer repaired.
BUILT_IN = {"role-dedup", "parallel-tool-call-filter", "append-done"}


def load(path):
    """A case and what is expected of the default order."""
    case = json.loads(path.read_text("utf-8"))
    repair = case.get("repair")
    is_built_in = isinstance(repair, str) and repair in BUILT_IN
    return case, case["expect_repaired" if is_built_in else "expect"]


def run(reads, then, request):
    gateway = Gateway(request=request)
    out = b"".join(map(gateway.feed, reads))
    return out + (gateway.close() if then == "close" else gateway.fail(StreamFailure("the connection broke")))


def frames_sent(reads):
    decoder = SseDecoder()
    read = [frame for data in reads for frame in decoder.feed(data)]
    return [(frame.event, frame.data) for frame in read if frame.data]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    """Events, ordinary frames, [DONE] and error are the case's, however the body is cut into reads."""
    case, expect = load(path)
    error = expect.get("error") or {}
    if error.get("where") == "before_stream":
        pytest.skip("answered before any stream begins")
    writes, then = writes_of(case), case["upstream"].get("then", "close")
    body = b"".join(writes)
    for reads in (writes, [body], [body[i : i + 1] for i in range(len(body))]):
        check(frames_sent(reads), frames(run(reads, then, case["request"])), case["request"], expect)


def test_the_cases_are_there():
    """The folder of cases was found."""
    assert len(CASES) > 100


@pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not part of the repository")
def test_recorded_streams():
    """Every recorded stream of a real provider gives the events it is known for, and its frames as the model says."""
    expected = json.loads((STREAMS / "EXPECT.json").read_text("utf-8"))
    for name, want in sorted(expected.items()):
        path = STREAMS / name
        body = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = [b"data: %b\n\n" % line for line in body.splitlines() if line.strip()]
            body = b"".join([*lines, b"data: [DONE]\n\n"])
        request = json.loads(path.with_suffix(".json").read_text("utf-8")).get("request") or {}
        got = frames(run(list(pieces(name, body)), "close", request))
        sent = frames_sent([body])
        check(sent, got, request, {"dispatch": want["dispatch"], "reasoning": want["reasoning"]})
        added = sum(data == b"[DONE]" for _, data in got) - sum(data == b"[DONE]" for _, data in sent)
        assert added == want["done_added"], name


def pieces(seed, body):
    """The body in reads of odd sizes."""
    rng = random.Random(seed)
    while body:
        size = rng.choice([1, 7, 64, 300, 1400, 9000])
        yield body[:size]
        body = body[size:]
