"""What is recorded of a request: the rows P1 to P13, one outcome whatever ends it, and a client that notices nothing."""

from __future__ import annotations

import json
import math

import attrs
import pytest
import trio
from folding import fold
from hypothesis import given
from hypothesis import strategies as st
from notation import DEFAULT_ORDER, SIDE_EVENTS
from trio.testing import wait_all_tasks_blocked

from pipeline.assembly import open_pipeline
from pipeline.decode import ItemDecoder
from pipeline.errors import StreamFailure, UpstreamReported
from pipeline.items import End, Evidence, StreamError
from pipeline.stage import RequestContext, Stage
from pipeline.testing import (
    RecordingObserver,
    call_chunk,
    check_conformance,
    chunk,
    items_of,
    make_stage,
    run_stage,
    run_stage_in_channels,
    text_chunk,
)
from stages.aggregate import Aggregate
from stages.payload_capture import PayloadCapture
from stages.role_dedup import RoleDedup

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
DONE = End(b"data: [DONE]\n\n")
DROPPED = (None, "response_stream_dropped")
FINISHED_CALL = [call_chunk(0, "c", "f", '{"a":1}'), chunk(finish="stop")]


def error(message="bad sampling value"):
    """The upstream's own error frame."""
    return StreamError(UpstreamReported(message), b'data: {"error":{}}\n\n')


def made(request=None):
    """A stage, and what its observer is told."""
    observer = RecordingObserver()
    return make_stage(PayloadCapture, request=request, observer=observer), observer.records


async def capture(items, take=math.inf, request=None):
    """Run a stage between channels, burst by burst, for a consumer that leaves after some items.

    Returns:
        What the consumer took, and the outcome: response and reason.
    """
    stage, records = made(request)
    taken = []

    async def source(send):
        for item in items:
            await send.send([item])

    async with open_pipeline(source, [("payload_capture", stage)]) as receive:
        while len(taken) < take:
            try:
                taken += await receive.receive()
            except trio.EndOfChannel:
                break
    ((name, *outcome),) = records
    assert name == "payload_captured"
    return taken, tuple(outcome)


def message_of(response):
    (choice,) = response["choices"]
    return choice["message"]


# --- the rows -----------------------------------------------------------------------------------------------------


async def test_p1_text():
    """P1: three items forwarded unchanged, no reason, and the text."""
    items = [text_chunk("Tide "), text_chunk("table"), chunk(finish="stop")]
    taken, (response, reason) = await capture(items)
    assert (taken, reason) == (items, None)
    assert message_of(response)["content"] == "Tide table"


async def test_p2_reasoning_text_and_a_call():
    """P2: all forwarded; the response has the reasoning, the text, and one call with joined arguments."""
    items = [
        chunk(reasoning_content="Check the port."),
        text_chunk("One moment."),
        call_chunk(0, "c", "f", '{"a"'),
        call_chunk(0, arguments=":1}", finish="tool_calls"),
    ]
    taken, (response, reason) = await capture(items)
    assert (taken, reason) == (items, None)
    message = message_of(response)
    assert (message["reasoning_content"], message["content"]) == ("Check the port.", "One moment.")
    assert message["tool_calls"] == [CALL]


@pytest.mark.parametrize("end", [[], [DONE]], ids=["P3", "P4"])
async def test_p3_p4_a_finished_call(end):
    """P3, P4: a finished call is there although the turn ended with `stop`."""
    taken, (response, reason) = await capture([*FINISHED_CALL, *end])
    assert (len(taken), reason) == (2 + len(end), None)
    assert message_of(response)["tool_calls"] == [CALL]


async def test_p5_an_error_behind_a_call():
    """P5: the consumer takes three, the third is the error; reason and the call are both there."""
    items = [*FINISHED_CALL, error()]
    taken, (response, reason) = await capture(items, take=3)
    assert taken == items
    assert reason.startswith("aggregation_failed:")
    assert message_of(response)["tool_calls"] == [CALL]


async def test_p6_markup_without_a_parser():
    """P6: without a tool parser markup is text."""
    markup = '<tool_call>{"name":"f","arguments":{}}</tool_call>'
    _, (response, reason) = await capture([text_chunk(markup, finish="stop")])
    assert reason is None
    assert message_of(response)["content"] == markup
    assert "tool_calls" not in message_of(response)


