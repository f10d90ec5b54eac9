"""Large bursts go through their stages a few at a time, whatever the number of streams.

A parsed burst is many times its bytes. With many busy streams all of them would lie between two stages at once:
each stage would find its burst gone from the processor's caches, and the garbage collector would look through all of it
again and again. One after the other the same work takes two thirds of the time (docs, performance).

Whoever holds a place gives it back after a few turns of the scheduler, come what may, so that nobody waits for another
request's stage that waits, nor for its client.
"""

from __future__ import annotations

from typing import Final

import trio

__all__ = ["LARGE_BURST_BYTES", "new_burst_gate"]

LARGE_BURST_BYTES: Final = 8 * 1024
"""What is read at once of a stream that is behind. Less goes through without asking: waiting would cost more."""
_PLACES: Final = 2


def new_burst_gate() -> trio.Semaphore:
    """The gate of one process."""
    return trio.Semaphore(_PLACES, max_value=_PLACES)
