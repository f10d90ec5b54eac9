"""What is odd about a recorded stream that no repair is for: framing, errors, ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from pipeline.chunks import reports_error
from pipeline.completeness import Completeness
from pipeline.decode import item_of
from pipeline.items import Chunk, End, Item, StreamError, Verbatim
from pipeline.sse import Frame, SseDecoder

__all__ = ["Oddity", "oddities_of"]

Oddity: TypeAlias = tuple[str, str, int]
"""What is odd, what is done about it, and in how many frames; 0 where it is not of single frames."""

_LINES: Final = re.compile(rb"\r\n|\n|\r")
_PASSED_ON: Final = "none: passed on as it comes"


def oddities_of(body: bytes, items: Iterable[Item]) -> list[Oddity]:
    """Look at a whole stream.

    Args:
        body: as it was recorded.
        items: what its decoder made of it, before any stage.
    """
    decoder = SseDecoder(len(body) + 1)
    frames = decoder.feed(body)
    last = decoder.close()
    if last is not None:
        frames.append(last)
    return [*_of_frames(frames), *_of_items(list(items))]


def _of_frames(frames: list[Frame]) -> Iterator[Oddity]:
    comments = crlf = errors = names = broken = 0
    for frame in frames:
        lines = _LINES.split(frame.raw)
        comments += any(line.startswith(b":") for line in lines)
        errors += any(line.partition(b":")[0] == b"error" for line in lines)
        crlf += b"\r" in frame.raw
        names += bool(frame.event) and frame.event not in ("message", "error")
        is_foreign = isinstance(item_of(frame), Verbatim) and not frame.event
        broken += is_foreign and bool(frame.data) and not _is_glued(frame)
    for what, cure, count in (
        ("comments", "none: passed on, but some clients cannot read them", comments),
        ("lines that end in CR", _PASSED_ON, crlf),
        ("events with names of their own", _PASSED_ON, names),
        ("data that is no JSON object", _PASSED_ON, broken),
        ("a field error: instead of an event", "none: clients skip it, and the stream seems to break off", errors),
    ):
        if count:
            yield what, cure, count


def _is_glued(frame: Frame) -> bool:
    """Whether several data lines stand in it, the first of them an event by itself; there is a repair for that."""
    first, line_end, _ = (frame.data or b"").partition(b"\n")
    return bool(line_end) and isinstance(item_of(Frame(first, first)), (Chunk, End))


def _of_items(items: list[Item]) -> Iterator[Oddity]:
    completeness = Completeness()
    chunks = [item for item in items if isinstance(item, Chunk)]
    for chunk in chunks:
        completeness.see(chunk.payload)
    errors = sum(isinstance(item, StreamError) for item in items) + sum(reports_error(each.payload) for each in chunks)
    if errors:
        yield "error frames", "none: passed on; calls that are not complete are not announced", errors
        return
    cut = completeness.cut()
    is_ended = any(isinstance(item, End) for item in items)
    if not chunks:
        yield "no chunk at all", "none: is it the body of a streaming chat completion?", 0
    elif cut and is_ended:
        yield "[DONE], but no finish_reason", "none: passed on; clients may take it for cut off", 0
    elif cut:
        yield "the end before the finish_reason", "none: the stream was cut, and clients get an error frame", 0
    elif not is_ended:
        yield "no [DONE]", "none needed: the default order adds it", 0
