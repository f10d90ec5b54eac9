"""One request's source, stages and channels in one nursery."""

from collections.abc import Awaitable, Callable, Iterable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pipeline.assembly import open_pipeline
from pipeline.errors import StageFailed, StreamCut
from pipeline.items import StreamError
from pipeline.stage import Stage
from pipeline.testing import make_stage, run_stage_in_channels

Send = trio.MemorySendChannel[list[object]]


class Tagged(Stage):
    """Adds its number to each text; raises for ``boom``, is finished with ``enough``."""

    number = ""

    def feed(self, item: object) -> Iterable[object]:
        """Texts get longer, errors pass."""
        if item == "boom":
            raise ZeroDivisionError
        self.finished = item == "enough"
        return (item if isinstance(item, StreamError) else f"{item}{self.number}",)

    def close(self) -> Iterable[object]:
        """Give one text more."""
        return (f"end{self.number}",)


def row(count: int) -> list[tuple[str, Stage]]:
    stages = [(f"tagged-{number}", make_stage(Tagged)) for number in range(count)]
    for number, (_, stage) in enumerate(stages):
        stage.number = str(number)
    return stages


def sending(*bursts: list[object]) -> Callable[[Send], Awaitable[None]]:
    async def source(send: Send) -> None:
        await trio.lowlevel.checkpoint()
        for burst in bursts:
            await send.send(burst)

    return source


async def forever(send: Send) -> None:
    """A source that never has anything."""
    await trio.sleep_forever()


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


class TestFlow:
    """What goes in at one end comes out at the other."""

    @pytest.mark.parametrize("count", [0, 1, 6])
    async def test_through_all_stages(self, count):
        """Items pass the stages in order, then what each gives at the end, and then the channel ends."""
        tags = "".join(map(str, range(count)))
        async with open_pipeline(sending(["a", "b"], ["c"]), row(count)) as receive:
            given = [item async for burst in receive for item in burst]
        assert given[:3] == [f"a{tags}", f"b{tags}", f"c{tags}"]
        assert given[3:] == [f"end{tags[position:]}" for position in range(count)]

    async def test_slow_consumer_holds_the_source(self):
        """What is under way at any time is bounded by the number of stages, not by what the source has."""
        sent = 0

        async def source(send: Send) -> None:
            nonlocal sent
            while True:
                await send.send(["a"])
                sent += 1

        async with open_pipeline(source, row(3)) as receive:
            taken = 0
            for _ in range(20):
                await wait_all_tasks_blocked()
                assert sent - taken <= 2 * 3
                taken += len(await receive.receive())


class TestErrors:
    """What goes wrong comes out once, in one place."""

    async def test_source_error_is_single(self):
        """What the source raises leaves the block as it is, not as a group."""

        async def source(send: Send) -> None:
            await send.send(["a"])
            await wait_all_tasks_blocked()
            raise StreamCut("gone")

        given = []
        with pytest.raises(StreamCut, match="gone"):  # noqa: PT012 - what came before it counts
            async with open_pipeline(source, row(2)) as receive:
                async for burst in receive:
                    given += burst
        assert given == ["a01"]

    async def test_stage_error_comes_in_band(self):
        """What was given before a stage crashed is not lost, and the stages behind it see the error and the end."""
        async with open_pipeline(sending(["a", "boom", "b"]), row(2)) as receive:
            first, error, end = [item async for burst in receive for item in burst]
        assert (first, end) == ("a01", "end1")
        assert isinstance(error, StreamError)
        assert isinstance(error.failure, StageFailed)
        assert error.failure.stage == "tagged-0"

    async def test_error_of_the_block(self):
        """What the consumer raises leaves the block as it is, and all tasks are gone."""
        before = living()
        with pytest.raises(KeyError, match="mine"):
            async with open_pipeline(forever, row(3)):
                raise KeyError("mine")
        assert living() == before

    async def test_something_of_the_sources_own_is_broken(self):
        """A broken connection of the source is an error, not the end of whoever takes its items."""

        async def source(send: Send) -> None:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError("connection reset")

        with pytest.raises(trio.BrokenResourceError, match="reset"):
            async with open_pipeline(source, row(1)) as receive:
                await receive.receive()


class TestEnd:
    """The block is the request."""

    async def test_leaving_cancels_everything(self):
        """Leaving the block early ends source and stages; no task is left and no channel open."""
        before, cleaned = living(), []

        async def source(send: Send) -> None:
            try:
                await send.send(["a"])
                await trio.sleep_forever()
            finally:
                cleaned.append("source")

        async with open_pipeline(source, row(3)) as receive:
            assert await receive.receive() == ["a012"]
            assert living() == before + 4
        assert living() == before
        assert cleaned == ["source"]
        with pytest.raises(trio.ClosedResourceError):
            receive.receive_nowait()

    async def test_finished_stage_stops_the_source(self):
        """Once a stage is finished, the source finds its channel broken and the consumer the end."""
        broken = trio.Event()

        async def source(send: Send) -> None:
            await send.send(["enough"])
            try:
                while True:
                    await send.send(["more"])
            except trio.BrokenResourceError:
                broken.set()
                raise

        async with open_pipeline(source, row(3)) as receive:
            given = [item async for burst in receive for item in burst]
        assert given == ["enough012", "end12", "end2"]
        assert broken.is_set()

    async def test_requests_are_independent(self):
        """A crash in one request leaves its neighbour alone."""
        results: dict[str, list[object]] = {}

        async def request(name: str, *items: str) -> None:
            results[name] = await run_stage_in_channels(make_stage(Tagged), [[item] for item in items])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(request, "good", "a", "b")
            nursery.start_soon(request, "bad", "a", "boom")
        assert results["good"] == ["a", "b", "end"]
        assert results["bad"][0] == "a"
        assert isinstance(results["bad"][1], StreamError)


async def test_cancelled_passes(autojump_clock):
    """A timeout around the block ends it, and is not mistaken for an error."""
    before = living()
    with trio.move_on_after(5) as scope:
        async with open_pipeline(forever, row(2)) as receive:
            await receive.receive()
    assert scope.cancelled_caught
    assert living() == before


async def test_error_while_cancelled(autojump_clock):
    """An error that comes up during a cancellation comes out alone."""

    async def source(send: Send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise StreamCut("while cleaning up")

    with pytest.raises(StreamCut, match="cleaning"), trio.move_on_after(5):
        async with open_pipeline(source, row(2)) as receive:
            await receive.receive()
