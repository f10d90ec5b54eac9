"""Stages that only look on."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pipeline.assembly import open_pipeline
from pipeline.stage import Stage
from pipeline.testing import RecordingObserver, make_stage, text_chunk
from pipeline.watching import WatchingStage
from stages.role_dedup import RoleDedup

BURSTS = [[text_chunk("a"), text_chunk("b")], [text_chunk("c")]]


class Witness(WatchingStage):
    """Notes all it is told."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.told = []

    def watch(self, burst):
        """See ``WatchingStage``."""
        self.told.append(list(burst))

    def end(self):
        """See ``WatchingStage``."""
        self.told.append("end")

    def leave(self):
        """See ``WatchingStage``."""
        self.told.append("left")


class Looping(Stage):
    """A stage with a loop of its own."""

    async def run(self, receive, send):
        """As the driver does."""
        await super().run(receive, send)


async def two_bursts(send):
    """A source."""
    for burst in BURSTS:
        await send.send(burst)


def tasks_of_stages():
    """The names of the stages that have a task."""
    nurseries = trio.lowlevel.current_task().child_nurseries
    return {task.name for nursery in nurseries for task in nursery.child_tasks} - {"source"}


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("before", [[], [RoleDedup], [Looping]])
@pytest.mark.parametrize("after", [[], [RoleDedup], [Stage]])
async def test_it_sees_the_stream(before, after, join):
    """Wherever it stands it is shown each burst, the end, and that the request is over; nothing else differs."""
    witness = make_stage(Witness)
    stages = [*((each.__name__, make_stage(each)) for each in before), ("witness", witness)]
    stages += [(each.__name__, make_stage(each)) for each in after]
    async with open_pipeline(two_bursts, stages, join=join) as receive:
        assert [burst async for burst in receive] == BURSTS
        assert witness.told == [*BURSTS, "end"]
    assert witness.told == [*BURSTS, "end", "left"]


async def test_it_has_no_task():
    """Neither has a stage behind it that sleeps; behind a stage with a loop of its own it has one."""
    stages = [("a", make_stage(Witness)), ("b", make_stage(RoleDedup)), ("c", make_stage(Witness))]
    async with open_pipeline(two_bursts, stages):
        assert tasks_of_stages() == set()
    async with open_pipeline(two_bursts, [("looping", make_stage(Looping)), *stages]):
        assert tasks_of_stages() == {"stage looping", "stage a"}


async def test_it_sees_what_has_left():
    """A burst that nobody takes is not shown."""
    witness = make_stage(Witness)
    async with open_pipeline(two_bursts, [("witness", witness)]) as receive:
        await wait_all_tasks_blocked()
        assert witness.told == []
        await receive.receive()
        await wait_all_tasks_blocked()
        assert witness.told == BURSTS[:1]
    assert witness.told == [*BURSTS[:1], "left"]


async def test_a_client_that_is_done_is_no_end():
    """Where downstream takes no more the source did not end."""
    witness = make_stage(Witness)
    async with open_pipeline(two_bursts, [("witness", witness)]) as receive:
        await receive.receive()
        receive.close()
        await wait_all_tasks_blocked()
    assert witness.told == [*BURSTS[:1], "left"]


async def test_an_error_around_it():
    """However the request ends, the stage is told once that it is over."""
    witness = make_stage(Witness)
    with pytest.raises(ZeroDivisionError):
        async with open_pipeline(two_bursts, [("witness", witness)]):
            raise ZeroDivisionError
    assert witness.told == ["left"]


@pytest.mark.parametrize("before", [[], [("looping", Looping)], [("role_dedup", RoleDedup)]])
@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("method", ["watch", "end", "leave"])
async def test_an_error_in_it_is_its_own(method, before, join, monkeypatch):
    """It is told to the observer and ends the watching; the stream goes on, whole."""
    observer = RecordingObserver()
    witness = make_stage(Witness, observer=observer)
    monkeypatch.setattr(witness, method, lambda *_: 1 / 0)
    stages = [*((name, make_stage(each)) for name, each in before), ("witness", witness)]
    async with open_pipeline(two_bursts, stages, join=join) as receive:
        assert [burst async for burst in receive] == BURSTS
    ((event, name, error),) = observer.records
    assert (event, name, type(error)) == ("stage_failed", "witness", ZeroDivisionError)
    assert witness.told == {"watch": ["left"], "end": [*BURSTS, "left"], "leave": [*BURSTS, "end"]}[method]
