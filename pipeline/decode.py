"""Frames to items: what each frame of an upstream is.

==============================================  ==========================
frame                                           item
==============================================  ==========================
``data: [DONE]``                                ``End``
``data`` holds a JSON object                    ``Chunk``
the same, an error without ``choices``          ``StreamError`` with its bytes
``event: error`` with any data                  ``StreamError`` with its bytes
another event name, comment, other data         ``Verbatim``
==============================================  ==========================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import orjson

from pipeline.chunks import error_of, parse_json
from pipeline.errors import FrameTooLong, UpstreamReported
from pipeline.items import Chunk, End, Item, StreamError, Verbatim
from pipeline.shapes import Shapes
from pipeline.sse import MAX_FRAME_BYTES, Frame, SseDecoder

__all__ = ["BytesFilter", "ItemDecoder", "item_of", "reported_failure"]


_LONGEST_DONE = 64


class BytesFilter(Protocol):
    """Changes the bytes of a body in front of its decoder."""

    def feed(self, data: bytes) -> bytes:
        """What becomes of the next bytes, and of those that were kept."""
        ...

    def close(self) -> bytes:
        """What was kept."""
        ...


class ItemDecoder:
    """Bytes of an upstream's body in any cut to items.

    Args:
        max_frame_bytes: the limit of one frame.
        bytes_filter: what the bytes go through before.

    ``ended`` is true once nothing more counts: after ``[DONE]``, or after a frame over the limit.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, bytes_filter: BytesFilter | None = None) -> None:
        self._frames = SseDecoder(max_frame_bytes)
        self._filter = bytes_filter
        self._shapes = Shapes()
        self.ended = False

    def feed(self, data: bytes) -> list[Item]:
        """The items that ``data`` completes. A frame over the limit ends the stream with a ``StreamError``."""
        if self.ended:
            return []
        if self._filter is not None:
            data = self._filter.feed(data)
        try:
            return self._items(self._frames.split(data))
        except FrameTooLong as error:
            items = self._items(error.raws)
            if not self.ended:
                self.ended = True
                items.append(StreamError(error))
            return items

    def close(self) -> list[Item]:
        """The last item, where the body ended without a blank line.

        A frame that was cut in the middle of its data is left out, as the standard says: it could only hurt whoever
        parses it.
        """
        items: list[Item] = []
        if self._filter is not None:
            rest, self._filter = self._filter.close(), None
            items = self.feed(rest)
        return [*items, *self._close()]

    def _close(self) -> list[Item]:
        frame = None if self.ended else self._frames.close()
        if frame is None:
            return []
        if frame.raw.strip(b"\r\n"):
            ending = b"\n" if frame.raw.endswith(b"\n") else b"\n\n"  # CR and LF would be one line end
            frame = attrs.evolve(frame, raw=frame.raw + ending)
        items = self._items([frame.raw])
        return [] if isinstance(items[0], Verbatim) and frame.data is not None else items

    def _items(self, raws: Sequence[bytes]) -> list[Item]:
        items: list[Item] = []
        is_lf, shapes = not self._frames.has_cr, self._shapes
        at, end = 0, len(raws)
        while (at := shapes.take(raws, at, items)) < end:
            raw = raws[at]
            at += 1
            # Nearly every frame of nearly every server, without a Frame in between; what it gives is what item_of does.
            if raw.startswith(b"data: {") and raw.find(b"\n") == len(raw) - 2 and (is_lf or b"\r" not in raw):
                try:
                    payload = orjson.loads(raw[6:])
                except orjson.JSONDecodeError:
                    pass
                else:
                    if "error" not in payload and payload.get("object") != "error":
                        items.append(shapes.learn(payload, raw))
                        continue
            item = item_of(self._frames.read(raw))
            items.append(item)
            if type(item) is End:
                self.ended = True
                break
        return items


def item_of(frame: Frame) -> Item:
    """The item that a frame is."""
    data = frame.data
    if (
        data and len(data) < _LONGEST_DONE and data.strip() == b"[DONE]"
    ):  # whatever its event: SDKs look at the data only
        raw = frame.raw
        # A read may have ended between the CR and the LF of the last line end: the LF is sure to follow.
        return End(raw + b"\n" if raw.endswith(b"\r\n\r") else raw)
    if not data or (frame.event and frame.event not in ("message", "error")):
        return Verbatim(frame)
    try:
        payload = parse_json(data)
    except ValueError:
        payload = None
    if frame.event == "error":
        return StreamError(reported_failure(payload, data), frame.raw)
    if type(payload) is not dict:
        return Verbatim(frame)
    if ("error" in payload or payload.get("object") == "error") and not isinstance(payload.get("choices"), list):
        error = error_of(payload)
        if error is not None:
            return StreamError(reported_failure(error, data), frame.raw)
    return Chunk(payload, frame.raw)


def reported_failure(error: Any, data: bytes) -> UpstreamReported:
    """The upstream's error in our words, for log, capture and non-streaming answers.

    Args:
        error: what ``pipeline.chunks.error_of`` gave, or any JSON value.
        data: the text that it came in, for an error without a message.
    """
    if isinstance(error, dict) and isinstance(error.get("error"), (dict, str)):
        error = error["error"]
    if isinstance(error, str):
        return UpstreamReported(error)
    if not isinstance(error, dict):
        return UpstreamReported(data[:500].decode(errors="replace"))
    message = error.get("message")
    failure = UpstreamReported(message if isinstance(message, str) else data[:500].decode(errors="replace"))
    if isinstance(error.get("type"), str):
        failure.type = error["type"]
    failure.reported = error
    for code in (error.get("status_code"), error.get("code")):  # Groq; OpenRouter, vLLM
        if type(code) is int and 400 <= code < 600:  # noqa: PLR2004 - HTTP's error statuses
            failure.status = code
            break
    return failure
