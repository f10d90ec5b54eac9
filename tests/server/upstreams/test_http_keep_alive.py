"""The connections of the ``http`` upstream: kept, replaced, closed, waited for."""

from __future__ import annotations

import pytest
import trio
from http_requests import (
    POST,
    Pieces,
    answering,
    failure_of,
    fetch,
    in_use,
    upstream_to,
)
from scripted import chunked, whole
from trio.testing import wait_all_tasks_blocked

from server.errors import UpstreamErrorKind
from server.upstreams.base import UpstreamRequest


async def test_connection_is_used_again():
    """Requests in a row share one connection."""
    seen = []
    async with upstream_to(answering(whole(b"1"), chunked(b"2"), whole(b"3"), seen=seen)) as (upstream, _):
        assert [(await fetch(upstream))[2] for _ in range(3)] == [b"1", b"2", b"3"]
        assert upstream.statistics().idle == 1
    assert [number for number, _ in seen] == [1, 1, 1]


@pytest.mark.parametrize(
    "response",
    [
        whole(b"hi", b"connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        whole(b"hi") + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
    ],
)
async def test_connection_is_not_used_again(response):
    """Not after ``close``, HTTP/1.0, or bytes behind the response, which would be taken for the next answer."""
    async with upstream_to(answering(response)) as (upstream, server):
        assert (await fetch(upstream))[2] == b"hi"
        assert upstream.statistics().open == 0
        assert (await fetch(upstream))[2] == b"hi"
    assert server.connections == 2


async def test_bytes_sent_while_idle_are_no_answer():
    """A connection on which the server speaks unasked is dropped, and what it said with it."""
    spoken = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"asked"))
        if peer.number == 1:
            await peer.send(whole(b"unasked"))
        spoken.set()
        await peer.gone()

    async with upstream_to(handler, read_bytes=len(whole(b"asked"))) as (upstream, server):
        await fetch(upstream)
        await spoken.wait()
        assert (await fetch(upstream))[2] == b"asked"
    assert server.connections == 2


@pytest.mark.parametrize("together", [True, False])
async def test_connection_is_used_again_after_the_last_event(together):
    """A reader that stops at ``[DONE]`` keeps the connection if the body's end is there, read or not."""
    stream = chunked(b"data: [DONE]\n\n", end=b"")
    end = b"0\r\n\r\n"
    sent = trio.Event()

    async def handler(peer):
        for _ in range(2):
            await peer.request()
            await peer.send(stream + end)
            sent.set()
        await peer.gone()

    read_bytes = 65536 if together else len(stream)
    async with upstream_to(handler, read_bytes=read_bytes) as (upstream, server):
        for _ in range(2):
            response = await upstream.open(POST)
            assert await response.receive() == b"data: [DONE]\n\n"
            await sent.wait()
            await response.aclose()
            assert upstream.statistics().idle == 1
    assert server.connections == 1


async def test_end_that_comes_late_is_not_waited_for():
    """Where the body's end is not there yet, closing closes, without delay."""
    closed = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: [DONE]\n\n", end=b""))
        await peer.gone()
        closed.set()

    async with upstream_to(handler) as (upstream, _):
        response = await upstream.open(POST)
        await response.receive()
        with trio.fail_after(1):
            await response.aclose()
            await closed.wait()
        assert upstream.statistics().open == 0


async def test_unread_response_is_closed_at_once():
    """The server notices within moments that nobody listens, however much it has still to say."""
    closed = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: 1\n\n", end=b""))
        try:
            while True:
                await peer.send(b"9\r\ndata: 1\n\n\r\n" * 1000)
        except trio.BrokenResourceError:
            closed.set()

    async with upstream_to(handler) as (upstream, _):
        response = await upstream.open(POST)
        await response.receive()
        with trio.fail_after(1):
            await response.aclose()
            await closed.wait()


