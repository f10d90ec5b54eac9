"""What users test their stages with: each check finds a stage that breaks its promise, and no other."""

import re
from collections.abc import Iterable

import attrs
import pytest
import trio

from pipeline.errors import PlanError
from pipeline.items import Chunk, End, Item, SideEvent, StreamError, Verbatim
from pipeline.observer import Observer
from pipeline.sse import Frame, sse_frame
from pipeline.stage import EventStyle, Flow, Stage
from pipeline.testing import (
    RecordingObserver,
    call_chunk,
    check_conformance,
    chunk,
    cut_everywhere,
    frames_of,
    items_of,
    make_stage,
    odd_payloads,
    random_cuts,
    run_stage,
    run_stage_in_channels,
    run_stages,
    text_chunk,
)

ITEMS = [
    chunk(role="assistant"),
    *items_of(b": comment\n\n"),
    text_chunk("a"),
    call_chunk(0, "c", "f", "{}"),
    text_chunk("b", finish="stop"),
    *items_of(b"data: [DONE]\n\n"),
]


@attrs.frozen
class CounterOptions:
    """For stages that need some."""

    limit: int = 1


class Counter(Stage):
    """Gives the number of items at the end."""

    Options = CounterOptions
    seen = 0

    def feed(self, item: object) -> Iterable[object]:
        self.seen += 1
        self.context.observer.call_opened(0, call_index=self.seen)
        self.finished = self.seen > self.options.limit
        return (item,)

    def close(self) -> Iterable[object]:
        return (self.seen,)


class Encoder(Stage):
    """The least that an encoder does."""

    gives = Flow.BYTES

    def feed(self, item: Item) -> Iterable[bytes]:
        match item:
            case StreamError():
                yield item.raw or sse_frame(str(item.failure).encode())
                self.finished = item.raw is None
            case Verbatim():
                yield item.frame.raw
            case Chunk() | End():
                yield item.raw or b""


class Shout(Stage):
    """Edits text, and keeps all else as it is."""

    def feed(self, item: Item) -> Iterable[Item]:
        if not isinstance(item, Chunk):
            return (item,)
        try:
            (choice,) = item.payload["choices"]
            text = choice["delta"]["content"].upper()
        except (KeyError, TypeError, ValueError, AttributeError):
            return (item,)
        return (item.edited({**item.payload, "choices": [{**choice, "delta": {**choice["delta"], "content": text}}]}),)


class Teller(Stage):
    """Adds side events and drops comments."""

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            yield SideEvent("told", {"of": 1}, item)
        if not isinstance(item, Verbatim):
            yield item


class Holder(Stage):
    """Keeps one ordinary item back."""

    held: Item | None = None

    def feed(self, item: Item) -> Iterable[Item]:
        if self.held is not None:
            yield self.held
        self.held = None
        if isinstance(item, Chunk):
            self.held = item
        else:
            yield item

    def close(self) -> Iterable[Item]:
        return () if self.held is None else (self.held,)


