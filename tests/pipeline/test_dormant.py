"""A stage sleeps until an item concerns it; nothing but the cost differs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pipeline.assembly import open_pipeline
from pipeline.dormant import DormantStages
from pipeline.errors import UpstreamReported
from pipeline.items import Chunk, Item, StreamError
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.registry import StageRegistry
from pipeline.stage import RequestContext, Stage
from pipeline.testing import (
    RecordingObserver,
    call_chunk,
    chunk,
    items_of,
    make_stage,
    run_stage,
    text_chunk,
    with_shapes,
)
from pipeline.testing.fingerprint import fingerprints
from stages.empty_skip import EmptySkip
from stages.parallel_call_filter import ParallelCallFilter
from stages.reasoning_dispatch import ReasoningDispatch
from stages.reasoning_parser import ReasoningParser
from stages.role_dedup import RoleDedup
from stages.tool_call_dispatch import ToolCallDispatch
from stages.tool_call_parser import ToolCallParser

SLEEPERS = [
    EmptySkip,
    ParallelCallFilter,
    ReasoningDispatch,
    ReasoningParser,
    RoleDedup,
    ToolCallDispatch,
    ToolCallParser,
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
EVENTS = {"tool_call_dispatch", "reasoning_dispatch"}


class Odd(Stage):
    """Wakes for text that begins with a capital letter, and marks what it sees."""

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self.asked: list[Item] = []

    def wakes_for(self, item: Item) -> bool:
        """Whether it is a capital letter."""
        self.asked.append(item)
        return isinstance(item, Chunk) and text_of(item).istitle()

    def feed(self, item: Item) -> Iterable[Item]:
        """Mark it."""
        return (text_chunk(text_of(item) + "!"),)

    def close(self) -> Iterable[Item]:
        """Say so."""
        return (text_chunk("closed"),)


class Confused(Odd):
    """Raises where it is asked, and where it is fed."""

    def wakes_for(self, item: Item) -> bool:  # noqa: ARG002 - whatever it is
        """Raise."""
        raise ValueError

    feed = wakes_for  # type: ignore[assignment]


def text_of(item: Item) -> str:
    assert isinstance(item, Chunk)
    text: str = item.payload["choices"][0]["delta"]["content"]
    return text


async def through(stages: list[Stage], bursts: list[list[Any]], *, join: bool = False) -> tuple[list[Any], set[str]]:
    """What comes out of a pipeline, and the names of all tasks that it ever had."""
    tasks: set[str] = set()

    class Watch(trio.abc.Instrument):
        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            tasks.add(task.name)

    async def source(send: trio.MemorySendChannel[list[Any]]) -> None:
        for burst in bursts:
            await send.send(burst)

    watch = Watch()
    trio.lowlevel.add_instrument(watch)
    named = [(type(stage).__name__, stage) for stage in stages]
    async with open_pipeline(source, named, join=join) as receive:
        given = [item async for burst in receive for item in burst]
    trio.lowlevel.remove_instrument(watch)
    return given, tasks


async def test_it_has_no_task_until_it_wakes():
    """What comes before goes past it, whatever the cut; from the item on that wakes it, it is a stage as any other."""
    items = [text_chunk(text) for text in ("a", "b", "C", "d")]
    for bursts in ([items], [[item] for item in items], [items[:1], items[1:]]):
        stage = make_stage(Odd)
        given, tasks = await through([stage], bursts)
        assert [text_of(item) for item in given] == ["a", "b", "C!", "d!", "closed"]
        assert stage.asked == items[:3]
        assert "stage Odd" in tasks


async def test_it_may_sleep_to_the_end():
    """A stage that nothing concerns has no task, and is not closed."""
    given, tasks = await through([make_stage(Odd)], [[text_chunk("a")], [text_chunk("b")]])
    assert [text_of(item) for item in given] == ["a", "b"]
    assert "stage Odd" not in tasks


class Waits(Stage):
    """Wakes for one word, and marks what it sees."""

    def __init__(self, word: str) -> None:
        super().__init__(None, RequestContext())
        self._word = word

    def wakes_for(self, item: Item) -> bool:
        """Whether it is the word."""
        return text_of(item).rstrip("+-=") == self._word

    def feed(self, item: Item) -> Iterable[Item]:
        """Mark it."""
        return (text_chunk(text_of(item) + self.mark),)


class First(Waits):
    mark = "+"


class Second(Waits):
    mark = "-"


class Third(Waits):
    mark = "="


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize(
    ("words", "given", "awake"),
    [
        ("no", "a b c d e", set()),
        ("a no no", "a+ b+ c+ d+ e+", {"First"}),
        ("no c no", "a b c- d- e-", {"Second"}),
        ("no no e", "a b c d e=", {"Third"}),
        ("c no b", "a b= c+= d+= e+=", {"First", "Third"}),
        ("d c b", "a b= c-= d+-= e+-=", {"First", "Second", "Third"}),
        ("b c d", "a b+ c+- d+-= e+-=", {"First", "Second", "Third"}),
        ("c c c", "a b c+-= d+-= e+-=", {"First", "Second", "Third"}),
    ],
)
async def test_neighbours_sleep_on(words, given, awake, size, join):
    """Each wakes for itself, in front of those that sleep and behind them, in one burst or in several."""
    stages = [kind(word) for kind, word in zip((First, Second, Third), (words + " no no").split(), strict=False)]
    items = [text_chunk(text) for text in "abcde"]
    came, tasks = await through(stages, [items[at : at + size] for at in range(0, 5, size)], join=join)
    assert " ".join(map(text_of, came)) == given
    if join and awake:
        assert tasks == {"source", "stage First+Second+Third"}
    else:
        assert tasks == {"source", *(f"stage {name}" for name in awake)}


async def test_behind_a_stage_that_awaits_nobody_sleeps():
    """A stage with a loop of its own may do with its channel what it likes."""

    class Own(Stage):
        async def run(self, receive: Any, send: Any) -> None:
            async for burst in receive:
                with send.clone() as other:
                    await other.send(burst)

    given, tasks = await through([make_stage(Own), make_stage(Odd)], [[text_chunk("a")]])
    assert [text_of(item) for item in given] == ["a!", "closed"]
    assert "stage Odd" in tasks


async def test_whoever_raises_when_asked_is_fed():
    """A stage that raises ends the stream with an error that names it, also where it raises in its sleep."""
    given, _ = await through([make_stage(Confused)], [[text_chunk("a")]])
    (error,) = given
    assert isinstance(error, StreamError)
    assert "Confused" in error.failure.message


async def test_of_a_run_the_first_is_asked():
    """Neighbouring chunks of one shape are one question."""
    items = with_shapes([text_chunk(text) for text in "abcd"])
    stage = make_stage(Odd)
    await through([stage], [items])
    assert stage.asked == items[:1]


async def test_a_burst_that_has_to_wait_is_not_asked_about_again():
    """Where there is no room the question is not repeated: a stage may have noted the answer."""
    send, receive = trio.open_memory_channel[list[Any]](0)
    stage = make_stage(Odd)
    with send, receive:
        async with trio.open_nursery() as nursery:
            dormant = DormantStages(send, nursery)
            dormant.put_in_front("Odd", stage)
            burst = [text_chunk("a")]
            with pytest.raises(trio.WouldBlock):
                dormant.send_nowait(burst)
            nursery.start_soon(dormant.send, burst)
            assert await receive.receive() == burst
            assert stage.asked == burst


class Redact(EmptySkip):
    """Derived from a stage that sleeps and takes runs; has its own way with each item."""

    def feed(self, item: Item) -> Iterable[Item]:  # noqa: ARG002 - whatever it is
        """Nothing goes through."""
        return ()


class Last(EmptySkip):
    """Derived from a stage that sleeps; says something at the end."""

    def close(self) -> Iterable[Item]:
        """Say so."""
        return (text_chunk("closed"),)


async def test_a_derived_stage_sees_every_item():
    """What a class overrides holds for every item, also for those that the class above it would not look at."""
    items = with_shapes([text_chunk(text) for text in "abcd"])
    given, tasks = await through([make_stage(Redact)], [items])
    assert given == []
    assert "stage Redact" in tasks
    given, _ = await through([make_stage(Last)], [items])
    assert text_of(given[-1]) == "closed"


async def test_a_parser_sleeps_while_there_is_nothing_to_find():
    """A text without markup has no task for its parsers; what wakes one is read once."""
    request = {"tools": [TOOL]}
    plain = with_shapes(
        [chunk(role="assistant", content=""), *(text_chunk(text) for text in ("1 ", "> 0", " and so on"))]
    )
    stages = [make_stage(each, request=request) for each in (ReasoningParser, ToolCallParser)]
    given, tasks = await through(stages, [plain[:2], plain[2:]])
    assert given == plain
    assert tasks == {"source"}
    markup = [text_chunk("a <tool"), text_chunk('_call>{"name":"f","arguments":{}}</tool_call>')]
    stage = make_stage(ToolCallParser, request=request)
    given, tasks = await through([stage], [plain, markup])
    assert fingerprints(given)[:5] == fingerprints([*plain, text_chunk("a ").edited(text_chunk("a ").payload)])
    assert given[-1].payload["choices"][0]["delta"]["tool_calls"]
    assert "stage ToolCallParser" in tasks


async def test_a_finish_is_told_of_by_a_sleeping_dispatcher():
    """The observer hears of the first finish of each choice, whether there were calls or not."""
    observer = RecordingObserver()
    stage = make_stage(ToolCallDispatch, events=EVENTS, observer=observer)
    stop = text_chunk("", finish="stop")
    await through([stage], [[item] for item in (text_chunk("a"), stop, chunk(choice=1, finish="length"), stop)])
    assert observer.records == [("choice_finished", 0, "stop"), ("choice_finished", 1, "length")]


@pytest.fixture(scope="module")
def plain_ids():
    """Calls that the model gave no id all get the same one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.formats.call_ids.made_up_id", lambda _: "made_up")
        yield


