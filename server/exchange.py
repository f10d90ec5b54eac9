"""One request from its arrival to its log line: identity, what must be closed, what was counted."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from pipeline.errors import StreamFailure
from pipeline.observer import Observer
from server.capture.capture import Capture
from server.capture.record import CapturedDispatch, CaptureRecord
from server.errors import UpstreamError
from server.upstreams.base import Headers

if TYPE_CHECKING:
    from server.metrics import Metrics
    from server.request_body import RequestBody

__all__ = ["Exchange"]

_log = structlog.get_logger("callahead")
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,200}\Z")
_MODEL_SHOWN: Final = 128
_PROBES: Final = frozenset({"live", "health", "metrics"})


class Exchange(Observer):
    """Made by the connection for each request, told by everybody what happens, and closed exactly once.

    Args:
        metrics: where it is counted.
        method: the request's method, for the log.
        target: the request's target as the client wrote it, path and query.
        given_id: the client's ``x-request-id``; another is made where it is missing or no visible ASCII.
        body: the request's body as it arrives.
    """

    def __init__(self, metrics: Metrics, method: str, target: str, given_id: str, body: RequestBody) -> None:
        self.metrics = metrics
        self.method = method
        self.path, _, query = target.partition("?")
        self.target = self.path.removeprefix("/v1") + (f"?{query}" if query else "")
        self.request_id = given_id if _REQUEST_ID.match(given_id) else f"req_{uuid.uuid4().hex}"
        self.body = body
        self.endpoint = "unknown"
        self.outcome: str | None = None
        self.status: int | None = None
        self.model: str | None = None
        self.response_headers: Headers | None = None
        """What the response's headers are, byte for byte; none where Quart's own are right."""
        self.client_left = False
        self.chunks = 0
        self.refusals: dict[str, int] = {}
        self._repairs: set[str] = set()
        self._started = time.perf_counter()
        self._first_chunk: float | None = None
        self._last_chunk: float | None = None
        self._dispatches: list[CapturedDispatch] = []
        self._capture: Capture | None = None
        self._captured: tuple[Mapping[str, Any] | None, str | None] | None = None
        self._request: bytes = b""
        self._headers: Headers = []
        self._arrived = time.time()
        self._failure: StreamFailure | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._closed = False
        self._is_probe = False
        metrics.requests_in_flight.inc()

    # --- lifetime -------------------------------------------------------------

    def enter(self, endpoint: str) -> None:
        """Note where the request leads. Probes are not counted, and logged at debug level."""
        self.endpoint = endpoint
        self._is_probe = endpoint in _PROBES
        if self._is_probe:
            self.metrics.requests_in_flight.dec()

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Have something closed when the request ends, whatever ends it. It must be safe in a cancelled scope."""
        self._closers.append(closer)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the request ends, after everything is closed."""
        self._callbacks.append(callback)

    async def aclose(self) -> None:  # noqa: ASYNC910 - it runs in cancelled scopes, where a checkpoint would raise
        """Close what was opened, count the request, write its log line. Idempotent; safe in a cancelled scope."""
        if self._closed:
            return  # noqa: ASYNC910 - see above
        self._closed = True
        while self._closers:
            await self._closers.pop()()
        for callback in self._callbacks:
            callback()
        self._settle()

    # --- what happened --------------------------------------------------------

    def fail(self, failure: StreamFailure, outcome: str | None = None) -> None:
        """Note why the request failed; the first failure counts."""
        if self._failure is not None:
            return
        self._failure = failure
        self.outcome = outcome or failure.code
        if isinstance(failure, UpstreamError) or failure.code in (
            "upstream_cut",
            "frame_too_long",
            "upstream_reported",
        ):
            self.metrics.upstream_errors.labels(failure.code).inc()

    def chunks_received(self, count: int) -> None:
        """One read of the upstream brought so many chunks."""
        now = time.perf_counter()
        metrics = self.metrics
        if self._last_chunk is None:
            self._first_chunk = now
            metrics.time_to_first_chunk.observe(now - self._started)
        else:
            metrics.chunk_gap.observe(now - self._last_chunk)
        self._last_chunk = now
        self.chunks += count
        metrics.chunks.inc(count)

    def call_dispatched(self, choice_index: int, call_index: int) -> None:
        """Note a dispatch; its lead is measured at the finish of its choice."""
        self._dispatches.append(CapturedDispatch(choice_index, call_index, time.perf_counter() - self._started))

    def choice_finished(self, choice_index: int, finish_reason: str) -> None:  # noqa: ARG002 - see above
        """Measure the lead of the choice's dispatches."""
        now = time.perf_counter() - self._started
        for dispatch in self._dispatches:
            if dispatch.choice_index == choice_index and dispatch.lead is None:
                dispatch.lead = now - dispatch.at
                self.metrics.dispatch_lead.observe(dispatch.lead)

    def event_sent(self, name: str) -> None:
        """Count a side event."""
        self.metrics.dispatches.labels(name).inc()

    def call_refused(self, choice_index: int | None, call_index: int | None, reason: str, repair: str | None) -> None:
        """Count and log a refusal, with the repair that would cure it."""
        reason = str(reason)  # an enumeration's member would be logged as one
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        self.metrics.dispatch_refusals.labels(reason).inc()
        fields: dict[str, Any] = {"repair": repair} if repair else {}
        _log.info(
            "tool call not dispatched",
            request_id=self.request_id,
            reason=reason,
            choice_index=choice_index,
            call_index=call_index,
            **fields,
        )

    def call_repaired(self, stage: str, choice_index: int | None, call_index: int | None, repair: str) -> None:
        """Count a repair; log the first of each kind in a request, so that an operator learns what a provider does."""
        self.metrics.repairs.labels(stage).inc()
        write = _log.debug if repair in self._repairs else _log.info
        self._repairs.add(repair)
        write(
            "repaired",
            request_id=self.request_id,
            stage=stage,
            repair=repair,
            choice_index=choice_index,
            call_index=call_index,
        )

    def stream_failed(self, failure: StreamFailure, *, reported: bool) -> None:  # noqa: ARG002 - see above
        """Note the failure that the client was told of."""
        self.fail(failure)

    def stream_ended(self) -> None:
        """Note the clean end."""
        if self.outcome is None:
            self.outcome = "ok"

    def stage_failed(self, stage: str, error: Exception) -> None:
        """Count a stage that raised, and log its traceback."""
        self.metrics.stage_failures.labels(stage).inc()
        _log.error("stage failed", request_id=self.request_id, stage=stage, exc_info=error)

    def warned(self, stage: str, message: str) -> None:
        """Log what a stage found odd."""
        _log.warning(message, request_id=self.request_id, stage=stage)

    def payload_captured(self, response: Mapping[str, Any] | None, drop_reason: str | None) -> None:
        """Keep the outcome for the record."""
        self._captured = (response, drop_reason)

    # --- the end --------------------------------------------------------------

    def capture(self, capture: Capture, request: bytes, headers: Headers) -> None:
        """Have the request recorded at its end.

        Args:
            capture: takes the record.
            request: the body as the client sent it.
            headers: the client's.
        """
        self._capture = capture
        self._request = request
        self._headers = headers

    def _record(self) -> CaptureRecord:
        failure = self._failure
        lost = f"aggregation_failed:{failure.code}: {failure.message}" if failure else "response_stream_dropped"
        if self.outcome == "upstream_status":
            lost = f"aggregation_failed:upstream_status: {self.status}"
        response, drop_reason = self._captured or (None, lost)
        if failure:
            drop_reason = drop_reason or lost  # a stage behind the capture has failed: the client has not got all of it
        return CaptureRecord(
            request_id=self.request_id,
            endpoint=self.endpoint,
            model=self.model,
            arrived=self._arrived,
            request=self._request,
            response=response,
            drop_reason=drop_reason,
            dispatches=self._dispatches,
            first_chunk=None if self._first_chunk is None else self._first_chunk - self._started,
            last_chunk=None if self._last_chunk is None else self._last_chunk - self._started,
            total=time.perf_counter() - self._started,
            headers=self._headers,
        )

    def _settle(self) -> None:
        if self.outcome is None:
            self.outcome = "client_left" if self.client_left else "cancelled"
            if self.client_left:
                self.metrics.client_disconnects.inc()
        if not self._is_probe:
            self.metrics.requests_in_flight.dec()
            self.metrics.requests.labels(self.endpoint, self.outcome).inc()
        if self._capture is not None:
            self._capture.offer(self._record())
        fields: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "endpoint": self.endpoint,
            "outcome": self.outcome,
            "status": self.status,
            "seconds": round(time.perf_counter() - self._started, 4),
        }
        if self.model is not None:
            fields["model"] = self.model[:_MODEL_SHOWN]
        if self._failure is not None:
            fields["error"] = self._failure.log_text
        if self._first_chunk is not None:
            fields["chunks"] = self.chunks
            fields["first_chunk_seconds"] = round(self._first_chunk - self._started, 4)
            fields["dispatched"] = len(self._dispatches)
        leads = [dispatch.lead for dispatch in self._dispatches if dispatch.lead is not None]
        if leads:
            fields["lead_seconds"] = round(max(leads), 4)
        if self.refusals:
            fields["refusals"] = self.refusals
        write = _log.debug if self._is_probe else _log.info
        write("request", **fields)
