"""What reads one text of one choice."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Reader"]


class Reader(Protocol):
    """Reads one text of one choice, piece by piece."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is held, and all that follows goes out as it is."""
        ...

    def passes(self, text: str) -> bool:
        """Whether a piece goes out as it is; it counts as read then. Quick to say no."""

    def feed(self, text: str) -> None:
        """Read a piece, which is not empty."""

    def finish(self, reason: str | None) -> None:
        """Read what is held as the end of the text; nothing is fed after that.

        Args:
            reason: the choice's finish reason; none if it was broken off.
        """
