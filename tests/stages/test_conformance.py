"""The six default stages keep the promises of a stage, alone and together, between real memory channels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import DEFAULT_ORDER, FIN, SIDE_EVENTS, C, Gateway, R, c1, chunk, t

from pipeline.assembly import open_pipeline
from pipeline.sse import sse_frame
from pipeline.stage import EventStyle
from pipeline.testing import check_conformance, cut_everywhere, items_of, make_stage

ROLE = ((0, "role", "assistant"),)
REQUEST = {"parallel_tool_calls": False}
PARTS = [
    ROLE + C(""),
    ROLE + R("Which "),
    R("port?") + c1(ROLE),
    C(""),
    C("Let me see."),
    t(0, "call_1", "tide", '{"port":') + t(1, "call_2", "wind", "{}"),
    (),
    t(0, None, None, '"Bergen"}') + c1(R("Hm.")),
    FIN("tool_calls"),
    c1(C("No.")),
    c1(FIN("stop")),
]
BODY = b": hello\n\n" + b"".join(sse_frame(json.dumps(chunk(parts)).encode()) for parts in PARTS) + b"data: [DONE]\n\n"


def made(stage, style=EventStyle.NAMED):
    return make_stage(stage, request=REQUEST, events=SIDE_EVENTS, event_style=style)


@pytest.mark.parametrize("style", EventStyle)
@pytest.mark.parametrize("stage", DEFAULT_ORDER)
async def test_conformance(stage, style):
    """Bursts do not matter, frames stay in place, odd payloads are survived, and every ending is clean."""
    await check_conformance(lambda: made(stage, style), items_of(BODY))


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_the_default_order_between_channels(size):
    """Run by the real driver, in bursts of any size, the client receives what it does in process."""

    async def source(send):
        items = items_of(BODY)
        for start in range(0, len(items), size):
            await send.send(items[start : start + size])

    async with open_pipeline(source, [(stage.__name__, made(stage)) for stage in DEFAULT_ORDER]) as receive:
        received = [data async for burst in receive for data in burst]
    gateway = Gateway(request=REQUEST)
    assert b"".join(received) == gateway.feed(BODY) + gateway.close()
    assert b"".join(received).count(b"event: ") == 3


def test_any_cut_in_two_gives_the_same_bytes():
    """Wherever a read ends, the client receives the same bytes."""
    whole = Gateway(request=REQUEST).feed(BODY)
    for reads in cut_everywhere(BODY):
        gateway = Gateway(request=REQUEST)
        assert b"".join(map(gateway.feed, reads)) == whole


@given(st.lists(st.integers(0, len(BODY)), max_size=20).map(sorted))
def test_any_cut_in_many_gives_the_same_bytes(places):
    """However many reads there are, the client receives the same bytes."""
    gateway = Gateway(request=REQUEST)
    reads = [BODY[start:end] for start, end in zip([0, *places], [*places, len(BODY)], strict=True)]
    assert b"".join(map(gateway.feed, reads)) == Gateway(request=REQUEST).feed(BODY)


@pytest.mark.parametrize("stage", DEFAULT_ORDER)
def test_a_stage_is_described_where_users_look(stage):
    """The first line is the summary; what it emits, drops, keeps and does on cancellation follows."""
    text = stage.__doc__
    assert text.partition("\n")[0].endswith(".")
    assert [word for word in ("Emits:", "Drops:", "State:", "On cancel:") if word not in text] == []


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("parallel_call_filter", "empty_skip"),
        ("parallel_call_filter", "tool_call_dispatch"),
        ("role_dedup", "empty_skip"),
        ("empty_skip", "reasoning_dispatch"),
        ("tool_call_dispatch", "reasoning_dispatch"),
    ],
)
def test_an_order_that_a_rule_depends_on_is_declared(earlier, later):
    """The plan can refuse the other order, and say why."""
    stages = {stage.__module__.removeprefix("stages."): stage for stage in DEFAULT_ORDER}
    assert stages[earlier].precedes[later]
