"""Records, sinks and files for the tests of capture."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from prometheus_client import CollectorRegistry

from server.capture.capture import Capture
from server.capture.plan import CapturePlan, PlannedSink
from server.capture.record import CaptureRecord
from server.capture.redact import Redaction
from server.capture.settings import CaptureSettings
from server.capture.sink import Sink, SinkError

RESPONSE = {"id": "c1", "choices": [{"index": 0, "message": {"content": "High at 14:10."}, "finish_reason": "stop"}]}


def record(number: int = 0, **more: Any) -> CaptureRecord:
    """A record, which is whole unless ``more`` says otherwise."""
    values = {
        "request_id": f"r{number}",
        "endpoint": "chat_completions",
        "model": "demo-7b",
        "arrived": 1790000000.123,
        "request": b'{"model":"demo-7b","messages":[]}',
        "response": RESPONSE,
        "total": 2.0,
    }
    return CaptureRecord(**values | more)


@attrs.frozen
class ScriptedOptions:
    """What a scripted sink does with its batches."""

    failures: Sequence[Exception | None] = ()
    """What each ``write`` raises, in order; none, and after the last one: nothing."""
    gate: trio.Event | None = None
    """Each ``write`` waits for it."""


class ScriptedSink(Sink):
    """Keeps what it is given, fails and waits as it is told."""

    Options = ScriptedOptions

    def __init__(self, options: ScriptedOptions) -> None:
        super().__init__(options)
        self.lines: list[bytes] = []
        self.batches = 0
        self.closed = 0
        self.in_write = trio.Event()
        self._failures = list(options.failures)

    async def write(self, lines: Sequence[bytes]) -> None:
        """Keep the lines, as the script has it."""
        self.batches += 1
        self.in_write.set()
        await trio.lowlevel.checkpoint()
        if self.options.gate is not None:
            await self.options.gate.wait()
        failure = self._failures.pop(0) if self._failures else None
        if failure is None:
            self.lines += lines
            return
        self.lines += lines[: failure.written if isinstance(failure, SinkError) else 0]
        raise failure

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1
        await trio.lowlevel.checkpoint()

    @property
    def ids(self) -> list[str]:
        """The request ids of what was written."""
        return [json.loads(line)["request_id"] for line in self.lines]


@attrs.frozen(eq=False)
class Running:
    """A capture at work, its sinks and its metrics."""

    capture: Capture
    sinks: dict[str, Any]
    registry: CollectorRegistry

    def written(self, sink: str = "a") -> float:
        """How many records the metrics say were written."""
        return self.registry.get_sample_value("callahead_capture_records_total", {"sink": sink}) or 0

    def lost(self, reason: str, sink: str = "a") -> float:
        """How many records the metrics say were lost."""
        labels = {"sink": sink, "reason": reason}
        return self.registry.get_sample_value("callahead_capture_lost_total", labels) or 0


def make_capture(options: dict[str, Any] | None = None, *, sink: type[Sink] = ScriptedSink, **settings: Any) -> Running:
    """A capture that writes to sinks of these names with these options; not at work yet."""
    made: dict[str, Any] = {}

    def making(name: str):
        class Kept(sink):
            def __init__(self, given: Any) -> None:
                super().__init__(given)
                made[name] = self

        return Kept

    options = {"a": ScriptedOptions()} if options is None else options
    sinks = tuple(PlannedSink(name, making(name), given) for name, given in options.items())
    checked = CaptureSettings(sinks=tuple(options), **settings)
    registry = CollectorRegistry()
    plan = CapturePlan(checked, sinks, Redaction(checked.redact), frozenset(checked.headers))
    return Running(Capture(plan, registry, "http://up/v1"), made, registry)


@asynccontextmanager
async def running(*args: Any, **kwargs: Any) -> AsyncIterator[Running]:
    """A capture at work; flushed at the end."""
    made = make_capture(*args, **kwargs)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.capture.run)
        try:
            yield made
        finally:
            with trio.CancelScope(deadline=trio.current_time() + 10, shield=True):
                await made.capture.flush(trio.current_time() + 5)


def segments(folder: Path) -> list[Path]:
    """The files of captured records, in order."""
    return sorted(folder.glob("payloads-*"))


def lines_in(folder: Path) -> list[bytes]:
    """All lines of all files; a line that is not whole fails the test."""
    lines: list[bytes] = []
    for path in segments(folder):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        assert data.endswith(b"\n")
        lines += data.splitlines()
    return lines
