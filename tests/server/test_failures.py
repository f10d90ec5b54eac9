"""What a client is told when something goes wrong (DESIGN, section 1, "Errors")."""

from __future__ import annotations

import json
import socket

import pytest
import trio
from harness import (
    DONE,
    ScriptedUpstream,
    call,
    chunk,
    data,
    gateway_and_upstream,
    make_config,
    running_gateway,
)

from pipeline import Chunk, Stage

START = chunk({"role": "assistant", "content": "Hal"})


def error_of(frame) -> dict:
    assert frame.event is None
    value = json.loads(frame.data)
    assert list(value) == ["error"]
    assert set(value["error"]) == {"message", "type", "param", "code"}
    return value["error"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (["reset"], "upstream_reset"),
        (["close"], "upstream_reset"),
        ([], "upstream_cut"),
        ([b'data: {"choices":[{"index":0,"delta":{"con'], "upstream_cut"),
        ([b'data: {"choices":[{"ind', "reset"], "upstream_reset"),
    ],
)
async def test_a_stream_that_breaks_off_ends_with_one_error_frame(script, code):
    """A reset, a body cut short, and a clean end before the finish: one error frame and nothing after it."""
    async with gateway_and_upstream(ScriptedUpstream([START, *script])) as (gateway, _):
        frames = await (await gateway.completion()).frames()
    assert [frame.raw for frame in frames[:-1]] == [START]
    assert error_of(frames[-1])["code"] == code


@pytest.mark.parametrize(
    ("limits", "script", "code"),
    [
        ({"idle_timeout": 0.05}, [START, "stall"], "upstream_idle_timeout"),
        ({"first_chunk_timeout": 0.05}, [b": wait\n\n", "stall"], "upstream_first_chunk_timeout"),
        ({"total_timeout": 0.05}, [START, "stall"], "upstream_total_timeout"),
    ],
)
async def test_a_stalled_stream_ends_with_one_error_frame(limits, script, code):
    """Each limit on a stream that has begun ends it with an error frame of its name."""
    async with gateway_and_upstream(ScriptedUpstream(script), upstream=limits) as (gateway, upstream):
        response = await gateway.completion()
        with trio.fail_after(5):
            frames = await response.frames()
        assert error_of(frames[-1])["code"] == code
        with trio.fail_after(5):
            await upstream.connection_gone.wait()


@pytest.mark.parametrize("limit", ["first_chunk_timeout", "total_timeout"])
async def test_an_upstream_that_never_answers_is_504(limit):
    """A limit that is reached before the upstream's headers is 504."""
    scripted = ScriptedUpstream(before_headers=["stall"])
    async with gateway_and_upstream(scripted, upstream={limit: 0.05}) as (gateway, _):
        with trio.fail_after(5):
            response = await gateway.completion()
        assert response.status == 504
        assert (await response.json())["error"]["code"] == f"upstream_{limit}"


async def test_an_unreachable_upstream_is_502():
    """Connection refused: 502 that names the upstream's address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with running_gateway(make_config(upstream={"url": f"http://127.0.0.1:{port}/v1"})) as gateway:
        response = await gateway.completion()
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (502, "upstream_connect")
        assert str(port) in error["message"]
        health = await gateway.request("GET", "/health")
        assert health.status == 503
        assert str(port) in (await health.json())["reason"]


async def test_an_error_status_comes_back_unchanged():
    """429 with its body, its retry-after and its content type."""
    body = b'{ "error": {"message": "slow down"} }'
    upstream = ScriptedUpstream([body], status=429, headers={"content-type": "application/json", "retry-after": "7"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.completion()
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        assert await response.read_all() == body


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        ("application/json", b'{"error":{"message":"model not loaded"}}', "model not loaded"),
        ("application/json", b'{"object":"error","message":"no such lora"}', "no such lora"),
        ("application/json", b'{"error":"plain"}', "plain"),
        ("text/html", b"<html>Bad gateway</html>", "text/html"),
        ("application/json", b"", "an empty body"),
        ("application/json", b'{"hello": 1}', "hello"),
        ("application/json", b'{"broken', "broken"),
    ],
)
async def test_an_error_with_status_200_is_502_with_its_message(content_type, body, message):
    """A 200 that is neither a stream nor a completion becomes 502 and says what came."""
    upstream = ScriptedUpstream([body] if body else [], headers={"content-type": content_type})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.completion()
        assert response.status == 502
        assert message in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    "form",
    [
        data({"error": {"message": "m", "code": 503}}),
        b'event: error\ndata: {"error":{"message":"m"}}\n\n',
        data({"object": "error", "message": "m"}),
        data(
            {
                "id": "x",
                "error": {"message": "m"},
                "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
            }
        ),
    ],
)
async def test_the_upstreams_own_error_frame_is_passed_on_and_nothing_is_added(form):
    """Open calls are dropped, no second error and no [DONE] appear, and what the upstream sends after it follows."""
    script = [chunk(call('{"a":', call_id="c", name="f")), form]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, upstream):
        frames = await (await gateway.completion(events=True)).frames()
        assert [frame.raw for frame in frames] == script
        upstream.script = [*script, chunk(call("1}")), DONE]
        frames = await (await gateway.completion(events=True)).frames()
        assert [frame.raw for frame in frames] == upstream.script


async def test_a_frame_over_the_limit_is_an_error_not_memory():
    """What came before it is there; then one error frame that names the limit."""
    script = [START, b"data: " + b"x" * 5000, "stall"]
    async with gateway_and_upstream(ScriptedUpstream(script), pipeline={"max_frame_bytes": 1024}) as (
        gateway,
        _,
    ):
        response = await gateway.completion()
        with trio.fail_after(5):
            frames = await response.frames()
    assert frames[0].raw == START
    assert "max_frame_bytes = 1024" in error_of(frames[-1])["message"]


class Explodes(Stage):
    """Raises at the word "boom"."""

    def feed(self, item):
        """Raise, or pass it on."""
        if isinstance(item, Chunk) and b"boom" in (item.raw or b""):
            raise RuntimeError("secret detail")
        return (item,)


async def test_a_stage_that_raises_ends_its_own_request_only():
    """H10, H12: one error frame that names the stage, the traceback in the log, and every other request goes on."""
    name = f"{__name__}:Explodes"
    script = [START, chunk({"content": "boom"}), chunk({"content": "more"}), "stall"]
    async with gateway_and_upstream(ScriptedUpstream(script), stages=[name, "sse_encoder"]) as (
        gateway,
        upstream,
    ):
        response = await gateway.completion()
        with trio.fail_after(5):
            frames = await response.frames()
        assert frames[0].raw == START
        error = error_of(frames[1])
        assert (len(frames), error["code"], name in error["message"]) == (2, "stage_failed", True)
        assert "secret" not in error["message"]
        with trio.fail_after(5):
            await upstream.connection_gone.wait()
        upstream.script = [START, chunk({}, finish="stop"), DONE]
        assert await (await gateway.completion()).read_all() == b"".join(upstream.script)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "array"),
        (b"null", "null"),
        (b'"x"', "string"),
        (b"{}", '"messages"'),
        (b'{"messages": 3}', '"messages"'),
    ],
)
async def test_a_bad_body_is_400_and_names_the_fault(body, message):
    """Not JSON, no object, no messages."""
    async with gateway_and_upstream() as (gateway, upstream):
        response = await gateway.request(body=body)
        assert response.status == 400
        error = (await response.json())["error"]
        assert message in error["message"]
        assert error["type"] == "invalid_request_error"
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/health", 405),
        ("DELETE", "/metrics", 405),
    ],
)
async def test_the_routers_refusals_are_json(method, path, status):
    """H16: 404 and 405 in OpenAI's shape, with the request id."""
    async with gateway_and_upstream() as (gateway, _):
        response = await gateway.request(method, path)
        assert response.status == status
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"].startswith("req_")
        error = (await response.json())["error"]
        assert path in error["message"]


