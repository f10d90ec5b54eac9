"""Clients are spoken with in HTTP/1.1: what else they propose is refused or ignored, and costs nothing more."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from harness import TEXT_STREAM, ScriptedUpstream, chunk, gateway_and_upstream, read_head
from test_traps import ended

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
H2C = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
WEBSOCKET = (
    b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n"
)
PREFACES = [PREFACE, PREFACE + SETTINGS, PREFACE[:18], b"GET /live HTTP/2.0\r\nhost: x\r\n\r\n"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        *((preface, 505, "http_version_not_supported") for preface in PREFACES),
        (WEBSOCKET % b"", 404, "not_found"),
        (WEBSOCKET % b"content-length: 3\r\n", 404, "not_found"),
        ((WEBSOCKET % b"").replace(b"upgrade: w", b"upgrade: h2c\r\nupgrade: w"), 404, "not_found"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "invalid_http"),
        (b"GET /live HTTP/1.1\r\nx: " + b"y" * 100_000, 431, "invalid_http"),
    ],
)
async def test_what_is_no_http1_is_told_so(sent, status, code):
    """One answer in the shape of all errors, and the connection is closed; no request is left in flight."""
    async with gateway_and_upstream() as (gateway, upstream):
        stream = await gateway.connect()
        await stream.send_all(sent)
        with trio.fail_after(5):
            response = await read_head(stream)
            assert (response.status, response.headers["content-type"]) == (status, "application/json")
            assert (await response.json())["error"]["code"] == code
        assert await ended(stream)
        assert gateway.gateway.metrics.requests_in_flight._value.get() == 0  # noqa: SLF001 - no public reader
    assert not upstream.requests


async def test_the_refusal_of_head_has_no_body(monkeypatch):
    """h11 sends none, and takes the attempt for our mistake."""
    failures = []
    monkeypatch.setattr("server.client_connection._note_failure", failures.append)
    async with gateway_and_upstream() as (gateway, _):
        stream = await gateway.connect()
        await stream.send_all(b"HEAD /live HTTP/2.0\r\nhost: x\r\n\r\n")
        with trio.fail_after(5):
            response = await read_head(stream)
        assert (response.status, response.buffer) == (505, b"")
        assert await ended(stream)
        await trio.testing.wait_all_tasks_blocked()
    assert not failures


async def test_a_half_preface_idles_out():
    """As everything does that is no request yet."""
    async with gateway_and_upstream(server={"keep_alive_timeout": 0.2}) as (gateway, _):
        stream = await gateway.connect()
        await stream.send_all(PREFACE[:10])
        assert await ended(stream)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_upgrade_to_http2_is_ignored(method):
    """The request is served in HTTP/1.1, body or none, and the next one on the same connection too."""
    async with gateway_and_upstream() as (gateway, _):
        stream = await gateway.connect()
        with trio.fail_after(5):
            for _ in range(2):
                if method == "GET":
                    response = await gateway.request("GET", "/live", headers=H2C, stream=stream)
                    await response.json()
                else:
                    response = await gateway.completion(stream=stream, headers=H2C)
                    assert await response.read_all() == b"".join(TEXT_STREAM)
                assert response.status == 200


async def test_a_client_that_proposed_an_upgrade_and_leaves_is_noticed():
    """h11 would read on only behind the response, since the client might go on in another protocol."""
    async with gateway_and_upstream(ScriptedUpstream([chunk({"content": "a"}), "stall"])) as (gateway, upstream):
        response = await gateway.completion(headers=H2C)
        await response.frame()
        await trio.aclose_forcefully(response.stream)
        with trio.fail_after(5):
            await upstream.connection_gone.wait()
