"""The ``http`` upstream against a scripted server."""

from __future__ import annotations

import socket
import zlib
from contextlib import asynccontextmanager

import pytest
import trio
from scripted import Peer, chunked, scripted_server, whole
from trio.testing import wait_all_tasks_blocked

from server.errors import ClientError, UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions

GET = UpstreamRequest("GET", "/models", [])
POST = UpstreamRequest("POST", "/chat/completions", [(b"content-type", b"application/json")], b'{"messages":[]}')
BIG = UpstreamRequest("POST", "/files", [], bytes(20 * 1024 * 1024))


def upstream_of(server, **options):
    return HttpUpstream(HttpUpstreamOptions(server.url, **options))


@asynccontextmanager
async def upstream_to(handler, **options):
    """An upstream to a server with this handler; nothing may be in use at the end."""
    async with scripted_server(handler) as server:
        upstream = upstream_of(server, **options)
        yield upstream, server
        assert in_use(upstream) == 0
        await upstream.aclose()


def in_use(upstream):
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


# What goes out and what comes back


async def test_request_and_response():
    """Line, headers and body arrive as given; status, headers and body come back."""
    seen = []
    response = whole(b'{"ok":1}', b"Content-Type: application/json", b"X-Request-Id: 7", status=b"201 Created")
    async with upstream_to(answering(response, seen=seen)) as (upstream, server):
        status, headers, body = await fetch(upstream)
    (_, request) = seen[0]
    assert request.line == b"POST /v1/chat/completions HTTP/1.1"
    assert request.header(b"host") == b"127.0.0.1:%d" % server.port
    assert request.header(b"accept-encoding") == b"identity"
    assert request.header(b"content-type") == b"application/json"
    assert request.body == b'{"messages":[]}'
    assert status == 201
    assert headers == [(b"content-type", b"application/json"), (b"x-request-id", b"7"), (b"content-length", b"8")]
    assert body == b'{"ok":1}'


async def test_small_request_is_one_segment():
    """Head and body go out together, so that the server has all with its first read."""
    reads = []

    async def handler(peer):
        reads.append(await peer.stream.receive_some())
        await peer.send(whole(b""))

    async with upstream_to(handler) as (upstream, _):
        await fetch(upstream)
    assert reads[0].endswith(b'\r\n\r\n{"messages":[]}')


async def test_hop_by_hop_headers_stay_on_their_hop():
    """Neither they, nor what ``connection`` names, nor trailers come through."""
    response = chunked(
        b"x",
        headers=(
            b"connection: X-Mine, keep-alive",
            b"x-mine: 1",
            b"keep-alive: timeout=5",
            b"trailer: t",
            b"x-yours: 2",
        ),
        end=b"0\r\nt: 1\r\n\r\n",
    )
    async with upstream_to(answering(response)) as (upstream, _):
        _, headers, body = await fetch(upstream)
    assert headers == [(b"x-yours", b"2")]
    assert body == b"x"


async def test_one_read_is_one_burst():
    """Everything of the body that one read brought is given out together, and the next read is the next burst."""
    goes_on = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"one ", b"two ", b"three ", end=b""))
        await goes_on.wait()
        await peer.send(b"4\r\nfour\r\n0\r\n\r\n")

    async with upstream_to(handler) as (upstream, _):
        response = await upstream.open(POST)
        assert await response.receive() == b"one two three "
        goes_on.set()
        assert await response.receive() == b"four"
        assert await response.receive() == b""
        await response.aclose()


async def test_read_bytes_bounds_a_read():
    """A reader that takes little at a time gets little at a time."""
    async with upstream_to(answering(whole(b"a" * 1000)), read_bytes=100) as (upstream, _):
        response = await upstream.open(POST)
        sizes = []
        while piece := await response.receive():
            sizes.append(len(piece))
        await response.aclose()
    assert sum(sizes) == 1000
    assert max(sizes) <= 100


async def test_informational_responses_are_passed_over():
    """100 and 103 are not the answer."""
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with upstream_to(answering(early + whole(b"late"))) as (upstream, _):
        assert await fetch(upstream) == (200, [(b"content-length", b"4")], b"late")


