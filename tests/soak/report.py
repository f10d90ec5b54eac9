"""What a soak comes to: a table, and the verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import attrs
from checks import Figures, Log
from load import Result

__all__ = ["Report"]


@attrs.define(eq=False)
class Report:
    """Everything that a run has found."""

    results: list[Result]
    log: Log
    samples: list[Figures] = attrs.field(factory=list)
    """Once a second, from the end of the warm-up."""
    start: Figures | None = None
    """At rest, before the load."""
    end: Figures | None = None
    """At rest, behind it."""
    problems: list[str] = attrs.field(factory=list)
    """Of the run as a whole."""

    @property
    def violations(self) -> list[str]:
        """Everything that is wrong, one text each."""
        wrong = [
            f"{result.name}: {problem}"
            for result in self.results
            if not result.is_excused
            for problem in result.problems
        ]
        unexpected = [f"unexpected log line: {line}" for line in self.log.unexpected]
        return [*wrong, *unexpected, *self.problems]

    def lines(self) -> Iterator[str]:
        """The table and what is wrong."""
        yield from self._streams()
        yield ""
        yield from self._figures()
        counted = ", ".join(f"{event or 'not JSON'} {number}" for event, number in sorted(self.log.lines.items()))
        yield f"log lines     {counted or 'none'}; unexpected {len(self.log.unexpected)}"
        excused = sum(result.is_excused for result in self.results)
        yield f"excused       {excused} (a limit on time was reached while the machine was busy with something else)"
        violations = self.violations
        yield f"violations    {len(violations)}"
        yield from (f"  {violation}" for violation in violations[:50])

    def _streams(self) -> Iterator[str]:
        by_fault: defaultdict[str, list[Result]] = defaultdict(list)
        for result in self.results:
            by_fault[result.fault].append(result)
        yield f"{'fault':24}{'cases':>7}{'slowest':>10}  outcomes"
        for fault, results in sorted(by_fault.items()):
            labels = Counter(result.label for result in results)
            outcomes = ", ".join(f"{label} {number}" for label, number in labels.most_common())
            yield f"{fault:24}{len(results):7}{max(result.seconds for result in results):8.2f} s  {outcomes}"
        yield f"{'all':24}{len(self.results):7}"

    def _figures(self) -> Iterator[str]:
        if self.start is None or self.end is None or not self.samples:
            return
        middle = self.samples[len(self.samples) // 2]
        rows: Sequence[tuple[str, str, str]] = (
            ("memory MiB", "memory_mib", ".1f"),
            ("descriptors", "descriptors", "d"),
            ("threads", "threads", "d"),
        )
        yield f"{'':14}{'start':>10}{'warm':>10}{'middle':>10}{'end':>10}{'peak':>10}"
        for title, name, form in rows:
            values = [getattr(each, name) for each in (self.start, self.samples[0], middle, self.end)]
            peak = max(getattr(each, name) for each in self.samples)
            yield f"{title:14}" + "".join(f"{value:>10{form}}" for value in (*values, peak))
