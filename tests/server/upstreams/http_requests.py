"""Requests to the scripted server through the ``http`` upstream."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager

import pytest
import trio
from scripted import Peer, scripted_server

from server.errors import UpstreamError
from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions

POST = UpstreamRequest("POST", "/chat/completions", [(b"content-type", b"application/json")], b'{"messages":[]}')
BIG = UpstreamRequest("POST", "/files", [], bytes(20 * 1024 * 1024))


@asynccontextmanager
async def upstream_to(handler, **options):
    """An upstream to a server with this handler; nothing may be in use at the end."""
    async with scripted_server(handler) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, **options))
        yield upstream, server
        assert in_use(upstream) == 0
        await upstream.aclose()


def in_use(upstream):
    """Connections that requests have."""
    found = upstream.statistics()
    return found.open - found.idle


def answering(*responses, seen=None):
    """A handler that answers each request of a connection with the next response."""

    async def handler(peer: Peer):
        for response in responses:
            request = await peer.request()
            if seen is not None:
                seen.append((peer.number, request))
            await peer.send(response)
        await peer.gone()

    return handler


async def body_of(response):
    """All of the body, whose end stays the end."""
    pieces = []
    while piece := await response.receive():
        pieces.append(piece)
    assert await response.receive() == b""
    return b"".join(pieces)


async def fetch(upstream, request=POST):
    """Status, headers and body of one request."""
    response = await upstream.open(request)
    try:
        return response.status, response.headers, await body_of(response)
    finally:
        await response.aclose()


async def failure_of(upstream, request=POST):
    """How a request fails."""
    with pytest.raises(UpstreamError) as caught:
        await fetch(upstream, request)
    assert "\n" not in caught.value.message
    return caught.value


class Pieces:
    """A body that arrives piece by piece; what is no bytes is called."""

    def __init__(self, *steps):
        self.steps = list(steps)

    async def receive(self):
        """The next piece."""
        await trio.lowlevel.checkpoint()
        step = self.steps.pop(0) if self.steps else b""
        return step if isinstance(step, bytes) else await step()


class Resolver(trio.abc.HostnameResolver):
    """Knows no name, or never answers."""

    def __init__(self, *, stalls=False):
        self.stalls = stalls

    async def getaddrinfo(self, *_):
        """See ``trio.abc.HostnameResolver``."""
        if self.stalls:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *_):
        """See ``trio.abc.HostnameResolver``; nobody asks."""
        await trio.lowlevel.checkpoint()
        raise NotImplementedError
