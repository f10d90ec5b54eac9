"""What users test their stages with: builders, cuts, and ways of running a stage."""

from collections.abc import Iterable

import attrs
import pytest

from pipeline.errors import PlanError
from pipeline.items import Chunk, StreamError, Verbatim
from pipeline.observer import Observer
from pipeline.stage import EventStyle, Stage
from pipeline.testing import (
    RecordingObserver,
    call_chunk,
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


@attrs.frozen
class CounterOptions:
    """For stages that need some."""

    limit: int = 1


class Counter(Stage):
    """Gives the number of items at the end, or is finished once it has seen enough."""

    Options = CounterOptions
    seen = 0

    def feed(self, item: object) -> Iterable[object]:
        """Count it."""
        self.seen += 1
        self.context.observer.call_opened(0, call_index=self.seen)
        self.finished = self.seen > self.options.limit
        return (item,)

    def close(self) -> Iterable[object]:
        """Give the number."""
        return (self.seen,)


class Broken(Stage):
    """Raises whatever it is fed."""

    def feed(self, item: object) -> Iterable[object]:
        """Raise it."""
        raise KeyError(item)


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
        assert payload["choices"] == [
            {"index": 2, "delta": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
        ]

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
        (error,) = await run_stage_in_channels(make_stage(Broken), [["a"]])
        assert isinstance(error, StreamError)
