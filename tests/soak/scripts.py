"""What an upstream sends, byte for byte: responses in every legal framing, cut and paced by a seed."""

from __future__ import annotations

import enum
import math
import zlib
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, TypeAlias

import attrs
from gateway import IDLE_TIMEOUT

__all__ = ["UNASKED", "Act", "Script", "Step", "body_steps", "head", "response", "stream"]

_LONGEST_WAIT: Final = IDLE_TIMEOUT / 2
"""Seconds for which all pauses of a body last together: it may come as one frame, as what is compressed does."""
UNASKED: Final = b"HTTP/1.1 500 Unasked\r\ncontent-length: 0\r\n\r\n"
"""A response to no request."""
_CODINGS: Final = ("chunked", "chunked", "chunked", "length", "close", "gzip")
_TYPES: Final = ("text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream", "text/plain", None)


class Act(enum.Enum):
    """What a script does beside sending and waiting."""

    READ_BODY = "read the request's body, and check it"
    RESET = "break the connection with a RST"
    STALL = "do nothing until the gateway closes the connection"
    FLOOD = "send the step before again and again until the gateway closes the connection"


Step: TypeAlias = bytes | float | Act
"""Bytes to send, seconds to wait, or something else to do."""


@attrs.frozen(eq=False)
class Script:
    """What an upstream does with a request whose head it has read. Behind the last step it closes the connection."""

    steps: Sequence[Step]
    keeps_for: float | None = None
    """Seconds for which it waits for another request first; none: it does not."""
    drops_next: bool = False
    """That request is not read: the connection is closed as soon as it comes."""


def head(status: int = 200, *lines: str) -> bytes:
    """The head of a response."""
    return "\r\n".join([f"HTTP/1.1 {status} Scripted", *lines, "", ""]).encode("latin-1")


def response(status: int, content_type: str, body: bytes) -> bytes:
    """A response in one write."""
    return head(status, f"content-type: {content_type}", f"content-length: {len(body)}") + body


def stream(rng: Random, frames: Sequence[bytes], pause: float = 0.01, codings: Sequence[str] = _CODINGS) -> Script:
    """A whole event stream: any framing, any cut; the connection is kept, closed, or closed unasked."""
    coding = rng.choice(codings)
    content_type = rng.choice(_TYPES)
    lines = [f"Content-Type: {content_type}"] if content_type else []
    keeps_for, drops_next = rng.choice([(math.inf, False), (math.inf, False), (rng.random() * 0.2, False), (5, True)])
    if coding == "close":
        keeps_for = -1
    elif rng.random() < 0.2:
        lines.append("connection: close")
        keeps_for = -1
    groups = list(_groups(rng, frames))
    if coding == "gzip":
        lines.append("content-encoding: gzip")
        groups = list(_compressed(groups))
    if coding == "length":
        lines.append(f"content-length: {sum(map(len, groups))}")
    elif coding != "close":
        lines.append("transfer-encoding: chunked")
    informational = head(103, "link: </x>") if rng.random() < 0.1 else b""
    steps = body_steps(rng, groups, pause, is_chunked=coding in ("chunked", "gzip"))
    steps = [Act.READ_BODY, informational + head(200, *lines), *steps]
    return Script(steps, keeps_for if keeps_for >= 0 else None, drops_next)


def body_steps(
    rng: Random, groups: Sequence[bytes], pause: float, *, is_chunked: bool = True, ends: bool = True
) -> list[Step]:
    """A body's bytes with pauses in between.

    Args:
        rng: decides on cuts and pauses.
        groups: what is sent at a time.
        pause: the longest.
        is_chunked: each group is an HTTP chunk.
        ends: the body's end is sent too.
    """
    framed = [b"%x\r\n%b\r\n" % (len(group), group) for group in groups if group] if is_chunked else list(groups)
    if is_chunked and ends:
        framed.append(rng.choice([b"0\r\n\r\n", b"0\r\nx-trailer: 1\r\n\r\n"]))
    whole = b"".join(framed)
    if len(whole) < 60_000 and rng.random() < 0.3:  # cuts that have nothing to do with frames or chunks
        framed = list(_cut(rng, whole, rng.choice([3, 20, 300])))
    often = rng.choice([0.0, 0.1, 1.0])
    steps: list[Step] = []
    left = _LONGEST_WAIT
    for data in framed:
        steps.append(data)
        if left > 0 and rng.random() < often:
            wait = rng.random() * pause
            left -= wait
            steps.append(wait)
    return steps


def _groups(rng: Random, frames: Sequence[bytes]) -> Iterator[bytes]:
    """Frames as they are written: one by one, several at a time, all at once."""
    most = rng.choice([1, 1, 4, 1000])
    at = 0
    while at < len(frames):
        number = rng.randint(1, most)
        yield b"".join(frames[at : at + number])
        at += number


def _compressed(groups: Sequence[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    for group in groups:
        yield packer.compress(group) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def _cut(rng: Random, data: bytes, most: int) -> Iterator[bytes]:
    at = 0
    smallest = max(1, len(data) // 400)  # so that no stream has more than some hundred writes
    while at < len(data):
        size = rng.randint(smallest, smallest + most)
        yield data[at : at + size]
        at += size
