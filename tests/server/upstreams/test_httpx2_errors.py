"""What the httpx2 upstream makes of failures, proxies, probes and its options."""

import gzip
import sys
from contextlib import aclosing
from functools import partial

import httpx2_helpers
import pytest
import trio
from httpx2_helpers import (
    CHUNKED,
    GET,
    GZIPPED,
    HELLO,
    POST,
    Connection,
    answering,
    error_of,
    fetch,
    make_upstream,
    proxying,
    read_all,
    serving,
    upstream_at,
)

from server.errors import ConfigError, UpstreamErrorKind
from server.upstreams.httpx2 import Httpx2Options, Httpx2Upstream


class TestErrors:
    async def test_refused(self, unused_port):
        """A port where nobody listens is a connect error, answered with 502."""
        error = await error_of(partial(make_upstream(unused_port).open, POST))
        assert (error.kind, error.status) == (UpstreamErrorKind.CONNECT, 502)
        assert f"127.0.0.1:{unused_port}" in error.message

    async def test_unknown_host(self):
        """A name that leads nowhere is a connect error."""
        upstream = Httpx2Upstream(Httpx2Options("http://nowhere.invalid/v1"))
        assert (await error_of(partial(upstream.open, POST))).kind is UpstreamErrorKind.CONNECT

    async def test_untrusted_certificate(self, tls):
        """A certificate that the system does not trust is a TLS error."""
        async with serving(answering(HELLO), tls) as server:
            error = await error_of(partial(make_upstream(server.port, scheme="https").open, POST))
        assert error.kind is UpstreamErrorKind.TLS
        assert "certificate" in error.message

    async def test_wrong_host(self, tls, ca_file):
        """A trusted certificate for another name is a TLS error."""
        async with serving(answering(HELLO), tls) as server:
            upstream = Httpx2Upstream(Httpx2Options(f"https://localhost:{server.port}/v1", ca_file=ca_file))
            assert (await error_of(partial(upstream.open, POST))).kind is UpstreamErrorKind.TLS

    async def test_no_tls(self, ca_file):
        """A server that does not speak TLS at all is a TLS error."""
        async with serving(lambda connection: connection.send(b"HTTP/1.1 400 What?\r\n\r\n")) as server:
            upstream = make_upstream(server.port, scheme="https", ca_file=ca_file)
            assert (await error_of(partial(upstream.open, POST))).kind is UpstreamErrorKind.TLS

    async def test_handshake_that_never_ends(self, autojump_clock):  # noqa: ARG002 - it is the clock
        """The limit on connecting covers the TLS handshake; it is answered with 504."""
        async with serving(Connection.until_gone) as server:
            error = await error_of(partial(make_upstream(server.port, scheme="https", connect_timeout=3).open, POST))
        assert (error.kind, error.status) == (UpstreamErrorKind.CONNECT_TIMEOUT, 504)
        assert trio.current_time() < httpx2_helpers.LIMIT

    async def test_slow_answer_is_no_slow_connection(self, autojump_clock):  # noqa: ARG002 - it is the clock
        """Once connected, an answer may take any time."""

        async def handler(connection):
            await connection.request()
            await trio.sleep(httpx2_helpers.LIMIT - 1)
            await connection.send(HELLO)

        async with serving(handler) as server, upstream_at(server.port, connect_timeout=1) as upstream:
            assert await fetch(upstream) == b"hello"

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            (b"", UpstreamErrorKind.RESET),
            (b"HTTP/1.1 200 OK\r\nContent-Le", UpstreamErrorKind.RESET),
            (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", UpstreamErrorKind.PROTOCOL),
            (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", UpstreamErrorKind.PROTOCOL),
        ],
    )
    async def test_no_response(self, answer, kind):
        """What ends or goes wrong before the headers are there is told by ``open``."""

        async def handler(connection):
            await connection.request()
            await connection.send(answer)

        async with serving(handler) as server:
            error = await error_of(partial(make_upstream(server.port).open, POST))
            assert error.kind is kind

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            (CHUNKED + b"3\r\none\r\n", UpstreamErrorKind.RESET),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none", UpstreamErrorKind.RESET),
            (CHUNKED + b"3\r\none\r\nthree\r\n", UpstreamErrorKind.PROTOCOL),
            (GZIPPED + b"3\r\none\r\n", UpstreamErrorKind.PROTOCOL),
            (GZIPPED + b"a\r\n%b\r\n0\r\n\r\n" % gzip.compress(b"one")[:10], UpstreamErrorKind.PROTOCOL),
        ],
    )
    async def test_broken_body(self, answer, kind):
        """What ends or goes wrong in the body is told by ``receive``, each time it is called."""

        async def handler(connection):
            await connection.request()
            await connection.send(answer)

        async with serving(handler) as server, upstream_at(server.port) as upstream:
            response = await upstream.open(POST)
            assert (await error_of(partial(read_all, response))).kind is kind
            await error_of(response.receive)
            await response.aclose()


