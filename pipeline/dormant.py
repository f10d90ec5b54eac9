"""Stages that are left out of their pipeline until an item concerns them (``Stage.wakes_for``)."""

from __future__ import annotations

from typing import Any, cast

import trio

from pipeline.driver import run_stage
from pipeline.sending_end import Send, SendingEnd
from pipeline.stage import Stage

__all__ = ["DormantStages"]


class DormantStages(SendingEnd):
    """The sending end of the channel to neighbouring stages that sleep.

    Passes bursts by the stages until an item concerns one of them. Then a task of its own is started for that one, as
    for any stage; those in front of it and behind it sleep on.

    Args:
        send: where the last of them sends to.
        nursery: where tasks are to run.
    """

    def __init__(self, send: Send, nursery: trio.Nursery) -> None:
        super().__init__(send)
        self._asleep: list[tuple[str, Stage]] = []
        self._nursery = nursery
        self._judged: list[Any] | None = None
        self._woken: tuple[int, int] | None = None

    def put_in_front(self, name: str, stage: Stage) -> None:
        """Have one more stage sleep, in front of the others."""
        self._asleep.insert(0, (name, stage))

    def send_nowait(self, burst: list[Any]) -> None:
        """Send a burst. Raises as a channel."""
        if burst is not self._judged:
            self._judge(burst)
        if self._woken is not None:
            raise trio.WouldBlock  # a task has first to be started
        self._send.send_nowait(burst)
        self._judged = None

    async def send(self, burst: list[Any]) -> None:
        """Send a burst. Checkpoints; raises as a channel."""
        if burst is not self._judged:
            self._judge(burst)
        woken, self._judged, self._woken = self._woken, None, None
        if woken is not None:
            place, first = woken
            behind = self._behind(place)
            if first:
                await behind.send(burst[:first])
                burst = burst[first:]
            self._wake(place, behind)
        await self._send.send(burst)

    def _judge(self, burst: list[Any]) -> None:
        """Find the first stage that a burst wakes, and where; each item is asked about once."""
        self._judged, self._woken = burst, None
        place = 0
        try:
            for place, (_, stage) in enumerate(self._asleep):
                first = stage.first_to_wake(burst)
                if first is not None:
                    self._woken = place, first
                    return
        except Exception:  # noqa: BLE001 - it is fed, and may raise where that is told of
            self._woken = place, 0

    def _behind(self, place: int) -> Send:
        """The sending end for the stage at that place: those behind it sleep on."""
        if place + 1 == len(self._asleep):
            return self._send
        behind = DormantStages(self._send, self._nursery)
        behind._asleep = self._asleep[place + 1 :]
        return cast("Send", behind)  # as far as it is used

    def _wake(self, place: int, behind: Send) -> None:
        """Start the task of the stage at that place."""
        name, stage = self._asleep[place]
        self._asleep = self._asleep[:place]
        send, receive = trio.open_memory_channel[list[Any]](0)
        self._nursery.start_soon(run_stage, stage, name, receive, behind, name=f"stage {name}")
        self._send = send