async def test_connection_closed_while_idle_is_not_used():
    """A server that closes idle connections costs no request and no retry."""

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"hi"))

    async with upstream_to(handler) as (upstream, server):
        for _ in range(3):
            once = UpstreamRequest("POST", "/files", [], Pieces(b"cannot be sent twice"))
            assert (await fetch(upstream, once))[2] == b"hi"
            await wait_all_tasks_blocked()
    assert server.connections == 3


def closing_on_the_second_request(*, reset):
    """Each connection serves one request and breaks off at the next: the race that no check can win."""
    bodies = []

    async def handler(peer):
        bodies.append((await peer.request()).body)
        await peer.send(whole(b"hi"))
        bodies.append((await peer.request()).body)
        if reset:
            peer.reset()

    return handler, bodies


@pytest.mark.parametrize("reset", [True, False])
async def test_stale_connection_is_replaced_once(reset):
    """A request that a kept connection swallowed is sent again, whole, on a new one, on the same place."""
    handler, bodies = closing_on_the_second_request(reset=reset)
    async with upstream_to(handler, max_connections=1) as (upstream, server):
        await fetch(upstream)
        assert (await fetch(upstream))[2] == b"hi"
        assert upstream.statistics().open == 1
    assert bodies == [POST.body] * 3
    assert server.connections == 2


async def test_body_that_is_gone_is_not_sent_again():
    """A body that was read from its source cannot be replayed, so that the reset is reported."""
    handler, _ = closing_on_the_second_request(reset=False)
    async with upstream_to(handler) as (upstream, server):
        await fetch(upstream)
        failure = await failure_of(upstream, UpstreamRequest("POST", "/files", [], Pieces(b"once")))
    assert failure.kind is UpstreamErrorKind.RESET
    assert server.connections == 1


async def test_new_connection_that_breaks_is_not_replaced():
    """A server that hangs up on every request is asked once."""

    async def handler(peer):
        await peer.request()

    async with upstream_to(handler) as (upstream, server):
        assert (await failure_of(upstream)).kind is UpstreamErrorKind.RESET
    assert server.connections == 1


async def test_answer_that_breaks_off_is_not_asked_for_again():
    """Once a byte of the answer has come, the request is not repeated."""

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"hi"))
        await peer.request()
        await peer.send(b"HTTP/1.1 200")

    async with upstream_to(handler) as (upstream, server):
        await fetch(upstream)
        assert (await failure_of(upstream)).kind is UpstreamErrorKind.RESET
    assert server.connections == 1


async def test_closing_the_upstream_closes_idle_connections():
    """The server sees the end of kept connections."""
    closed = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"hi"))
        await peer.gone()
        closed.set()

    async with upstream_to(handler) as (upstream, _):
        await fetch(upstream)
        await upstream.aclose()
        await closed.wait()
        assert upstream.statistics().open == 0


async def test_closing_a_response_is_safe_anywhere():
    """Twice, in a cancelled scope, and before the body: nothing raises, and the place is free."""
    async with upstream_to(answering(whole(b"hi"), whole(b"hi"))) as (upstream, _):
        response = await upstream.open(POST)
        with trio.CancelScope() as scope:
            scope.cancel()
            await response.aclose()
            await response.aclose()
            await upstream.aclose()
        assert not scope.cancelled_caught
        assert in_use(upstream) == 0
        with pytest.raises(trio.ClosedResourceError):
            await response.receive()


async def test_requests_beyond_the_limit_wait_their_turn():
    """With two places, eight requests use two connections, in order of arrival."""
    running = most = 0
    order = []

    async def handler(peer):
        nonlocal running, most
        while True:
            order.append((await peer.request()).line.split()[1])
            running += 1
            most = max(most, running)
            await trio.lowlevel.checkpoint()
            running -= 1
            await peer.send(whole(b"hi"))

    async with upstream_to(handler, max_connections=2) as (upstream, server):
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(fetch, upstream, UpstreamRequest("GET", f"/{number}", []))
                await trio.lowlevel.checkpoint()
        assert upstream.statistics().open == upstream.statistics().idle == 2
    assert most <= 2
    assert server.connections == 2
    assert order == sorted(order)
