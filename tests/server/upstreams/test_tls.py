"""The ``http`` upstream over TLS."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme
from scripted import chunked, scripted_server, whole
from trio.testing import wait_all_tasks_blocked

from server.errors import ConfigError, UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamRequest
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions
from server.upstreams.tls import client_context

POST = UpstreamRequest("POST", "/chat/completions", [], b"{}")


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def server_context(authority, *names, versions=ssl.TLSVersion.TLSv1_2):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = versions
    context.set_alpn_protocols(["h2", "http/1.1"])
    authority.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
    return context


async def answer(peer):
    while True:
        await peer.request()
        await peer.send(whole(b"hi"))


async def close_with_alert(peer):
    """What a strict server does; ``https_compatible`` would leave it out."""
    peer.stream._https_compatible = False  # noqa: SLF001 - no other way in the middle of a connection
    await peer.stream.aclose()


async def fetch(upstream, request=POST):
    response = await upstream.open(request)
    try:
        body = b""
        while piece := await response.receive():
            body += piece
        return response.status, body
    finally:
        await response.aclose()


async def failure_of(upstream):
    with pytest.raises(UpstreamError) as caught:
        await fetch(upstream)
    assert upstream.statistics().open == 0
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_trusted_server_is_spoken_to(authority, ca_file, version, host):
    """Requests in a row share one connection, with names and with addresses, and HTTP/1.1 is agreed on."""
    context = server_context(authority)
    context.maximum_version = version
    protocols = set()

    async def handler(peer):
        await peer.stream.do_handshake()
        protocols.add(peer.stream.selected_alpn_protocol())
        await answer(peer)

    async with scripted_server(handler, tls=context) as server:
        url = f"https://{host}:{server.port}/v1"
        upstream = HttpUpstream(HttpUpstreamOptions(url, ca_file=ca_file))
        for _ in range(3):
            assert await fetch(upstream) == (200, b"hi")
        assert upstream.statistics().idle == 1
        assert await upstream.probe() is None
        await upstream.aclose()
    assert server.connections == 2
    assert protocols == {"http/1.1"}


async def test_other_host_name_is_refused(authority, ca_file):
    """A certificate for somebody else is named as the reason."""
    async with scripted_server(answer, tls=server_context(authority, "other.test")) as server:
        failure = await failure_of(HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file)))
    assert failure.kind is UpstreamErrorKind.TLS
    assert "not valid for '127.0.0.1'" in failure.message


async def test_untrusted_certificate_is_refused(authority):
    """The system's trust store does not know the test's authority."""
    async with scripted_server(answer, tls=server_context(authority)) as server:
        failure = await failure_of(HttpUpstream(HttpUpstreamOptions(server.url)))
    assert failure.kind is UpstreamErrorKind.TLS
    assert failure.message.startswith("no TLS connection to 127.0.0.1: ")
    assert "certificate" in failure.message


async def test_server_without_tls_is_refused(ca_file):
    """An ``https`` URL for a plain server is a TLS failure, in words."""

    async def handler(peer):
        await peer.stream.receive_some()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.gone()

    async with scripted_server(handler) as server:
        url = server.url.replace("http:", "https:")
        failure = await failure_of(HttpUpstream(HttpUpstreamOptions(url, ca_file=ca_file)))
    assert failure.kind is UpstreamErrorKind.TLS
    assert failure.message.endswith(("wrong version number", "packet length too long", "record layer failure"))


@pytest.mark.parametrize("reset", [True, False])
async def test_server_that_hangs_up_in_the_handshake(ca_file, reset):
    """A connection that ends before its handshake is a TLS failure."""

    async def handler(peer):
        await peer.stream.receive_some()
        if reset:
            peer.reset()

    async with scripted_server(handler) as server:
        url = server.url.replace("http:", "https:")
        failure = await failure_of(HttpUpstream(HttpUpstreamOptions(url, ca_file=ca_file)))
    assert failure.kind is UpstreamErrorKind.TLS


async def test_stalled_handshake_is_a_connect_timeout(ca_file, autojump_clock):
    """The limit on connecting covers the handshake."""

    async def handler(peer):
        await peer.gone()

    async with scripted_server(handler, limit=100) as server:
        url = server.url.replace("http:", "https:")
        failure = await failure_of(HttpUpstream(HttpUpstreamOptions(url, ca_file=ca_file, connect_timeout=7)))
    assert failure.kind is UpstreamErrorKind.CONNECT_TIMEOUT
    assert "connect_timeout = 7 s" in failure.message


async def test_records_of_one_read_are_one_burst(authority, ca_file):
    """Records that arrived together are given out together."""
    sent = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"one ", end=b""))
        await peer.send(b"4\r\ntwo \r\n")
        await peer.send(b"6\r\nthree \r\n")
        sent.set()
        await peer.gone()

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        response = await upstream.open(POST)
        first = await response.receive()
        await sent.wait()
        rest = b"one two three ".removeprefix(first)
        if rest:
            assert await response.receive() == rest
        await response.aclose()


async def test_connection_is_used_again_after_the_last_event(authority, ca_file):
    """The body's end in a record of its own, there but not read, does not cost the connection."""
    sent = trio.Event()
    read = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: [DONE]\n\n", end=b""))
        await read.wait()
        await peer.send(b"0\r\n\r\n")
        sent.set()
        await answer(peer)

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        response = await upstream.open(POST)
        assert await response.receive() == b"data: [DONE]\n\n"
        read.set()
        await sent.wait()
        await response.aclose()
        assert upstream.statistics().idle == 1
        assert await fetch(upstream) == (200, b"hi")
        await upstream.aclose()
    assert server.connections == 1


