"""The loop that runs a stage between two channels."""

import math
from collections.abc import Callable, Iterable

import orjson
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pipeline.driver import run_stage
from pipeline.errors import StageFailed, StreamCut
from pipeline.items import StreamError
from pipeline.stage import Flow, Stage
from pipeline.testing import RecordingObserver, frames_of, make_stage


class Echo(Stage):
    """Gives numbers back as they come, and says how many there were."""

    fed = 0
    closes = 0

    def feed(self, item: int) -> Iterable[object]:
        """Counted."""
        self.fed += 1
        return (item,)

    def close(self) -> Iterable[object]:
        """Counted too."""
        self.closes += 1
        return (f"{self.fed} fed",)


class Picky(Echo):
    """Gives a number twice; raises for -1, drops 0, is finished with 99."""

    def feed(self, item: int) -> Iterable[object]:
        """Give the item before and after what it brings about."""
        self.fed += 1
        if item == 0:
            return
        yield item
        if item == -1:
            raise ZeroDivisionError("on purpose")
        if item == 99:
            self.finished = True
        yield item


class BytesPicky(Picky):
    """The same as the last stage of an order."""

    gives = Flow.BYTES


class Bench:
    """A stage whose channels are in the test's hands."""

    def __init__(self, stage: Stage, *, room: float = math.inf) -> None:
        self.stage = stage
        self.source, self.receive = trio.open_memory_channel[list[object]](math.inf)
        self.send, self.out = trio.open_memory_channel[list[object]](room)

    async def run(self) -> None:
        """Run the stage to its end."""
        await run_stage(self.stage, "picky", self.receive, self.send)

    async def run_all(self, *bursts: list[object]) -> list[list[object]]:
        """Send bursts and the end, run the stage, and give the bursts that came out."""
        with self.source:
            for burst in bursts:
                self.source.send_nowait(burst)
        await self.run()
        return self.taken()

    def taken(self) -> list[list[object]]:
        """The bursts that have come out so far, where there is room for them."""
        bursts = []
        while self.out.statistics().current_buffer_used:
            bursts.append(self.out.receive_nowait())
        return bursts

    def is_closed(self) -> bool:
        """Whether the stage let go of both its channels."""
        return not (self.source.statistics().open_receive_channels or self.out.statistics().open_send_channels)


def failure_of(item: object) -> StageFailed:
    assert isinstance(item, StreamError)
    assert item.raw is None
    assert isinstance(item.failure, StageFailed)
    return item.failure


class TestBursts:
    """What is fed, and what is sent at once."""

    async def test_order_and_end(self):
        """Items are fed in order, what comes of a burst is one burst, and what ``close`` gives comes last."""
        bench = Bench(make_stage(Picky))
        assert await bench.run_all([1, 0, 2]) == [[1, 1, 2, 2], ["3 fed"]]
        assert bench.is_closed()

    async def test_nothing_is_sent_for_nothing(self):
        """A burst of which nothing comes is no burst, and neither is an empty one."""
        assert await Bench(make_stage(Picky)).run_all([0], [], [0]) == [["2 fed"]]

    async def test_an_empty_stream(self):
        """A source that ends at once is an end like any other."""
        bench = Bench(make_stage(Stage))
        assert await bench.run_all() == []
        assert bench.is_closed()

    async def test_a_burst_is_fed_as_it_came(self):
        """Bursts are neither cut nor put together, and the lists of the sender stay as they are."""
        bursts: list[list[object]] = [[1], list(range(2000)), [4]]
        assert await Bench(make_stage(Echo)).run_all(*bursts) == [*bursts, ["2002 fed"]]
        assert bursts == [[1], list(range(2000)), [4]]

    async def test_waits_for_the_source(self, nursery):
        """Without anything to take the stage waits, and gives at once what it gets then."""
        bench = Bench(make_stage(Echo))
        nursery.start_soon(bench.run)
        await wait_all_tasks_blocked()
        assert bench.taken() == []
        for number in (1, 2):
            bench.source.send_nowait([number])
            await wait_all_tasks_blocked()
            assert bench.taken() == [[number]]
        bench.source.close()
        await wait_all_tasks_blocked()
        assert bench.taken() == [["2 fed"]]

    async def test_waits_for_whoever_takes(self, nursery):
        """Without anybody to take, the stage holds one burst and takes no more."""
        bench = Bench(make_stage(Echo), room=0)
        bench.source.send_nowait([1])
        nursery.start_soon(bench.run)
        await wait_all_tasks_blocked()
        bench.source.send_nowait([2])
        bench.source.send_nowait([3])
        await wait_all_tasks_blocked()
        assert bench.source.statistics().current_buffer_used == 2
        assert bench.stage.fed == 1
        bench.source.close()
        assert [burst async for burst in bench.out] == [[1], [2], [3], ["3 fed"]]