async def test_a_broken_proxied_body_breaks_the_clients_connection():
    """H12: half a file must not look whole."""
    upstream = ScriptedUpstream([b"half", "close"], headers={"content-type": "application/octet-stream"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.request("GET", "/v1/files/1/content")
        assert response.status == 200
        with trio.fail_after(5), pytest.raises((EOFError, trio.BrokenResourceError)):
            await response.read_all()


async def test_a_slow_client_is_no_silence_of_the_upstream():
    """`idle_timeout` counts the upstream's silence only, not the time in which the client takes nothing."""
    piece = chunk({"content": "x" * 1000}) * 50
    script = [*[piece] * 40, chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script), upstream={"idle_timeout": 0.2}) as (gateway, _):
        stream = await gateway.connect(receive_buffer=4096)
        response = await gateway.completion(stream=stream)
        await trio.sleep(0.6)  # the client's own slowness is what is tested
        with trio.fail_after(10):
            body = await response.read_all()
    assert body == b"".join(script)


async def test_a_websocket_is_refused_quietly():
    """An upgrade under /v1 is 404, not a traceback."""
    async with gateway_and_upstream() as (gateway, _):
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        response = await gateway.request("GET", "/v1/realtime", headers=headers)
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"


async def test_an_error_labelled_as_a_stream_is_an_error_frame_with_its_message():
    """A JSON error under `text/event-stream` reaches the client as an error, byte by byte or whole."""
    body = b'\xef\xbb\xbf {"error":{"message":"model not loaded"}}'
    for script in ([body], [bytes([each]) for each in body]):
        async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
            [frame] = await (await gateway.completion()).frames()
            assert error_of(frame)["message"] == "model not loaded"


async def test_a_completion_labelled_as_a_stream_becomes_one():
    """A whole completion under `text/event-stream` is streamed."""
    message = {"role": "assistant", "content": "Hi"}
    whole = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    async with gateway_and_upstream(ScriptedUpstream([json.dumps(whole).encode()])) as (gateway, _):
        frames = await (await gateway.completion()).frames()
    assert json.loads(frames[0].data)["choices"][0]["delta"] == message
    assert frames[-1].raw == DONE


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/a/./b", "//v1/models", "/%76%31/models"])
async def test_a_path_that_is_not_plainly_below_the_api_is_not_sent_on(path):
    """Neither dot segments nor an encoded base lead a request to another path of the upstream."""
    async with gateway_and_upstream(upstream={"api_key_env": "HOME"}) as (gateway, upstream):
        assert (await gateway.request("GET", path)).status == 404
    assert upstream.requests == []


async def test_an_encoded_slash_is_a_path_of_the_upstreams_own():
    """`/v1/chat%2Fcompletions` is no completion of ours: it goes on as it is."""
    upstream = ScriptedUpstream([b"{}"], headers={"content-type": "application/json"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        await (await gateway.request("POST", "/v1/chat%2Fcompletions", body=b"raw")).read_all()
    assert (upstream.requests[0].target, upstream.requests[0].body) == ("/v1/chat%2Fcompletions", b"raw")


async def test_header_values_keep_their_bytes():
    """A value that is not ASCII comes back byte for byte."""
    name = "r\xc3\xa9sum\xc3\xa9.txt"  # UTF-8, as the wire has it
    upstream = ScriptedUpstream([b"x"], headers={"content-type": "text/plain", "content-disposition": name})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.request("GET", "/v1/files/1/content")
        assert response.headers["content-disposition"] == name
