"""Columns for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, in which the columns stand below each other. A short row lacks its last cells."""
    widths: list[int] = []
    for row in rows:
        widths += [0] * (len(row) - len(widths))
        widths[: len(row)] = map(max, widths, map(len, row))
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
