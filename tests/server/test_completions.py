"""``POST /v1/chat/completions`` through real sockets."""

from __future__ import annotations

import json

import pytest
import trio
from harness import DONE, ScriptedUpstream, call, chunk, data, gateway_and_upstream

OPENER = chunk(call("", call_id="call_77", name="write_note"))
FRAGMENTS = [chunk(call('{"path"')), chunk(call(':"/srv/no')), chunk(call('tes.md"}'))]
FINISH = chunk({}, finish="tool_calls")


def dispatched(frames) -> list[dict]:
    return [json.loads(frame.data) for frame in frames if frame.event == "tool_call_dispatch"]


async def test_w1_dispatch_comes_before_the_frame_that_completes_the_call():
    """W1: opener, two fragments, the event with the whole text, the last fragment, finish, done."""
    async with gateway_and_upstream(ScriptedUpstream([OPENER, *FRAGMENTS, FINISH, DONE])) as (gateway, _):
        response = await gateway.completion(events=True)
        frames = await response.frames()
    call_payload = {"name": "write_note", "arguments": '{"path":"/srv/notes.md"}'}
    expected = {
        "choice_index": 0,
        "tool_call": {"index": 0, "id": "call_77", "type": "function", "function": call_payload},
    }
    assert [frame.event for frame in frames] == [None, None, None, "tool_call_dispatch", None, None, None]
    assert json.loads(frames[3].data) == expected
    assert [frame.raw for frame in frames if frame.event is None] == [OPENER, *FRAGMENTS, FINISH, DONE]