class TestFinished:
    """A stage that says that it has had enough."""

    async def test_nothing_more_is_fed(self):
        """The rest of the burst and of the stream is left, ``close`` is not called, and both channels are closed."""
        bench = Bench(make_stage(Picky))
        assert await bench.run_all([1, 99, 2], [3]) == [[1, 1, 99, 99]]
        assert (bench.stage.fed, bench.stage.closes) == (2, 0)
        assert bench.is_closed()

    async def test_source_is_told(self, nursery):
        """Whoever sends to a finished stage finds its channel broken."""
        bench = Bench(make_stage(Picky))
        nursery.start_soon(bench.run)
        bench.source.send_nowait([99])
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            bench.source.send_nowait([1])


class TestRaising:
    """A stage that raises ends its own request, and says so."""

    async def test_in_feed(self):
        """What it gave before is sent, then the error that names the stage; both channels are closed."""
        observer = RecordingObserver()
        bench = Bench(make_stage(Picky, observer=observer))
        before, (error,) = await bench.run_all([1, -1, 2])
        assert before == [1, 1, -1]
        assert failure_of(error).message == "stage picky failed: ZeroDivisionError"
        ((method, name, raised),) = observer.records
        assert (method, name, type(raised)) == ("stage_failed", "picky", ZeroDivisionError)
        assert (bench.stage.fed, bench.stage.closes) == (2, 0)
        assert bench.is_closed()

    async def test_in_close(self):
        """The same holds for what it gives at the end."""

        class Late(Stage):
            def close(self) -> Iterable[object]:
                yield "last"
                raise KeyError("late")

        echoed, given, (error,) = await Bench(make_stage(Late)).run_all([1])
        assert (echoed, given) == ([1], ["last"])
        assert failure_of(error).message == "stage picky failed: KeyError"

    async def test_stream_failure(self):
        """A failure that is already one of the stream's keeps its own code and words."""

        class Strict(Stage):
            def feed(self, item: object) -> Iterable[object]:
                raise StreamCut(f"the upstream ended behind {item}")

        ((error,),) = await Bench(make_stage(Strict)).run_all([1])
        assert isinstance(error, StreamError)
        assert error.failure.body()["error"] == {
            "message": "the upstream ended behind 1",
            "type": "upstream_error",
            "param": None,
            "code": "upstream_cut",
        }

    async def test_encoder(self):
        """A stage that gives bytes says it with the error frame itself."""
        before, last_words = await Bench(make_stage(BytesPicky)).run_all([1, -1])
        assert before == [1, 1, -1]
        (frame,) = frames_of(b"".join(last_words))
        assert orjson.loads(frame.data)["error"] == {
            "message": "stage picky failed: ZeroDivisionError",
            "type": "internal_server_error",
            "param": None,
            "code": "stage_failed",
        }

    async def test_source_is_told_before_anybody_takes_the_error(self, nursery):
        """A slow client does not keep the stages before a failed one at work."""
        bench = Bench(make_stage(Picky), room=0)
        nursery.start_soon(bench.run)
        bench.source.send_nowait([-1])
        assert await bench.out.receive() == [-1]
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            bench.source.send_nowait([1])
        (error,) = await bench.out.receive()
        assert failure_of(error).stage == "picky"

    async def test_something_of_its_own_is_broken(self):
        """A broken stream of the stage's own is a failure, not the end of whoever takes what it gives."""

        class Remote(Stage):
            async def run(self, *_channels: object) -> None:
                await trio.lowlevel.checkpoint()
                raise trio.BrokenResourceError("the moderation service hung up")

        ((error,),) = await Bench(make_stage(Remote)).run_all([1])
        assert failure_of(error).message == "stage picky failed: BrokenResourceError"


