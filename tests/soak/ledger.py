"""What both sides of the gateway know of a case while it runs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import attrs
import trio

if TYPE_CHECKING:
    from cases import Case

__all__ = ["Entry", "Ledger"]

_REMEMBERED: Final = 200


@attrs.define(eq=False)
class Entry:
    """One case."""

    case: Case
    attempts: int = 0
    """Requests that reached the upstream."""
    faults: list[str] = attrs.field(factory=list)
    """What was wrong with them."""
    _running: int = 0
    _is_quiet: trio.Event = attrs.field(factory=trio.Event)
    _is_begun: trio.Event = attrs.field(factory=trio.Event)

    def begin(self) -> None:
        """The upstream has a request."""
        self.attempts += 1
        if not self._running:
            self._is_quiet = trio.Event()
        self._running += 1
        self._is_begun.set()

    def end(self) -> None:
        """The upstream is done with it: the script has ended, or the gateway has left."""
        self._running -= 1
        if not self._running:
            self._is_quiet.set()

    async def begun(self) -> None:
        """Wait until the upstream has a request."""
        await self._is_begun.wait()

    async def quiet(self) -> None:
        """Wait until the upstream has none any more."""
        if self._running:
            await self._is_quiet.wait()


class Ledger:
    """The cases that run, by name, and some that have ended: a request may get under way although its client has left."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._ended: deque[str] = deque()

    def open(self, case: Case) -> Entry:
        """A case begins."""
        entry = self._entries[case.name] = Entry(case)
        return entry

    def find(self, name: str) -> Entry | None:
        """A case, by its name."""
        return self._entries.get(name)

    def close(self, case: Case) -> None:
        """A case has ended."""
        self._ended.append(case.name)
        if len(self._ended) > _REMEMBERED:
            self._entries.pop(self._ended.popleft(), None)
