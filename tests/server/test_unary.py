"""Requests that do not stream: the upstream streams, the client gets one response (spec, dispatch, section 4)."""

from __future__ import annotations

import json

import pytest
import trio
from harness import DONE, ScriptedUpstream, call, chunk, data, gateway_and_upstream

from pipeline import Chunk, Stage
from pipeline.testing import RecordingObserver, items_of, make_stage
from server.burst_gate import new_burst_gate
from server.demand import Demand
from server.fold import fold
from stages.aggregate import AggregateOptions
from stages.parallel_call_filter import ParallelCallFilter
from stages.payload_capture import PayloadCapture
from stages.sse_encoder import SseEncoder

START = chunk({"role": "assistant", "content": "Hal"})
STOP = chunk({}, finish="stop")
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def ask(gateway, body=None, **more):
    """One request that does not stream; its answer must come within 5 s."""
    with trio.fail_after(5):
        return await gateway.request(body=BODY if body is None else body, **more)


async def answer(script, **sections):
    """Status and JSON of the answer to a script."""
    async with gateway_and_upstream(ScriptedUpstream(script), **sections) as (gateway, _):
        response = await ask(gateway)
        assert response.headers["content-type"] == "application/json"
        return response.status, await response.json()


def error_of(answered):
    """Status and error object of an answer that is OpenAI's error and nothing else."""
    status, body = answered
    assert list(body) == ["error"]
    assert set(body["error"]) >= {"message", "type", "param", "code"}
    return status, body["error"]


# --- the response -------------------------------------------------------------------------------------------------


async def test_the_body_is_what_a_client_expects():
    """Field for field, in the order of the specification's example, with the headers of a JSON body."""
    usage = {"prompt_tokens": 11, "completion_tokens": 20, "total_tokens": 31}
    script = [
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "Which "}),
        chunk({"reasoning_content": "port?"}),
        chunk(call("", call_id="call_9a", name="lookup_tide")),
        chunk(call('{"port":')),
        chunk(call('"Bergen"}')),
        chunk({}, finish="tool_calls"),
        data(
            {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
        ),
        DONE,
    ]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await ask(gateway, headers={"x-request-id": "r-1", "Callahead-Events": "tool_call_dispatch"})
        body = await response.read_all()
    assert response.status == 200
    assert body.decode() == (
        '{"id":"c1","choices":[{"index":0,"message":{"content":null,"refusal":null,"tool_calls":[{"id":"call_9a",'
        '"type":"function","function":{"name":"lookup_tide","arguments":"{\\"port\\":\\"Bergen\\"}"}}],'
        '"role":"assistant","reasoning_content":"Which port?"},"finish_reason":"tool_calls","logprobs":null}],'
        '"created":1,"model":"m","object":"chat.completion",'
        '"usage":{"prompt_tokens":11,"completion_tokens":20,"total_tokens":31}}'
    )
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"] == "r-1"
    assert not {"callahead-events", "cache-control", "x-accel-buffering"} & set(response.headers)


async def test_what_is_recorded_is_what_is_answered():
    """A capture in the same pipeline comes to the response that the client gets."""
    observer = RecordingObserver()
    request = {"parallel_tool_calls": False}
    stages = [
        (stage.__name__, make_stage(stage, request=request, observer=observer))
        for stage in (ParallelCallFilter, PayloadCapture, SseEncoder)
    ]
    script = [START, *(chunk(call("{}", index=each, call_id=f"c{each}", name="f")) for each in (2, 1)), STOP, DONE]

    async def source(send):
        await send.send(items_of(b"".join(script)))

    answered = await fold(source, stages, AggregateOptions.of_request(request), Demand(len(stages), new_burst_gate()))
    assert answered["choices"][0]["message"]["tool_calls"][0]["id"] == "c1"
    assert observer.records == [("payload_captured", answered, None)]


@pytest.mark.parametrize("script", [[START, STOP, DONE], [START, STOP], [START, STOP, DONE, "stall"], [START, DONE]])
async def test_ends(script):
    """A whole stream counts with and without `[DONE]`; `[DONE]` is an end by itself, whatever the upstream does then."""
    status, body = await answer(script)
    assert status == 200
    assert body["choices"][0]["message"]["content"] == "Hal"


async def test_a24_only_empty_chunks():
    """A24: a stream whose chunks have no choice is a response without one."""
    envelope = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    status, body = await answer([data(envelope), DONE])
    assert (status, body) == (200, {**envelope, "object": "chat.completion"})


