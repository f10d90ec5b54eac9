"""Joined stages give what the same stages give in tasks of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import Stage
from pipeline.assembly import open_pipeline
from pipeline.errors import StageFailed
from pipeline.items import StreamError
from pipeline.joined import JoinedStages, joined
from pipeline.stage import RequestContext
from pipeline.testing import RecordingObserver


class Probe(Stage):
    """Does to integers what its options say, and keeps a little back."""

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self.held: list[Any] = []

    def feed(self, item):
        """Double, drop, hold, raise or finish."""
        match self.options, item:
            case "double", int():
                return (item, item)
            case "drop odd", int() if item % 2:
                return ()
            case "hold", int() if item % 3 == 0:
                self.held.append(item)
                return ()
            case "raise", 5:
                raise RuntimeError("five")
            case "finish", 7:
                self.finished = True
                return (item, "finished")
        return (item,)

    def close(self):
        """Give what was held."""
        return [*self.held, f"closed {self.options}"]


class Awaits(Probe):
    """A stage with a loop of its own, which cannot be joined."""

    async def run(self, receive, send):
        """Move bursts one by one."""
        async for burst in receive:
            await send.send(burst)


class Failing(Probe):
    """Raises at the end."""

    def close(self):
        """Raise."""
        raise ValueError("end")


KINDS = ["double", "drop odd", "hold", "raise", "finish", "pass", "await", "fail at close"]
CLASSES = {"await": Awaits, "fail at close": Failing}


def make(kinds):
    observer = RecordingObserver()
    context = RequestContext(observer=observer)
    stages = [(f"{n}:{kind}", CLASSES.get(kind, Probe)(kind, context)) for n, kind in enumerate(kinds)]
    return stages, observer


def readable(item):
    return ("error", item.failure.code, str(item.failure)) if isinstance(item, StreamError) else item


async def through(bursts, kinds, *, join):
    async def source(send):
        for burst in bursts:
            await send.send(list(burst))

    stages, observer = make(kinds)
    out = []
    async with open_pipeline(source, stages, join=join) as receive:
        async for burst in receive:
            out += map(readable, burst)
    return out, observer


@given(
    bursts=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=6),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
)
async def test_joining_changes_nothing(bursts, kinds):
    """Whatever the stages do, raise, finish or hold back, the output is the same item by item."""
    apart, _ = await through(bursts, kinds, join=False)
    together, _ = await through(bursts, kinds, join=True)
    assert together == apart


def test_only_neighbouring_pure_stages_are_joined():
    """A stage that awaits keeps its task and parts the runs around it."""
    stages, _ = make(["pass", "double", "await", "hold", "await", "pass", "pass"])
    found = joined(stages)
    assert [name for name, _ in found] == ["0:pass+1:double", "2:await", "3:hold", "4:await", "5:pass+6:pass"]
    assert [isinstance(stage, JoinedStages) for _, stage in found] == [True, False, False, False, True]


@pytest.mark.parametrize("join", [False, True])
async def test_a_failure_names_the_stage_itself(join):
    """The error item and the observer name the stage that raised, joined or not."""
    run = partial(through, [[4, 5]], ["pass", "raise", "pass"])
    out, observer = await run(join=join)
    assert out[:2] == [4, ("error", StageFailed.code, "stage 1:raise failed: RuntimeError")]
    assert [event[:2] for event in observer.records if event[0] == "stage_failed"] == [("stage_failed", "1:raise")]