class TestDownstreamDone:
    """Nobody takes what the stage gives any more."""

    @pytest.mark.parametrize("items", [[1], [], [99], [-1]], ids=["feed", "close", "finished", "raises"])
    async def test_stops_quietly(self, items):
        """Whatever it had to say, it stops, closes both channels and raises nothing."""
        bench = Bench(make_stage(Picky))
        bench.out.close()
        bench.source.send_nowait(items)
        bench.source.close()
        await bench.run()
        assert bench.is_closed()

    async def test_while_it_waits(self, nursery):
        """Also where it is waiting to be heard."""
        observer = RecordingObserver()
        bench = Bench(make_stage(Echo, observer=observer), room=0)
        bench.source.send_nowait([1])
        nursery.start_soon(bench.run)
        await wait_all_tasks_blocked()
        bench.out.close()
        await wait_all_tasks_blocked()
        assert bench.is_closed()
        assert observer.records == []

    async def test_a_failure_is_observed_all_the_same(self):
        """The operator is told of a stage that raises, even where no client is left to be told."""
        observer = RecordingObserver()
        bench = Bench(make_stage(Picky, observer=observer))
        bench.out.close()
        bench.source.send_nowait([0])
        bench.stage.feed = lambda item: 1 / item
        await bench.run()
        assert [record[:2] for record in observer.records] == [("stage_failed", "picky")]


class TestCancellation:
    """The request is gone."""

    @pytest.mark.parametrize("room", [0, math.inf], ids=["waiting to give", "waiting to take"])
    async def test_while_it_waits(self, room):
        """Both channels are closed, ``close`` is not called, and nothing more is sent."""
        bench = Bench(make_stage(Echo), room=room)
        bench.source.send_nowait([1])
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bench.run)
                await wait_all_tasks_blocked()
                taken = bench.taken()
                scope.cancel()
        assert scope.cancelled_caught
        assert bench.is_closed()
        assert bench.stage.closes == 0
        assert taken == ([] if room == 0 else [[1]])
        assert bench.taken() == []

    async def test_before_it_begins(self):
        """A stage that is cancelled before its first turn closes its channels too."""
        bench = Bench(make_stage(Echo))
        bench.source.send_nowait([1])
        with trio.CancelScope() as scope:
            scope.cancel()
            await bench.run()
        assert scope.cancelled_caught
        assert bench.is_closed()
        assert bench.taken() == []


def slow(delay: Callable[[object], float]) -> type[Stage]:
    class Slow(Stage):
        async def run(
            self, receive: trio.MemoryReceiveChannel[list[object]], send: trio.MemorySendChannel[list[object]]
        ) -> None:
            async for burst in receive:
                for item in burst:
                    await trio.sleep(delay(item))
                    await send.send([item])

    return Slow


async def test_awaiting_stage_takes_its_time(autojump_clock):
    """It may wait for whatever it likes; its channels are closed for it."""
    bench = Bench(make_stage(slow(lambda _: 10)))
    started = trio.current_time()
    assert await bench.run_all([1, 2], [3]) == [[1], [2], [3]]
    assert trio.current_time() - started == pytest.approx(30)
    assert bench.is_closed()


async def test_awaiting_stage_can_be_cancelled(autojump_clock):
    """A timeout around the request ends it too."""
    bench = Bench(make_stage(slow(lambda item: 1 if item == 1 else math.inf)))
    bench.source.send_nowait([1, 2])
    with trio.move_on_after(60) as scope:
        await bench.run()
    assert scope.cancelled_caught
    assert bench.taken() == [[1]]
    assert bench.is_closed()


async def test_a_group_is_a_failure_like_any_other():
    """What its own nursery raises ends the stream with an error."""

    class Parallel(Stage):
        async def run(self, *_channels: object) -> None:
            async def fail() -> None:
                await trio.lowlevel.checkpoint()
                raise ValueError("in a child")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
                nursery.start_soon(trio.sleep_forever)

    ((error,),) = await Bench(make_stage(Parallel)).run_all([1])
    assert failure_of(error).message == "stage picky failed: ExceptionGroup"


async def test_a_cancelled_source_is_no_end_of_the_stream():
    """A channel that is closed while everything is being cancelled never makes a stage say its last words."""
    closed = []

    class Last(Stage):
        def close(self):
            closed.append(True)
            return ()

    send, receive = trio.open_memory_channel[list[object]](0)
    after, end = trio.open_memory_channel[list[object]](0)
    with send, end:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_stage, make_stage(Last), "last", receive, after)
            await wait_all_tasks_blocked()
            send.close()  # as a source does on its way out
            nursery.cancel_scope.cancel()
    assert closed == []
