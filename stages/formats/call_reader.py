"""Finds the tool calls in one text of one choice (spec, parsers, 1 and 3).

Text goes out at once, but for a tail that may be the beginning of a marker. From a start marker on all is held until
the call is certain, or impossible: then the marker was text, and what stands behind it is read again.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from stages.formats.cursor import BLANK, MAX_HELD, Cursor, Ended, Impossible, Steps, finish
from stages.formats.markers import Markers, markers_of
from stages.formats.output import Call, Output
from stages.formats.tools import Tools

__all__ = ["MAX_NAME", "Body", "CallMarkup", "CallReader"]

MAX_NAME: Final = 256
"""The longest name of a function."""

_NAME: Final = re.compile(r"[^\s\"'`()\[\]{}<>,;=]*+")
_NO_MARKER: Final = ""
"""Stands for the start marker of a bare body."""


class Body(abc.ABC):
    """What stands behind a start marker, or bare: one call or several."""

    starts: tuple[str, ...] = ()
    """The markers that it stands behind; none for a body that is only bare."""
    inner_starts: tuple[str, ...] = ()
    """Markers that it stands behind as well, until the end of the block in which a call has begun."""
    markers: tuple[str, ...] = ()
    """Its other markers. Outside of strings none can be part of a call's arguments."""

    @abc.abstractmethod
    def read(self, reader: CallReader, start: str) -> Steps[None]:
        """Read what stands behind a start marker, up to what belongs to no call.

        Args:
            reader: whose cursor stands behind the marker, and which is told of calls.
            start: the marker, or the empty text.

        Raises:
            Impossible: it is no call; or it is broken off, and what stands at the mark, or at the cursor if there
                is none, is text.
            Ended: the text has ended before the body did.
        """


@attrs.frozen(eq=False)
class CallMarkup:
    """How one format marks its calls."""

    bodies: tuple[Body, ...]
    """What may stand behind a start marker."""
    ends: tuple[str, ...] = ()
    """The end markers that each call owes once (3.6)."""
    block_end: str | None = None
    """The one after which inner start markers do not count any more."""
    bare: Mapping[str, Body] = attrs.field(factory=dict)
    bare_at_lines: bool = False


class CallReader:
    """Reads one text, tells calls from the rest, and gives both to an output.

    Args:
        markup: the format's.
        tools: the request's.
        output: takes text and calls.
        key: the key of the delta that the text belongs to.
        is_thought: whether the text is reasoning. There only calls of declared tools count, and none stands bare (7.7).
    """

    def __init__(self, markup: CallMarkup, tools: Tools, output: Output, key: str, *, is_thought: bool = False) -> None:
        self.cursor = Cursor()
        self.tools = tools
        self.reason: str | None = None
