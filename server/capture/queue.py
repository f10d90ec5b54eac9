"""A queue that refuses what it has no room for, instead of making anybody wait."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import trio

__all__ = ["BoundedQueue"]

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """Bounded by items and by bytes; any number of producers, one consumer.

    An empty queue takes one item of any size, so that a tight limit never shuts out a large record for good.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._changed = trio.Event()
        self._pause: trio.Event | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._items)

    def offer(self, item: T, size: int) -> bool:
        """Put an item in, or say that there is no room. Never waits.

        A consumer that gives the queue time to fill is no reason to refuse: it is told, and takes what is too much.

        Args:
            item: what to hold.
            size: its bytes.
        """
        full = len(self._items) >= self._max_items or self._bytes + size > self._max_bytes
        if self.closed or (full and self._items and self._pause is None):
            return False
        self._items.append((item, size))
        self._bytes += size
        self._changed.set()
        if full or self._is_filled:
            self._end_pause()
        return True

    def close(self) -> None:
        """Refuse everything from now on; what is in can still be taken. Idempotent."""
        self.closed = True
        self._changed.set()
        self._end_pause()

    @property
    def _is_filled(self) -> bool:
        return 2 * len(self._items) >= self._max_items or 2 * self._bytes >= self._max_bytes

    async def fill(self, seconds: float) -> None:
        """Give it time to fill: wait so long, but no longer than until half of its room is taken or it is closed.

        Checkpoints.
        """
        await trio.lowlevel.checkpoint()
        if self.closed or self._is_filled:
            return
        pause = self._pause = trio.Event()
        try:
            with trio.move_on_after(seconds):
                await pause.wait()
        finally:
            self._pause = None

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.set()
            self._pause = None

    async def take(self, max_items: int, max_bytes: int) -> list[T]:
        """The next items in order, as many as there are within the limits; one at least.

        Waits for an item; gives none once the queue is closed and empty. Checkpoints; a cancellation takes nothing out.
        """
        await trio.lowlevel.checkpoint()
        while not self._items:
            if self.closed:
                return []
            self._changed = trio.Event()
            await self._changed.wait()
        taken: list[T] = []
        size = 0
        while self._items and (not taken or (len(taken) < max_items and size + self._items[0][1] <= max_bytes)):
            item, item_size = self._items.popleft()
            taken.append(item)
            size += item_size
        self._bytes -= size
        return taken

    def clear(self) -> int:
        """Throw away what is in.

        Returns:
            How many items it was.
        """
        count = len(self._items)
        self._items.clear()
        self._bytes = 0
        return count
