"""One request's pipeline: a source, its stages and their channels in one nursery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import trio

from pipeline.dormant import DormantStages
from pipeline.driver import run_stage
from pipeline.items import Item
from pipeline.joined import joined
from pipeline.sending_end import Send
from pipeline.stage import Stage
from pipeline.watching import WatchedEnd, WatchingStage

__all__ = ["Source", "open_pipeline"]

Source: TypeAlias = Callable[[trio.MemorySendChannel[list[Item]]], Awaitable[None]]
"""Sends bursts until the stream ends, then returns. It closes nothing; ``BrokenResourceError`` from ``send`` means
that downstream is done."""

CHANNEL_BURSTS = 0
"""Room for bursts between two stages. With none, a stage holds one burst and a slow client is felt at the source."""


@asynccontextmanager
async def open_pipeline(
    source: Source, stages: Sequence[tuple[str, Stage]], *, join: bool = False
) -> AsyncIterator[trio.MemoryReceiveChannel[list[Any]]]:
    """Run a source through stages, each in a task of its own; yields the channel that the last one sends to.

    A stage that sleeps until an item concerns it (``Stage.wakes_for``) has its task from then on; one that only looks
    on (``WatchingStage``) has none.

    The nursery is the request: leaving the block, for whatever reason, cancels and awaits every task and closes every
    channel. An error of the source itself leaves the block as it is, not as a group; errors of stages arrive in band.

    Args:
        source: where the items come from.
        stages: names and stages in running order.
        join: whether runs of neighbouring pure stages share a task; nothing else differs.
    """
    watching = []
    for name, stage in stages:
        if isinstance(stage, WatchingStage):
            stage.name = name
            watching.append(stage)
    try:
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[list[Any]](CHANNEL_BURSTS)
            send = _connect(joined(stages) if join else stages, send, nursery)
            nursery.start_soon(_run_source, source, send, name="source")
            with receive:
                yield receive
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _raise_first(group)
    finally:
        for stage in watching:
            stage.let_go()


def _connect(stages: Sequence[tuple[str, Stage]], send: Send, nursery: trio.Nursery) -> Send:
    """Start the tasks of stages, the last of which is to send there; gives what the source sends to."""
    asleep: DormantStages | None = None
    for (name, stage), is_pure in reversed(list(zip(stages, _pure_senders(stages), strict=True))):
        if is_pure and stage.can_sleep:
            if asleep is None:
                asleep = DormantStages(send, nursery)
                send = cast("Send", asleep)
            asleep.put_in_front(name, stage)
            continue
        asleep = None
        if is_pure and isinstance(stage, WatchingStage):
            send = cast("Send", WatchedEnd(stage, send))
        else:
            into, taken = trio.open_memory_channel[list[Any]](CHANNEL_BURSTS)
            nursery.start_soon(run_stage, stage, name, taken, send, name=f"stage {name}")
            send = into
    return send


def _pure_senders(stages: Sequence[tuple[str, Stage]]) -> list[bool]:
    """Whether whoever sends to each stage does nothing with the channel but what the driver does."""
    found: list[bool] = []
    is_pure = True
    for _, stage in stages:
        found.append(is_pure)
        if not (is_pure and isinstance(stage, WatchingStage)):  # else it has no task, and sends nothing
            is_pure = type(stage).run is Stage.run
    return found


async def _run_source(source: Source, send: trio.MemorySendChannel[list[Any]]) -> None:
    with send:
        await trio.lowlevel.checkpoint()
        try:
            await source(send)
        except trio.BrokenResourceError:
            if send.statistics().open_receive_channels:
                raise  # no: downstream is there, so something of the source's own is broken


def _raise_first(group: BaseExceptionGroup[BaseException]) -> None:
    """Make one error of a nursery's group: never let a group reach a web framework (traps, 11 and H10)."""
    cancelled, errors = group.split(trio.Cancelled)
    if errors is None:
        assert cancelled is not None
        raise cancelled
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    raise first from group
