"""What is watched beside the streams: the process, its metrics, its log, and the test bed's own punctuality."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from clients import get

__all__ = ["Figures", "Log", "Punctuality", "figures_of", "metrics_of"]

_BEAT: Final = 0.05
_REMEMBERED: Final = 2000
_EXPECTED: Final = frozenset({"draining"})


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
        elif event not in _EXPECTED:
            self.unexpected.append(line)
            event = "unexpected"
        self.lines[event] += 1

    async def follow(self) -> None:
        """Read on until cancelled."""
        while True:
            self.read()
            await trio.sleep(_BEAT)


class Punctuality:
    """How late the processes are, this one and the gateway's.

    Nobody is to blame for a limit on time that is reached while the machine does something else.

    Args:
        pids: gives the gateway's processes.
    """

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._beats: deque[tuple[float, float, float]] = deque(maxlen=_REMEMBERED)
        """Trio's time, how late this process was, how long all have waited for a processor since they began."""

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + _BEAT
            await trio.sleep_until(due)
            now = trio.current_time()
            self._beats.append((now, now - due, sum(map(_waited, [*self._pids(), os.getpid()]))))

    def worst_since(self, start: float) -> float:
        """The longest delay since a time of Trio's clock, seconds; waits within a second count together."""
        beats = [beat for beat in self._beats if beat[0] >= start - 1]
        late = max((late for _, late, _ in beats), default=0.0)
        waits = (
            after - before for (_, _, before), (_, _, after) in zip(beats, beats[round(1 / _BEAT) :], strict=False)
        )
        return max(late, *waits, 0.0)


def _waited(pid: int) -> float:
    """Seconds for which a process could have run but was not let to (https://docs.kernel.org/scheduler/sched-stats.html)."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0