class Once:
    """A body that cannot be sent twice."""

    def __init__(self):
        self.pieces = [b"once", b""]

    async def receive(self):
        """The next piece."""
        await trio.lowlevel.checkpoint()
        return self.pieces.pop(0)


@pytest.mark.parametrize("alert", [True, False])
async def test_connection_closed_while_idle_is_not_used(authority, ca_file, alert):
    """The end of an idle connection is seen before the next request, with and without the closing alert."""

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"hi"))
        if alert:
            await close_with_alert(peer)

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        for _ in range(2):
            assert await fetch(upstream, UpstreamRequest("POST", "/files", [], Once())) == (200, b"hi")
            await wait_all_tasks_blocked()
        await upstream.aclose()
    assert server.connections == 2


async def test_bytes_sent_while_idle_are_no_answer(authority, ca_file):
    """A connection on which the server speaks unasked is dropped, also if the records came with the answer."""

    async def handler(peer):
        await peer.request()
        await peer.send(whole(b"asked"))
        await peer.send(whole(b"unasked"))
        await peer.gone()

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        for _ in range(2):
            assert await fetch(upstream) == (200, b"asked")
            await wait_all_tasks_blocked()
        await upstream.aclose()
    assert server.connections == 2


async def test_unread_response_is_closed_at_once(authority, ca_file):
    """The server notices within moments; no closing alert is waited for."""
    closed = trio.Event()

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: 1\n\n", end=b""))
        await peer.gone()
        closed.set()

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        response = await upstream.open(POST)
        await response.receive()
        with trio.fail_after(1):
            await response.aclose()
            await closed.wait()


async def test_early_answer_ends_the_upload(authority, ca_file):
    """An upload that is given up in the middle of a record does not spoil the answer."""
    heard = trio.Event()

    async def handler(peer):
        await peer.head()
        await peer.send(whole(b"too large" * 10_000, status=b"413 Content Too Large"))
        await heard.wait()

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        upload = UpstreamRequest("POST", "/files", [], bytes(20 * 1024 * 1024))
        assert await fetch(upstream, upload) == (413, b"too large" * 10_000)
        assert upstream.statistics().open == 0
        heard.set()


async def test_big_body_arrives_whole(authority, ca_file):
    """Megabytes go through in both directions."""
    bodies = []

    async def handler(peer):
        bodies.append((await peer.request()).body)
        await peer.send(whole(bodies[0]))
        await peer.gone()

    body = bytes(range(256)) * 20_000
    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        assert await fetch(upstream, UpstreamRequest("POST", "/files", [], body)) == (200, body)
        await upstream.aclose()
    assert bodies == [body]


@pytest.mark.parametrize("alert", [True, False])
async def test_body_until_the_end_of_the_connection(authority, ca_file, alert):
    """Servers end such a body with and without the closing alert."""

    async def handler(peer):
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        if alert:
            await close_with_alert(peer)

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        assert await fetch(upstream) == (200, b"all of it")


async def test_garbage_in_the_stream_is_a_reset(authority, ca_file):
    """A record that does not decrypt breaks the connection, after the body before it."""

    async def handler(peer):
        await peer.request()
        await peer.send(chunked(b"data: 1\n\n", end=b""))
        await peer.stream.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        await peer.gone()

    async with scripted_server(handler, tls=server_context(authority)) as server:
        upstream = HttpUpstream(HttpUpstreamOptions(server.url, ca_file=ca_file))
        response = await upstream.open(POST)
        assert await response.receive() == b"data: 1\n\n"
        for _ in range(2):
            with pytest.raises(UpstreamError) as caught:
                await response.receive()
            assert caught.value.kind is UpstreamErrorKind.RESET
        await response.aclose()
        assert upstream.statistics().open == 0


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_unusable_ca_file_is_named(tmp_path, text):
    """A file that is missing or holds something else is a config error."""
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"upstream\.ca_file: .*ca\.pem"):
        HttpUpstream(HttpUpstreamOptions("https://model.test/v1", ca_file=path))


def test_certificates_and_host_names_are_checked():
    """The context is the standard library's default for clients, with no less."""
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
