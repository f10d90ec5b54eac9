"""Requests as bytes, and the base URLs that they go to."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from server.errors import ClientError, ConfigError
from server.upstreams.base import UpstreamRequest
from server.upstreams.origin import Origin
from server.upstreams.request_head import encode_chunk, encode_head

ORIGIN = Origin.parse("http://model.test:8000/v1/")


class Arriving:
    """A body that is still arriving."""

    async def receive(self):
        """Nothing more."""
        await trio.lowlevel.checkpoint()
        return b""


def test_head_is_exact():
    """Request line, host, no content coding, the client's lines in order, the length."""
    request = UpstreamRequest("POST", "/chat/completions?a=1", [(b"x-b", b"2"), (b"x-a", b"\xe9")], b"{}")
    assert encode_head(request, ORIGIN) == (
        b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nhost: model.test:8000\r\naccept-encoding: identity\r\n"
        b"x-b: 2\r\nx-a: \xe9\r\ncontent-length: 2\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "body", "line"),
    [
        ("GET", b"", None),
        ("GET", b"{}", b"content-length: 2"),
        ("POST", b"", b"content-length: 0"),
        ("POST", Arriving(), b"transfer-encoding: chunked"),
    ],
)
def test_body_is_announced(method, body, line):
    """A length, chunks, or nothing where no body is meant."""
    lines = encode_head(UpstreamRequest(method, "/files", [], body), ORIGIN).split(b"\r\n")
    announced = [each for each in lines if each.startswith((b"content-length", b"transfer-encoding"))]
    assert announced == ([line] if line else [])


def test_chunk_has_its_size_in_hexadecimal():
    """RFC 9112, section 7.1."""
    assert encode_chunk(b"a" * 26) == b"1a\r\n" + b"a" * 26 + b"\r\n"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET /x HTTP/1.1\r\n", []),
        ("", []),
        ("GÉT", []),
        ("GET", [(b"x-a", b"1\r\nx-b: 2")]),
        ("GET", [(b"x-a", b"1\nx-b: 2")]),
        ("GET", [(b"x-a", b"\0")]),
        ("GET", [(b"x-a: 1\r\nx-b", b"2")]),
        ("GET", [(b"x a", b"1")]),
        ("GET", [(b"", b"1")]),
    ],
)
def test_injection_is_refused(method, headers):
    """What would be read as another line or request is the client's error, on one line."""
    with pytest.raises(ClientError) as caught:
        encode_head(UpstreamRequest(method, "/files", headers), ORIGIN)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message


@given(st.text())
def test_any_target_is_one_request_line(target):
    """Spaces, line breaks and other scripts are percent-encoded; nothing escapes the request line."""
    head = encode_head(UpstreamRequest("GET", "/" + target, []), ORIGIN)
    line, *rest = head.split(b"\r\n")
    assert rest == [b"host: model.test:8000", b"accept-encoding: identity", b"", b""]
    method, encoded, version = line.split(b" ")
    assert (method, version) == (b"GET", b"HTTP/1.1")
    assert encoded.startswith(b"/v1/")
    assert encoded.isascii()


def test_encoded_target_stays_as_it_is():
    """What the client has encoded is not encoded again."""
    head = encode_head(UpstreamRequest("GET", "/files/a%20b%2Fc?q=[1]&r=%zz", []), ORIGIN)
    assert head.startswith(b"GET /v1/files/a%20b%2Fc?q=[1]&r=%zz HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "prefix"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1", 8000, "127.0.0.1:8000", "/v1"),
        ("http://Model.Test/v1", "model.test", 80, "model.test", "/v1"),
        ("http://model.test:80", "model.test", 80, "model.test", ""),
        ("HTTPS://model.test/a/b/v1/", "model.test", 443, "model.test", "/a/b/v1"),
        ("https://model.test:8443/v1", "model.test", 8443, "model.test:8443", "/v1"),
        ("http://[::1]:8000/v1", "::1", 8000, "[::1]:8000", "/v1"),
        ("https://[2001:db8::1]/v1", "2001:db8::1", 443, "[2001:db8::1]", "/v1"),
    ],
)
def test_base_url_is_read(url, host, port, authority, prefix):
    """Host, default ports, IPv6 and path prefixes."""
    origin = Origin.parse(url)
    assert (origin.host, origin.port, origin.authority, origin.prefix) == (host, port, authority, prefix)
    assert origin.tls == url.lower().startswith("https")
    assert Origin.parse(origin.url) == origin


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000/v1", "http:// or https://"),
        ("ftp://model.test/v1", "http:// or https://"),
        ("http:///v1", "host"),
        ("http://model.test:99999/v1", "Port"),
        ("http://model.test:x/v1", "Port"),
        ("http://model.test:0/v1", "port"),
        ("http://[::1/v1", "IPv6"),
        ("http://model.test/v1?key=1", "query"),
        ("http://model.test/v1#x", "fragment"),
        ("http://model.test/v1\r\nx-a: 1", "ASCII"),
        ("http://mödel.test/v1", "xn--"),
        ("http://user:secret@model.test:0/v1", "http://...@model.test"),
    ],
)
def test_unusable_base_url_is_named(url, said):
    """A config error of one line that says what is wrong, and keeps a password to itself."""
    with pytest.raises(ConfigError) as caught:
        Origin.parse(url)
    message = str(caught.value)
    assert message.startswith("upstream.url: ")
    assert said in message
    assert "secret" not in message
    assert "\n" not in message


def test_credentials_become_basic_authorization():
    """They are sent, but in no name that a log shows, and not beside the client's own."""
    origin = Origin.parse("http://me:p%40ss@model.test/v1")
    assert origin.url == "http://model.test/v1"
    assert "ss" not in repr(origin)
    assert b"\r\nauthorization: Basic bWU6cEBzcw==\r\n" in encode_head(UpstreamRequest("GET", "/models", []), origin)
    own = encode_head(UpstreamRequest("GET", "/models", [(b"authorization", b"Bearer k")]), origin)
    assert own.count(b"authorization") == 1
    assert b"Bearer k" in own
