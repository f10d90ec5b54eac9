"""From an offered record to the sinks: bounded, counted, never in a request's way, flushed at the end."""

import errno
import json
import time

import orjson
import pytest
import structlog
import trio
import trio.testing
from capture_helpers import ScriptedOptions, make_capture, record, running

from server.capture.record import RecordEncoder
from server.capture.sink import Sink, SinkError


@pytest.fixture
def log():
    """What is logged."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def events(log) -> list[str]:
    """What was logged, without the fields."""
    return [entry["event"] for entry in log]


async def test_records_reach_every_sink_in_order():
    """Each sink gets each record once, as one readable line, and the metrics say so."""
    async with running({"a": ScriptedOptions(), "b": ScriptedOptions()}) as it:
        assert all(it.capture.offer(record(number)) for number in range(300))
    wanted = [f"r{number}" for number in range(300)]
    assert it.sinks["a"].ids == it.sinks["b"].ids == wanted
    assert orjson.loads(it.sinks["a"].lines[0])["upstream"] == "http://up/v1"
    assert (it.written("a"), it.written("b")) == (300, 300)
    assert it.sinks["a"].batches < 300
    assert (it.sinks["a"].closed, it.sinks["b"].closed) == (1, 1)


async def test_records_are_written_without_waiting_for_more():
    """A single record is written at once, not when a batch is full."""
    async with running() as it:
        it.capture.offer(record(1))
        await trio.testing.wait_all_tasks_blocked()
        assert it.sinks["a"].ids == ["r1"]


async def test_records_that_follow_each_other_share_writes(autojump_clock):
    """A second of many records costs a sink some twenty writes; none waits for more than a moment."""
    async with running() as it:
        for number in range(1000):
            it.capture.offer(record(number))
            await trio.sleep(0.001)
        assert len(it.sinks["a"].ids) >= 900
        assert it.sinks["a"].batches <= 25
        await trio.sleep(0.1)
        assert len(it.sinks["a"].ids) == 1000


def test_wants():
    """Models and sampling are those of the settings."""
    it = make_capture(models=("qwen*",), sample=1.0)
    assert it.capture.wants("qwen3", "r")
    assert not it.capture.wants("demo", "r")
    assert not make_capture(sample=0.0).capture.wants("qwen3", "r")


class TestSlowSinks:
    """Records are lost rather than requests slowed."""

    async def test_a_slow_sink_loses_records_for_itself_only(self, log, autojump_clock):  # noqa: ARG002 - it is the clock
        """Its queue is bounded; what is over it is counted and logged once; the other sink gets everything."""
        gate = trio.Event()
        async with running({"slow": ScriptedOptions(gate=gate), "fast": ScriptedOptions()}, queue_records=4) as it:
            it.capture.offer(record(0))
            await it.sinks["slow"].in_write.wait()
            for number in range(1, 10):
                it.capture.offer(record(number))
                await trio.sleep(1)
            assert len(it.sinks["fast"].ids) == 10
            assert it.lost("queue_full", "slow") == 5
            gate.set()
        assert it.sinks["slow"].ids == ["r0", "r1", "r2", "r3", "r4"]
        assert it.written("slow") + it.lost("queue_full", "slow") == 10
        assert it.lost("queue_full", "fast") == 0
        assert [(entry["event"], entry["sink"]) for entry in log] == [
            ("capture loses records: the sink is too slow", "slow")
        ]

    async def test_slow_again(self, log):
        """A sink that has caught up and falls behind once more is logged once more."""
        gates = trio.open_memory_channel[None](0)

        class Stepwise(Sink):
            async def write(self, lines) -> None:
                for _ in lines:
                    await gates[1].receive()

        async with running({"a": ScriptedOptions()}, sink=Stepwise, queue_records=1) as it:
            for _ in range(2):
                for number in range(4):
                    it.capture.offer(record(number))
                    await trio.testing.wait_all_tasks_blocked()
                for _ in range(2):
                    await gates[0].send(None)
                await trio.testing.wait_all_tasks_blocked()
        assert it.lost("queue_full") == 4
        assert events(log) == ["capture loses records: the sink is too slow"] * 2

    async def test_bounded_by_bytes(self):
        """Large records fill the queue by their size."""
        gate = trio.Event()
        large = b'"' + b"x" * 10_000 + b'"'
        async with running({"a": ScriptedOptions(gate=gate)}, queue_bytes=30_000) as it:
            it.capture.offer(record(0))
            await it.sinks["a"].in_write.wait()
            for number in range(1, 6):
                it.capture.offer(record(number, request=large))
                await trio.testing.wait_all_tasks_blocked()
            assert it.lost("queue_full") == 3
            gate.set()
        assert it.sinks["a"].ids == ["r0", "r1", "r2"]

    async def test_more_than_can_be_encoded(self):
        """A crowd of requests that end at once is bounded before it is encoded; each sink counts the loss."""
        async with running({"a": ScriptedOptions(), "b": ScriptedOptions()}, queue_records=3) as it:
            taken = [it.capture.offer(record(number)) for number in range(8)]
        assert taken == [True] * 3 + [False] * 5
        assert (it.lost("queue_full", "a"), it.lost("queue_full", "b")) == (5, 5)
        assert it.sinks["b"].ids == ["r0", "r1", "r2"]

    async def test_offering_costs_a_request_next_to_nothing(self):
        """Offering does no work on the record's content, however large that is."""
        it = make_capture(queue_bytes=10**12)
        huge = record(request=b"x" * 5_000_000, response={"x": ["y" * 1000] * 10_000})
        started = time.perf_counter()
        for _ in range(500):
            it.capture.offer(huge)
        assert time.perf_counter() - started < 0.25


