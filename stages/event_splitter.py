"""Takes events apart that were joined by a single line end (spec, repairs, 4)."""

from __future__ import annotations

import re
from typing import Final

from pipeline.chunks import parse_json
from pipeline.observer import Observer
from pipeline.sse import MAX_FRAME_BYTES
from stages.call_text import TextScanner, TextState

__all__ = ["EventSplitter"]

# Atomic groups: a lone CRLF must not be read as CR and LF, two line ends.
_LINE_END: Final = rb"(?>\r\n|\n|\r)"
# The end of an event, or a data line behind another line. An empty data line adds only a blank to the JSON before it.
_BOUNDARY: Final = re.compile(_LINE_END + rb"(?:(?P<blank>" + _LINE_END + rb")|data:[ \t]*+(?P<value>[^ \t\r\n]))")
# What may become a boundary once more bytes have come.
_UNDECIDED: Final = re.compile(rb"(?:\r\n|\n|\r)(?:d|da|dat|data(?::[ \t]*+)?)?\Z")
_LINE: Final = re.compile(rb"([^\r\n]*+)(" + _LINE_END + rb")")
_GLUED: Final = re.compile(rb"[^\n]\ndata:")


class EventSplitter:
    """Puts a blank line where one event ends and another one begins without it; stands in front of the decoder.

    An event ends where its data so far is by itself a JSON object or ``[DONE]`` and another data line begins: it could
    never become JSON. Events with another name than ``message`` are left alone. What comes out is what went in, with
    blank lines added, in any cut into reads. It keeps the event that is not complete yet.

    Args:
        observer: told once that the stream needs the repair.
        max_event_bytes: an event that is longer is given out as it is.
    """

    def __init__(self, observer: Observer, max_event_bytes: int = MAX_FRAME_BYTES) -> None:
        self._observer = observer
        self._limit = max_event_bytes
        self._has_split = False
        self._begin(b"")

    def feed(self, data: bytes) -> bytes:
        """The events that ``data`` completes; the rest of it is kept."""
        if not self._event and b"\r" not in data and data.endswith(b"\n\n") and not _GLUED.search(data):
            return data
        self._event += data
        out = bytearray()
        while found := _BOUNDARY.search(self._event, self._searched):
            if found["blank"] is None:
                self._meet_data_line(found.start("value"), out)
            else:
                out += self._event[: found.end()]
                self._begin(self._event[found.end() :])
        undecided = _undecided_from(self._event)
        self._searched = max(self._searched, len(self._event) if undecided is None else undecided)
        if len(self._event) > self._limit:
            out += self._event
            self._begin(b"")
        return bytes(out)

    def close(self) -> bytes:
        """What follows the last event."""
        rest = bytes(self._event)
        self._begin(b"")
        return rest

    def _begin(self, event: bytes) -> None:
        self._event = bytearray(event)
        self._searched = 0
        self._read = 0
        """Up to where the lines of the event have been read."""
        self._is_ordinary = True
        self._values: list[bytes] = []
        self._scanner = TextScanner()
        self._data_end = 0
        """Where the last data line that was read ended, its line end included."""
        self._line_end = b""

    def _meet_data_line(self, value: int, out: bytearray) -> None:
        """A data line begins: read all lines before it, and end the event in front of it if it must."""
        event = self._event
        begin = max(event.rfind(b"\n", 0, value), event.rfind(b"\r", 0, value)) + 1
        for line in _LINE.finditer(event, self._read, begin):
            self._read_line(line[1], line[2], line.end())
        self._read = begin
        self._searched = value
        if self._is_ordinary and self._is_whole():
            if not self._has_split:
                self._has_split = True
                self._observer.call_repaired("glued_events", None, None, "split-glued-events")
            out += event[: self._data_end] + self._line_end
            self._begin(event[self._data_end :])

    def _read_line(self, line: bytes, line_end: bytes, end: int) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._is_ordinary = value in (b"", b"message")
        elif name == b"data":
            self._scanner.feed(("\n" if self._values else "") + value.decode("latin-1"))
            self._values.append(value)
            self._data_end, self._line_end = end, line_end

    def _is_whole(self) -> bool:
        if self._scanner.state is TextState.CLOSED and self._scanner.root == "{":
            try:
                return isinstance(parse_json(b"\n".join(self._values)), dict)
            except ValueError:
                return False
        return b"\n".join(self._values).strip() == b"[DONE]" if len(self._values) == 1 else False


def _undecided_from(event: bytearray) -> int | None:
    """Where a line end stands that may yet turn out to be a boundary, or none."""
    tail = event[max(event.rfind(b"\n"), event.rfind(b"\r"), 0) - 1 if len(event) > 1 else 0 :]
    raise NotImplementedError(tail)
