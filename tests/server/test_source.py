"""What counts as an upstream's silence: the time in which it was read and gave no frame, and no other."""

from __future__ import annotations

import attrs
import pytest
import trio

from pipeline.decode import ItemDecoder
from pipeline.items import StreamError
from server.burst_gate import LARGE_BURST_BYTES, new_burst_gate
from server.deadlines import Deadlines
from server.demand import Demand
from server.errors import UpstreamError, UpstreamErrorKind
from server.source import UpstreamSource

FRAME = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
SHORT = FRAME % b"a"
LONG = FRAME % (b"a" * 2 * LARGE_BURST_BYTES)
IDLE = 10


@attrs.define
class Paced:
    """A response whose pieces come so many seconds after they were asked for."""

    pieces: list[tuple[float, bytes]]
    status: int = 200
    headers: list[tuple[bytes, bytes]] = attrs.field(factory=list)

    async def receive(self) -> bytes:
        """The next piece."""
        seconds, piece = self.pieces.pop(0) if self.pieces else (0, b"")
        await trio.sleep(seconds)
        return piece

    async def aclose(self) -> None:
        """Nothing to let go of."""
        await trio.lowlevel.checkpoint()


class Nobody:
    """Is told of chunks."""

    request_id = "r"

    def chunks_received(self, number: int) -> None:
        """It does not care."""


async def run(pieces, *, client_rests=0.0):
    """The raw bytes that come out, and the failure; the client rests so long behind each burst."""
    demand = Demand(0, new_burst_gate())
    source = UpstreamSource(Paced(pieces), b"", Nobody(), Deadlines(idle_timeout=IDLE), ItemDecoder(), demand)  # type: ignore[arg-type]
    send, receive = trio.open_memory_channel(0)
    raw, failure = b"", None

    async def read() -> None:
        with send:
            await source(send)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        with receive:
            async for burst in receive:
                demand.taken()
                for item in burst:
                    if isinstance(item, StreamError):
                        failure = item.failure
                    else:
                        raw += getattr(item, "raw", None) or b""
                await trio.sleep(client_rests)
                demand.wants_more()
    return raw, failure


@pytest.mark.parametrize("frame", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("cut", [1, 40, -1])
async def test_a_client_that_rests_in_the_middle_of_a_frame_is_no_silence(frame, cut, autojump_clock):
    """A part of a frame has come when the client rests for longer than the limit: the rest of it is waited for."""
    pieces = [(0, SHORT), (1, frame[:cut]), (1, frame[cut:]), (1, b"data: [DONE]\n\n")]
    assert await run(pieces, client_rests=3 * IDLE) == (SHORT + frame + b"data: [DONE]\n\n", None)


@pytest.mark.parametrize("client_rests", [0, 3 * IDLE])
async def test_parts_of_a_frame_are_silence(client_rests, autojump_clock):
    """An upstream that trickles a frame byte by byte is silent, and no rest of the client gives it more time."""
    began = trio.current_time()
    pieces = [(0, SHORT), *[(IDLE / 4, SHORT[at : at + 1]) for at in range(len(SHORT))]]
    raw, failure = await run(pieces, client_rests=client_rests)
    assert raw == SHORT
    assert isinstance(failure, UpstreamError)
    assert failure.kind is UpstreamErrorKind.IDLE_TIMEOUT
    assert IDLE <= trio.current_time() - began <= IDLE + 2 * client_rests


async def test_each_frame_begins_the_silence_anew(autojump_clock):
    """Frames that come just within the limit are no silence, however many."""
    pieces = [(0.9 * IDLE, SHORT)] * 20
    raw, failure = await run([*pieces, (0, b"data: [DONE]\n\n")])
    assert (raw, failure) == (SHORT * 20 + b"data: [DONE]\n\n", None)