class TestFailingSinks:
    """A failure costs the batch, is said once, and ends."""

    async def test_said_once_until_it_works_again(self, log, autojump_clock):  # noqa: ARG002 - it is the clock
        """Every lost record is counted, the log has one line for the failure and one for the recovery."""
        full = OSError(errno.ENOSPC, "No space left on device")
        failures = [full, full, SinkError("out of paper"), None, full]
        async with running({"a": ScriptedOptions(failures)}) as it:
            for number in range(6):
                it.capture.offer(record(number))
                await trio.sleep(1)
        assert it.sinks["a"].ids == ["r3", "r5"]
        assert (it.lost("disk_full"), it.lost("sink_error"), it.written()) == (3, 1, 2)
        assert (
            events(log)
            == ["capture sink fails; its records are lost until it works again", "capture sink works again"] * 2
        )
        assert (log[0]["error"], log[1]["lost"], log[3]["lost"]) == ("No space left on device", 3, 1)

    async def test_part_of_a_batch(self):
        """What a sink says is safe counts as written, the rest as lost, and nothing is offered twice."""
        async with running({"a": ScriptedOptions([SinkError("torn", written=2)])}) as it:
            for number in range(5):
                it.capture.offer(record(number))
        assert it.written() == len(it.sinks["a"].ids)
        assert it.written() + it.lost("sink_error") == 5
        assert len(set(it.sinks["a"].ids)) == len(it.sinks["a"].ids)

    @pytest.mark.parametrize("bug", [ZeroDivisionError("no"), ExceptionGroup("two", [ValueError("x"), OSError("y")])])
    async def test_a_sink_with_a_bug(self, log, bug):
        """It costs its own batch only, and its traceback is logged."""
        async with running({"a": ScriptedOptions([bug]), "b": ScriptedOptions()}) as it:
            for number in range(2):
                it.capture.offer(record(number))
                await trio.testing.wait_all_tasks_blocked()
        assert (it.sinks["a"].ids, it.sinks["b"].ids) == (["r1"], ["r0", "r1"])
        assert it.lost("sink_error") == 1
        assert log[0]["exc_info"] is bug

    async def test_a_sink_that_cannot_be_closed(self, log):
        """It is logged; the others are closed and the flush ends."""

        class Stuck(Sink):
            async def write(self, lines) -> None:  # noqa: ARG002 - the sink's signature
                await trio.lowlevel.checkpoint()

            async def aclose(self) -> None:
                raise RuntimeError("stuck")

        async with running({"a": ScriptedOptions()}, sink=Stuck) as it:
            it.capture.offer(record())
        assert it.written() == 1
        assert events(log) == ["capture sink cannot be closed"]


class TestEncoding:
    """What cannot be written as it is."""

    async def test_a_record_too_large(self):
        """Its envelope reaches the sink, and the loss of the rest is counted."""
        async with running(max_record_bytes=1000) as it:
            it.capture.offer(record(1, request=b'"' + b"x" * 2000 + b'"'))
            it.capture.offer(record(2))
        assert it.sinks["a"].ids == ["r1", "r2"]
        assert json.loads(it.sinks["a"].lines[0])["payload_drop_reason"].startswith("record_too_large:max_bytes=1000:")
        assert (it.written(), it.lost("record_too_large")) == (2, 1)

    async def test_large_records_keep_their_place(self):
        """What is encoded in a thread is not overtaken."""
        async with running() as it:
            for number in range(6):
                it.capture.offer(record(number, request=b'"%s"' % (b"x" * (400_000 if number % 2 else 10))))
        assert it.sinks["a"].ids == [f"r{number}" for number in range(6)]

    async def test_a_record_that_nobody_can_encode(self, log, monkeypatch):
        """It is counted and logged once; those behind it are written."""
        real = RecordEncoder.encode

        def encode(self, one):
            if one.request_id != "r2":
                raise KeyError("a bug")
            return real(self, one)

        monkeypatch.setattr(RecordEncoder, "encode", encode)
        async with running() as it:
            for number in range(3):
                it.capture.offer(record(number))
        assert it.sinks["a"].ids == ["r2"]
        assert it.lost("encode_error") == 2
        assert events(log) == ["a record cannot be encoded"]


