"""Items as bytes, to be compared, searched and shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

from pipeline.chunks import encode_json
from pipeline.items import Chunk, End, SideEvent, StreamError, Verbatim
from pipeline.testing.builders import chunk

__all__ = ["fingerprint", "fingerprints", "marked", "marks_of", "ordinary", "shown", "tells_failure"]

_LONGEST_SHOWN: Final = 300
_MARK: Final = "conformance_mark"
_MARK_PATTERN: Final = re.compile(rb"<item (\d+)>")


def fingerprint(item: Any) -> bytes:
    """All that there is to an item."""
    match item:
        case Chunk():
            return b"chunk %b from %a" % (encode_json(item.payload), item.raw)
        case SideEvent():
            return b"event %b %b" % (item.name.encode(), encode_json(item.payload))
        case StreamError():
            return b"error %b from %a" % (encode_json(item.failure.body()), item.raw)
        case Verbatim():
            return b"frame %a" % item.frame.raw
        case End():
            return b"end %a" % item.raw
    return item if isinstance(item, bytes) else repr(item).encode()


def fingerprints(given: Sequence[Any]) -> list[bytes]:
    """Of each item; of bytes all in one, since their cut is nobody's business."""
    each = [fingerprint(item) for item in given]
    return [b"".join(each)] if all(isinstance(item, bytes) for item in given) else each


def shown(item: Any) -> str:
    """An item, or the fingerprint of one, for a message: one line, cut where it is long."""
    text = "nothing" if item is None else fingerprint(item).decode(errors="backslashreplace")
    return text.replace("\n", "\\n")[:_LONGEST_SHOWN]


def ordinary(items: Sequence[Any]) -> list[Any]:
    """The items that do not end a stream."""
    return [item for item in items if not isinstance(item, (End, StreamError))]


def tells_failure(item: Any, message: str) -> bool:
    """Whether an item is, or bytes contain, the failure with that message or code."""
    return isinstance(item, (StreamError, bytes)) and message.encode() in fingerprint(item)


def marked(item: Any, number: int) -> Any:
    """The item with its number in an unknown key, or in a comment, where it has room for one."""
    mark = f"<item {number}>"
    if isinstance(item, Chunk):
        whole = chunk({**item.payload, _MARK: mark})
        return whole if item.raw is not None else whole.edited(whole.payload)
    if isinstance(item, Verbatim):
        return Verbatim(attrs.evolve(item.frame, raw=b": %b\n%b" % (mark.encode(), item.frame.raw)))
    return item


def marks_of(item: Any) -> list[int]:
    """The numbers of the marked items that an ordinary item, or bytes, came from."""
    if isinstance(item, (SideEvent, StreamError, End)):
        return []
    return [int(number) for number in _MARK_PATTERN.findall(fingerprint(item))]