@pytest.mark.parametrize("items", [[], [DONE], items_of(b": hello\n\n")], ids=["P7", "P7 done", "P7 comment"])
async def test_p7_nothing(items):
    """P7: no chunk, no response, `empty_response_stream`."""
    assert await capture(items) == (items, (None, "empty_response_stream"))


async def test_p8_text_without_a_finish():
    """P8: the response has the text; a body that just ends is a cut, as the client is told, `[DONE]` is an end."""
    item = text_chunk("Tide")
    for end, reason in ([DONE], None), ([], "aggregation_failed:upstream_cut: "):
        taken, (response, found) = await capture([item, *end])
        assert taken == [item, *end]
        assert (response["object"], message_of(response)["content"]) == ("chat.completion", "Tide")
        assert found == reason or found.startswith(reason)


async def test_p9_what_is_beside_the_data():
    """P9: id, event and comment of a frame go on with it; a frame of another kind does too."""
    data = json.dumps(text_chunk("x", finish="stop").payload).encode()
    body = b": note\nid: 7\nevent: message\ndata: %b\n\n: alone\n\nevent: ping\ndata: {}\n\n" % data
    items = items_of(body)
    taken, (response, reason) = await capture(items)
    assert (taken, reason) == (items, None)
    assert taken[0].raw == body.partition(b": alone")[0]
    assert message_of(response)["content"] == "x"


async def test_p10_dropped_unread():
    """P10: two captures whose streams nobody reads both say that they were dropped."""
    outcomes = []

    async def drop():
        stage, records = made()

        async def source(send):
            await send.send([text_chunk("x", finish="stop"), DONE])

        async with open_pipeline(source, [("payload_capture", stage)]):
            await wait_all_tasks_blocked()
        outcomes.append(records)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drop)
        nursery.start_soon(drop)
    assert outcomes == [[("payload_captured", *DROPPED)]] * 2


async def test_p11_an_error_in_the_text():
    """P11: the response is what came before the error; what comes after it is never pulled."""
    items = [text_chunk("Tide "), error("bad sampling value"), text_chunk("table")]
    taken, (response, reason) = await capture(items, take=2)
    assert taken[:2] == items[:2]
    assert reason == "aggregation_failed:upstream_reported: bad sampling value"
    assert message_of(response)["content"] == "Tide "


async def test_p12_only_an_error():
    """P12: no response, and the reason names the error."""
    _, (response, reason) = await capture([error("kaput")])
    assert response is None
    assert reason.endswith("kaput")


@pytest.mark.parametrize("end", [[], [error()]], ids=["P13", "P13 error"])
async def test_p13_a_call_that_is_none(end):
    """P13: a call that was never confirmed is left out, at the end and before an error alike."""
    unsure = attrs.evolve(FINISHED_CALL[0], evidence=(Evidence(0, 0, complete=False),))
    taken, (response, reason) = await capture([unsure, FINISHED_CALL[1], *end])
    assert len(taken) == 2 + len(end)
    assert (reason is None) == (not end)
    assert "tool_calls" not in message_of(response)


@pytest.mark.parametrize(("words", "is_there"), [([False, True], True), ([True, False], False), ([], True)])
async def test_the_last_evidence_counts(words, is_there):
    """5.6: confirmed later is confirmed; a call that nobody doubts is one."""
    evidence = tuple(Evidence(0, 0, complete=word) for word in words)
    _, (response, _) = await capture([attrs.evolve(FINISHED_CALL[0], evidence=evidence), FINISHED_CALL[1]])
    assert ("tool_calls" in message_of(response)) == is_there


# --- one outcome --------------------------------------------------------------------------------------------------