class TestBuilders:
    """Items as the decoder makes them."""

    def test_chunk_from_a_payload(self):
        """A whole payload, with the bytes of its frame."""
        made = chunk({"choices": [], "x": "é"})
        (decoded,) = items_of(made.raw)
        assert made.payload == decoded.payload == {"choices": [], "x": "é"}
        assert made.raw == 'data: {"choices":[],"x":"é"}\n\n'.encode()

    def test_chunk_from_a_delta(self):
        """One choice in an ordinary envelope."""
        payload = chunk(role="assistant", content="", choice=2, finish="stop").payload
        assert payload["object"] == "chat.completion.chunk"
        assert payload["choices"] == [{"index": 2, "delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]

    def test_text_chunk(self):
        """A piece of text, of the first choice unless said otherwise."""
        (choice,) = text_chunk("hi", choice=1, finish="length").payload["choices"]
        assert choice == {"index": 1, "delta": {"content": "hi"}, "finish_reason": "length"}

    def test_call_chunk(self):
        """A fragment holds what was given and nothing else."""
        fragments = [
            call_chunk(1, "c", "f", "{").payload["choices"][0]["delta"]["tool_calls"],
            call_chunk(1, arguments="}").payload["choices"][0]["delta"]["tool_calls"],
        ]
        assert fragments == [
            [{"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}],
            [{"index": 1, "function": {"arguments": "}"}}],
        ]

    def test_frames_and_items_of_bytes(self):
        """A body's frames and items, its last frame included."""
        body = b": c\n\ndata: {}"
        assert [frame.raw for frame in frames_of(body)] == [b": c\n\n", b"data: {}"]
        assert [type(item) for item in items_of(body)] == [Verbatim, Chunk]

    def test_odd_payloads_are_new(self):
        """Changing one does not change the next test's."""
        odd_payloads()[0]["x"] = 1
        assert odd_payloads()[0] == {}


class TestCuts:
    """Pieces that make up the whole."""

    def test_everywhere(self):
        """The whole, byte by byte, and every cut in two; of text and lists too."""
        assert list(cut_everywhere(b"abc")) == [[b"abc"], [b"a", b"b", b"c"], [b"a", b"bc"], [b"ab", b"c"]]
        assert list(cut_everywhere("ab"))[1] == ["a", "b"]
        assert list(cut_everywhere([1, 2]))[2] == [[1], [2]]
        assert list(cut_everywhere(b"")) == [[b""], []]

    def test_random(self):
        """As many as asked for, the same for the same seed, none with an empty piece."""
        cuts = list(random_cuts(b"0123456789", seed=1, n=30))
        assert cuts == list(random_cuts(b"0123456789", seed=1, n=30))
        assert cuts != list(random_cuts(b"0123456789", seed=2, n=30))
        assert {b"".join(pieces) for pieces in cuts} == {b"0123456789"}
        assert all(piece for pieces in cuts for piece in pieces)
        assert list(random_cuts(b"", seed=1, n=1)) == [[b""]]


class TestMaking:
    """A stage and its surroundings."""

    def test_defaults(self):
        """Without anything said, the stage has its defaults, an empty request and no events."""
        stage = make_stage(Counter)
        assert stage.options == CounterOptions()
        assert (stage.context.request, stage.context.events) == ({}, frozenset())
        assert type(stage.context.observer) is Observer

    def test_everything(self):
        """What a stage may depend on can be given."""
        observer = RecordingObserver()
        stage = make_stage(
            Counter,
            options={"limit": 3},
            request={"n": 2},
            events=["x"],
            event_style=EventStyle.CHUNK,
            observer=observer,
        )
        assert stage.options.limit == 3
        assert stage.context.request == {"n": 2}
        assert stage.context.events == {"x"}
        assert stage.context.event_style is EventStyle.CHUNK
        assert stage.context.observer is observer

    def test_options_are_those_of_a_config(self):
        """A wrong option is the error that a config would give."""
        with pytest.raises(PlanError, match=r"stages\.Counter\.limt: is no option .* did you mean"):
            make_stage(Counter, options={"limt": 3})

    def test_observer(self):
        """Each call is kept with its arguments in the order of the signature, however they were passed."""
        observer = RecordingObserver()
        observer.call_refused(None, repair="r", reason="why", call_index=2)
        observer.event_sent("x")
        assert observer.records == [("call_refused", None, 2, "why", "r"), ("event_sent", "x")]

    def test_observer_knows_every_method(self):
        """Whatever stages can tell is kept, and what nobody can tell is refused."""
        names = [name for name in vars(Observer) if not name.startswith("_")]
        observer = RecordingObserver()
        assert all(name in vars(observer) for name in names)
        with pytest.raises(TypeError):
            observer.event_sent()


class TestRunning:
    """What comes out of stages."""

    def test_to_the_end(self):
        """All items and the end behind them."""
        assert run_stage(make_stage(Counter, options={"limit": 9}), "ab") == ["a", "b", 2]

    def test_until_it_is_finished(self):
        """Nothing is fed, and ``close`` not called, once the stage has had enough."""
        assert run_stage(make_stage(Counter), "abcd") == ["a", "b"]

    def test_raising(self):
        """What the stage raises comes out as it is."""

        class Broken(Stage):
            def feed(self, item: object) -> Iterable[object]:
                raise KeyError(item)

        with pytest.raises(KeyError, match="a"):
            run_stage(make_stage(Broken), "a")

    def test_in_a_row(self):
        """What one stage gives is what the next one gets."""
        assert run_stages([make_stage(Counter), make_stage(Counter, options={"limit": 9})], "abc") == ["a", "b", 2]
        assert run_stages([], "ab") == ["a", "b"]

    async def test_in_channels(self):
        """The same through the driver, where an error comes in band."""
        stage = make_stage(Counter, options={"limit": 9})
        assert await run_stage_in_channels(stage, [["a", "b"], ["c"]]) == ["a", "b", "c", 3]
        (error,) = await run_stage_in_channels(make_stage(Shout), [[Chunk(None, b"")]])
        assert isinstance(error, StreamError)


class TestConformance:
    """Stages that keep their promises pass."""

    @pytest.mark.parametrize("stage", [Stage, Encoder, Shout, Teller])
    async def test_good_stages(self, stage):
        """Passing on, encoding, editing, adding and dropping are all right."""
        await check_conformance(lambda: make_stage(stage), ITEMS)

    async def test_holding_back_with_leave(self):
        """A stage that says that it holds frames back may."""
        await check_conformance(lambda: make_stage(Holder), ITEMS[:-1], may_hold=True)

    async def test_stage_of_bytes(self):
        """A stage that takes bytes is checked with bytes."""

        class Upper(Stage):
            takes = gives = Flow.BYTES

            def feed(self, item: bytes) -> Iterable[bytes]:
                return (item.upper(),)

        await check_conformance(lambda: make_stage(Upper), [b"a", b"b", b"c"])

    async def test_awaiting_stage(self, autojump_clock):
        """A stage that takes its time may, if it holds frames back openly."""

        class Slow(Stage):
            async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
                async for burst in receive:
                    await trio.sleep(0.01)
                    await send.send(burst)

        await check_conformance(lambda: make_stage(Slow), ITEMS, may_hold=True)

    async def test_nothing_to_check_with(self):
        """Without items every stage would pass, so that is a mistake."""
        with pytest.raises(ValueError, match="items is empty"):
            await check_conformance(lambda: make_stage(Stage), [])


class Crashes(Stage):
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            for choice in item.payload.get("choices", ()):
                choice["delta"].get("role")
        return (item,)


class ChangesInPlace(Stage):
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            item.payload["seen"] = True
        return (item,)


class CountsBursts(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        async for burst in receive:
            await send.send([*burst, text_chunk("burst")])


class NeverEnds(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        async for burst in receive:
            await send.send(burst)
        await trio.sleep_forever()


class SwallowsItsErrors(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        async for burst in receive:
            try:
                await send.send([given for item in burst for given in self.feed(item)])
            except RuntimeError:
                return


class SwallowsCancelled(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        try:
            async for burst in receive:
                await send.send([given for item in burst for given in self.feed(item)])
        except trio.Cancelled:
            return


class SpeaksAfterCancelled(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        try:
            async for burst in receive:
                await send.send([given for item in burst for given in self.feed(item)])
        except trio.Cancelled:
            send.send_nowait([text_chunk("wait")])
            raise


class LeavesAClone(Stage):
    clones = []

    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        try:
            await super().run(receive, send)
        except trio.Cancelled:
            self.clones.append(receive.clone())
            raise


class LeavesATask(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        async def linger() -> None:
            with trio.move_on_after(1):
                await trio.sleep_forever()

        trio.lowlevel.spawn_system_task(linger)
        await super().run(receive, send)


class GoesOnWhenFinished(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        async for burst in receive:
            await send.send([given for item in burst for given in self.feed(item)])

    def feed(self, item: Item) -> Iterable[Item]:
        self.finished = True
        return (item,)


class ClosesTwice(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        await super().run(receive, send)
        self.close()


class TakesAll(Stage):
    async def run(self, receive: trio.MemoryReceiveChannel, send: trio.MemorySendChannel) -> None:
        into, out = trio.open_memory_channel(1000)

        async def pull() -> None:
            with into:
                async for burst in receive:
                    await into.send([given for item in burst for given in self.feed(item)])

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull)
                async for burst in out:
                    await send.send(burst)
        except* RuntimeError as group:
            raise group.exceptions[0] from None


class DropsErrors(Stage):
    def feed(self, item: Item) -> Iterable[Item]:
        return () if isinstance(item, StreamError) else (item,)


class SpeaksBehindAnError(Stage):
    def close(self) -> Iterable[Item]:
        return (text_chunk("the end"),)


class Reverses(Holder):
    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk) and self.held is not None:
            return (item,)
        return super().feed(item)


class LosesKeys(Stage):
    def feed(self, item: Item) -> Iterable[Item]:
        return (item.edited({"choices": item.payload.get("choices")}) if isinstance(item, Chunk) else item,)


class LosesBytes(Stage):
    def feed(self, item: Item) -> Iterable[Item]:
        return (item.edited(item.payload) if isinstance(item, Chunk) else item,)


class DelayingEncoder(Encoder):
    held = b""

    def feed(self, item: Item) -> Iterable[bytes]:
        held, self.held = self.held, b"".join(super().feed(item))
        if isinstance(item, StreamError):
            return (held, self.held)
        return (held,) if held else ()

    def close(self) -> Iterable[bytes]:
        return (self.held,)


BROKEN = [
    (Crashes, "must not raise for any item, but raises KeyError('delta') for chunk {"),
    (ChangesInPlace, "must not change an item in place, but changed "),
    (CountsBursts, "must give the same however items are cut into bursts, but for bursts of [1, 1, 1, 1, 1, 1] it gives "),
    (NeverEnds, "must close its send end once its source has ended, but has not after 5.0 s"),
    (SwallowsItsErrors, "must let pass what its feed raises, so that the client is told, but swallows it"),
    (SwallowsCancelled, "must let trio.Cancelled pass, but swallows it"),
    (SpeaksAfterCancelled, "must send nothing once it is cancelled, but does"),
    (LeavesAClone, "must leave no clone of its channels open, but does"),
    (LeavesATask, "must leave no task behind, but does"),
    (GoesOnWhenFinished, "must be left alone once it is finished or closed, but its run calls feed after that"),
    (ClosesTwice, "must be left alone once it is finished or closed, but its run calls close after that"),
    (TakesAll, "must stop taking while nobody takes what it gives, but took 18 of 18 bursts, though burst 1 made"),
    (DropsErrors, "must pass a StreamError on, but drops it"),
    (SpeaksBehindAnError, "must give nothing behind a StreamError without bytes, but gives chunk {"),
    (Holder, "must not delay an ordinary frame until a later one arrives, but gives item 0 only after it got item 1"),
    (DelayingEncoder, "must not delay an ordinary frame until a later one arrives, but gives item 0 only after it got item 1"),
    (LosesKeys, "must keep keys that it does not know, but gives chunk {"),
    (LosesBytes, "must keep the bytes of a chunk that it does not edit, but loses data: {"),
]


@pytest.mark.parametrize(("stage", "message"), BROKEN, ids=[stage.__name__ for stage, _ in BROKEN])
async def test_broken_promise(stage, message, autojump_clock):
    """Each promise that a stage breaks is named in one line, with the stage and what was seen."""
    LeavesAClone.clones.clear()
    with pytest.raises(AssertionError) as caught:
        await check_conformance(lambda: make_stage(stage), ITEMS)
    assert re.sub(r"b'|\\n|\\'", "", str(caught.value)).startswith(f"{stage.__name__} {message}")
    assert "\n" not in str(caught.value)
    for clone in LeavesAClone.clones:
        clone.close()


async def test_reordering_is_found_although_it_may_hold():
    """Leave to hold frames back is no leave to reorder them."""
    with pytest.raises(AssertionError, match="Reverses must not reorder ordinary frames, but gives .* in the order"):
        await check_conformance(lambda: make_stage(Reverses), ITEMS[:-1], may_hold=True)
