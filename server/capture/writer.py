"""One sink's own queue and task, so that it can be slow, or fail, for itself."""

from __future__ import annotations

import math
from typing import Final

import structlog
import trio

from server.capture.loss import Loss
from server.capture.metrics import CaptureMetrics
from server.capture.queue import BoundedQueue
from server.capture.sink import Sink, SinkError

__all__ = ["SinkWriter"]

_log = structlog.get_logger("callahead")

_BATCH_RECORDS: Final = 256
_BATCH_BYTES: Final = 1024 * 1024
_PAUSE: Final = 0.05
"""Seconds between two writes, in which more comes together: each may be a visit to a thread, or to a disk."""
_CLOSE_TIME: Final = 1.0
"""Seconds that a sink gets to close although its task was cancelled."""


class SinkWriter:
    """Takes lines without waiting, and writes them to a sink at its pace.

    Args:
        name: the sink's name, for logs and metrics.
        sink: what is written to; closed at the end.
        queue: where lines wait; nobody else's.
        metrics: where it is counted what became of them.
    """

    def __init__(self, name: str, sink: Sink, queue: BoundedQueue[bytes], metrics: CaptureMetrics) -> None:
        self.name = name
        self._sink = sink
        self._queue = queue
        self._written = metrics.records.labels(name)
        self._metrics = metrics
        self._in_hand = 0
        self._is_behind = False
        self._lost_by_failure = 0
        self._deadline = -math.inf

    def offer(self, line: bytes) -> None:
        """Queue a line, or count it as lost. Never waits."""
        if not self._queue.offer(line, len(line)):
            self.lose(Loss.SHUTDOWN if self._queue.closed else Loss.QUEUE_FULL)

    def lose(self, reason: str, count: int = 1) -> None:
        """Count records that the sink does not get."""
        if count:
            self._metrics.lost.labels(self.name, reason).inc(count)
        if reason == Loss.QUEUE_FULL and not self._is_behind:
            self._is_behind = True
            _log.warning("capture loses records: the sink is too slow", sink=self.name)

    def close(self, deadline: float = -math.inf) -> None:
        """Accept no more; ``run`` ends when what is queued has been written.

        Args:
            deadline: until when the sink may take to close, by Trio's clock; a second at least.
        """
        self._deadline = deadline
        self._queue.close()

    async def run(self) -> None:
        """Write until closed, and close the sink.

        Checkpoints. A cancellation leaves the rest unwritten and counts it; the sink still gets a second to close.
        """
        try:
            while lines := await self._queue.take(_BATCH_RECORDS, _BATCH_BYTES):
                self._in_hand = len(lines)
                await self._write(lines)
                self._in_hand = 0
                self._is_behind = self._is_behind and len(self._queue) > 0
                await self._queue.fill(_PAUSE)
        finally:
            self._queue.close()
            self.lose(Loss.SHUTDOWN, self._in_hand + self._queue.clear())
            with trio.CancelScope(deadline=max(self._deadline, trio.current_time() + _CLOSE_TIME), shield=True):
                await self._close_sink()

    async def _write(self, lines: list[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._sink.write(lines)
        except Exception as error:  # noqa: BLE001 - a sink is anybody's code, and costs nobody but itself
            self._failed(error, len(lines))
            return
        self._written.inc(len(lines))
        if self._lost_by_failure:
            _log.warning("capture sink works again", sink=self.name, lost=self._lost_by_failure)
            self._lost_by_failure = 0

    def _failed(self, error: Exception, count: int) -> None:
        bug: Exception | None = None
        if isinstance(error, SinkError):
            failure = error
        elif isinstance(error, OSError):
            failure = SinkError.from_os(error)
        else:
            failure, bug = SinkError(f"{type(error).__name__}: {error}"), error
        written = min(failure.written, count)
        self._written.inc(written)
        self.lose(failure.reason, count - written)
        if not self._lost_by_failure:  # said once, until it works again
            _log.error(
                "capture sink fails; its records are lost until it works again",
                sink=self.name,
                error=str(failure),
                exc_info=bug,
            )
        self._lost_by_failure += count - written

    async def _close_sink(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._sink.aclose()
        except Exception as error:  # noqa: BLE001 - see _write
            _log.error("capture sink cannot be closed", sink=self.name, exc_info=error)
