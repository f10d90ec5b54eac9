"""The sink ``stderr``: records beside the log lines, for containers whose output is collected anyway."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import trio

from server.capture.sink import Sink

__all__ = ["StderrSink"]


class StderrSink(Sink):
    """Writes records to standard error, a line each."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._limiter = trio.CapacityLimiter(1)

    async def write(self, lines: Sequence[bytes]) -> None:
        """Write the lines from a thread. Checkpoints; a cancellation leaves the thread behind."""
        await trio.to_thread.run_sync(self._write, lines, abandon_on_cancel=True, limiter=self._limiter)

    def _write(self, lines: Sequence[bytes]) -> None:
        # The buffer of sys.stderr has a lock, which the logs take too: no line ends up inside of another.
        for line in lines:
            sys.stderr.buffer.write(line + b"\n")
        sys.stderr.buffer.flush()
