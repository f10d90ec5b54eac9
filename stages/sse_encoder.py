"""Items to the bytes that the client receives (spec, dispatch, 2.5 and 2.6; DESIGN, 1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from pipeline.chunks import encode_json, error_of
from pipeline.completeness import Completeness
from pipeline.decode import reported_failure
from pipeline.errors import StreamFailure
from pipeline.items import Chunk, Item, Payload, SideEvent, StreamError, Verbatim
from pipeline.runs import Run
from pipeline.sse import sse_frame
from pipeline.stage import EventStyle, Flow, RequestContext, Stage

__all__ = ["SseEncoder"]

_DONE: Final = sse_frame(b"[DONE]")
# What an envelope has where the stream never had a usable value, in the order of the wire.
_DEFAULTS: Final[Payload] = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": ""}


class SseEncoder(Stage):
    """Writes each item as one frame: the upstream's own bytes where no stage changed them.

    Emits: bytes. At a clean end that lacks its ``[DONE]`` one is added if every choice has finished, else an error
    frame. Nothing follows a ``[DONE]``, nor an error that Callahead noticed; an error frame of the upstream's is
    passed on with what follows it, and nothing is added.

    Drops: what follows the end.

    State: which choices have begun and finished, and in the event style ``chunk`` the stream's envelope.

    On cancel: nothing more is written.
    """

    gives: ClassVar[Flow] = Flow.BYTES

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._completeness = Completeness()
        self._has_failed = False
        self._envelope: Payload | None = None
        if context.event_style is EventStyle.CHUNK:
            self._envelope = dict(_DEFAULTS)

    def feed_run(self, run: Run, out: list[bytes]) -> int:
        """Take chunks of a choice that has begun: one with a shape neither begins nor finishes another."""
        if not self._completeness.is_open(0):
            return 0
        if self._envelope is not None:
            self._envelope.update(_usable(run.shape.payload))
        out += [chunk.raw for chunk in run.chunks if chunk.raw is not None]
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[bytes]:
        """Give the frame of one item."""
        if self.finished:
            return ()
        if isinstance(item, Chunk):
            return (self._encode_chunk(item),)
        if isinstance(item, SideEvent):
            return (self._encode_event(item),)
        if isinstance(item, Verbatim):
            return (item.frame.raw,)
        if isinstance(item, StreamError):
            return (self._encode_error(item.failure, item.raw),)
        self._finish()
        return (item.raw,)

    def close(self) -> Iterable[bytes]:
        """Give the last frame, where the upstream ended without one."""
        if self.finished or self._has_failed:
            return ()
        cut = self._completeness.cut()
        if cut is not None:
            return (self._encode_error(cut, None),)
        self._finish()
        return (_DONE,)

    def _finish(self) -> None:
        self.finished = True
        if not self._has_failed:
            self.context.observer.stream_ended()

    def _encode_chunk(self, chunk: Chunk) -> bytes:
        self._completeness.see(chunk.payload)
        if self._completeness.failed and not self._has_failed:
            self._has_failed = True
            failure = reported_failure(error_of(chunk.payload), chunk.raw or b"")
            self.context.observer.stream_failed(failure, reported=True)
        if self._envelope is not None:
            self._envelope.update(_usable(chunk.payload))
        if chunk.raw is not None:
            return chunk.raw
        return chunk.fields + sse_frame(encode_json(chunk.payload))

    def _encode_event(self, event: SideEvent) -> bytes:
        if self._envelope is None:
            return sse_frame(encode_json(event.payload), event.name)
        envelope = {**self._envelope, **_usable(event.cause.payload)}
        return sse_frame(encode_json({**envelope, "choices": [], event.name: event.payload}))

    def _encode_error(self, failure: StreamFailure, raw: bytes | None) -> bytes:
        if raw is not None:
            self._has_failed = True
            self.context.observer.stream_failed(failure, reported=True)
            return raw
        self.finished = True
        if self._has_failed:  # the upstream has said so itself: one error is enough
            return b""
        self._has_failed = True
        self.context.observer.stream_failed(failure, reported=False)
        return sse_frame(encode_json(failure.body()))


def _usable(payload: Payload) -> Payload:
    """The envelope values of a chunk that have the right type and say something."""
    found = {key: payload.get(key) for key in _DEFAULTS}
    return {key: value for key, value in found.items() if value and type(value) is type(_DEFAULTS[key])}
