"""Throws every fault of the catalogue at a running gateway for a given time, and checks throughout.

    python tests/soak/run.py --seconds 600 --seed 1 [--workers 1] [--upstream-client http|httpx2]

A run with one seed throws the same cases in the same order. ``--only FAULT`` (repeatable) throws no others, ``--without
FAULT`` (repeatable) leaves some out; ``--case NAME`` (repeatable) runs single cases, by the name that a violation is
reported with. The exit code is 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import signal
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio
from checks import Figures, Log, Punctuality, figures_of, metrics_of
from faults import CATALOGUE, name_of
from gateway import DRAIN_TIMEOUT, Gateway, running_gateway
from ledger import Entry, Ledger
from load import Load
from report import Report
from upstream import Upstream

_SETTLE_TIMEOUT: Final = 20
_DRAINED: Final = 6
_IN_FLIGHT: Final = "callahead_requests_in_flight"
_MAX_GROWTH_MIB: Final = 32
"""What a process may grow by behind its warm-up."""


@attrs.frozen
class _Options:
    seconds: float
    seed: int
    workers: int
    client: str
    streams: int
    rate: float
    faults: tuple[str, ...]
    cases: tuple[str, ...]

    @property
    def warm_up(self) -> float:
        """Seconds of load before memory is looked at: Python's collector lets it grow to a level first."""
        return min(120, self.seconds / 2)


async def soak(options: _Options, folder: Path) -> Report:
    """One run. Checkpoints."""
    ledger = Ledger()
    upstream = Upstream(ledger)
    log = Log(folder / "gateway.log")
    async with trio.open_nursery() as nursery:
        await nursery.start(upstream.serve)
        async with running_gateway(folder, upstream.port, options.client, options.workers) as gateway:
            punctuality = Punctuality(gateway.pids)
            nursery.start_soon(log.follow)
            nursery.start_soon(punctuality.watch)
            load = Load(gateway.port, options.client, ledger, punctuality)
            report = Report(load.results, log)
            async with trio.open_nursery() as running:
                running.start_soon(_die_with, gateway, running.cancel_scope, report)
                try:
                    await _Run(options, gateway, load, report).run()
                except* (OSError, trio.TooSlowError) as group:
                    report.problems.append(f"the gateway does not answer: {group.exceptions}")
                running.cancel_scope.cancel()
            log.read()
            report.problems += upstream.strangers
            report.problems += load.log_problems(log)
        nursery.cancel_scope.cancel()
    return report


async def _die_with(gateway: Gateway, scope: trio.CancelScope, report: Report) -> None:
    """End the run where the gateway ends before it is told to."""
    exit_code = await gateway.process.wait()
    if not gateway.is_stopping:
        report.problems.append(f"the gateway died; its exit code is {exit_code}")
        scope.cancel()