class TestProxy:
    async def test_plain_requests_go_to_the_proxy(self):
        """Without TLS the proxy is asked for the whole URL; it need not know CONNECT."""
        seen = []

        async def handler(connection):
            seen.append(await connection.request())
            await connection.send(HELLO)

        async with serving(handler) as server:
            proxy = f"http://me:pw@127.0.0.1:{server.port}"
            upstream = Httpx2Upstream(Httpx2Options("http://inference.invalid:8000/v1", proxy=proxy))
            assert await fetch(upstream) == b"hello"
            await upstream.aclose()
        assert seen[0].target == "http://inference.invalid:8000/v1/chat/completions"
        given = dict(seen[0].headers)
        assert given["Host"] == "inference.invalid:8000"
        assert given["Proxy-Authorization"] == "Basic bWU6cHc="

    async def test_environment(self, monkeypatch):
        """A proxy that the environment names is used, but not for what ``NO_PROXY`` names."""
        async with serving(answering(HELLO)) as server:
            monkeypatch.setenv("http_proxy", f"127.0.0.1:{server.port}")
            options = Httpx2Options("http://inference.invalid/v1")
            async with aclosing(Httpx2Upstream(options)) as upstream:
                assert await fetch(upstream) == b"hello"
            monkeypatch.setenv("no_proxy", "inference.invalid")
            assert (await error_of(partial(Httpx2Upstream(options).open, POST))).kind is UpstreamErrorKind.CONNECT

    async def test_tunnel(self, tls, ca_file):
        """With TLS the proxy makes a tunnel, through which the server's certificate is checked."""
        seen = []
        async with serving(answering(HELLO), tls) as server, serving(proxying(server.port, seen)) as proxy:
            options = {"scheme": "https", "ca_file": ca_file, "proxy": f"http://127.0.0.1:{proxy.port}"}
            async with upstream_at(server.port, **options) as upstream:
                assert await fetch(upstream) == b"hello"
        assert (seen[0].method, seen[0].target) == ("CONNECT", f"127.0.0.1:{server.port}")

    async def test_proxy_refuses(self):
        """A proxy's own answer to CONNECT is a connect error that tells the status."""
        async with serving(answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")) as proxy:
            upstream = make_upstream(1, scheme="https", proxy=f"http://127.0.0.1:{proxy.port}")
            error = await error_of(partial(upstream.open, POST))
        assert error.kind is UpstreamErrorKind.CONNECT
        assert "403" in error.message

    async def test_proxy_never_connects(self, autojump_clock):  # noqa: ARG002 - it is the clock
        """The limit on connecting covers a proxy that leaves CONNECT without an answer."""
        async with serving(Connection.until_gone) as proxy:
            upstream = make_upstream(1, scheme="https", proxy=f"http://127.0.0.1:{proxy.port}", connect_timeout=3)
            assert (await error_of(partial(upstream.open, POST))).kind is UpstreamErrorKind.CONNECT_TIMEOUT


class TestProbe:
    @pytest.mark.parametrize(("status", "says"), [(200, None), (401, None), (503, "status 503")])
    async def test_status(self, status, says):
        """Any status below 500 will do, even where all places are taken."""
        answer = answering(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        async with serving(answer) as server, upstream_at(server.port, max_connections=1) as upstream:
            response = await upstream.open(GET)
            reason = await upstream.probe()
            await response.aclose()
        assert reason is None if says is None else says in reason

    async def test_unreachable(self, unused_port):
        """The reason is the error's line."""
        assert "no connection" in await make_upstream(unused_port).probe()

    async def test_silence(self, autojump_clock):  # noqa: ARG002 - it is the clock
        """A server that says nothing is given up on after 5 seconds."""
        async with serving(Connection.until_gone) as server:
            assert "did not answer within 5 s" in await make_upstream(server.port).probe()
            await server.connections[0].gone.wait()


class TestConfiguration:
    @pytest.mark.parametrize("module", ["httpx2", "h2"])
    def test_missing_package(self, monkeypatch, module):
        """Without the optional package the error says what to install."""
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError, match=rf"{module}.*pip install 'callahead\[httpx2\]'"):
            Httpx2Upstream(Httpx2Options("http://127.0.0.1/v1"))

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"url": "ftp://127.0.0.1/v1"}, "upstream.url: 'ftp://127.0.0.1/v1'"),
            ({"url": "http://a\n/v1"}, "upstream.url"),
            ({"ca_file": "/nowhere/ca.pem"}, "upstream.ca_file.*/nowhere/ca.pem"),
            ({"ca_file": __file__}, "upstream.ca_file.*test_httpx2_errors.py"),
            ({"proxy": "gopher://me:secret@127.0.0.1"}, "upstream.proxy.*'gopher'"),
            ({"proxy": "socks5://127.0.0.1:1080"}, "socks5://127.0.0.1:1080.*httpx2.socks"),
        ],
    )
    def test_unusable_option(self, options, says):
        """The error names the option and what was found, but no password."""
        with pytest.raises(ConfigError, match=says) as caught:
            Httpx2Upstream(Httpx2Options(**{"url": "http://127.0.0.1/v1", **options}))
        assert "secret" not in str(caught.value)
