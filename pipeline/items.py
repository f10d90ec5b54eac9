"""What flows on the channels between stages.

The unit on a channel is a *burst*: a non-empty list of the items that could be had without waiting. Items are frozen
and shared by reference; a stage that changes one puts a new one in its place.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
import orjson

from pipeline.errors import StreamFailure
from pipeline.sse import Frame, other_lines

__all__ = ["Chunk", "End", "Evidence", "Item", "Payload", "Shape", "SideEvent", "StreamError", "Verbatim"]

Payload: TypeAlias = dict[str, Any]
"""A parsed JSON object. Treated as immutable: an edit copies the path down to what it changes."""

_DATA: Final = len(b"data: ")


@attrs.frozen(slots=True)
class Evidence:
    """Whether what a stage took for a tool call turned out to be one (spec, dispatch, 5.6). Never on the wire."""

    choice_index: int
    call_index: int
    complete: bool
    """False: it has begun; true: it is whole. The last word on a call counts."""


@attrs.frozen(eq=False)
class Shape:
    """What chunks have in common that differ in one text alone.

    Each has one choice, with index 0 and no finish reason. Its delta has one text, not empty: a string, or the
    arguments of one fragment of a tool call. Whatever else is in the chunk is a string, an integer, a truth value or
    null; in the choice it is null, in its delta null or empty but for a role and a fragment's ``id`` and ``type``.
    """

    key: str
    """Where the text is: ``content``, ``reasoning_content`` or ``reasoning`` of the delta, ``arguments`` of a call."""
    payload: Payload
    """The chunk that the shape was learned from; all but the text is that of the others, too."""
    delta: Payload
    """Its delta."""
    fragment: Payload | None
    """The fragment in its delta, where the text is a call's arguments; it has a usable index."""
    prefix: bytes
    """The frame up to its text, with the quotation mark."""
    suffix: bytes
    """The frame from the quotation mark behind its text on."""


@attrs.define(eq=False)  # as immutable as the others; but freezing it would cost as much as all the rest of making one
class Chunk:
    """One chat-completions chunk."""

    _payload: Payload | bytes
    """Bytes: the frame that it is to be read from."""
    raw: bytes | None
    """The very bytes of the upstream's frame, or none once a stage has changed the payload."""

    evidence: tuple[Evidence, ...] = ()
    """What a stage knows of the calls in it."""
    fields: bytes = b""
    """Of an edited chunk: the lines of its frame beside the data, an ``id`` or a comment, each ended by LF."""
    shape: Shape | None = attrs.field(default=None, init=False)
    """What it has in common with its neighbours; set by the decoder alone."""
    text: str = attrs.field(default="", init=False)
    """Where it has a shape: the text in which it differs from them."""

    @classmethod
    def repeated(cls, raw: bytes, shape: Shape, text: str) -> Chunk:
        """The chunk of a frame that has a known shape: one line of data."""
        chunk = cls.__new__(cls)
        chunk._payload = chunk.raw = raw  # noqa: SLF001 - its own
        chunk.evidence, chunk.fields, chunk.shape, chunk.text = (), b"", shape, text
        return chunk

    @property
    def payload(self) -> Payload:
        """The parsed JSON object. Keys may be missing, null, unknown or of any type.

        Where a chunk repeats another one but for a text, it is read when it is asked for.
        """
        payload = self._payload
        if type(payload) is bytes:
            self._payload = payload = orjson.loads(payload[_DATA:])
        return payload  # type: ignore[return-value]  # isinstance, which mypy follows, takes twice as long

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