OPENER = call_chunk(0, "c", "f", "{}")
CHUNKS = [
    chunk(role="assistant", content=""),
    chunk(role="assistant"),
    chunk(role="assistant", content="r"),
    chunk(role="assistant", choice=1),
    text_chunk("a"),
    text_chunk("b"),
    text_chunk(""),
    text_chunk(" "),
    text_chunk("<"),
    text_chunk("think>a"),
    text_chunk("b</think>c<tool_call>"),
    text_chunk('{"name":"f","arguments":{}}</tool_call>'),
    chunk(),
    chunk(reasoning_content="t"),
    chunk(reasoning="u"),
    OPENER,
    call_chunk(1, "d", "g", '{"x":'),
    call_chunk(1, arguments="1"),
    call_chunk(1, arguments="}"),
    text_chunk("", finish="stop"),
    chunk({"choices": [{"index": 0, "delta": {"role": "a"}}, {"index": 0, "delta": {"role": "a"}}]}),
    chunk({"choices": [], "error": {"message": "late"}}),
    chunk({"choices": 1}),
    StreamError(UpstreamReported("broken"), b"data: x\n\n"),
    *items_of(b": comment\n\n"),
]


@pytest.mark.usefixtures("plain_ids")
@given(st.lists(st.sampled_from(CHUNKS), max_size=14), st.lists(st.integers(1, 4), min_size=14, max_size=14))
async def test_nothing_else_differs(items, sizes):
    """Each built-in stage gives the same whether it may sleep or is awake from the start, alone and in a pipeline."""
    shaped = with_shapes(items)
    bursts = []
    for size in sizes:
        bursts.append(shaped[:size])
        del shaped[:size]
    bursts = [burst for burst in bursts if burst]
    flat = [item for burst in bursts for item in burst]

    def made(stage: type[Stage]) -> Stage:
        return make_stage(stage, events=EVENTS, request={"parallel_tool_calls": False, "tools": [TOOL]})

    for each in SLEEPERS:
        given, _ = await through([made(each)], bursts)
        assert fingerprints(given) == fingerprints(run_stage(made(each), flat))
    awake = flat
    plan = make_plan(("reasoning_parser", "tool_call_parser", *DEFAULT_STAGES), {}, StageRegistry())
    context = RequestContext(request=made(EmptySkip).context.request, events=frozenset(EVENTS))
    for _, stage in plan.stages_for(context):
        awake = run_stage(stage, awake)
    for join in (False, True):
        given, _ = await through([stage for _, stage in plan.stages_for(context)], bursts, join=join)
        assert b"".join(given) == b"".join(awake)
