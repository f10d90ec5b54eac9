"""A stage that is left out of its pipeline until an item concerns it (``Stage.wakes_for``)."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import trio

from pipeline.driver import run_stage
from pipeline.stage import Stage

__all__ = ["DormantStage", "can_sleep"]


def can_sleep(stage: Stage) -> bool:
    """Whether a stage may be left out for a while."""
    kind = type(stage)
    return kind.wakes_for is not Stage.wakes_for or kind.first_to_wake is not Stage.first_to_wake


class DormantStage:
    """The sending end of the channel to a stage, as far as whoever stands in front of it uses one.

    Passes bursts by the stage until an item concerns it. Then a task of its own is started for it, as for any stage.

    Args:
        stage: which sleeps; ``can_sleep``.
        name: its name.
        send: where it sends to.
        nursery: where its task is to run.
    """

    def __init__(self, stage: Stage, name: str, send: trio.MemorySendChannel[list[Any]], nursery: trio.Nursery) -> None:
        self._stage: Stage | None = stage
        self._name = name
        self._send = send
        self._nursery = nursery
        self._judged: list[Any] | None = None
        self._first: int | None = None

    def send_nowait(self, burst: list[Any]) -> None:
        """Send a burst. Raises as a channel."""
        if self._find(burst) is not None:
            raise trio.WouldBlock  # the task has first to be started
        self._send.send_nowait(burst)
        self._judged = None

    async def send(self, burst: list[Any]) -> None:
        """Send a burst. Checkpoints; raises as a channel."""
        first = self._find(burst)
        self._judged = None
        if first is not None:
            if first:
                await self._send.send(burst[:first])
                burst = burst[first:]
            self._wake()
        await self._send.send(burst)

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Those of the channel that is sent to."""
        return self._send.statistics()

    def close(self) -> None:
        """Close it."""
        self._send.close()

    def __enter__(self) -> Self:
        """Close it at the end."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """See ``__enter__``."""
        self._send.__exit__(exc_type, exc_value, tb)

    def _find(self, burst: list[Any]) -> int | None:
        """Where the first item is that concerns the stage, if it sleeps; each item is asked about once."""
        if self._stage is not None and burst is not self._judged:
            self._judged = burst
            try:
                self._first = self._stage.first_to_wake(burst)
            except Exception:  # noqa: BLE001 - it is fed, and may raise where that is told of
                self._first = 0
        return self._first

    def _wake(self) -> None:
        assert self._stage is not None
        send, receive = trio.open_memory_channel[list[Any]](0)
        stage, name = self._stage, self._name
        self._nursery.start_soon(run_stage, stage, name, receive, self._send, name=f"stage {name}")
        self._send = send
        self._stage = self._first = None