async def test_integers_of_any_length():
    """A number that no float holds comes back digit by digit."""
    script = [data({"seed": 10**24 + 1, "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]})]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        assert (await (await ask(gateway)).json())["seed"] == 10**24 + 1


@pytest.mark.parametrize("index", [0, 1])
async def test_a15_the_one_call_counts_from_anywhere(index):
    """A15: without parallel calls the first one stays, also where the upstream numbers it 1."""
    script = [chunk(call("{}", index=each, call_id=f"c{each}", name="f")) for each in (2, index)]
    async with gateway_and_upstream(ScriptedUpstream([*script, STOP, DONE])) as (gateway, _):
        body = await (await ask(gateway, {**BODY, "parallel_tool_calls": False})).json()
    assert [each["id"] for each in body["choices"][0]["message"]["tool_calls"]] == [f"c{index}"]


class Shout(Stage):
    """Makes all text loud."""

    def feed(self, item):
        """Give the item in capitals."""
        if isinstance(item, Chunk) and b"Hal" in (item.raw or b""):
            return (Chunk(json.loads(item.raw[6:].replace(b"Hal", b"HAL")), None),)
        return (item,)


async def test_stages_see_the_stream():
    """What the pipeline does to a stream it does to the response."""
    async with gateway_and_upstream(
        ScriptedUpstream([START, STOP, DONE]), stages=[f"{__name__}:Shout", "sse_encoder"]
    ) as (gateway, _):
        body = await (await ask(gateway)).json()
    assert body["choices"][0]["message"]["content"] == "HAL"


async def test_the_clients_connection_is_kept():
    """Request after request on one connection."""
    async with gateway_and_upstream(ScriptedUpstream([START, STOP, DONE])) as (gateway, upstream):
        stream = await gateway.connect()
        for _ in range(3):
            response = await ask(gateway, stream=stream)
            assert (await response.json())["choices"][0]["finish_reason"] == "stop"
    assert len(upstream.requests) == 3


# --- the request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (b"", {"stream": True, "stream_options": {"include_usage": True}}),
        (b',"stream":false', {"stream": True, "stream_options": {"include_usage": True}}),
        (b',"stream":null,"stream_options":null', {"stream": True, "stream_options": {"include_usage": True}}),
        (
            b',"stream_options":{"include_usage":false,"zz":1}',
            {"stream": True, "stream_options": {"include_usage": True, "zz": 1}},
        ),
        (b',"stream_options":[1]', {"stream": True, "stream_options": {"include_usage": True}}),
    ],
)
@pytest.mark.parametrize("odd", [b"0", b'[1e999,-7,"\\ud800"]'])
async def test_the_upstream_is_asked_to_stream(given, wanted, odd):
    """Stream and usage are asked for; all else is the client's: long numbers, unknown keys, order, odd text."""
    rest = b'{"messages":[],"seed":1000000000000000000000001,"zz":{"b":%b,"a":[0.1,1.0]},"text":"a b"' % odd
    async with gateway_and_upstream() as (gateway, upstream):
        response = await ask(gateway, b" " + rest + given + b"}\n")
        assert response.status == 200
    (seen,) = upstream.requests
    assert seen.body.startswith(rest)
    assert {key: value for key, value in json.loads(seen.body).items() if "stream" in key} == wanted
    assert json.loads(seen.body) == {**json.loads(rest + b"}"), **wanted}
    assert int(seen.headers["content-length"]) == len(seen.body)


async def test_forwarded():
    """`unary = "forward"`: the request goes on byte for byte, and the answer comes back so, with its status."""
    body, answered = b'{ "messages":[],"zz": 1 }', b'{ "choices":[],  "x":1e5 }'
    upstream = ScriptedUpstream([answered], headers={"content-type": "application/json; charset=utf-8"})
    async with gateway_and_upstream(upstream, upstream={"unary": "forward"}) as (gateway, _):
        response = await ask(gateway, body)
        assert (response.status, await response.read_all()) == (200, answered)
        assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert upstream.requests[0].body == body


# --- what goes wrong ----------------------------------------------------------------------------------------------


async def test_an_error_status_comes_back_unchanged():
    """429 with its body, its retry-after and its content type."""
    body = b'{ "error": {"message": "slow down"} }'
    upstream = ScriptedUpstream([body], status=429, headers={"content-type": "application/json", "retry-after": "7"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await ask(gateway)
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        assert await response.read_all() == body


@pytest.mark.parametrize("before", [[], [START]])
@pytest.mark.parametrize(
    ("frame", "status", "kind", "code"),
    [
        (data({"error": {"message": "no", "code": 503, "type": "overloaded"}}), 503, "overloaded", 503),
        (data({"error": {"message": "no", "code": "x", "status_code": 400}}), 400, "upstream_error", "x"),
        (data({"error": "no"}), 502, "upstream_error", "upstream_reported"),
        (b'event: error\ndata: {"error":{"message":"no","code":429}}\n\n', 429, "upstream_error", 429),
        (data({"object": "error", "message": "no", "code": 400}), 400, "upstream_error", 400),
        (chunk({"content": "x"}, error={"message": "no", "code": 400}), 400, "upstream_error", 400),
    ],
)
async def test_an_error_in_the_stream_is_an_error(before, frame, status, kind, code):
    """Each form of it, first or later, answers with its status and words, and with nothing of the text."""
    found, error = error_of(await answer([*before, frame, STOP, DONE]))
    assert (found, error["message"], error["type"], error["code"]) == (status, "no", kind, code)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([START, "reset"], "upstream_reset"),
        ([START, "close"], "upstream_reset"),
        ([START], "upstream_cut"),
        ([START, STOP[:-30]], "upstream_cut"),
        ([chunk({"content": "x"}, finish="stop"), data({"choices": [{"index": 1}]})], "upstream_cut"),
        (["reset"], "upstream_reset"),
        ([], "upstream_not_a_stream"),
        ([DONE], "upstream_not_a_stream"),
        ([b": hello\n\n", b"event: ping\ndata: {}\n\n", DONE], "upstream_not_a_stream"),
        ([b"data: " + b"x" * 5000, "stall"], "frame_too_long"),
    ],
)
async def test_half_an_answer_is_502(script, code):
    """A reset, a body cut short, a clean end before the finish, nothing at all, and a frame without an end."""
    status, error = error_of(await answer(script, pipeline={"max_frame_bytes": 1024}))
    assert (status, error["code"]) == (502, code)


@pytest.mark.parametrize(
    ("limits", "script", "code"),
    [
        ({"idle_timeout": 0.05}, [START, "stall"], "upstream_idle_timeout"),
        ({"first_chunk_timeout": 0.05}, [b": wait\n\n", "stall"], "upstream_first_chunk_timeout"),
        ({"first_chunk_timeout": 0.05}, None, "upstream_first_chunk_timeout"),
        ({"total_timeout": 0.05}, [START, "stall"], "upstream_total_timeout"),
        ({"total_timeout": 0.05}, None, "upstream_total_timeout"),
    ],
)
async def test_a_limit_is_504(limits, script, code):
    """Each limit, before the upstream's headers and in its stream, and the upstream's connection is closed."""
    scripted = ScriptedUpstream(before_headers=["stall"]) if script is None else ScriptedUpstream(script)
    async with gateway_and_upstream(scripted, upstream=limits) as (gateway, upstream):
        response = await ask(gateway)
        assert response.status == 504
        assert (await response.json())["error"]["code"] == code
        with trio.fail_after(5):
            await upstream.connection_gone.wait()


class Explodes(Stage):
    """Raises at once."""

    def feed(self, item):
        """Raise."""
        raise RuntimeError(f"secret {item}")


async def test_a_stage_that_raises_is_500():
    """The answer names the stage and nothing of the error, and the next request is served."""
    name = f"{__name__}:Explodes"
    status, error = error_of(await answer([START, STOP, DONE], stages=[name, "sse_encoder"]))
    assert (status, error["code"]) == (500, "stage_failed")
    assert name in error["message"]
    assert "secret" not in error["message"]


@pytest.mark.parametrize("more", [["stall"], [START] * 100_000], ids=["silence", "flood"])
async def test_a_client_that_leaves_takes_its_upstream_connection_along(more):
    """In a silence and in a flood: closed within 100 ms, and nothing is left of the request."""
    begun = trio.Event()
    async with gateway_and_upstream(ScriptedUpstream([START, begun.set, *more])) as (gateway, upstream):
        stream = await gateway.connect()
        body = json.dumps(BODY).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        await stream.send_all(head + body)
        with trio.fail_after(5):
            await begun.wait()
        await stream.aclose()
        with trio.fail_after(0.1):
            await upstream.connection_gone.wait()
        assert gateway.gateway.streams == set()


# --- a server that does not stream --------------------------------------------------------------------------------

TOOL_CALLS = [
    {"id": name, "type": "function", "function": {"name": name, "arguments": '{"a":1}'}} for name in ("f", "g")
]
WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None, "tool_calls": TOOL_CALLS, "zz": [1, 2]},
            "finish_reason": "tool_calls",
            "logprobs": {"content": [{"token": "Hi"}], "refusal": None},
        },
        {
            "index": 1,
            "message": {"role": "assistant", "content": None, "refusal": "no", "reasoning": "Hm."},
            "finish_reason": "length",
            "logprobs": None,
            "stop_reason": 7,
        },
    ],
    "usage": {"total_tokens": 3},
    "system_fingerprint": "fp",
    "x_groq": {"id": "r"},
}


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_a_whole_completion_stays_what_it_is(content_type):
    """A server that ignores `stream` and answers with a completion: the client gets that completion."""
    upstream = ScriptedUpstream([json.dumps(WHOLE).encode()], headers={"content-type": content_type})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await ask(gateway)
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        assert await response.json() == WHOLE


async def test_an_error_with_status_200_is_502():
    """A 200 that holds an error is an error, with its message."""
    upstream = ScriptedUpstream([b'{"error":{"message":"not loaded"}}'], headers={"content-type": "application/json"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await ask(gateway)
        assert (response.status, (await response.json())["error"]["message"]) == (502, "not loaded")
