"""Requests of the ``http`` upstream, cancelled at every single step of their tasks."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme
from scripted import chunked, scripted_server, whole

from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions

MOST_STEPS = 400


class Pieces:
    """A body that arrives in pieces."""

    def __init__(self):
        self.left = 5

    async def receive(self):
        """The next piece."""
        await trio.lowlevel.checkpoint()
        self.left -= 1
        return b"piece" if self.left > 0 else b""


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope before the n-th step of a task or its descendants, which the server's tasks are among."""

    def __init__(self, root, scope, step):
        self.root = root
        self.scope = scope
        self.left = step

    def before_task_step(self, task):
        """See ``trio.abc.Instrument``."""
        inside = task
        while inside is not None and inside is not self.root:
            inside = inside.parent_nursery.parent_task if inside.parent_nursery else None
        if inside is self.root:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


async def cancelled_at(step, act):
    """Run ``act`` and cancel it at a step; returns whether it had ended before."""
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(trio.lowlevel.current_task(), scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            await act()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return not scope.cancel_called


async def serve(peer):
    while True:
        request = await peer.request()
        if request.line.startswith(b"GET"):
            await peer.send(whole(b"model"))
        else:
            await peer.send(chunked(b"data: 1\n\n", b"data: 2\n\n", end=b""))
            await trio.lowlevel.checkpoint()
            await peer.send(b"0\r\n\r\n")


async def fetch(upstream, request):
    response = await upstream.open(request)
    try:
        body = b""
        while piece := await response.receive():
            body += piece
        return body
    finally:
        await response.aclose()


GET = UpstreamRequest("GET", "/models", [])


@pytest.mark.parametrize("warm", [False, True], ids=["new connection", "kept connection"])
@pytest.mark.parametrize("kind", ["small", "big", "source", "probe"])
@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
async def test_cancelled_request_leaves_nothing(tls, kind, warm, tmp_path):
    """Wherever a request is cancelled, its place is free, its connection closed or idle, and the next request works."""
    context = None
    options = {}
    if tls:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        options["ca_file"] = tmp_path / "ca.pem"

    def request():
        body = {"small": b"{}", "big": bytes(300_000), "source": Pieces()}[kind]
        return UpstreamRequest("POST", "/chat/completions", [], body)

    async with scripted_server(serve, tls=context) as server:
        for step in range(1, MOST_STEPS):
            upstream = HttpUpstream(HttpUpstreamOptions(server.url, max_connections=1, **options))
            if warm:
                assert await fetch(upstream, GET) == b"model"

            async def act(upstream=upstream):
                if kind == "probe":
                    await upstream.probe()
                else:
                    await fetch(upstream, request())

            ended = await cancelled_at(step, act)
            found = upstream.statistics()
            assert (found.open - found.idle, found.waiting) == (0, 0)
            assert await fetch(upstream, GET) == b"model"
            assert upstream.statistics().open == 1
            await upstream.aclose()
            if ended:
                break
        else:
            pytest.fail("the request never came to its end")
        assert step > 5


async def test_cancelled_wait_for_a_place_leaves_nothing():
    """Requests that are cancelled while they wait for a place take none, at whatever step."""
    async with scripted_server(serve) as server:
        for step in range(1, MOST_STEPS):
            upstream = HttpUpstream(HttpUpstreamOptions(server.url, max_connections=1))
            held = await upstream.open(GET)

            async def act(upstream=upstream, held=held):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fetch, upstream, GET)
                    nursery.start_soon(fetch, upstream, GET)
                    await trio.lowlevel.checkpoint()
                    await held.aclose()

            ended = await cancelled_at(step, act)
            await held.aclose()
            assert await fetch(upstream, GET) == b"model"
            found = upstream.statistics()
            assert (found.open, found.idle, found.waiting) == (1, 1, 0)
            await upstream.aclose()
            if ended:
                break
        else:
            pytest.fail("the requests never came to their end")
