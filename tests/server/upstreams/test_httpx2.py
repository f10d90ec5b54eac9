import gc
import gzip
import warnings
import zlib
from contextlib import aclosing
from functools import partial

import pytest
import trio
from httpx2_helpers import (
    CHUNKED,
    GET,
    HELLO,
    POST,
    Connection,
    Pieces,
    answering,
    error_of,
    fetch,
    read_all,
    serving,
    upstream_at,
)

from server.errors import ClientError, UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.httpx2 import Httpx2Options, Httpx2Upstream
from server.upstreams.httpx2_connection import Httpx2Connection
from server.upstreams.origin import Origin


class TestRequest:
    async def test_goes_out_as_it_is(self):
        """Target, headers and body are sent unchanged below the base URL's path; nothing of the client's own is added."""
        seen = []

        async def handler(connection):
            seen.append(await connection.request())
            await connection.send(HELLO)

        target = "/files/a%2Fb/../c?q=%7Bx%7D&empty="
        headers = [(b"authorization", b"Bearer k"), (b"x-tag", b"1"), (b"x-tag", b"2")]
        async with serving(handler) as server, upstream_at(server.port) as upstream:
            await fetch(upstream, UpstreamRequest("POST", target, headers, b'{"a": 1}'))
        assert (seen[0].method, seen[0].target, seen[0].body) == ("POST", f"/v1{target}", b'{"a": 1}')
        assert sorted((name.lower(), value) for name, value in seen[0].headers) == [
            ("accept-encoding", "identity"),
            ("authorization", "Bearer k"),
            ("content-length", "8"),
            ("host", f"127.0.0.1:{server.port}"),
            ("x-tag", "1"),
            ("x-tag", "2"),
        ]

    async def test_body_is_streamed(self):
        """A body that is still arriving is sent piece by piece with chunked coding."""
        seen = []

        async def handler(connection):
            seen.append(await connection.request())
            await connection.send(HELLO)

        request = UpstreamRequest("POST", "/audio", [], Pieces(b"one", b"two"))
        async with serving(handler) as server, upstream_at(server.port) as upstream:
            assert await fetch(upstream, request) == b"hello"
        assert seen[0].body == b"onetwo"
        assert ("Transfer-Encoding", "chunked") in seen[0].headers

    async def test_streamed_body_goes_out_once(self):
        """Where httpx2 would send on a second connection what is left of a body, the request fails as reset."""

        class Transport:
            async def handle_async_request(self, request):
                for _ in range(2):
                    sent = [piece async for piece in request.stream]
                    assert sent == [b"one", b"two"]

        connection = Httpx2Connection(Transport(), connect_timeout=0)
        request = UpstreamRequest("POST", "/audio", [], Pieces(b"one", b"two"))
        origin = Origin.parse("http://127.0.0.1/v1")
        assert (await error_of(partial(connection.exchange, request, origin))).kind is UpstreamErrorKind.RESET

    async def test_unusable_header_is_the_clients_fault(self):
        """A header that HTTP cannot carry is answered with 400, not 502."""
        async with serving(answering(HELLO)) as server, upstream_at(server.port) as upstream:
            with pytest.raises(ClientError, match="cannot be sent on"):
                await upstream.open(UpstreamRequest("GET", "/models", [(b"x-tag", b"a\r\nb: c")]))

    async def test_clients_failure_is_raised_as_it_is(self):
        """What a body raises reaches the caller unchanged, and the connection is closed."""
        gone = ClientError(400, "client_gone", "the client broke off")
        request = UpstreamRequest("POST", "/audio", [], Pieces(b"one", gone))
        async with serving(Connection.until_gone) as server, upstream_at(server.port) as upstream:
            with pytest.raises(ClientError) as caught:
                await upstream.open(request)
            assert caught.value is gone
            await server.connections[0].gone.wait()

    async def test_credentials_of_the_url_are_sent_not_shown(self):
        """Credentials in the base URL become basic authorization and appear nowhere else."""
        seen = []

        async def handler(connection):
            seen.append(dict((await connection.request()).headers))
            await connection.send(HELLO)

        async with (
            serving(handler) as server,
            aclosing(Httpx2Upstream(Httpx2Options(f"http://me:p%40ss@127.0.0.1:{server.port}/v1"))) as upstream,
        ):
            await fetch(upstream, GET)
        assert seen[0]["authorization"] == "Basic bWU6cEBzcw=="
        assert upstream.name == f"http://127.0.0.1:{server.port}/v1"


