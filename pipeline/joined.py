"""Neighbouring pure stages in one task: what comes out is what they would give in tasks of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.driver import last_words, outcome
from pipeline.errors import StageFailed, StreamFailure
from pipeline.stage import Stage
from pipeline.watching import WatchingStage

__all__ = ["JoinedStages", "joined"]


def joined(stages: Sequence[tuple[str, Stage]]) -> list[tuple[str, Stage]]:
    """The same stages with each run of pure ones, those that do not override ``Stage.run``, made into one."""
    found: list[tuple[str, Stage]] = []
    pure: list[tuple[str, Stage]] = []
    for name, stage in (*stages, (None, None)):
        if stage is not None and name is not None and _can_join(stage):
            pure.append((name, stage))
            continue
        if len(pure) > 1:
            found.append(("+".join(each for each, _ in pure), JoinedStages(pure)))
        else:
            found += pure
        pure = []
        if stage is not None and name is not None:
            found.append((name, stage))
    return found


def _can_join(stage: Stage) -> bool:
    """Whether it is pure. One that only looks on needs no task, and is shown what has been sent."""
    return type(stage).run is Stage.run and not isinstance(stage, WatchingStage)


class JoinedStages(Stage):
    """Several stages as one; each takes what the one before it made of a whole burst. One that sleeps is passed by.

    Emits: what the last of them gives.

    Drops: nothing of its own.

    State: that of its stages. One that raises, or is finished, ends the stages before it; those behind it see the
    end of their source.

    On cancel: as its stages.
    """

    def __init__(self, stages: Sequence[tuple[str, Stage]]) -> None:
        super().__init__(None, stages[0][1].context)
        self._stages = stages
        self._asleep = {position for position, (_, stage) in enumerate(stages) if stage.can_sleep}
        self._ahead: tuple[list[Any], list[Any], bool] | None = None
        self.gives = stages[-1][1].gives  # type: ignore[misc]  # a class's elsewhere; this one is made per request

    @property
    def can_sleep(self) -> bool:
        """Whether all of them do."""
        return len(self._asleep) == len(self._stages)

    def first_to_wake(self, burst: list[Any]) -> int | None:
        """Sleep as long as all of them do."""
        given = self._run(burst, first_closed=len(self._stages))
        if self.can_sleep:
            return None
        self._ahead = burst, given, self.finished
        self.finished = False  # not before this burst has been given
        return 0

    def feed(self, item: Any) -> list[Any]:
        """Give what becomes of one item."""
        return self._run([item], first_closed=len(self._stages))

    def close(self) -> list[Any]:
        """Close the stages one after the other, each fed with what the closing of those before it gave."""
        return self._run([], first_closed=0)

    def feed_burst(self, burst: list[Any], out: list[Any]) -> None:
        """Append what becomes of a burst, stage by stage; the one that woke them was run before."""
        if self._ahead is not None and self._ahead[0] is burst:
            _, given, self.finished = self._ahead
            self._ahead = None
        else:
            given = self._run(burst, first_closed=len(self._stages))
        out += given

    def _run(self, items: list[Any], first_closed: int) -> list[Any]:
        for position, (name, stage) in enumerate(self._stages):
            passed: list[Any] = []
            if position in self._asleep:
                try:
                    first = stage.first_to_wake(items)
                except Exception:  # noqa: BLE001 - it is fed, and may raise where that is told of
                    first = 0
                if first is None:
                    continue
                self._asleep.remove(position)
                if first:
                    passed, items = items[:first], items[first:]
            items, error = outcome(stage, items)
            if error is None and position >= first_closed and not stage.finished:
                last, error = outcome(stage, None)
                items += last
            if error is not None:
                failure = error if isinstance(error, StreamFailure) else StageFailed(name, error)
                stage.context.observer.stage_failed(name, error)
                items.append(last_words(failure, stage.gives))
            if passed:
                items = [*passed, *items]
            if error is not None or stage.finished:
                self.finished = True
                first_closed = min(first_closed, position + 1)
        return items
