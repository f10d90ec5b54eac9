"""Ways of cutting the same input into pieces."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["cut_everywhere", "random_cuts"]

DataT = TypeVar("DataT", bytes, str, list[Any])


def cut_everywhere(data: DataT) -> Iterator[list[DataT]]:
    """The whole, byte by byte, and every cut in two.

    Args:
        data: bytes, text, or a list of items.

    Example::

        assert list(cut_everywhere(b"ab")) == [[b"ab"], [b"a", b"b"], [b"a", b"b"]]
    """
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def random_cuts(data: DataT, seed: int, n: int) -> Iterator[list[DataT]]:
    """Cuts in any number of pieces, the same for the same seed.

    Args:
        data: bytes, text, or a list of items.
        seed: what the choice of cuts depends on.
        n: how many cuts.

    Example::

        for pieces in random_cuts(body, seed=1, n=50):
            assert b"".join(run_stage(make_stage(SseEncoder), decode(pieces))) == body
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    for _ in range(n):
        places: list[int] = []
        if data:
            places = sorted(chance.sample(range(1, len(data)), chance.randint(0, len(data) - 1)))
        yield [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
