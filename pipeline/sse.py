"""Server-sent events: bytes in any cut to frames that keep their bytes, and text to frames.

The rules are WHATWG HTML, section 9.2.6 (https://html.spec.whatwg.org/multipage/server-sent-events.html). Beyond
them, every frame keeps the exact bytes it came in, so that it can be passed on untouched: the ``raw`` of all frames
joined is the input.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from pipeline.errors import FrameTooLong

__all__ = ["MAX_FRAME_BYTES", "Frame", "SseDecoder", "other_lines", "sse_frame"]

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
"""The default limit of one frame. The longest recorded frame of a provider has 26 KB; an image or audio part in one
delta stays below 8 MiB."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
# Atomic groups: a lone CRLF must not be read as CR and LF, two line ends.
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
# How far before the end of a searched buffer a blank line may begin: a CRLF that something is to follow.
_OVERLAP: Final = 2


@attrs.frozen(eq=False, slots=True)
class Frame:
    """One event as it came."""

    raw: bytes
    """Every byte of it, blank line and all."""
    data: bytes | None
    """The ``data`` lines joined by LF, or none where there is no such line."""
    event: str | None = None
    """The event's name; none and ``""`` mean ``message``."""
    last_event_id: str | None = None
    """The ``id`` field."""
    retry: int | None = None
    """The ``retry`` field, milliseconds."""


def sse_frame(data: bytes, event: str | None = None) -> bytes:
    """A frame as Callahead writes it: LF only, one ``data`` line, no ``id``, no ``retry``.

    Args:
        data: JSON text without raw line breaks, or ``[DONE]``.
        event: the event's name, for a named frame.
    """
    if event is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


class SseDecoder:
    """Cuts a byte stream into frames, whatever the cut of its reads.

    A frame is given out with its blank line's last byte; where that is a CR, an LF that follows later opens the next
    frame's ``raw``, so that nothing waits for a byte that may never come.

    Args:
        max_frame_bytes: the longest frame that is accepted, and so the most that is ever kept.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit = max_frame_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._at_start = True
        self.has_cr = False
        """Whether any CR has come."""
        self._has_bom = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes.

        Raises:
            FrameTooLong: a frame is longer than the limit. The bytes of those before it are in the error's ``raws``.
        """
        return [self.read(raw) for raw in self.split(data)]

    def read(self, raw: bytes) -> Frame:
        """The frame that these bytes are, with or without its blank line; to be called for each frame in order."""
        if raw.startswith(b"data: ") and raw.endswith(b"\n\n"):
            data = raw[6:-2]
            if b"\n" not in data and b"\r" not in data:
                return Frame(raw, data)
        return _parse(raw, raw.removeprefix(_BOM) if self._take_bom() else raw)

    def _take_bom(self) -> bool:
        """Whether the frame to be read begins with the stream's byte-order mark."""
        has_bom, self._has_bom = self._has_bom, False
        return has_bom

    def split(self, data: bytes) -> list[bytes]:
        """The bytes of the frames that ``data`` completes, for ``read``; raises as ``feed``."""
        if self._at_start and not self._buffer and data[:1] not in (b"", _BOM[:1]):
            self._at_start = False
        if not (self.has_cr or self._at_start or b"\r" in data):
            return self._split_lf(data)
        self._buffer += data
        if self._at_start and len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return []
        if self._at_start:
            self._at_start = False
            self._has_bom = self._buffer.startswith(_BOM)
        self.has_cr = self.has_cr or b"\r" in data
        return self._search()

    def close(self) -> Frame | None:
        """What came after the last blank line, if anything did; its ``raw`` is not completed."""
        tail = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return self.read(tail) if tail else None

    def _split_lf(self, data: bytes) -> list[bytes]:
        """All line ends are LF, those that are pending too: nearly every read of nearly every server."""
        buffer = self._buffer
        if buffer:
            if b"\n\n" not in data and not (data[:1] == b"\n" and buffer[-1:] == b"\n"):
                buffer += data
                if len(buffer) > self._limit:
                    raise self._too_long([])
                return []
            data = bytes(buffer) + data
            buffer.clear()
        *blocks, rest = data.split(b"\n\n")
        raws = [block + b"\n\n" for block in blocks]
        if len(data) > self._limit:
            for at, raw in enumerate(raws):
                if len(raw) > self._limit:
                    raise self._too_long(raws[:at])
        if rest:
            self._keep(rest, raws)
        return raws

    def _search(self) -> list[bytes]:
        raws: list[bytes] = []
        buffer, start = self._buffer, 0
        position = max(0, self._searched - _OVERLAP)
        while found := _BLANK_LINE.search(buffer, position):
            end = found.end()
            if end - start > self._limit:
                raise self._too_long(raws)
            raws.append(bytes(buffer[start:end]))
            start = position = end
        if not start:
            if len(buffer) > self._limit:
                raise self._too_long(raws)
            self._searched = len(buffer)
            return raws
        rest = bytes(buffer[start:])
        buffer.clear()
        self._keep(rest, raws)
        return raws

    def _keep(self, rest: bytes, raws: list[bytes]) -> None:
        if len(rest) > self._limit:
            raise self._too_long(raws)
        self._buffer += rest
        self._searched = 0

    def _too_long(self, raws: list[bytes]) -> FrameTooLong:
        self._buffer.clear()
        self._searched = 0
        self.has_cr = False
        error = FrameTooLong(self._limit)
        error.raws = raws
        return error


def other_lines(raw: bytes) -> bytes:
    """The lines of a frame that hold no data, each ended by LF."""
    lines = _LINE_END.split(raw.removeprefix(_BOM))
    return b"".join(line + b"\n" for line in lines if line and line.partition(b":")[0] != b"data")


def _parse(raw: bytes, text: bytes) -> Frame:
    """Read a frame field by field: WHATWG, "interpreting an event stream"."""
    data: list[bytes] = []
    event = last_event_id = retry = None
    for line in _LINE_END.split(text):
        name, colon, value = line.partition(b":")
        if not name:  # a blank line or a comment
            continue
        if colon and value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode(errors="replace")
        elif name == b"id":
            if b"\0" not in value:
                last_event_id = value.decode(errors="replace")
        elif name == b"retry" and value.isascii() and value.isdigit():
            retry = int(value[:18])
    return Frame(raw, b"\n".join(data) if data else None, event, last_event_id, retry)
