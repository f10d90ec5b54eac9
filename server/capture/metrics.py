"""The Prometheus metrics of capture."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

__all__ = ["CaptureMetrics"]


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
