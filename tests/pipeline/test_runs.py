"""Runs: neighbouring chunks of one shape."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.items import Chunk, End
from pipeline.runs import Run, runs_in
from pipeline.stage import Stage
from pipeline.testing import call_chunk, chunk, make_stage, run_stage_in_channels, text_chunk, with_shapes

A, B, FINISH, CALL = with_shapes([text_chunk("a"), text_chunk("b"), chunk(finish="stop"), call_chunk(0, arguments="c")])
END = End(b"data: [DONE]\n\n")


def plainly(burst):
    """What a burst comes to: runs as lists of their chunks."""
    return [list(part.chunks) if isinstance(part, Run) else part for part in runs_in(burst)]


def test_what_ends_a_run():
    """A run is of one shape; what is no chunk, or has no shape, stands alone."""
    assert plainly([A, B, FINISH, B, CALL, A, END]) == [[A, B], FINISH, [B], [CALL], [A], END]
    assert (plainly([]), plainly([A]), plainly([FINISH]), plainly([END])) == ([], [[A]], [FINISH], [END])


def test_what_a_run_says():
    """Its shape, its texts, and all of them as one."""
    (run,) = runs_in([A, B])
    assert (run.shape, run.texts, run.text) == (A.shape, ["a", "b"], "ab")


class Three(Stage):
    """Finished after three chunks."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.left = 3

    def feed(self, item):
        """Count."""
        self.left -= 1
        self.finished = not self.left
        return (item,)

    def feed_run(self, run, out):
        """Take as many as are left, or but one."""
        taken = min(len(run.chunks), self.left if self.left % 2 else 1)
        out += run.chunks[:taken]
        self.left -= taken
        self.finished = not self.left
        return taken


@pytest.mark.parametrize("size", range(1, 8))
async def test_nothing_is_fed_once_a_stage_is_finished(size):
    """Also where it was finished by a run."""
    chunks = with_shapes([text_chunk(text) for text in "abcdefg"])
    stage = make_stage(Three)
    given = await run_stage_in_channels(stage, [chunks[at : at + size] for at in range(0, 7, size)])
    assert (given, stage.left) == (chunks[:3], 0)


@given(st.lists(st.lists(st.sampled_from([A, B, FINISH, CALL, END]), max_size=5), max_size=20))
def test_a_burst_is_what_it_is_now(bursts):
    """Asked about burst after burst, or about one list that changes, it tells of the items that are there."""
    changing = []
    for burst in bursts:
        changing[:] = burst
        for each in (burst, changing):
            parts = runs_in(each)
            told = [item for part in parts for item in (part.chunks if isinstance(part, Run) else [part])]
            assert told == each
            for part, following in itertools.pairwise(parts):
                shapes = [each.shape if isinstance(each, (Run, Chunk)) else None for each in (part, following)]
                assert shapes[0] is None or shapes[0] is not shapes[1]