async def test_what_follows_an_error_is_forwarded_and_not_recorded(monkeypatch):
    """5.3: the first error settles; later items still go on, are not folded, and the end says nothing more."""
    folded = []
    feed = Aggregate.feed
    monkeypatch.setattr(Aggregate, "feed", lambda self, payload: (folded.append(payload), feed(self, payload)))
    items = [text_chunk("a"), error(), text_chunk("b", finish="stop"), error("again"), DONE]
    taken, (response, reason) = await capture(items)
    assert (taken, folded) == (items, [items[0].payload])
    assert (message_of(response)["content"], reason[-18:]) == ("a", "bad sampling value")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (chunk({"error": {"message": "no", "code": 503}, "choices": []}), "upstream_reported: no"),
        (StreamError(StreamFailure("silence")), "upstream_error: silence"),
    ],
)
async def test_other_errors(item, reason):
    """An error beside choices and a failure that Callahead noticed settle as the upstream's own frame does."""
    _, (response, found) = await capture([text_chunk("a"), item])
    assert found == f"aggregation_failed:{reason}"
    assert message_of(response)["content"] == "a"


async def test_a_bug_in_the_fold_is_not_the_clients(monkeypatch):
    """Whatever a fold raises, every item is forwarded, and the reason says what it was."""
    monkeypatch.setattr(Aggregate, "feed", lambda *_: 1 / 0)
    items = [text_chunk("a"), DONE]
    assert await capture(items) == (items, (None, "aggregation_failed:ZeroDivisionError: division by zero"))


class Looping(Stage):
    """A stage with a loop of its own: whoever follows it has a task."""

    async def run(self, receive, send):
        """As the driver does."""
        await super().run(receive, send)


class Breaks(Stage):
    """Raises at the finish."""

    def feed(self, item):
        """Pass on, or raise."""
        if item.payload["choices"][0]["finish_reason"]:
            raise ValueError
        return (item,)


@pytest.mark.parametrize("join", [False, True])
async def test_a_stage_that_fails_behind_it(join):
    """What is behind the capture makes no difference to it: it has seen a whole response."""
    stage, records = made()

    async def source(send):
        await send.send([text_chunk("a")])
        await send.send([text_chunk("b", finish="stop")])

    stages = [("payload_capture", stage), ("breaks", make_stage(Breaks)), ("last", make_stage(Stage))]
    async with open_pipeline(source, stages, join=join) as receive:
        assert isinstance([item async for burst in receive for item in burst][-1], StreamError)
    ((_, response, reason),) = records
    assert (message_of(response)["content"], reason) == ("ab", None)