class TestTheEnd:
    """SIGTERM, as capture sees it."""

    async def test_what_comes_late_is_counted(self):
        """A record that is offered after the flush is refused without an error."""
        async with running() as it:
            await it.capture.flush(trio.current_time() + 5)
            assert not it.capture.offer(record(1))
            await it.capture.flush(trio.current_time() + 5)
        assert it.lost("shutdown") == 1
        assert it.sinks["a"].ids == []

    async def test_flushing_what_never_ran(self):
        """Where the process ends before it began the flush returns, and a late ``run`` as well."""
        it = make_capture()
        it.capture.offer(record())
        with trio.fail_after(5):
            await it.capture.flush(trio.current_time() + 1)
            await it.capture.run()
        assert it.sinks["a"].closed == 1

    async def test_a_cancellation_before_anything_is_encoded(self):
        """Records whose turn never came are counted too."""
        it = make_capture()
        async with trio.open_nursery() as nursery:
            await nursery.start(it.capture.run)
            for number in range(20):
                it.capture.offer(record(number))
            nursery.cancel_scope.cancel()
        assert it.lost("shutdown") + it.written() == 20


async def test_a_full_queue_is_flushed(autojump_clock):
    """All that was accepted is written within the time, then the sink is closed and ``run`` returns."""
    gate = trio.Event()
    it = make_capture({"a": ScriptedOptions(gate=gate)}, queue_records=50)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(it.capture.run)
            for number in range(60):
                it.capture.offer(record(number))
            await trio.testing.wait_all_tasks_blocked()

            async def open_late() -> None:
                await trio.sleep(5)
                gate.set()

            nursery.start_soon(open_late)
            await it.capture.flush(trio.current_time() + 10)
            assert it.sinks["a"].closed == 1
    assert it.sinks["a"].ids == [f"r{number}" for number in range(50)]
    assert it.written() == 50
    assert it.lost("queue_full") == 10
    assert it.lost("shutdown") == 0


async def test_what_is_left_after_the_time_is_counted(autojump_clock):
    """A sink that hangs is given up at the deadline; the others have written everything."""
    it = make_capture({"a": ScriptedOptions(gate=trio.Event()), "b": ScriptedOptions()})
    async with trio.open_nursery() as nursery:
        await nursery.start(it.capture.run)
        for number in range(20):
            it.capture.offer(record(number))
        started = trio.current_time()
        await it.capture.flush(started + 10)
        assert 10 <= trio.current_time() - started <= 11
    assert (it.written("a"), it.lost("shutdown", "a")) == (0, 20)
    assert (it.written("b"), it.lost("shutdown", "b")) == (20, 0)
    assert (it.sinks["a"].closed, it.sinks["b"].closed) == (1, 1)


async def test_a_sink_that_never_closes(autojump_clock):
    """It gets what is left of the time and a second, no more."""

    class Endless(Sink):
        async def write(self, lines) -> None:  # noqa: ARG002 - the sink's signature
            await trio.lowlevel.checkpoint()

        async def aclose(self) -> None:
            await trio.sleep_forever()

    it = make_capture({"a": ScriptedOptions()}, sink=Endless)
    async with trio.open_nursery() as nursery:
        await nursery.start(it.capture.run)
        started = trio.current_time()
        await it.capture.flush(started + 3)
        assert 3 <= trio.current_time() - started <= 4.01


async def test_a_second_signal(autojump_clock):
    """A cancellation ends it at once; what waited is counted, and the sinks are closed."""
    it = make_capture({"a": ScriptedOptions(gate=trio.Event())})
    async with trio.open_nursery() as nursery:
        await nursery.start(it.capture.run)
        for number in range(20):
            it.capture.offer(record(number))
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - started <= 1
    assert it.lost("shutdown") == 20
    assert it.sinks["a"].closed == 1