@attrs.define(eq=False)
class _Run:
    """The phases of a run."""

    options: _Options
    gateway: Gateway
    load: Load
    report: Report
    _rest: int = 0

    async def run(self) -> None:
        """Rest, load, rest, drain."""
        await self._settle(math.inf)
        self.report.start = await self._figures()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sample)
            await self._throw()
            nursery.cancel_scope.cancel()
        await self._settle(self.report.start.descriptors)
        self.report.end = await self._figures()
        await self._check_figures()
        await self._drain()

    async def _throw(self) -> None:
        options = self.options
        if options.cases:
            for name in options.cases:
                await self.load.run_one(name)
            return
        names = (name_of(options.seed, number, options.faults) for number in itertools.count())
        await self.load.run_many(names, streams=options.streams, rate=options.rate, seconds=options.seconds)

    async def _settle(self, descriptors: float) -> None:
        """Wait until nothing is left of the load. The gateway lets go of idle connections when it is next used."""
        with trio.move_on_after(_SETTLE_TIMEOUT):
            while True:
                for _ in range(2 * self.options.workers):
                    self._rest += 1
                    await self.load.run_one(f"rest.{self.options.seed}.{self._rest}")
                await trio.sleep(0.5)
                if (await self._figures()).descriptors <= descriptors:
                    return

    async def _figures(self) -> Figures:
        await trio.lowlevel.checkpoint()
        return figures_of(self.gateway.pids())

    async def _sample(self) -> None:
        await trio.sleep(self.options.warm_up)
        while True:
            self.report.samples.append(await self._figures())
            await trio.sleep(1)

    async def _check_figures(self) -> None:
        report, problems = self.report, self.report.problems
        start, end = report.start, report.end
        assert start is not None
        assert end is not None
        if end.descriptors > start.descriptors:
            problems.append(f"{end.descriptors} descriptors are open, {start.descriptors} were at the start")
        if report.samples and end.memory_mib - report.samples[0].memory_mib > _MAX_GROWTH_MIB * self.options.workers:
            problems.append(f"memory grew from {report.samples[0].memory_mib:.1f} to {end.memory_mib:.1f} MiB")
        metrics = await metrics_of(self.gateway.port)
        for _ in range(_SETTLE_TIMEOUT):
            if metrics.get(_IN_FLIGHT) == 0:
                break
            await trio.sleep(1)
            metrics = await metrics_of(self.gateway.port)
        else:
            problems.append(f"{_IN_FLIGHT} is {metrics.get(_IN_FLIGHT)} at rest")
        problems += self._differences(metrics)

    def _differences(self, metrics: dict[str, float]) -> list[str]:
        """Where the metrics and the log do not say the same."""
        self.report.log.read()
        logged = Counter(outcome for lines in self.report.log.requests.values() for outcome in lines)
        counted: Counter[str] = Counter()
        for name, value in metrics.items():
            if name.startswith("callahead_requests_total{"):
                counted[name.partition('outcome="')[2].partition('"')[0]] += int(value)
        problems = [
            f"{counted[outcome]} requests are counted as {outcome}, {logged[outcome]} are in the log"
            for outcome in counted | logged
            if counted[outcome] != logged[outcome]
        ]
        left = metrics.get("callahead_client_disconnects_total", 0)
        if left != logged["client_left"]:
            problems.append(f"{left} clients are counted to have left, {logged['client_left']} are in the log")
        return problems

    async def _drain(self) -> None:
        """Stop the gateway while streams are open: they go on to their end, and then it ends."""
        begun = trio.Semaphore(0)
        exit_code: int | None = None

        async def note(entry: Entry) -> None:
            await entry.begun()
            begun.release()

        async with trio.open_nursery() as nursery:
            for number in range(_DRAINED):
                name = f"slow_tokens.{self.options.seed}.drain{number}"
                nursery.start_soon(partial(self.load.run_one, name, then=note))
            for _ in range(_DRAINED):
                await begun.acquire()
            exit_code = await self.gateway.drain(DRAIN_TIMEOUT + 10)
        if exit_code != 0:
            self.report.problems.append(f"the exit code behind SIGTERM is {exit_code}")


def _options(argv: list[str]) -> _Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--upstream-client", choices=["http", "httpx2"], default="http")
    parser.add_argument("--streams", type=int, default=32, help="cases at a time")
    parser.add_argument("--rate", type=float, default=20, help="cases that begin in a second")
    parser.add_argument("--only", action="append", choices=list(CATALOGUE), metavar="FAULT")
    parser.add_argument("--without", action="append", choices=list(CATALOGUE), metavar="FAULT", default=[])
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    args = parser.parse_args(argv)
    return _Options(
        seconds=args.seconds,
        seed=args.seed,
        workers=args.workers,
        client=args.upstream_client,
        streams=args.streams,
        rate=args.rate,
        faults=tuple(fault for fault in args.only or CATALOGUE if fault not in ["rest", *args.without]),
        cases=tuple(dict.fromkeys(args.case)),
    )


def main() -> None:
    """Run, print the table, say by the exit code whether all was right."""
    options = _options(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the gateway is not left behind
    with tempfile.TemporaryDirectory(prefix="callahead-soak-") as folder:
        report = trio.run(soak, options, Path(folder))
        sys.stdout.write("\n".join(report.lines()) + "\n")
        if report.violations and (keep := os.environ.get("CALLAHEAD_SOAK_LOG")):
            Path(keep).write_bytes((Path(folder) / "gateway.log").read_bytes())
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
