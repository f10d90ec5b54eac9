"""The ``http`` upstream and what goes wrong: with the server, on the way, in the middle of an upload."""

from __future__ import annotations

import socket

import pytest
import trio
from http_requests import (
    BIG,
    POST,
    Pieces,
    Resolver,
    answering,
    failure_of,
    fetch,
    upstream_to,
)
from scripted import chunked, whole

from server.errors import ClientError, UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions


async def test_reset_in_the_body():
    """A connection that breaks is a reset, after all that came before it."""

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: 1\n\n", end=b""))
        await arrived.wait()
        peer.reset()

    arrived = trio.Event()
    async with upstream_to(handler) as (upstream, _):
        response = await upstream.open(POST)
        assert await response.receive() == b"data: 1\n\n"
        arrived.set()
        for _ in range(2):
            with pytest.raises(UpstreamError) as caught:
                await response.receive()
            assert caught.value.kind is UpstreamErrorKind.RESET
        await response.aclose()


@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 200 O", whole(b"hi")[:-1], chunked(b"hi", end=b""), chunked(b"hi")[:-2]]
)
async def test_response_that_ends_too_early(response):
    """A clean close before the announced end is a reset too."""

    async def handler(peer):
        await peer.request()
        if response:
            await peer.send(response)

    async with upstream_to(handler) as (upstream, _):
        assert (await failure_of(upstream)).kind is UpstreamErrorKind.RESET
        assert upstream.statistics().open == 0


@pytest.mark.parametrize("response", [b"+PONG\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000])
async def test_no_http_is_a_protocol_error(response):
    """What is not HTTP, or a head without end, is refused, and the connection closed."""
    async with upstream_to(answering(response)) as (upstream, _):
        assert (await failure_of(upstream)).kind is UpstreamErrorKind.PROTOCOL
        assert upstream.statistics().open == 0


async def test_refused_connection_names_the_address():
    """The message tells where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        upstream = HttpUpstream(HttpUpstreamOptions(f"http://127.0.0.1:{port}/v1"))
        failure = await failure_of(upstream)
    assert failure.kind is UpstreamErrorKind.CONNECT
    assert failure.message == f"no connection to 127.0.0.1:{port}: Connection refused"
    assert failure.status == 502
    assert upstream.statistics().open == 0


async def test_unknown_name_is_named():
    """The message tells which name is not found."""
    trio.socket.set_custom_hostname_resolver(Resolver())
    upstream = HttpUpstream(HttpUpstreamOptions("http://nowhere.test:8000/v1"))
    failure = await failure_of(upstream)
    assert failure.kind is UpstreamErrorKind.CONNECT
    assert failure.message == "no connection to nowhere.test:8000: Name or service not known"


async def test_impossible_name_is_no_crash():
    """A host that no resolver takes is a failed connection."""
    upstream = HttpUpstream(HttpUpstreamOptions(f"http://{'a' * 70}.test/v1"))
    assert (await failure_of(upstream)).kind is UpstreamErrorKind.CONNECT


async def test_connect_timeout_names_its_limit(autojump_clock):
    """The wait for a connection is bounded, the name's part included."""
    trio.socket.set_custom_hostname_resolver(Resolver(stalls=True))
    upstream = HttpUpstream(HttpUpstreamOptions("http://nowhere.test/v1", connect_timeout=2.5))
    failure = await failure_of(upstream)
    assert failure.kind is UpstreamErrorKind.CONNECT_TIMEOUT
    assert failure.message == "no connection to nowhere.test within upstream.connect_timeout = 2.5 s"
    assert failure.status == 504


async def test_connect_timeout_of_zero_is_no_limit(autojump_clock):
    """0 waits for as long as the caller does."""
    trio.socket.set_custom_hostname_resolver(Resolver(stalls=True))
    upstream = HttpUpstream(HttpUpstreamOptions("http://nowhere.test/v1", connect_timeout=0))
    with pytest.raises(trio.TooSlowError), trio.fail_after(1_000_000):
        await upstream.open(POST)
    assert upstream.statistics().open == 0


@pytest.mark.parametrize("body", [BIG.body, "endless", "stalled"])
async def test_early_answer_ends_the_upload(body):
    """A server that refuses before it has read the request is heard; the rest is not sent, the connection not reused."""
    stalled = trio.Event()

    class Endless:
        async def receive(self):
            await trio.lowlevel.checkpoint()
            return bytes(65536)

    if body == "endless":
        body = Endless()
    elif body == "stalled":
        body = Pieces(b"begin", stalled.wait)

    async def handler(peer):
        await peer.head()
        await peer.send(whole(b"too large", status=b"413 Content Too Large"))
        await done.wait()

    done = trio.Event()
    async with upstream_to(handler) as (upstream, _):
        status, _, answer = await fetch(upstream, UpstreamRequest("POST", "/files", [], body))
        assert (status, answer) == (413, b"too large")
        assert upstream.statistics().open == 0
        done.set()


@pytest.mark.parametrize("request_", [BIG, UpstreamRequest("POST", "/files", [], bytes(60_000))])
async def test_answer_of_a_server_that_has_hung_up(request_):
    """An answer that came before the connection broke is read, although the request could not be sent."""

    async def handler(peer):
        await peer.head()
        await peer.send(whole(b"no", status=b"401 Unauthorized"))

    async with upstream_to(handler) as (upstream, _):
        for _ in range(20):  # the answer and the break arrive together, and either may be noticed first
            assert (await fetch(upstream, request_))[0] == 401


async def test_client_that_breaks_off_its_upload():
    """The source's error is the request's, alone, and the server sees the connection close."""
    closed = trio.Event()

    async def handler(peer):
        await peer.head()
        await peer.gone()
        closed.set()

    async def break_off():
        await trio.lowlevel.checkpoint()
        raise ClientError(400, "client_gone", "the client closed the connection")

    async with upstream_to(handler) as (upstream, _):
        with pytest.raises(ClientError, match="closed the connection"):
            await upstream.open(UpstreamRequest("POST", "/files", [], Pieces(b"begin", break_off)))
        await closed.wait()
