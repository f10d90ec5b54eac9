"""Ways of running a stage on trial, and what is said of one that fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import trio
from trio.testing import wait_all_tasks_blocked

from pipeline.assembly import open_pipeline
from pipeline.stage import Stage
from pipeline.testing.fingerprint import shown
from pipeline.testing.running import run_stage_in_channels

__all__ = ["MakeStage", "broken", "run_bare", "run_step_by_step", "run_to_end"]

MakeStage: TypeAlias = Callable[[], Stage]

_PATIENCE: Final = 30.0
"""Seconds for a stage to come to its end. Only one that breaks a promise needs them."""


def broken(stage: Stage, message: str) -> AssertionError:
    """The one line that names the stage and its promise."""
    return AssertionError(f"{type(stage).__name__} {message}")


def _endless(stage: Stage) -> AssertionError:
    return broken(stage, f"must close its send end once its source has ended, but has not after {_PATIENCE} s")


async def run_to_end(stage: Stage, bursts: Sequence[list[Any]]) -> list[Any]:
    """What a stage gives between channels, through the real driver. Checkpoints.

    Raises:
        AssertionError: it does not come to an end.
    """
    with trio.move_on_after(_PATIENCE):
        return await run_stage_in_channels(stage, bursts)
    raise _endless(stage)


async def run_bare(stage: Stage, items: Sequence[Any]) -> None:
    """Run a stage without the driver, which would turn what the stage raises into an item. Checkpoints.

    Raises:
        AssertionError: it raises, or does not come to an end.
    """
    into, receive = trio.open_memory_channel[list[Any]](math.inf)
    send, out = trio.open_memory_channel[list[Any]](math.inf)
    with into:
        for item in items:
            into.send_nowait([item])
    with receive, send, out, trio.move_on_after(_PATIENCE) as patience:
        try:
            await stage.run(receive, send)
        except Exception as error:
            what = shown(items[0]) if len(items) == 1 else f"a stream of {len(items)}"
            raise broken(stage, f"must not raise for any item, but raises {error!r} for {what}") from error
    if patience.cancelled_caught:
        raise _endless(stage)


async def run_step_by_step(stage: Stage, items: Sequence[Any]) -> list[list[Any]]:
    """What a stage gives for each item before it gets the next, and at last what it gives for the end. Checkpoints."""
    steps: list[list[Any]] = [[]]

    async def source(send: trio.MemorySendChannel[list[Any]]) -> None:
        await trio.lowlevel.checkpoint()
        for item in items:
            await send.send([item])
            await wait_all_tasks_blocked()
            steps.append([])

    async with open_pipeline(source, [(type(stage).__name__, stage)]) as receive:
        async for burst in receive:
            steps[-1] += burst
    return steps