class TestResponse:
    async def test_headers(self):
        """Names are in lower case, repetitions kept, headers of the connection dropped."""
        head = (
            b"HTTP/1.1 207 Fine\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nKeep-Alive: timeout=5\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Request: \xe9\r\n\r\n"
        )
        async with serving(answering(head, b"hello")) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(GET)
            await response.aclose()
            assert response.status == 207
            assert response.headers == [
                (b"content-length", b"5"),
                (b"set-cookie", b"a=1"),
                (b"set-cookie", b"b=2"),
                (b"x-request", b"\xe9"),
            ]

    async def test_end_is_lasting(self):
        """After the clean end of a body every read is empty."""
        async with serving(answering(HELLO)) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(GET)
            assert [await response.receive() for _ in range(3)] == [b"hello", b"", b""]

    async def test_no_cookies_and_no_redirects(self):
        """A redirect is an answer like any other, and a cookie is not sent back."""
        seen = []

        async def handler(connection):
            while request := await connection.request():
                seen.append([name.lower() for name, _ in request.headers])
                head = b"HTTP/1.1 307 Elsewhere\r\nLocation: /v1/other\r\nSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n"
                await connection.send(head)

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            for _ in range(2):
                response = await upstream.open(POST)
                assert response.status == 307
                assert await read_all(response) == b""
        assert len(seen) == 2
        assert not any("cookie" in names for names in seen)

    @pytest.mark.parametrize("coding", ["identity", "gzip"])
    async def test_each_read_is_given_out_at_once(self, coding):
        """What has arrived can be read before the next bytes come, with a content coding too."""
        compressor = zlib.compressobj(wbits=31)
        first = compressor.compress(b"first") + compressor.flush(zlib.Z_SYNC_FLUSH)
        second = compressor.compress(b"second") + compressor.flush()
        if coding == "identity":
            first, second = b"first", b"second"
        proceed = trio.Event()

        async def handler(connection):
            await connection.request()
            await connection.send(CHUNKED[:-2] + b"Content-Encoding: %b\r\n\r\n" % coding.encode())
            await connection.send_chunks(first)
            await proceed.wait()
            await connection.send_chunks(second, b"")

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            assert await response.receive() == b"first"
            proceed.set()
            assert await read_all(response) == b"second"
        assert response.headers == ([(b"content-encoding", b"identity")] if coding == "identity" else [])

    async def test_unknown_coding_is_left_alone(self):
        """A coding that cannot be undone goes on as it came, with its name."""
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: rot13\r\nContent-Length: 5\r\n\r\n"
        async with serving(answering(head, b"uryyb")) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            assert await read_all(response) == b"uryyb"
        assert response.headers == [(b"content-encoding", b"rot13"), (b"content-length", b"5")]

    async def test_length_goes_with_the_coding(self):
        """Where a coding was undone, the length of the coded body is not told."""
        body = gzip.compress(b"x" * 1000)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        async with serving(answering(head, body)) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(GET)
            assert response.headers == []
            assert await read_all(response) == b"x" * 1000


