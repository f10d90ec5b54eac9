"""The limits on an upstream that talks too slowly."""

from __future__ import annotations

import math

import attrs
import trio

from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamResponse

__all__ = ["Deadlines", "read_within"]


@attrs.define(eq=False)
class Deadlines:
    """The three limits on an upstream that talks too slowly; each in seconds, 0 = no limit.

    The clock of ``first_chunk_timeout`` and ``total_timeout`` starts with the object, that of ``idle_timeout`` with
    each frame; it does not run before the first. Limits are applied around reads only, and silence is the time spent
    in them: a client that reads slowly costs the upstream nothing, in the middle of a frame either.
    """

    first_chunk_timeout: float = 0.0
    idle_timeout: float = 0.0
    total_timeout: float = 0.0
    started: float = attrs.field(factory=trio.current_time)
    waits_for_first_chunk: bool = True
    silence: float | None = None
    """Seconds spent in reads since the last frame."""

    def next(self, now: float) -> tuple[float, UpstreamErrorKind]:
        """When to give up a read that begins now, in Trio's time, and why that would be."""
        total = self.started + self.total_timeout if self.total_timeout else math.inf
        deadline, kind = total, UpstreamErrorKind.TOTAL_TIMEOUT
        if self.waits_for_first_chunk and self.first_chunk_timeout:
            first = self.started + self.first_chunk_timeout
            if first < deadline:
                deadline, kind = first, UpstreamErrorKind.FIRST_CHUNK_TIMEOUT
        if self.silence is not None and self.idle_timeout:
            idle = now + self.idle_timeout - self.silence
            if idle < deadline:
                deadline, kind = idle, UpstreamErrorKind.IDLE_TIMEOUT
        return deadline, kind

    def expired(self, kind: UpstreamErrorKind) -> UpstreamError:
        """The error for a limit that was reached."""
        match kind:
            case UpstreamErrorKind.FIRST_CHUNK_TIMEOUT:
                what = f"no chunk within upstream.first_chunk_timeout = {self.first_chunk_timeout:g} s"
            case UpstreamErrorKind.IDLE_TIMEOUT:
                what = f"silence for upstream.idle_timeout = {self.idle_timeout:g} s"
            case _:
                what = f"no end within upstream.total_timeout = {self.total_timeout:g} s"
        return UpstreamError(kind, f"the upstream stalled: {what}")


async def read_within(response: UpstreamResponse, deadlines: Deadlines) -> bytes:
    """``response.receive()`` within the limits. Checkpoints.

    Raises:
        UpstreamError: as ``receive``, or a limit was reached.
    """
    began = trio.current_time()
    deadline, kind = deadlines.next(began)
    if deadline == math.inf:
        return await response.receive()
    with trio.CancelScope(deadline=deadline):
        data = await response.receive()
        if deadlines.silence is not None:
            deadlines.silence += trio.current_time() - began
        return data
    raise deadlines.expired(kind)
