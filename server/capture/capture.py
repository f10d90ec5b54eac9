"""Capture as the server sees it: asked at a request's arrival, told at its end, flushed when the process ends."""

from __future__ import annotations

import math
from typing import Final

import structlog
import trio
from prometheus_client import CollectorRegistry

from server.capture.loss import Loss
from server.capture.metrics import CaptureMetrics
from server.capture.plan import CapturePlan, PlannedSink
from server.capture.queue import BoundedQueue
from server.capture.record import CaptureRecord, RecordEncoder
from server.capture.sampling import Sampler
from server.capture.sink import Sink
from server.capture.writer import SinkWriter
from server.errors import ConfigError

__all__ = ["Capture"]

_log = structlog.get_logger("callahead")

_LARGE: Final = 256 * 1024
"""Bytes of a request from which on a record is encoded in a thread, so that redaction of it stops nothing else."""


class Capture:
    """Records on their way from requests to sinks.

    Requests hand over records and never wait. One task encodes them in order and gives the lines to a queue for each
    sink; a task for each sink writes them. Whatever has no room or fails is counted, and costs no request anything.

    Args:
        plan: what is configured; without sinks nothing is captured.
        registry: where its metrics go.
        upstream: the upstream's name, as records tell it.

    Raises:
        ConfigError: a sink cannot be made.
    """

    def __init__(self, plan: CapturePlan, registry: CollectorRegistry, upstream: str) -> None:
        settings = plan.settings
        metrics = CaptureMetrics(registry)
        self._sampler = Sampler(settings.models, settings.sample)
        self._encoder = RecordEncoder(upstream, settings.max_record_bytes, plan.headers, plan.redaction)
        self._arrived: BoundedQueue[CaptureRecord] = BoundedQueue(settings.queue_records, settings.queue_bytes)
        self._writers = [
            SinkWriter(each.name, _made(each), BoundedQueue(settings.queue_records, settings.queue_bytes), metrics)
            for each in plan.sinks
        ]
        self._scope = trio.CancelScope()
        self._started = False
        self._ended = trio.Event()
        self._deadline = -math.inf
        self._cannot_encode = False

    def wants(self, model: str | None, request_id: str) -> bool:
        """Whether a request is to be captured, as its model and the sampling rate have it."""
        return bool(self._writers) and self._sampler.wants(model, request_id)

    def offer(self, record: CaptureRecord) -> bool:
        """Take a record, or count it as lost where there is no room. Never waits, never raises.

        Returns:
            Whether it was taken.
        """
        if self._arrived.offer(record, len(record.request)):
            return True
        self._lose(Loss.SHUTDOWN if self._arrived.closed else Loss.QUEUE_FULL)
        return False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write records until ``flush``. Run it once, in a nursery that outlives all requests.

        Checkpoints. A cancellation leaves unwritten what waits, counts it, and closes the sinks within a second.

        Args:
            task_status: started once records are taken care of.
        """
        self._started = True
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for writer in self._writers:
                        nursery.start_soon(writer.run)
                    nursery.start_soon(self._encode)
                    task_status.started()
        finally:
            self._ended.set()

    async def flush(self, deadline: float) -> None:
        """Write what waits, close the sinks, and have ``run`` return. What comes later counts as lost.

        Checkpoints. Safe to call twice.

        Args:
            deadline: by Trio's clock; what is not written by then is given up and counted. The sinks then still get a
                second to close.
        """
        self._deadline = deadline
        self._arrived.close()
        await trio.lowlevel.checkpoint()
        if not self._started:
            return
        with trio.move_on_at(deadline):
            await self._ended.wait()
            return
        self._scope.cancel()
        await self._ended.wait()

    async def _encode(self) -> None:
        try:
            while records := await self._arrived.take(1, 0):
                await self._encode_one(records[0])
        finally:
            self._arrived.close()
            self._lose(Loss.SHUTDOWN, self._arrived.clear())
            for writer in self._writers:
                writer.close(self._deadline)

    async def _encode_one(self, record: CaptureRecord) -> None:
        """Turn a record into a line and hand it on."""
        await trio.lowlevel.checkpoint()
        try:
            if len(record.request) > _LARGE:
                encoded = await trio.to_thread.run_sync(self._encoder.encode, record, abandon_on_cancel=True)
            else:
                encoded = self._encoder.encode(record)
        except Exception as error:  # noqa: BLE001 - one record that nobody can encode must not end capture
            self._lose(Loss.ENCODE_ERROR)
            if not self._cannot_encode:
                self._cannot_encode = True
                _log.error("a record cannot be encoded", request_id=record.request_id, exc_info=error)
            return
        if encoded.is_cut:
            self._lose(Loss.RECORD_TOO_LARGE)
        for writer in self._writers:
            writer.offer(encoded.line)

    def _lose(self, reason: Loss, count: int = 1) -> None:
        for writer in self._writers:
            writer.lose(reason, count)


def _made(planned: PlannedSink) -> Sink:
    try:
        return planned.sink(planned.options)
    except Exception as error:
        raise ConfigError(f"capture.{planned.name}: the sink cannot be made: {error}") from error