class TestLettingGo:
    async def test_whole_response_keeps_the_connection(self):
        """A connection whose response was read to its end carries the next request."""
        async with serving(answering(HELLO)) as server, upstream_at(server.port) as upstream:
            for _ in range(3):
                response = await upstream.open(POST)
                assert await read_all(response) == b"hello"
                await response.aclose()
            assert len(server.connections) == 1

    async def test_bytes_behind_a_response_are_not_the_next_answer(self):
        """A connection that has read more than the response carries no other request."""
        surplus = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
        async with serving(answering(HELLO + surplus)) as server, upstream_at(server.port) as upstream:
            for _ in range(3):
                response = await upstream.open(POST)
                assert await read_all(response) == b"hello"
                await response.aclose()
            assert len(server.connections) == 3

    async def test_abandoned_response_closes_the_connection(self):
        """The server notices at once when a response is given up in the middle; nothing is left to the collector."""

        async def handler(connection):
            await connection.request()
            await connection.send(CHUNKED)
            await connection.send_chunks(b"one", b"two", b"three")
            await connection.until_gone()

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            assert await response.receive() == b"one"
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                await response.aclose()
                await response.aclose()
                await server.connections[0].gone.wait()
                with pytest.raises(UpstreamError, match="closed"):
                    await response.receive()
                del response
                gc.collect()
            assert warned == []

    async def test_unread_response_closes_the_connection(self):
        """A response of which nothing was read is closed as well."""

        async def handler(connection):
            await connection.request()
            await connection.send(CHUNKED)
            await connection.until_gone()

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            await (await upstream.open(POST)).aclose()
            await server.connections[0].gone.wait()

    async def test_close_works_in_a_cancelled_scope(self):
        """A cancelled reader can still close; what follows is no clean end."""

        async def handler(connection):
            await connection.request()
            await connection.send(CHUNKED)
            await connection.send_chunks(b"one")
            await connection.until_gone()

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            await response.receive()
            with trio.CancelScope() as scope:
                scope.cancel()
                await response.aclose()
            await server.connections[0].gone.wait()
            assert (await error_of(response.receive)).kind is UpstreamErrorKind.RESET

    async def test_cancelled_read_is_no_end(self):
        """After a cancelled read the response can only be closed, and does not look complete."""

        async def handler(connection):
            await connection.request()
            await connection.send(CHUNKED)
            await connection.until_gone()

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(response.receive)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert (await error_of(response.receive)).kind is UpstreamErrorKind.RESET
            await response.aclose()
            await server.connections[0].gone.wait()

    async def test_cancelled_open_closes_the_connection(self):
        """A request that is given up before its answer leaves no connection and no place taken."""

        async def handler(connection):
            await connection.request()
            if connection.number > 1:
                await connection.send(HELLO)
            await connection.until_gone()

        async with serving(handler) as server, upstream_at(server.port, max_connections=1) as upstream:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(upstream.open, POST)
                while not server.connections:
                    await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await server.connections[0].gone.wait()
            assert await fetch(upstream) == b"hello"

    async def test_limit_of_connections(self):
        """Beyond the limit a request waits until another response is closed or read."""
        async with serving(answering(HELLO)) as server, upstream_at(server.port, max_connections=1) as upstream:
            first = await upstream.open(POST)
            second = []

            async def ask():
                second.append(await upstream.open(POST))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert second == []
                await first.aclose()
            assert await read_all(second[0]) == b"hello"

    async def test_idle_connections_expire(self, mock_clock):
        """A connection that was idle for longer than ``keep_alive_timeout`` is closed, not used."""
        async with serving(answering(HELLO)) as server, upstream_at(server.port, keep_alive_timeout=2) as upstream:
            for seconds in (1, 3, 0):
                assert await fetch(upstream) == b"hello"
                mock_clock.jump(seconds)
            await server.connections[0].gone.wait()
            assert len(server.connections) == 2
            await upstream.aclose()
            await server.connections[1].gone.wait()


async def answering_once(connection):
    await connection.request()
    await connection.send(HELLO)
    if connection.number == 1:
        await connection.request()
    else:
        await connection.until_gone()


class TestStaleConnection:
    async def test_whole_body_is_sent_again(self):
        """Where a kept connection is closed instead of answered, the request goes out once more on a new one."""
        async with serving(answering_once) as server, upstream_at(server.port) as upstream:
            for _ in range(2):
                assert await fetch(upstream) == b"hello"
            assert len(server.connections) == 2

    async def test_streamed_body_is_not(self):
        """A body that has gone by cannot be sent again: the request fails as reset."""
        async with serving(answering_once) as server, upstream_at(server.port) as upstream:
            assert await fetch(upstream) == b"hello"
            request = UpstreamRequest("POST", "/audio", [], Pieces(b"one"))
            assert (await error_of(partial(upstream.open, request))).kind is UpstreamErrorKind.RESET
