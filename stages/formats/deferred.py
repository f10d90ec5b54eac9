"""A reader that is made when there is something to read."""

from __future__ import annotations

from collections.abc import Callable

from stages.formats.reader import Reader

__all__ = ["DeferredReader"]


class DeferredReader:
    """Stands for a reader of text that most answers do not have, such as thoughts.

    Args:
        make: makes it.
    """

    is_done = False
    """Text may come at any time."""

    def __init__(self, make: Callable[[], Reader]) -> None:
        self._make = make
        self._reader: Reader | None = None

    def passes(self, text: str) -> bool:
        """See ``Reader``."""
        return self._made().passes(text)

    def feed(self, text: str) -> None:
        """See ``Reader``."""
        self._made().feed(text)

    def finish(self, reason: str | None) -> None:
        """See ``Reader``."""
        if self._reader is not None:
            self._reader.finish(reason)

    def _made(self) -> Reader:
        if self._reader is None:
            self._reader = self._make()
        return self._reader
