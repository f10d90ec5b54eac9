from contextlib import aclosing, asynccontextmanager
from functools import partial

import hypercorn.trio
import pytest
import trio
import trustme
from httpx2_helpers import LIMIT, read_all
from hypercorn.config import Config

from server.upstreams.base import UpstreamRequest
from server.upstreams.httpx2 import Httpx2Options, Httpx2Upstream

POST = UpstreamRequest("POST", "/chat/completions", [], b'{"model":"m"}')


class App:
    """Sends two pieces, the second when it is told to; says when a client has left."""

    def __init__(self):
        self.scopes = []
        self.bodies = []
        self.proceed = trio.Event()
        self.left = trio.Event()

    async def __call__(self, scope, receive, send):
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            while message := await receive():
                await send({"type": f"{message['type']}.complete"})
        self.scopes.append(scope)
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        headers = [(b"content-type", b"text/event-stream"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, receive, nursery.cancel_scope)
            await self.proceed.wait()
            await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": False})
            nursery.cancel_scope.cancel()

    async def _watch(self, receive, scope):
        await receive()
        self.left.set()
        scope.cancel()


class Pieces:
    """A request body that arrives piece by piece."""

    def __init__(self):
        self._pieces = [b"one", b"two" * 50_000, b""]

    async def receive(self):
        """See ``BodySource``."""
        await trio.lowlevel.checkpoint()
        return self._pieces.pop(0)


@asynccontextmanager
async def reaching(app, tmp_path, *, http2=True):
    """An upstream in front of the app, which Hypercorn serves over TLS."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.keyfile, config.certfile = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    config.graceful_timeout = 0
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            serve = partial(hypercorn.trio.serve, app, config, shutdown_trigger=stop.wait)
            binds = await nursery.start(serve)
            url = f"{binds[0].replace('http:', 'https:')}/v1"
            options = Httpx2Options(url, ca_file=tmp_path / "ca.pem", http2=http2)
            async with aclosing(Httpx2Upstream(options)) as upstream:
                yield upstream
            stop.set()


@pytest.mark.parametrize(("http2", "version"), [(True, "2"), (False, "1.1")])
async def test_stream(tmp_path, http2, version):
    """HTTP/2 is spoken where it is wanted, each read is given out at once, and a second request uses the connection."""
    app = App()
    async with reaching(app, tmp_path, http2=http2) as upstream:
        for _ in range(2):
            response = await upstream.open(POST)
            assert await response.receive() == b"data: 1\n\n"
            app.proceed.set()
            assert await read_all(response) == b"data: 2\n\n"
            app.proceed = trio.Event()
        assert [value for name, value in response.headers if name == b"set-cookie"] == [b"a=1", b"b=2"]
    assert [scope["http_version"] for scope in app.scopes] == [version] * 2
    assert app.scopes[0]["path"] == "/v1/chat/completions"
    assert app.scopes[0]["client"] == app.scopes[1]["client"]
    assert app.bodies == [POST.body] * 2


async def test_abandoned_stream_is_noticed(tmp_path):
    """An HTTP/2 response that is given up in the middle ends the server's work on it."""
    app = App()
    async with reaching(app, tmp_path) as upstream:
        async with aclosing(await upstream.open(POST)) as response:
            assert await response.receive() == b"data: 1\n\n"
        await app.left.wait()
        app.proceed.set()
        assert await read_all(await upstream.open(POST)) == b"data: 1\n\ndata: 2\n\n"
    assert app.scopes[0]["client"] != app.scopes[1]["client"]


async def test_body_that_is_still_arriving(tmp_path):
    """A streamed request body goes over HTTP/2 as well."""
    app = App()
    app.proceed.set()
    async with reaching(app, tmp_path) as upstream:
        await read_all(await upstream.open(UpstreamRequest("POST", "/audio", [], Pieces())))
    assert app.bodies == [b"one" + b"two" * 50_000]
