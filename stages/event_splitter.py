"""Takes events apart that were joined by a single line end (spec, repairs, 4)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from pipeline.chunks import parse_json
from pipeline.observer import Observer
from pipeline.sse import MAX_FRAME_BYTES
from stages.call_text import TextScanner, TextState

__all__ = ["EventSplitter"]

# Atomic groups: a lone CRLF must not be read as CR and LF, two line ends.
_LINE_END: Final = rb"(?>\r\n|\n|\r)"
_LINE: Final = re.compile(rb"([^\r\n]*+)(" + _LINE_END + rb")")
# The end of an event, or a data line behind another line; one without a value only adds a blank to the JSON so far.
_BOUNDARY: Final = re.compile(
    rb"(?P<before>" + _LINE_END + rb")(?:(?P<blank>" + _LINE_END + rb")|data:[ \t]*+(?P<value>[^ \t\r\n]))"
)
# What a boundary is without its last bytes, behind its line end.
_BEGINNING: Final = re.compile(rb"(?:d(?:a(?:t(?:a(?::[ \t]*+)?)?)?)?)?")
_GLUED: Final = re.compile(rb"[^\n]\ndata:")


@attrs.define(eq=False)
class _Event:
    """What is known of the lines of one event; positions are those in the splitter's buffer."""

    start: int = 0
    read: int = 0
    """Up to where its lines have been read."""
    data_end: int = 0
    """Where the last data line that was read ended, line end included."""
    line_end: bytes = b""
    is_ordinary: bool = True
    """Whether it has no name, or the name ``message``."""
    values: list[bytes] = attrs.field(factory=list)
    scanner: TextScanner = attrs.field(factory=TextScanner)

    def read_lines(self, buffer: bytearray, end: int) -> None:
        """Read the lines up to ``end``, where another one begins."""
        for found in _LINE.finditer(buffer, self.read, end):
            name, _, value = found[1].partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self.is_ordinary = value in (b"", b"message")
            elif name == b"data":
                self.scanner.feed(("\n" if self.values else "") + value.decode("latin-1"))
                self.values.append(value)
                self.data_end, self.line_end = found.end(), found[2]
        self.read = end

    @property
    def is_whole(self) -> bool:
        """Whether the data so far is a JSON object or ``[DONE]``."""
        if not self.is_ordinary or self.scanner.state is not TextState.CLOSED:
            return False
        data = b"\n".join(self.values)
        if self.scanner.root == "[":
            return data.strip() == b"[DONE]"
        try:
            return self.scanner.root == "{" and isinstance(parse_json(data), dict)
        except ValueError:
            return False


class EventSplitter:
    """Puts a blank line where one event ends and another one begins without it; stands in front of the decoder.

    An event ends where its data so far is by itself a JSON object or ``[DONE]`` and another data line begins: it could
    never become JSON. Events with another name than ``message`` are left alone. What comes out is what went in, with
    blank lines added, whatever the cut into reads. An event that is not complete is kept.

    Args:
        observer: told once that the stream needs the repair.
        max_event_bytes: an event that is longer is given out as it came.
    """

    def __init__(self, observer: Observer, max_event_bytes: int = MAX_FRAME_BYTES) -> None:
        self._observer = observer
        self._limit = max_event_bytes
        self._has_split = False
        self._buffer = bytearray()
        self._event = _Event()
        self._searched = 0

    def feed(self, data: bytes) -> bytes:
        """The events that ``data`` completes."""
        if not self._buffer and data.endswith(b"\n\n") and b"\r" not in data and not _GLUED.search(data):
            return data  # nearly every read of nearly every server
        buffer, out = self._buffer, bytearray()
        buffer += data
        while found := _BOUNDARY.search(buffer, self._searched):
            if found["blank"] is not None:
                out += buffer[self._event.start : found.end()]
                self._begin(found.end())
            else:
                self._searched = found.start("value")
                self._meet_data_line(found.end("before"), out)
        self._searched = self._undecided_from()
        if len(buffer) - self._event.start > self._limit:
            out += buffer[self._event.start :]
            self._begin(len(buffer))
        self._forget()
        return bytes(out)

    def close(self) -> bytes:
        """What follows the last event that was complete."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _begin(self, start: int) -> None:
        self._event = _Event(start, start)
        self._searched = start

    def _meet_data_line(self, begin: int, out: bytearray) -> None:
        """A data line begins: end the event in front of it if that is whole."""
        buffer, event = self._buffer, self._event
        event.read_lines(buffer, begin)
        if not event.is_whole:
            return
        if not self._has_split:
            self._has_split = True
            self._observer.call_repaired("glued_events", None, None, "split-glued-events")
        out += buffer[event.start : event.data_end] + event.line_end
        self._begin(event.data_end)

    def _undecided_from(self) -> int:
        """Where to search on: at the last line end, if with more bytes it can still be a boundary."""
        buffer = self._buffer
        last = max(buffer.rfind(b"\n", self._searched), buffer.rfind(b"\r", self._searched))
        if last < 0 or not _BEGINNING.fullmatch(buffer, last + 1):
            return len(buffer)
        return last - 1 if last and buffer[last - 1 : last + 1] == b"\r\n" else last

    def _forget(self) -> None:
        """Let go of the bytes that were given out."""
        event, start = self._event, self._event.start
        del self._buffer[:start]
        self._searched -= start
        event.start = 0
        event.read -= start
        event.data_end -= start
