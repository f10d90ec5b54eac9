"""Runs: neighbouring chunks of one shape."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pipeline.items import Chunk, End
from pipeline.runs import Run, runs_in
from pipeline.testing import call_chunk, chunk, text_chunk, with_shapes

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
