"""Any order of the built-in stages that a plan allows ends cleanly, whatever comes."""

from importlib.metadata import EntryPoint
from itertools import permutations

import trio
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.assembly import open_pipeline
from pipeline.errors import PlanError, StreamCut, UpstreamReported
from pipeline.items import Chunk, End, StreamError
from pipeline.plan import DEFAULT_STAGES, Plan, make_plan
from pipeline.registry import ENTRY_POINT_GROUP, StageRegistry
from pipeline.stage import EventStyle, RequestContext
from pipeline.testing import RecordingObserver, call_chunk, chunk, frames_of, items_of, odd_payloads, text_chunk

*FREE, ENCODER = DEFAULT_STAGES
REGISTRY = StageRegistry(
    EntryPoint(name, f"stages.{name}:{name.title().replace('_', '')}", ENTRY_POINT_GROUP) for name in DEFAULT_STAGES
)


def allowed_plans() -> dict[tuple[str, ...], Plan]:
    plans = {}
    for count in range(len(FREE) + 1):
        for order in permutations(FREE, count):
            try:
                plans[order] = make_plan((*order, ENCODER), {}, REGISTRY)
            except PlanError:
                continue
    return plans


PLANS = allowed_plans()

LEAVES = st.sampled_from(
    [None, True, 0, 1, -1, 2.5, "", "a", "assistant", "stop", "tool_calls", "{", "}", "[]", [], {}]
)
FRAGMENTS = st.lists(
    LEAVES
    | st.fixed_dictionaries(
        {},
        optional={
            "index": LEAVES,
            "id": LEAVES,
            "type": LEAVES,
            "function": LEAVES | st.fixed_dictionaries({}, optional={"name": LEAVES, "arguments": LEAVES}),
        },
    ),
    max_size=3,
)
DELTAS = LEAVES | st.fixed_dictionaries(
    {},
    optional={
        "role": LEAVES,
        "content": LEAVES,
        "reasoning_content": LEAVES,
        "reasoning": LEAVES,
        "tool_calls": LEAVES | FRAGMENTS,
    },
)
CHOICES = st.lists(
    LEAVES | st.fixed_dictionaries({}, optional={"index": LEAVES, "delta": DELTAS, "finish_reason": LEAVES}), max_size=3
)
PAYLOADS = st.fixed_dictionaries(
    {}, optional={"id": LEAVES, "choices": LEAVES | CHOICES, "error": LEAVES, "usage": LEAVES}
)
ITEMS = st.one_of(
    (PAYLOADS | st.sampled_from(odd_payloads())).map(chunk),
    st.builds(text_chunk, st.text(), choice=st.integers(0, 2), finish=st.sampled_from([None, None, "stop"])),
    st.builds(call_chunk, st.integers(0, 2), arguments=st.sampled_from(["{", "}", '"a":', "1", ""])),
    st.sampled_from(items_of(b": comment\n\nevent: ping\ndata: {}\n\ndata: [1]\n\n")),
    st.just(StreamError(UpstreamReported("overloaded"), b'data: {"error":"overloaded"}\n\n')),
)
ENDS = st.sampled_from([None, End(b"data: [DONE]\n\n"), StreamError(StreamCut("cut off"))])


def test_the_rules_leave_many_orders():
    """Every subset in the default order is allowed, and those that a rule forbids are not."""
    assert sum(list(order) == [name for name in FREE if name in order] for order in PLANS) == 2 ** len(FREE)
    assert ("empty_skip", "role_dedup") not in PLANS
    assert ("tool_call_dispatch", "role_dedup") in PLANS


@given(
    order=st.sampled_from(list(PLANS)),
    bursts=st.lists(st.lists(ITEMS, min_size=1, max_size=5), max_size=5),
    end=ENDS,
    style=st.sampled_from(EventStyle),
    parallel=st.booleans(),
)
@example(order=tuple(FREE), bursts=[], end=None, style=EventStyle.NAMED, parallel=False)
async def test_any_order_ends_cleanly(order, bursts, end, style, parallel):
    """No stage fails, no task is left, and the client is told once, and last of all, how the stream ended."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    observer = RecordingObserver()
    context = RequestContext(
        request={} if parallel else {"parallel_tool_calls": False},
        events=PLANS[order].events,
        event_style=style,
        observer=observer,
    )

    async def source(send: trio.MemorySendChannel[list[object]]) -> None:
        await trio.lowlevel.checkpoint()
        for burst in (*bursts, *([[end]] if end else [])):
            await send.send(burst)

    with trio.fail_after(10):
        async with open_pipeline(source, PLANS[order].stages_for(context)) as receive:
            body = b"".join([data async for burst in receive for data in burst])

    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert "stage_failed" not in [method for method, *_ in observer.records]
    data = [frame.data for frame in frames_of(body)]
    reported = any("error" in item.payload for burst in bursts for item in burst if isinstance(item, Chunk))
    reported = reported or any(isinstance(item, StreamError) for burst in bursts for item in burst)
    if isinstance(end, End):
        assert data[-1] == b"[DONE]"
    elif end is not None:
        assert reported or b'"message":"cut off"' in data[-1]
    elif not reported:
        assert data[-1] == b"[DONE]" or b'"code":"upstream_cut"' in data[-1]
    assert data.count(b"[DONE]") <= 1
    assert data.count(b"[DONE]") == (data[-1:] == [b"[DONE]"])
