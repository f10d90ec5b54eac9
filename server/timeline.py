"""When each tool call of a recorded stream opened, closed and was dispatched, counted in chunks."""

from __future__ import annotations

from typing import Any, Final

import attrs

from pipeline.chunks import delta_of, numbered_choices, usable_index
from pipeline.items import Chunk
from pipeline.observer import Observer

__all__ = ["Timeline", "count"]

_HEADINGS: Final = (
    "choice",
    "call",
    "name",
    "id",
    "opened",
    "closed",
    "dispatched",
    "finish",
    "ahead of the finish",
)
_NONE: Final = "-"


@attrs.define(eq=False)
class _Call:
    name: str = ""
    id: str = ""
    opened: int | None = None
    closed: int | None = None
    dispatched: int | None = None
    refusal: str = ""


class Timeline(Observer):
    """Told of each chunk before the stages are, and by the stages what they see in it.

    Chunks are numbered from 1. Whoever feeds the pipeline waits until all stages are done with a chunk, and only
    then sends the next one, so that the numbers are exact.
    """

    def __init__(self) -> None:
        self.chunks = 0
        """How many there were so far."""
        self._calls: dict[tuple[int | None, int | None], _Call] = {}
        self._finishes: dict[int | None, int] = {}

    def next_chunk(self, chunk: Chunk) -> None:
        """Count a chunk of the upstream, and note the names and ids that it brings."""
        self.chunks += 1
        for choice_index, choice in numbered_choices(chunk.payload):
            fragments = (delta_of(choice) or {}).get("tool_calls")
            for fragment in fragments if isinstance(fragments, list) else ():
                if isinstance(fragment, dict):
                    self._identify(choice_index, fragment)

    def _identify(self, choice_index: int | None, fragment: dict[str, Any]) -> None:
        call = self._call(choice_index, usable_index(fragment.get("index")))
        function = fragment.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        call.name = call.name or _text(name)
        call.id = call.id or _text(fragment.get("id"))

    def _call(self, choice_index: int | None, call_index: int | None) -> _Call:
        return self._calls.setdefault((choice_index, call_index), _Call())

    def call_opened(self, choice_index: int, call_index: int) -> None:
        """Note the chunk."""
        self._call(choice_index, call_index).opened = self.chunks

    def call_closed(self, choice_index: int, call_index: int) -> None:
        """Note the chunk."""
        self._call(choice_index, call_index).closed = self.chunks

    def call_dispatched(self, choice_index: int, call_index: int) -> None:
        """Note the chunk."""
        self._call(choice_index, call_index).dispatched = self.chunks

    def call_refused(self, choice_index: int | None, call_index: int | None, reason: str, repair: str | None) -> None:
        """Note the reason, and the repair that would cure it."""
        self._call(choice_index, call_index).refusal = f"{reason} (repair: {repair})" if repair else reason

    def choice_finished(self, choice_index: int, finish_reason: str) -> None:  # noqa: ARG002 - the observer's signature
        """Note the chunk."""
        self._finishes.setdefault(choice_index, self.chunks)

    def rows(self, tokens_per_second: float) -> list[tuple[str, ...]]:
        """The table, headings first; nothing where there was no call.

        Args:
            tokens_per_second: the pace at which chunks are turned into seconds, one token a chunk.
        """
        rows: list[tuple[str, ...]] = [_HEADINGS] if self._calls else []
        for (choice_index, call_index), call in self._calls.items():
            finish = self._finishes.get(choice_index)
            if call.dispatched is None:
                reason = "incomplete" if call.opened else "left out by a stage before"
                ahead = f"not dispatched: {call.refusal or reason}"
            elif finish is None:
                ahead = "the choice never finished"
            else:
                lead = finish - call.dispatched
                ahead = f"{count(lead, 'chunk')}, {lead / tokens_per_second:.2f} s"
            numbers = (call.opened, call.closed, call.dispatched, finish)
            rows.append(
                (
                    _number(choice_index),
                    _number(call_index),
                    call.name or _NONE,
                    call.id or _NONE,
                    *map(_number, numbers),
                    ahead,
                )
            )
        return rows


def count(number: int, noun: str) -> str:
    """``1 chunk``, ``2 chunks``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _number(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else ""
