"""One test on a real socket for each trap of Trio, Quart-Trio and Hypercorn that is worked around (spec, traps)."""

from __future__ import annotations

import gc
import json
import logging
from pathlib import Path

import pytest
import trio
from harness import DONE, TEXT_STREAM, ScriptedUpstream, chunk, gateway_and_upstream, read_head

from server.client_connection import ClientConnection
from server.logs import BodyBroken, hypercorn_logger


async def ended(stream: trio.SocketStream) -> bool:
    """Whether the other side has closed the connection, within a bounded wait."""
    with trio.fail_after(5):
        try:
            return await stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True


async def test_h1_connection_close_is_honoured():
    """H1: after `Connection: close` the gateway closes, for streams, JSON and errors alike."""
    async with gateway_and_upstream() as (gateway, _):
        for method, path in [("POST", "/v1/chat/completions"), ("GET", "/live"), ("GET", "/nothing")]:
            stream = await gateway.connect()
            body = {"stream": True, "messages": []} if method == "POST" else None
            response = await gateway.request(method, path, body, {"connection": "close"}, stream=stream)
            await response.read_all()
            assert await ended(stream)


async def test_h1_a_connection_is_kept_alive_and_then_idles_out():
    """H1: several requests use one connection; when it is idle for `keep_alive_timeout`, it is closed."""
    async with gateway_and_upstream(server={"keep_alive_timeout": 0.2}) as (gateway, upstream):
        stream = await gateway.connect()
        for _ in range(3):
            response = await gateway.completion(stream=stream)
            assert await response.read_all() == b"".join(TEXT_STREAM)
        assert await ended(stream)
    assert len(upstream.requests) == 3


async def test_h2_a_stopped_reader_is_cut_off_after_the_write_timeout():
    """H2: Hypercorn's writes have no limit; the connection is broken at `write_timeout`, and the upstream is freed."""
    flood = chunk({"content": "x" * 1000}) * 50
    async with gateway_and_upstream(ScriptedUpstream([flood] * 100_000), server={"write_timeout": 0.5}) as (
        gateway,
        upstream,
    ):
        stream = await gateway.connect(receive_buffer=4096)
        await gateway.completion(stream=stream)
        with trio.fail_after(15):
            await upstream.connection_gone.wait()
        await trio.aclose_forcefully(stream)


async def test_h5_streams_get_the_drain_time_to_end():
    """H5: after the stop a stream goes on to its end, new connections are refused, /health says draining."""
    go = trio.Event()
    script = [chunk({"content": "a"}), go, chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        response = await gateway.completion()
        await response.frame()
        gateway.stop.set()
        with trio.fail_after(5):
            while True:
                try:
                    await trio.aclose_forcefully(await gateway.connect())
                except OSError:
                    break
                await trio.lowlevel.checkpoint()
        assert gateway.gateway.draining
        go.set()
        assert [frame.raw for frame in await response.frames()] == script[2:]


async def test_h5_a_stream_that_outlasts_the_drain_time_ends_with_an_error_frame():
    """H5: at the end of `drain_timeout` the client is told, and the upstream's connection is closed."""
    upstream = ScriptedUpstream([chunk({"content": "a"}), "stall"])
    async with gateway_and_upstream(upstream, server={"drain_timeout": 0.1}) as (gateway, upstream):
        response = await gateway.completion()
        await response.frame()
        gateway.stop.set()
        with trio.fail_after(5):
            [last] = await response.frames()
            assert json.loads(last.data)["error"]["code"] == "shutting_down"
            await upstream.connection_gone.wait()


async def test_h7_quart_does_not_cut_streams():
    """H7: neither the app nor a stream's response has Quart's 60-second limit."""
    async with gateway_and_upstream() as (gateway, _):
        assert gateway.gateway.config["RESPONSE_TIMEOUT"] is None
        assert gateway.gateway.config["BODY_TIMEOUT"] is None
        await (await gateway.completion()).read_all()


async def test_h10_a_group_never_reaches_quart(monkeypatch):
    """H10: a view that fails with a group of an error and a cancellation is a logged 500, not a bare one."""

    async def explode(_request):  # noqa: ASYNC124 - it stands for one that awaits
        raise BaseExceptionGroup("g", [RuntimeError("x"), BaseExceptionGroup("h", [ValueError("y")])])

    async with gateway_and_upstream() as (gateway, _):
        monkeypatch.setattr(gateway.gateway.upstream, "open", explode, raising=False)
        response = await gateway.completion()
        assert response.status == 500
        assert (await response.json())["error"]["type"] == "internal_server_error"


async def test_h13_no_service_runs_on_the_apps_nursery():
    """H13: requests and process-wide services live outside the nursery whose crash Hypercorn hides."""
    async with gateway_and_upstream(ScriptedUpstream([chunk({"content": "a"}), "stall"])) as (gateway, _):
        response = await gateway.completion()
        await response.frame()
        assert not gateway.gateway.nursery.child_tasks


@pytest.mark.parametrize("chunked", [True, False])
async def test_h15_an_upload_is_bounded_while_it_arrives(chunked):
    """H15: 413 before the whole body was taken, on both stacks; the client can read it although it is still sending."""
    async with gateway_and_upstream(server={"max_body_bytes": 65536}) as (gateway, upstream):
        stream = await gateway.connect()
        how = b"transfer-encoding: chunked" if chunked else b"content-length: 200000000"
        await stream.send_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + how + b"\r\n\r\n")
        piece = b"x" * 65536
        sent = 0

        async def upload(task_status=trio.TASK_STATUS_IGNORED) -> None:
            nonlocal sent
            task_status.started()
            try:
                while sent < 150_000_000:
                    await stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    sent += len(piece)
            except trio.BrokenResourceError:
                pass

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                await nursery.start(upload)
                response = await read_head(stream)
                assert response.status == 413
                assert "max_body_bytes = 65536" in (await response.json())["error"]["message"]
                nursery.cancel_scope.cancel()
        assert sent < 100_000_000
        assert upstream.requests == []


