"""A place in a text that arrives in pieces, and a way back from it.

Readers are written as if the whole text were there. They are generators that yield where they need more of it, so
where the text is cut makes no difference to what they read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Final, TypeAlias, TypeVar

__all__ = ["BLANK", "MAX_HELD", "Cursor", "Ended", "Impossible", "Steps", "finish"]

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Yields when it needs more text; returns what it read."""

MAX_HELD: Final = 1024 * 1024
"""How many characters may be held in one piece before they go out as text (spec, parsers, 1)."""

BLANK: Final = " \t\r\n"
"""The characters that count as blank (spec, parsers, 3.1)."""

_BLANKS: Final = re.compile(r"[ \t\r\n]*+")


class Impossible(Exception):  # noqa: N818 - it is a verdict
    """What is read cannot be what it was taken for."""


class Ended(Exception):  # noqa: N818 - it is a verdict
    """The text has ended."""


class Cursor:
    """A place in the text. What lies before it is let go, unless a mark asks for it to be kept.

    The cost is linear: what is kept is joined once, when the cursor goes back.
    """

    __slots__ = ("_kept", "_kept_length", "_mark", "at", "is_ended", "text")

    def __init__(self) -> None:
        self.text = ""
        """What is there of the text, from a little before the cursor on."""
        self.at = 0
        """The cursor: what is to be read next."""
        self.is_ended = False
        """Whether no more text will come."""
        self._mark: int | None = None
        self._kept: list[str] = []
        self._kept_length = 0

    def push(self, text: str) -> None:
        """Add text at the end. Indexes into ``text`` are void after that."""
        if self._mark is not None:
            self._kept.append(self.text[self._mark : self.at])
            self._kept_length += self.at - self._mark
            self._mark = 0
        self.text = self.text[self.at :] + text if self.at < len(self.text) else text
        self.at = 0

    def more(self) -> Steps[None]:
        """Wait for more text.

        Raises:
            Ended: none will come.
            Impossible: too much is kept for the mark.
        """
        if self.is_ended:
            raise Ended
        if self._kept_length > MAX_HELD:
            raise Impossible
        yield

    @property
    def is_marked(self) -> bool:
        """Whether there is a place to go back to."""
        return self._mark is not None

    def mark(self) -> None:
        """Remember this place. There is one mark at most."""
        self.unmark()
        self._mark = self.at

    def unmark(self) -> None:
        """Forget the mark."""
        self._mark = None
        self._kept.clear()
        self._kept_length = 0

    def go_back(self) -> None:
        """Return to the mark and forget it; nothing to do without one."""
        if self._mark is None:
            return
        if self._kept:
            self.text = "".join((*self._kept, self.text[self._mark :]))
            self.at = 0
        else:
            self.at = self._mark
        self.unmark()

    def take_rest(self) -> str:
        """All that is there behind the cursor."""
        rest = self.text[self.at :]
        self.at = len(self.text)
        return rest

    def peek(self) -> Steps[str]:
        """The next character, which stays."""
        while self.at >= len(self.text):
            yield from self.more()
        return self.text[self.at]

    def ahead(self, count: int) -> Steps[str]:
        """The next characters, which stay; fewer if the text ends before."""
        while len(self.text) - self.at < count and not self.is_ended:
            yield from self.more()
        return self.text[self.at : self.at + count]

    def skip_blanks(self) -> Steps[None]:
        """Step over blanks, up to a character that is none."""
        while True:
            match = _BLANKS.match(self.text, self.at)
            assert match is not None, "the pattern matches the empty text"
            self.at = match.end()
            if self.at < len(self.text):
                return
            yield from self.more()

    def visible(self) -> Steps[str]:
        """Step over blanks; the character behind them, which stays."""
        yield from self.skip_blanks()
        return self.text[self.at]

    def expect(self, *options: str) -> Steps[str]:
        """Step over one of several texts, none of which begins with another one; give the one that was there.

        Raises:
            Impossible: none of them is there, at the first character that rules out the last.
        """
        longest = max(map(len, options))
        while True:
            ahead = self.text[self.at : self.at + longest]
            for option in options:
                if ahead.startswith(option):
                    self.at += len(option)
                    return option
            if not any(option.startswith(ahead) for option in options):
                raise Impossible
            yield from self.more()

    def run(self, pattern: re.Pattern[str], is_fine: Callable[[str], bool] | None = None) -> Steps[str]:
        """Take the characters that match, up to one that does not.

        Args:
            pattern: a repetition of a class of characters, which may match nothing.
            is_fine: asked, whenever text has come, whether what was taken so far may go on.

        Raises:
            Impossible: ``is_fine`` says no.
        """
        parts: list[str] = []
        while True:
            match = pattern.match(self.text, self.at)
            assert match is not None, "the pattern matches the empty text"
            parts.append(match[0])
            self.at = match.end()
            if is_fine is not None and not is_fine("".join(parts)):
                raise Impossible
            if self.at < len(self.text):
                return "".join(parts)
            yield from self.more()


def finish(steps: Steps[object], cursor: Cursor) -> bool:
    """Run a reader over a text that has ended; whether it came to its own end.

    Args:
        steps: the reader, waiting for more.
        cursor: what it reads from.
    """
    cursor.is_ended = True
    try:
        for _ in steps:
            pass
    except (Ended, Impossible):
        return False
    return True
