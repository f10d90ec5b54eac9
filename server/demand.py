"""Backpressure from end to end: a source makes no large burst while the client has not taken the last one."""

from __future__ import annotations

import trio

__all__ = ["Demand"]


class Demand:
    """Between the body, which writes to the client, and the source at the other end of the pipeline.

    Each stage can hold a burst, and a parsed burst is several times its bytes: without this a client that stops
    reading would cost one for every stage. So the source keeps what it has read unparsed, if that is much, until the
    last burst has come out of the pipeline and the body wants more.

    Args:
        stages: how many there are; a burst needs about as many turns of the scheduler to come out. One that has not
            come out by then was swallowed by a stage, or is held by one that waits.
        gate: what the source goes through with a large burst (``server.burst_gate``).
    """

    def __init__(self, stages: int, gate: trio.Semaphore) -> None:
        self.gate = gate
        self._turns = stages + 2  # the source's own and the body's
        self._is_out = True
        self._wants_more = True
        self._wanted: trio.Event | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the body is writing."""
        return not self._wants_more

    def taken(self) -> None:
        """The body has taken a burst, and is busy with it."""
        self._is_out = True
        self._wants_more = False

    def busy(self) -> None:
        """The body is writing something of its own."""
        self._wants_more = False

    def wants_more(self) -> None:
        """The body has written all it had."""
        self._wants_more = True
        if self._wanted is not None:
            self._wanted.set()
            self._wanted = None

    def sent(self) -> None:
        """The source sends a burst."""
        self._is_out = False

    async def wait_until_taken(self) -> None:  # noqa: ASYNC910 - see wait
        """Give the burst that was sent last its turns to come out. Does not wait where it already has."""
        turns = 0
        while turns < self._turns and not self._is_out:
            turns += 1
            await trio.lowlevel.checkpoint()
        self._is_out = True

    async def wait(self) -> None:  # noqa: ASYNC910 - the reads around it are checkpoints
        """Wait until the burst that was sent last is with the client. Does not wait where it already is."""
        await self.wait_until_taken()
        await self.wait_until_wanted()

    async def wait_until_wanted(self) -> None:  # noqa: ASYNC910 - see wait
        """Wait until the body has written what it has. Does not wait where it already has."""
        while not self._wants_more:  # it may have taken the next burst before the source had its turn
            if self._wanted is None:
                self._wanted = trio.Event()
            await self._wanted.wait()