async def test_h15_a_declared_length_over_the_limit_is_refused_at_once():
    """A client that says how much it will send need not send it."""
    async with gateway_and_upstream(server={"max_body_bytes": 1000}) as (gateway, _):
        stream = await gateway.connect()
        await stream.send_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n")
        with trio.fail_after(5):
            response = await read_head(stream)
        assert response.status == 413


async def test_a_body_that_never_arrives_is_408():
    """`body_timeout` bounds the wait for a request's body."""
    async with gateway_and_upstream(server={"body_timeout": 0.1}) as (gateway, _):
        stream = await gateway.connect()
        await stream.send_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{")
        with trio.fail_after(5):
            response = await read_head(stream)
        assert response.status == 408


def test_h9_a_write_that_meets_a_closed_connection_is_no_news():
    """H9, H12: the log leaves out what a client's leaving causes, and nothing else."""
    logger = hypercorn_logger()

    def shown(error: BaseException) -> bool:
        record = logging.LogRecord("n", logging.ERROR, "p", 1, "m", (), (type(error), error, None))
        return bool(logger.filter(record))

    assert not shown(trio.BusyResourceError())
    assert not shown(BaseExceptionGroup("g", [BodyBroken()]))
    assert shown(RuntimeError())
    assert shown(BaseExceptionGroup("g", [BodyBroken(), RuntimeError()]))


def descriptors_and_tasks() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), trio.lowlevel.current_statistics().tasks_living


async def test_nothing_is_left_open_after_many_requests():
    """Descriptors and tasks are as many after a hundred requests as before, but for one kept connection at the most."""
    async with gateway_and_upstream() as (gateway, _):
        await (await gateway.completion(headers={"connection": "close"})).read_all()
        gc.collect()
        before = descriptors_and_tasks()
        for _ in range(100):
            response = await gateway.completion(headers={"connection": "close"})
            await response.read_all()
            await trio.aclose_forcefully(response.stream)
        # The upstream's connection is kept where its last bytes had come when its stream ended.
        with trio.fail_after(5):
            while any(now > then + 4 for now, then in zip(descriptors_and_tasks(), before, strict=True)):  # noqa: ASYNC110 - they end in Hypercorn's tasks
                await trio.sleep(0.01)


@pytest.mark.parametrize("used", [False, True])
async def test_a_client_that_closes_an_idle_connection_costs_no_descriptor(used):
    """Hypercorn's idle timer, `keep_alive_timeout` = 75 s, does not hold the socket of a client that has left."""
    async with gateway_and_upstream() as (gateway, _):
        await (await gateway.completion()).read_all()
        before, _ = descriptors_and_tasks()
        for _ in range(20):
            stream = await gateway.connect()
            if used:
                await (await gateway.request("GET", "/live", stream=stream)).read_all()
            await trio.aclose_forcefully(stream)
        with trio.fail_after(5):
            while descriptors_and_tasks()[0] > before:  # noqa: ASYNC110 - they end in Hypercorn's tasks
                await trio.sleep(0.01)


async def test_a_connection_that_fails_unforeseen_ends_alone(monkeypatch):
    """An error inside Hypercorn's handling of one connection is logged, and the server goes on."""
    served = []
    proper = ClientConnection.protocol_send

    async def fail_once(self, event):
        if not served:
            served.append(event)
            raise RuntimeError("unforeseen")
        await proper(self, event)

    async with gateway_and_upstream() as (gateway, _):
        await (await gateway.request("GET", "/live")).read_all()
        monkeypatch.setattr(ClientConnection, "protocol_send", fail_once)
        stream = await gateway.connect()
        await stream.send_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await ended(stream)
        assert (await gateway.request("GET", "/live")).status == 200


async def test_websockets_are_refused_whoever_leaves_when():
    """An upgrade is answered with 404 and costs nothing more, also where the client is gone at once."""
    opening = (
        b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with gateway_and_upstream() as (gateway, _):
        for waits in (True, False) * 5:
            stream = await gateway.connect()
            await stream.send_all(opening)
            if waits:
                assert (await read_head(stream)).status == 404
            await trio.aclose_forcefully(stream)
        assert (await gateway.request("GET", "/live")).status == 200
