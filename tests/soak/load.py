"""Runs cases against a gateway, many at a time, and judges each."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import attrs
import trio
from cases import Case
from checks import Log, Punctuality
from faults import case_named
from gateway import WRITE_TIMEOUT
from ledger import Entry, Ledger
from verdicts import Expectation, Seen

__all__ = ["Load", "Result"]

_CASE_TIMEOUT: Final = 40
_LET_GO_TIMEOUT: Final = 2
_LATE: Final = 0.4


@attrs.define(eq=False)
class Result:
    """A case that has run. What it sent and received is forgotten."""

    name: str
    requests: int
    logs: range
    refusals: range
    is_anonymous: bool
    """These are the case's."""
    seconds: float
    label: str
    """What came out, for the table."""
    outcomes: frozenset[str]
    """What its log lines may say."""
    problems: list[str]
    is_excused: bool = False
    """It was too slow, and so was this process."""

    @property
    def fault(self) -> str:
        """The case's kind."""
        return self.name.partition(".")[0]


@attrs.define(eq=False)
class Load:
    """What runs, and what has run.

    Args:
        port: the gateway's.
        client: the gateway's ``upstream.client``.
        ledger: shared with the upstream.
        punctuality: of the processes.
    """

    port: int
    client: str
    ledger: Ledger
    punctuality: Punctuality
    results: list[Result] = attrs.field(factory=list)

    async def run_many(self, names: Iterable[str], *, streams: int, rate: float, seconds: float) -> None:
        """Start cases until the time is over, so many at a time and so many a second; wait until all have ended."""
        places = trio.Semaphore(streams)
        over = trio.current_time() + seconds
        due = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def run(name: str) -> None:
                await self.run_one(name)
                places.release()

            for name in itertools.takewhile(lambda _: trio.current_time() < over, names):
                await places.acquire()
                due = max(due + 1 / rate, trio.current_time() - 1)
                await trio.sleep_until(due)
                nursery.start_soon(run, name)

    async def run_one(self, name: str, then: Callable[[Entry], Awaitable[None]] | None = None) -> Result:
        """Run one case.

        Args:
            name: the case's.
            then: runs beside the client.
        """
        case = case_named(name, self.client)
        entry = self.ledger.open(case)
        started = trio.current_time()
        answers: list[Seen] = []
        problems: list[str] = []
        with trio.move_on_after(_CASE_TIMEOUT) as scope:
            try:
                async with trio.open_nursery() as nursery:
                    if then is not None:
                        nursery.start_soon(then, entry)
                    answers = await case.client.run(self.port, entry)
            except* Exception as group:  # noqa: BLE001 - whatever it is, it is this case's
                problems += [f"the client failed: {error!r}" for error in group.exceptions]
        if scope.cancelled_caught:
            problems.append(f"no end within {_CASE_TIMEOUT} s")
        seconds = trio.current_time() - started
        with trio.move_on_after(_LET_GO_TIMEOUT) as scope:
            await entry.quiet()
        if scope.cancelled_caught:
            problems.append(f"{_LET_GO_TIMEOUT} s after the client the upstream has not been let go of")
        label, outcomes, misfits = _judge(case, answers)
        problems += [*misfits, *_misfits_of(entry)]
        result = Result(
            name,
            case.requests,
            case.logs,
            case.refusals,
            case.is_anonymous,
            seconds,
            "WRONG" if problems else label,
            outcomes,
            problems,
            is_excused=bool(problems) and self._is_excused(case, answers, started),
        )
        self.results.append(result)
        self.ledger.close(case)
        return result

    def _is_excused(self, case: Case, answers: list[Seen], started: float) -> bool:
        """Whether a limit on time was reached, and the machine may be to blame."""
        may_be_cut = case.requests > 1 or trio.current_time() - started > WRITE_TIMEOUT  # idle for long, or slow
        has_run_out = not answers or any(
            (seen.code or "").endswith("timeout") or seen.status in (408, 504) or (may_be_cut and seen.end != "whole")
            for seen in answers
        )
        return has_run_out and self.punctuality.worst_since(started) > _LATE

    def log_problems(self, log: Log) -> list[str]:
        """What is wrong with the log lines of all that has run."""
        names = {result.name for result in self.results}
        strangers = [each for each in log.requests if each not in names]
        anonymous = sum(result.is_anonymous for result in self.results)
        problems = [f"a log line of a request that nobody has sent: {each}" for each in strangers[anonymous:]]
        for result in self.results:
            if not result.problems:
                problems += [f"{result.name}: {problem}" for problem in _log_problems(result, log)]
        return problems


def _log_problems(result: Result, log: Log) -> Iterator[str]:
    lines = log.requests.get(result.name, [])
    least, most = result.logs.start * result.requests, (result.logs.stop - 1) * result.requests
    if not least <= len(lines) <= most:
        yield f"{len(lines)} log lines, not {least} to {most}: {lines}"
    if wrong := set(lines) - result.outcomes:
        yield f"the log says {wrong}, not {set(result.outcomes)}; seen: {result.label}"
    if log.refusals[result.name] not in result.refusals:
        yield f"{log.refusals[result.name]} calls were refused, not {result.refusals}"


def _judge(case: Case, answers: list[Seen]) -> tuple[str, frozenset[str], list[str]]:
    """What the answers are called, what the log may say of them, and what is wrong with them."""
    labels: list[str] = []
    outcomes: set[str] = set()
    problems: list[str] = []
    for seen in answers:
        fitting, misfits = _fit(case.expected, seen)
        if fitting is None:
            problems.append(" | ".join(misfits))
        else:
            labels.append(fitting.label)
            outcomes |= fitting.outcomes
    if len(answers) != case.requests and not problems:
        problems.append(f"{len(answers)} answers to {case.requests} requests")
    return " + ".join(dict.fromkeys(labels)), frozenset(outcomes), problems


def _fit(expected: Iterable[Expectation], seen: Seen) -> tuple[Expectation | None, list[str]]:
    misfits: list[str] = []
    for each in expected:
        misfit = each.misfit(seen)
        if misfit is None:
            return each, []
        misfits.append(misfit)
    return None, misfits


def _misfits_of(entry: Entry) -> list[str]:
    """What the upstream has seen of a case that it should not have."""
    case = entry.case
    least, most = case.attempts.start * case.requests, (case.attempts.stop - 1) * case.requests
    if least <= entry.attempts <= most:
        return entry.faults
    return [f"the upstream was asked {entry.attempts} times, not {least} to {most} times", *entry.faults]
