"""What flows on the channels between stages.

The unit on a channel is a *burst*: a non-empty list of the items that could be had without waiting. Items are frozen
and shared by reference; a stage that changes one puts a new one in its place.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from pipeline.errors import StreamFailure
from pipeline.sse import Frame, other_lines

__all__ = ["Chunk", "End", "Evidence", "Item", "Payload", "SideEvent", "StreamError", "Verbatim"]

Payload: TypeAlias = dict[str, Any]
"""A parsed JSON object. Treated as immutable: an edit copies the path down to what it changes."""


@attrs.frozen(slots=True)
class Evidence:
    """Whether what a stage took for a tool call turned out to be one (spec, dispatch, 5.6). Never on the wire."""

    choice_index: int
    call_index: int
    complete: bool
    """False: it has begun; true: it is whole. The last word on a call counts."""


@attrs.frozen(eq=False, slots=True)
class Chunk:
    """One chat-completions chunk."""

    payload: Payload
    """The parsed JSON object. Keys may be missing, null, unknown or of any type."""
    raw: bytes | None
    """The very bytes of the upstream's frame, or none once a stage has changed the payload."""

    evidence: tuple[Evidence, ...] = ()
    """What a stage knows of the calls in it."""
    fields: bytes = b""
    """Of an edited chunk: the lines of its frame beside the data, an ``id`` or a comment, each ended by LF."""

    def edited(self, payload: Payload) -> Chunk:
        """The chunk with another payload, to be encoded anew; the frame's other lines stay."""
        fields = self.fields
        if self.raw is not None and not self.raw.startswith(b"data: {"):
            fields = other_lines(self.raw)
        return Chunk(payload, None, self.evidence, fields)


@attrs.frozen(eq=False, slots=True)
class SideEvent:
    """Something that Callahead tells the client beside the ordinary stream."""

    name: str
    """The event's name, for example ``tool_call_dispatch``."""
    payload: Payload
    """What the client receives under that name."""
    cause: Chunk
    """The chunk that brought it about; its envelope is used where the client asked for the style ``chunk``."""


@attrs.frozen(eq=False, slots=True)
class Verbatim:
    """A frame that is no chunk: a comment, a foreign named event, data that is not a JSON object."""

    frame: Frame


@attrs.frozen(eq=False, slots=True)
class StreamError:
    """The stream's failure."""

    failure: StreamFailure
    """What went wrong."""
    raw: bytes | None = None
    """The upstream's own error frame, passed on unchanged with whatever follows it. None: the failure was noticed
    by Callahead, and nothing follows."""


@attrs.frozen(eq=False, slots=True)
class End:
    """The upstream's ``[DONE]`` frame. Nothing after it counts."""

    raw: bytes


Item: TypeAlias = Chunk | SideEvent | Verbatim | StreamError | End