async def test_w2_a_call_cut_off_by_length_is_not_dispatched():
    """W2: opener, one fragment, finish=length, done; no event."""
    script = [OPENER, FRAGMENTS[0], chunk({}, finish="length"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion(events=True)
        assert await response.read_all() == b"".join(script)


async def test_an_event_arrives_while_the_upstream_has_not_finished():
    """Two parallel calls reach the client before the upstream sends the finish, or anything at all after them."""
    seen = trio.Event()
    script = [
        chunk(call('{"a":1}', call_id="c0", name="f")),
        chunk(call('{"b":2}', index=1, call_id="c1", name="g")),
        seen,
        FINISH,
        DONE,
    ]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion(events=True)
        with trio.fail_after(5):
            early = [await response.frame() for _ in range(4)]
        assert [event["tool_call"]["id"] for event in dispatched(early)] == ["c0", "c1"]
        seen.set()
        assert [frame.raw for frame in await response.frames()] == [FINISH, DONE]


async def test_a_client_that_did_not_ask_gets_the_upstreams_bytes():
    """Without the header the stream is the upstream's, comments, spacing, unknown keys, line ends and all."""
    script = [
        b": hello\r\n\r\n",
        b'data:{ "choices" : [ {"index":0,"delta":{"content":"x","zz":1}} ] }\r\n\r\n',
        FINISH,
        DONE,
    ]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion()
        assert await response.read_all() == b"".join(script)
        assert "callahead-events" not in response.headers


async def test_the_request_goes_upstream_byte_for_byte():
    """Body, query, authorization and unknown headers go on; hop-by-hop and Callahead's own do not."""
    body = b'{ "messages":[{"role":"user","content":"\xc3\xa9"}],  "stream":true, "zz": 1e5 }'
    headers = {
        "Authorization": "Bearer k",
        "X-Custom": "1",
        "Callahead-Events": "tool_call_dispatch",
        "Connection": "x-hop, keep-alive",
        "X-Hop": "2",
        "TE": "trailers",
        "Accept-Encoding": "gzip",
        "X-Request-Id": "abc-1",
    }
    async with gateway_and_upstream() as (gateway, upstream):
        response = await gateway.request(path="/v1/chat/completions?beta=%2Fx", body=body, headers=headers)
        await response.read_all()
    [seen] = upstream.requests
    assert (seen.method, seen.target, seen.body) == ("POST", "/v1/chat/completions?beta=%2Fx", body)
    assert seen.headers["authorization"] == "Bearer k"
    assert seen.headers["x-custom"] == "1"
    assert seen.headers["x-request-id"] == "abc-1"
    assert not {"x-hop", "te", "callahead-events"} & set(seen.headers)
    assert response.headers["x-request-id"] == "abc-1"


async def test_headers_say_which_events_are_in_force():
    """Unknown names are ignored and not acknowledged; the style is echoed."""
    async with gateway_and_upstream() as (gateway, _):
        headers = {"Callahead-Events": "tool_call_dispatch, nonsense", "Callahead-Event-Style": "chunk"}
        response = await gateway.completion(headers=headers)
        assert response.headers["callahead-events"] == "tool_call_dispatch"
        assert response.headers["callahead-event-style"] == "chunk"
        response = await gateway.completion(headers={"Callahead-Events": "nonsense"})
        assert "callahead-events" not in response.headers


@pytest.mark.parametrize(
    ("policy", "asked", "sent"),
    [
        ("never", True, False),
        ("request", True, True),
        ("request", False, False),
        ("always", False, True),
    ],
)
async def test_the_config_decides_over_the_request(policy, asked, sent):
    """`never` wins over a client that asks, `always` over one that does not."""
    script = [chunk(call("{}", call_id="c", name="f")), FINISH, DONE]
    events = {"tool_call_dispatch": policy}
    async with gateway_and_upstream(ScriptedUpstream(script), events=events) as (gateway, _):
        response = await gateway.completion(events=asked)
        frames = await response.frames()
    assert bool(dispatched(frames)) is sent
    assert ("tool_call_dispatch" in response.headers.get("callahead-events", "")) is sent


async def test_the_style_chunk_is_an_unnamed_frame_with_the_streams_envelope():
    """With `Callahead-Event-Style: chunk` the payload stands under the event's name in a chunk without choices."""
    script = [chunk(call("{}", call_id="c", name="f")), FINISH, DONE]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion(events=True, headers={"Callahead-Event-Style": "chunk"})
        first = await response.frame()
    assert first is not None
    assert first.event is None
    value = json.loads(first.data)
    assert list(value) == ["id", "object", "created", "model", "choices", "tool_call_dispatch"]
    assert (value["id"], value["model"], value["choices"]) == ("c1", "m", [])


async def test_an_unknown_style_is_refused():
    """A style that nobody knows is 400, since every event would be misread."""
    async with gateway_and_upstream() as (gateway, _):
        response = await gateway.completion(headers={"Callahead-Event-Style": "xml"})
        assert response.status == 400
        assert "named, chunk" in (await response.json())["error"]["message"]


async def test_r_rows_through_a_socket():
    """R1: reasoning, then text: one event before the first frame of text."""
    text = chunk({"content": "ok"})
    script = [
        chunk({"reasoning_content": "Let "}),
        chunk({"reasoning": "me see"}),
        text,
        chunk({}, finish="stop"),
        DONE,
    ]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        frames = await (await gateway.completion(events=True)).frames()
    assert [frame.event for frame in frames] == [None, None, "reasoning_dispatch", None, None, None]
    assert json.loads(frames[2].data) == {"index": 0, "reasoning_content": "Let me see"}
    assert frames[3].raw == text


async def test_a_request_that_does_not_stream_can_be_forwarded():
    """With `unary = "forward"` such a request goes on as it is, and its answer comes back unchanged."""
    body = b'{ "object":"chat.completion", "choices":[] }'
    upstream = ScriptedUpstream([body], headers={"content-type": "application/json", "content-length": str(len(body))})
    async with gateway_and_upstream(upstream, upstream={"unary": "forward"}) as (gateway, _):
        response = await gateway.request(body={"messages": [], "model": "m"})
        assert (response.status, await response.read_all()) == (200, body)
        assert response.headers["content-type"] == "application/json"


async def test_done_is_added_to_a_whole_stream_that_lacks_it():
    """A clean end after every choice has finished gets its `[DONE]`."""
    script = [chunk({"content": "x"}), chunk({}, finish="stop")]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        assert await (await gateway.completion()).read_all() == b"".join([*script, DONE])


async def test_what_follows_done_is_ignored_and_the_response_ends_at_once():
    """The client's response is over at `[DONE]` although the upstream goes on."""
    script = [chunk({}, finish="stop"), DONE, b"data: {}\n\n", "stall"]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion()
        with trio.fail_after(5):
            assert await response.read_all() == script[0] + DONE


async def test_a_whole_completion_becomes_a_stream():
    """A server that ignores `stream` still gives its client a stream, and the harness its dispatch."""
    tool_call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hi", "tool_calls": [tool_call]}
    whole = {
        "id": "x",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "zz": 1,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"total_tokens": 3},
    }
    upstream = ScriptedUpstream([json.dumps(whole).encode()], headers={"content-type": "application/json"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.completion(events=True)
        frames = await response.frames()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [event["tool_call"]["id"] for event in dispatched(frames)] == ["c"]
    chunks = [json.loads(frame.data) for frame in frames if frame.event is None and frame.data != b"[DONE]"]
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["choices"][0]["delta"]["content"] == "Hi"
    assert chunks[0]["zz"] == 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"] == {"total_tokens": 3}
    assert frames[-1].data == b"[DONE]"


async def test_keepalive_comments_fill_a_silence():
    """With `keepalive_interval` a silent upstream's client gets comments between frames."""
    go = trio.Event()
    script = [chunk({"content": "x"}), go, chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        settings = gateway.gateway.settings
        object.__setattr__(settings.server, "keepalive_interval", 0.01)  # below what a config may say
        response = await gateway.completion()
        assert (await response.frame()).raw == script[0]
        with trio.fail_after(5):
            assert (await response.frame()).raw == b": keepalive\n\n"
        go.set()
        rest = b"".join([frame.raw for frame in await response.frames()])
    assert rest.replace(b": keepalive\n\n", b"") == script[2] + DONE


async def test_the_api_key_of_the_config_replaces_the_clients(monkeypatch):
    """`upstream.api_key_env` names the variable whose value goes upstream."""
    monkeypatch.setenv("MY_KEY", "secret")
    async with gateway_and_upstream(upstream={"api_key_env": "MY_KEY"}) as (gateway, upstream):
        await (await gateway.completion(headers={"authorization": "Bearer client"})).read_all()
    assert upstream.requests[0].headers["authorization"] == "Bearer secret"


async def test_every_other_endpoint_is_sent_on_unchanged():
    """Any path under /v1 goes on with its method, query and body, and its answer comes back as it is."""
    answer = b"\x00\x01binary"
    upstream = ScriptedUpstream([answer], status=201, headers={"content-type": "audio/mpeg", "x-a": "1"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.request(
            "PUT", "/v1/files/a%2Fb?x=1&x=2", body=b"\xffraw", headers={"content-type": "z"}
        )
        assert (response.status, await response.read_all()) == (201, answer)
        assert response.headers["x-a"] == "1"
    [seen] = upstream.requests
    assert (seen.method, seen.target, seen.body) == ("PUT", "/v1/files/a%2Fb?x=1&x=2", b"\xffraw")


async def test_models_are_the_upstreams():
    """GET /v1/models is the upstream's answer."""
    upstream = ScriptedUpstream([data({})], headers={"content-type": "application/json"})
    async with gateway_and_upstream(upstream) as (gateway, _):
        response = await gateway.request("GET", "/v1/models")
        assert await response.read_all() == data({})
    assert upstream.requests[0].target == "/v1/models"