STAGES = {"role_dedup": RoleDedup, "looping": Looping}


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope after so many steps of the tasks of a pipeline."""

    def __init__(self, scope, step):
        self.scope = scope
        self.left = step

    def after_task_step(self, task):
        """Count one."""
        if task.name == "source" or task.name.startswith("stage "):
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("before", [(), ("role_dedup",), ("looping",)])
@pytest.mark.parametrize("takes", [0, 1, 9])
async def test_one_outcome_wherever_it_is_cancelled(takes, before, join):
    """Cancelled at any step of any task, with any consumer, behind whatever stage, there is exactly one outcome."""
    items = [[text_chunk("a"), text_chunk("b")], [text_chunk("c", finish="stop")], [DONE]]
    outcomes = []
    for step in range(1, 40):
        stage, records = made()

        async def source(send):
            for burst in items:
                await send.send(burst)

        with trio.CancelScope() as scope:
            instrument = CancelAtStep(scope, step)
            trio.lowlevel.add_instrument(instrument)
            try:
                stages = [
                    *((name, STAGES[name](None, RequestContext())) for name in before),
                    ("payload_capture", stage),
                ]
                async with open_pipeline(source, stages, join=join) as receive:
                    for _ in range(takes):
                        try:
                            await receive.receive()
                        except trio.EndOfChannel:
                            break
                    else:
                        await wait_all_tasks_blocked()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        ((_, *outcome),) = records
        outcomes.append(tuple(outcome))
    whole = (fold(item.payload for item in [*items[0], *items[1]]), None)
    assert set(map(repr, outcomes)) <= {repr(whole), repr(DROPPED)}
    assert outcomes[0] == DROPPED
    assert outcomes[-1] == (whole if takes == 9 else DROPPED)


async def test_a_source_that_was_cancelled_is_no_end():
    """When a request is cancelled its source may close first: the stream was dropped, and did not end."""
    for before in ([], [("looping", Looping(None, RequestContext()))]):
        stage, records = made()

        async def source(send):
            await send.send([text_chunk("a", finish="stop")])
            try:
                await trio.sleep_forever()
            finally:
                send.close()

        with trio.CancelScope() as scope:
            async with open_pipeline(source, [*before, ("payload_capture", stage)]) as receive:
                await receive.receive()
                scope.cancel()
                await trio.sleep_forever()
        assert records == [("payload_captured", *DROPPED)]


async def test_a_consumer_that_leaves_is_no_failure():
    """A closed channel behind it ends the stage quietly: no error is told, and the stream was dropped."""
    stage, records = made()

    async def source(send):
        while True:
            await send.send([text_chunk("a")])

    async with open_pipeline(source, [("payload_capture", stage)]) as receive:
        await receive.receive()
        receive.close()
        await wait_all_tasks_blocked()
    assert records == [("payload_captured", *DROPPED)]


# --- what the client notices --------------------------------------------------------------------------------------


async def test_a_burst_is_sent_before_it_is_folded(monkeypatch):
    """Forwarding is not delayed: when the fold of a burst begins, the burst has left."""
    waiting = []
    monkeypatch.setattr(Aggregate, "feed", lambda *_: waiting.append(receive.statistics().tasks_waiting_receive))
    stage, _ = made()

    async def source(send):
        await wait_all_tasks_blocked()
        await send.send([text_chunk("a"), text_chunk("b")])

    async with open_pipeline(source, [("payload_capture", stage)]) as receive:
        assert len(await receive.receive()) == 2
    assert waiting == [0, 0]


async def test_bursts_go_on_as_they_came():
    """Bursts are neither cut nor put together, and keep their order."""
    bursts = [[text_chunk("a"), text_chunk("b")], [text_chunk("c")], [text_chunk("d")]]
    stage, _ = made()

    async def source(send):
        for burst in bursts:
            await send.send(burst)

    async with open_pipeline(source, [("payload_capture", stage)]) as receive:
        assert [burst async for burst in receive] == bursts


BODY = b"".join(
    item.raw
    for item in [
        chunk(role="assistant", content=""),
        *map(text_chunk, ["Let me ", "", "see."]),
        chunk(reasoning_content="Which port?"),
        call_chunk(0, "c", "f", '{"a"'),
        call_chunk(0, arguments=":1}"),
        chunk(finish="tool_calls"),
        DONE,
    ]
)


@given(
    st.lists(st.integers(0, len(BODY)), max_size=12).map(sorted),
    st.sampled_from([BODY, BODY[:-40], BODY.replace(b'"choices"', b'"error":{"message":"x"},"choices"', 3)]),
)
def test_the_clients_bytes_are_the_same(places, body):
    """Whatever the reads and however the stream ends, a captured request's client gets what any client gets."""
    reads = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    received = {}
    for is_captured in (False, True):
        context = RequestContext(request={}, events=SIDE_EVENTS, capture=is_captured)
        order = [stage for stage in (PayloadCapture, *DEFAULT_ORDER) if not stage.is_idle(stage.Options(), context)]
        assert (PayloadCapture in order) == is_captured
        received[is_captured] = trio.run(receive_all, reads, [stage(stage.Options(), context) for stage in order])
    assert received[False] == received[True] != b""


async def receive_all(reads, stages):
    """The bytes that stages make of reads of an upstream's body."""
    decoder = ItemDecoder()

    async def source(send):
        for items in (*map(decoder.feed, reads), decoder.close()):
            if items:
                await send.send(items)

    async with open_pipeline(source, [(type(stage).__name__, stage) for stage in stages]) as receive:
        return b"".join([data async for burst in receive for data in burst])


async def test_conformance():
    """It keeps the promises of a stage."""
    await check_conformance(lambda: made()[0], items_of(b": hello\n\n" + BODY))


async def test_without_channels():
    """Fed item by item it gives the same and says the same."""
    items = items_of(BODY)
    stage, records = made()
    assert run_stage(stage, items) == items
    in_channels, records_in_channels = made()
    assert await run_stage_in_channels(in_channels, [items]) == items
    assert records == records_in_channels
    assert len(records) == 1


async def test_the_request_says_how_to_fold():
    """Without parallel calls only the first one is recorded."""
    items = [call_chunk(0, "c", "f", '{"a":1}'), call_chunk(1, "d", "g", "{}", finish="stop")]
    _, (response, _) = await capture(items, request={"parallel_tool_calls": False})
    assert message_of(response)["tool_calls"] == [CALL]
