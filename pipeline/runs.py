"""Neighbouring chunks of one shape, which a stage may take at once (``Stage.feed_run``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from pipeline.items import Chunk, Shape

__all__ = ["Run", "runs_in"]


@attrs.define(eq=False)
class Run:
    """Neighbouring chunks of a burst that differ in their text alone; one at least. Shared between stages."""

    shape: Shape
    """What they have in common."""
    chunks: Sequence[Chunk]
    _texts: list[str] | None = attrs.field(default=None, init=False)
    _text: str | None = attrs.field(default=None, init=False)

    @property
    def texts(self) -> Sequence[str]:
        """The text of each."""
        if self._texts is None:
            self._texts = [chunk.text for chunk in self.chunks]
        return self._texts

    @property
    def text(self) -> str:
        """All their text, joined."""
        if self._text is None:
            self._text = "".join(self.texts)
        return self._text


_Parts: TypeAlias = Sequence[Any]

_latest: tuple[list[Any], _Parts] = ([], [])
"""Most stages pass a burst on as it came, so that the next one asks about the same items."""


def runs_in(burst: list[Any]) -> _Parts:
    """A burst as ``Run``s, and the items without a shape between them."""
    global _latest  # noqa: PLW0603 - one tuple, set at once: whoever reads it finds what belongs together
    if len(burst) == 1:
        (item,) = burst
        return burst if type(item) is not Chunk or item.shape is None else [Run(item.shape, burst)]
    known, parts = _latest
    if burst != known:  # items are equal only to themselves
        parts = _found_in(burst)
        _latest = burst.copy(), parts
    return parts


def _found_in(burst: list[Any]) -> _Parts:
    parts: list[Any] = []
    at, end = 0, len(burst)
    while at < end:
        item = burst[at]
        begin = at
        at += 1
        shape = item.shape if type(item) is Chunk else None
        if shape is None:
            parts.append(item)
            continue
        for at in range(at, end):  # noqa: B020 - half the cost of counting by hand
            other = burst[at]
            if type(other) is not Chunk or other.shape is not shape:
                break
        else:
            at = end
        parts.append(Run(shape, burst[begin:at]))
    return parts
