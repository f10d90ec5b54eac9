"""The ``http`` upstream against a scripted server: what goes out, and what comes back."""

from __future__ import annotations

import zlib

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

from server.errors import ClientError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions


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
