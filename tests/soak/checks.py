"""What is watched beside the streams: the process, its metrics, its log, and the test bed's own punctuality."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from clients import get

__all__ = ["Figures", "Log", "Punctuality", "figures_of", "metrics_of"]

_BEAT: Final = 0.05
_EXPECTED_AT_THE_END: Final = frozenset({"draining"})


@attrs.frozen
class Figures:
    """A process with its children at one moment."""

    at: float
    memory_mib: float
    """Resident."""
    descriptors: int
    threads: int


def figures_of(pids: list[int]) -> Figures:
    """The sums over some processes; one that has just ended counts nothing."""
    memory = descriptors = threads = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{pid}/status").read_text()
            memory += _field(status, "VmRSS")
            threads += _field(status, "Threads")
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Figures(time.monotonic(), memory / 1024, descriptors, threads)


def _field(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


async def metrics_of(port: int) -> dict[str, float]:
    """What ``/metrics`` says: a value for each series."""
    lines = (await get(port, "/metrics")).decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


class Log:
    """The gateway's log, line by line as it grows."""

    def __init__(self, path: Path) -> None:
        self.requests: defaultdict[str, list[str]] = defaultdict(list)
        """For each request id the outcomes of its lines."""
        self.refusals: Counter[str] = Counter()
        """For each request id the calls that were refused."""
        self.lines: Counter[str] = Counter()
        """How many lines of each event."""
        self.unexpected: list[str] = []
        """Lines that no fault explains: tracebacks, warnings, what is no JSON."""
        self._path = path
        self._position = 0
        self._begun = ""

    def read(self) -> None:
        """Take what has been written since."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._begun = (self._begun + data.decode(errors="replace")).split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        try:
            entry: dict[str, Any] = json.loads(line)
            event = entry["event"]
        except (ValueError, LookupError, TypeError):
            event = ""
        if event == "request" and entry["level"] == "info":
            self.requests[entry["request_id"]].append(entry["outcome"])
        elif event == "tool call not dispatched":
            self.refusals[entry["request_id"]] += 1
        elif event not in _EXPECTED_AT_THE_END:
            self.unexpected.append(line)
            event = "unexpected"
        self.lines[event] += 1

    async def follow(self) -> None:
        """Read on until cancelled."""
        while True:
            self.read()
            await trio.sleep(_BEAT)


class Punctuality:
    """How late this process itself is: a gateway is not to blame for an upstream that was not given the processor."""

    def __init__(self) -> None:
        self._delays: list[tuple[float, float]] = []
        self.worst = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + _BEAT
            await trio.sleep_until(due)
            late = trio.current_time() - due
            self.worst = max(self.worst, late)
            if late > _BEAT:
                self._delays.append((due, late))

    def worst_since(self, start: float) -> float:
        """The longest delay since a time of Trio's clock."""
        return max((late for due, late in reversed(self._delays) if due >= start), default=0.0)
