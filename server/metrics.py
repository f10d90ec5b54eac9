"""The Prometheus metrics of a gateway. ``docs/deploy.md`` lists them."""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["METRICS_CONTENT_TYPE", "Metrics"]

METRICS_CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_GAPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.requests: Final = Counter(
            "callahead_requests",
            "Requests that have ended, by endpoint and outcome",
            ["endpoint", "outcome"],
            registry=self.registry,
        )
        self.requests_in_flight: Final = Gauge(
            "callahead_requests_in_flight",
            "Requests being served",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.time_to_first_chunk: Final = Histogram(
            "callahead_time_to_first_chunk_seconds",
            "From the request's arrival to the upstream's first chunk",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.chunk_gap: Final = Histogram(
            "callahead_chunk_gap_seconds",
            "Between two reads of a stream that brought chunks",
            buckets=_GAPS,
            registry=self.registry,
        )
        self.chunks: Final = Counter("callahead_chunks", "Chunks received from upstreams", registry=self.registry)
        self.dispatches: Final = Counter(
            "callahead_dispatches", "Side events sent, by event", ["event"], registry=self.registry
        )
        self.dispatch_refusals: Final = Counter(
            "callahead_dispatch_refusals",
            "Tool calls that were not dispatched, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.dispatch_lead: Final = Histogram(
            "callahead_dispatch_lead_seconds",
            "How long before its choice's finish a tool call was dispatched",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.client_disconnects: Final = Counter(
            "callahead_client_disconnects",
            "Clients that left before their response had ended",
            registry=self.registry,
        )
        self.upstream_errors: Final = Counter(
            "callahead_upstream_errors", "Failures of upstreams, by kind", ["kind"], registry=self.registry
        )
        self.repairs: Final = Counter(
            "callahead_repairs", "Calls that a repair changed, by stage", ["stage"], registry=self.registry
        )
        self.stage_failures: Final = Counter(
            "callahead_stage_failures", "Stages that raised, by stage", ["stage"], registry=self.registry
        )

    def expose(self) -> bytes:
        """The metrics in Prometheus' text format, those of all workers added up."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
