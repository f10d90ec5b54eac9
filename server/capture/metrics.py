"""The Prometheus metrics of capture."""

from __future__ import annotations

import enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter

__all__ = ["CaptureMetrics", "Loss"]


class Loss(enum.StrEnum):
    """Why a sink did not get a record, or not all of it; the values of ``reason``. A sink may have more of its own."""

    QUEUE_FULL = "queue_full"
    """The sink is too slow."""
    SINK_ERROR = "sink_error"
    """The sink failed."""
    DISK_FULL = "disk_full"
    """The sink has no room left on its disk, or no quota."""
    ENCODE_ERROR = "encode_error"
    """The record could not be encoded."""
    RECORD_TOO_LARGE = "record_too_large"
    """Only the request and the response were lost: the record's envelope goes on."""
    SHUTDOWN = "shutdown"
    """The process ended before the record's turn came."""


class CaptureMetrics:
    """The counters, in somebody's registry. But for ``record_too_large``, a record is counted once for each sink."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.records: Final = Counter(
            "callahead_capture_records", "Records that a sink reported as written", ["sink"], registry=registry
        )
        self.lost: Final = Counter(
            "callahead_capture_lost",
            "Records that a sink did not get, or only without request and response, by reason",
            ["sink", "reason"],
            registry=registry,
        )