async def test_head_request_has_no_body():
    """The length in answer to a HEAD is that of another response, and the connection is used again."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\ncontent-encoding: gzip\r\n\r\n"
    async with upstream_to(answering(head, whole(b"next"))) as (upstream, server):
        status, headers, body = await fetch(upstream, UpstreamRequest("HEAD", "/models", []))
        assert (status, body) == (200, b"")
        assert headers == [(b"content-length", b"1000"), (b"content-encoding", b"gzip")]
        assert (await fetch(upstream))[2] == b"next"
    assert server.connections == 1


async def test_body_until_the_end_of_the_connection():
    """HTTP/1.0 servers close where the body ends."""

    async def handler(peer):
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")

    async with upstream_to(handler) as (upstream, _):
        assert (await fetch(upstream))[2] == b"data: 1\n\n"
        assert upstream.statistics().open == 0


async def test_body_source_is_sent_in_chunks():
    """A body that is still arriving is sent on piece by piece, with its end."""
    seen = []
    async with upstream_to(answering(whole(b"ok"), whole(b"next"), seen=seen)) as (upstream, server):
        await fetch(upstream, UpstreamRequest("POST", "/files", [], Pieces(b"one, ", b"two" * 10)))
        await fetch(upstream)
    assert seen[0][1].header(b"transfer-encoding") == b"chunked"
    assert seen[0][1].body == b"one, " + b"two" * 10
    assert server.connections == 1


async def test_big_body_arrives_whole():
    """A body beyond any buffer is sent while the answer is waited for."""
    seen = []
    async with upstream_to(answering(whole(b"ok"), whole(b"next"), seen=seen)) as (upstream, server):
        await fetch(upstream, BIG)
        await fetch(upstream)
    assert seen[0][1].body == BIG.body
    assert server.connections == 1


async def test_request_that_cannot_be_sent_costs_no_connection():
    """A header with a line break is refused before anything is opened."""
    async with upstream_to(answering(whole(b""))) as (upstream, server):
        with pytest.raises(ClientError):
            await upstream.open(UpstreamRequest("GET", "/models", [(b"x", b"1\r\ny: 2")]))
    assert server.connections == 0


# Codings


async def test_coded_stream_is_undone_line_by_line():
    """Each line that the server flushed is given out before the next is sent, in reads of one byte."""
    compressor = zlib.compressobj(wbits=31)
    arrived = [trio.Event() for _ in range(3)]

    async def handler(peer):
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        for number, event in enumerate(arrived):
            data = compressor.compress(b"data: %d\n\n" % number) + compressor.flush(zlib.Z_SYNC_FLUSH)
            await peer.send(b"%x\r\n%b\r\n" % (len(data), data))
            await event.wait()
        end = compressor.flush()
        await peer.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
        await peer.gone()

    async with upstream_to(handler, read_bytes=1) as (upstream, _):
        response = await upstream.open(POST)
        for number, event in enumerate(arrived):
            line = b""
            while not line.endswith(b"\n\n"):
                line += await response.receive()
            assert line == b"data: %d\n\n" % number
            event.set()
        assert await response.receive() == b""
        await response.aclose()
        assert upstream.statistics().idle == 1


async def test_headers_of_an_undone_coding_are_dropped():
    """Coding and length described other bytes than those given out."""
    coded = zlib.compress(b"text")
    response = whole(coded, b"content-encoding: deflate", b"content-type: text/plain")
    async with upstream_to(answering(response)) as (upstream, _):
        assert await fetch(upstream) == (200, [(b"content-type", b"text/plain")], b"text")


async def test_unknown_coding_passes_unchanged():
    """What cannot be undone goes on with the header that names it."""
    async with upstream_to(answering(whole(b"\x00\x01", b"content-encoding: aws-chunked"))) as (upstream, _):
        _, headers, body = await fetch(upstream)
    assert (b"content-encoding", b"aws-chunked") in headers
    assert body == b"\x00\x01"


async def test_bomb_is_given_out_in_pieces():
    """One read that stands for megabytes takes many calls, each small."""
    compressor = zlib.compressobj(9, wbits=31)
    bomb = compressor.compress(bytes(8 * 1024 * 1024)) + compressor.flush()
    async with upstream_to(answering(whole(bomb, b"content-encoding: gzip"))) as (upstream, _):
        response = await upstream.open(POST)
        total = 0
        while piece := await response.receive():
            assert len(piece) <= 256 * 1024
            total += len(piece)
        await response.aclose()
    assert total == 8 * 1024 * 1024


@pytest.mark.parametrize("coded", [b"\xffnot gzip", zlib.compress(b"text" * 100)[:-3]])
async def test_broken_coding_is_a_protocol_error(coded):
    """Data that cannot be undone is an error, not silence."""
    async with upstream_to(answering(whole(coded, b"content-encoding: deflate"))) as (upstream, _):
        assert (await failure_of(upstream)).kind is UpstreamErrorKind.PROTOCOL


# Keep-alive


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


# Places


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


# Failures


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


# Uploads


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


# Probing


@pytest.mark.parametrize("status", [b"200 OK", b"401 Unauthorized", b"404 Not Found"])
async def test_probe_is_content_with_any_answer_below_500(status):
    """It asks for the models, beside all limits, and leaves no connection."""
    closed = trio.Event()

    async def handler(peer):
        lines.append((await peer.request()).line)
        await peer.send(whole(b"x", status=status))
        await peer.gone()
        closed.set()

    lines = []
    async with upstream_to(handler) as (upstream, _):
        assert await upstream.probe() is None
        await closed.wait()
    assert lines == [b"GET /v1/models HTTP/1.1"]


async def test_probe_does_not_wait_for_a_place():
    """An upstream whose places are all taken can be reached."""
    async with upstream_to(answering(whole(b"hi")), max_connections=1) as (upstream, _):
        response = await upstream.open(POST)
        assert await upstream.probe() is None
        await response.aclose()


async def test_probe_says_what_is_wrong():
    """A server error and a dead server each give one line."""
    async with upstream_to(answering(whole(b"", status=b"503 Busy"))) as (upstream, server):
        assert await upstream.probe() == f"{server.url}/models answered with status 503"
    assert await upstream.probe() == f"no connection to 127.0.0.1:{server.port}: Connection refused"


async def test_probe_is_bounded(autojump_clock):
    """A server that never answers is found out within 5 seconds."""
    trio.socket.set_custom_hostname_resolver(Resolver(stalls=True))
    upstream = HttpUpstream(HttpUpstreamOptions("http://nowhere.test/v1"))
    started = trio.current_time()
    assert await upstream.probe() == "http://nowhere.test/v1/models did not answer within 5 s"
    assert trio.current_time() - started == 5
