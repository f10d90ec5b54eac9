"""What may stand behind the start markers of a format."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from stages.formats.cursor import Steps
from stages.formats.markers import Markers, markers_of

if TYPE_CHECKING:
    from stages.formats.call_reader import CallReader

__all__ = ["Body", "CallMarkup"]


class Body(abc.ABC):
    """What stands behind a start marker, or bare: one call or several."""

    starts: tuple[str, ...] = ()
    """The markers that it stands behind; none for a body that is only bare."""
    inner_starts: tuple[str, ...] = ()
    """Markers that it stands behind as well, once a call has begun and until the end of its block."""
    markers: tuple[str, ...] = ()
    """Its other markers. Outside of strings none can be part of a call's arguments."""

    @abc.abstractmethod
    def read(self, reader: CallReader, start: str) -> Steps[None]:
        """Read what stands behind a start marker, up to what belongs to no call.

        Args:
            reader: whose cursor stands behind the marker, and which is told of calls.
            start: the marker, or the empty text.

        Raises:
            Impossible: it is no call; or a call is broken off, and what stands at the mark, or at the cursor if
                there is no mark, is text.
            Ended: the text has ended before the body did.
        """


@attrs.frozen(eq=False)
class CallMarkup:
    """How one format marks its calls."""

    bodies: tuple[Body, ...]
    """What may stand behind a start marker."""
    ends: tuple[str, ...] = ()
    """The end markers that each call owes once (3.6)."""
    block_end: str = ""
    """The one of them behind which inner start markers count no more."""

    @functools.cached_property
    def starts(self) -> Mapping[str, Body]:
        """The body behind each start marker."""
        return {start: body for body in self.bodies for start in body.starts}

    @functools.cached_property
    def inner_starts(self) -> Mapping[str, Body]:
        """The body behind each start marker that counts within a block."""
        return {start: body for body in self.bodies for start in body.inner_starts}

    @functools.cached_property
    def stops(self) -> Markers:
        """All markers: outside of strings none can be part of a call's arguments."""
        others = (marker for body in self.bodies for marker in body.markers)
        return markers_of(tuple(dict.fromkeys((*self.starts, *self.inner_starts, *others, *self.ends))))
