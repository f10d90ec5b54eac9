"""The promises about how a stage ends, and how much it takes."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import trio
from trio.testing import wait_all_tasks_blocked

from pipeline import driver
from pipeline.assembly import open_pipeline
from pipeline.errors import StreamCut
from pipeline.items import StreamError
from pipeline.testing.fingerprint import ordinary, shown, tells_failure
from pipeline.testing.harness import MakeStage, broken, run_step_by_step, run_to_end

__all__ = [
    "check_backpressure",
    "check_cancellation",
    "check_crash_is_told",
    "check_failure_is_passed_on",
    "check_silence_after_the_end",
]

_READ_AHEAD: Final = 8
"""Bursts that a stage may take beyond the one that made it give something."""


async def check_crash_is_told(make_stage: MakeStage, items: list[Any]) -> None:
    """What a stage raises ends the stream with an error, and its send end is closed. Checkpoints."""
    stage = make_stage()
    was_fed = False

    def feed(item: Any) -> list[Any]:
        nonlocal was_fed
        was_fed = True
        raise RuntimeError(f"check_conformance raises for {item!r}")

    stage.feed = feed  # type: ignore[method-assign]
    given = await run_to_end(stage, [[item] for item in items])
    if was_fed and not (given and tells_failure(given[-1], "stage_failed")):
        raise broken(stage, "must let pass what its feed raises, so that the client is told, but swallows it")


async def check_failure_is_passed_on(make_stage: MakeStage, items: list[Any]) -> None:
    """A failure from before a stage reaches what stands behind it, and nothing follows. Checkpoints."""
    failure = StreamCut("cut by check_conformance")
    stage = make_stage()
    given = await run_to_end(stage, [[item] for item in (*ordinary(items), StreamError(failure))])
    if not any(tells_failure(item, failure.message) for item in given):
        raise broken(stage, "must pass a StreamError on, but drops it")
    if not tells_failure(given[-1], failure.message):
        raise broken(stage, f"must give nothing behind a StreamError without bytes, but gives {shown(given[-1])}")


async def check_cancellation(make_stage: MakeStage, items: list[Any]) -> None:
    """A cancelled stage stops, closes both channels, leaves no task behind and says nothing more. Checkpoints."""
    stage = make_stage()
    tasks = trio.lowlevel.current_statistics().tasks_living
    into, receive = trio.open_memory_channel[list[Any]](math.inf)
    send, out = trio.open_memory_channel[list[Any]](math.inf)
    scope, returned = trio.CancelScope(), False

    async def run() -> None:
        nonlocal returned
        with scope:
            await driver.run_stage(stage, type(stage).__name__, receive, send)
            returned = True

    with into, out:
        into.send_nowait(items[:1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            ended_before, sent = returned, out.statistics().current_buffer_used
            scope.cancel()
        if returned and not ended_before:
            raise broken(stage, "must let trio.Cancelled pass, but swallows it")
        if out.statistics().current_buffer_used > sent:
            raise broken(stage, "must send nothing once it is cancelled, but does")
        if into.statistics().open_receive_channels or out.statistics().open_send_channels:
            raise broken(stage, "must leave no clone of its channels open, but does")
    if trio.lowlevel.current_statistics().tasks_living > tasks:
        raise broken(stage, "must leave no task behind, but does")


async def check_silence_after_the_end(make_stage: MakeStage, items: list[Any]) -> None:
    """Nothing is fed to a stage that is finished or closed, and it is closed once. Checkpoints."""
    stage = make_stage()
    feed, close = stage.feed, stage.close
    calls: list[str] = []
    late: list[str] = []

    def note(name: str) -> None:
        if stage.finished or "close" in calls:
            late.append(name)
        calls.append(name)

    def watched_feed(item: Any) -> Any:
        note("feed")
        return feed(item)

    def watched_close() -> Any:
        note("close")
        return close()

    stage.feed, stage.close = watched_feed, watched_close  # type: ignore[method-assign]
    await run_to_end(stage, [items, items])
    if late:
        raise broken(stage, f"must be left alone once it is finished or closed, but its run calls {late[0]} after that")


async def check_backpressure(make_stage: MakeStage, items: list[Any]) -> None:
    """A stage whose output nobody takes soon stops taking input. Checkpoints."""
    items = ordinary(items)
    steps = await run_step_by_step(make_stage(), items)
    first = next((number for number, given in enumerate(steps, 1) if given), len(steps))
    if first == len(steps):
        return  # it gives nothing before the end
    most, taken = first + _READ_AHEAD, 0

    async def source(send: trio.MemorySendChannel[list[Any]]) -> None:
        nonlocal taken
        await trio.lowlevel.checkpoint()
        for item in itertools.islice(itertools.cycle(items), 2 * most):
            await send.send([item])
            taken += 1

    stage = make_stage()
    async with open_pipeline(source, [(type(stage).__name__, stage)]):
        await wait_all_tasks_blocked()
    if taken > most:
        seen = f"took {taken} of {2 * most} bursts, though burst {first} made it give something"
        raise broken(stage, f"must stop taking while nobody takes what it gives, but {seen}")
