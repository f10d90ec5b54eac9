"""Responses from bytes, without sockets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.response_parser import MAX_HEAD_BYTES, ResponseParser

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Empty:\r\ntransfer-encoding: Chunked\r\n\r\n"
    b"7;name=value\r\ndata: 1\r\n1\r\n\n\r\n00d\r\n\ndata: [DONE]\r\n0\r\nx-trailer: dropped\r\n\r\n"
)
CHUNKED_BODY = b"data: 1\n\ndata: [DONE]"
COUNTED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello"


def parse(pieces, *, bodiless=False):
    parser = ResponseParser(bodiless=bodiless)
    body = b""
    for piece in pieces:
        assert not parser.done, "fed beyond the end"
        parser.feed(piece)
        if parser.failure is not None:
            break
        body += parser.take_body()
    return parser, body


def cut(data, *positions):
    places = [0, *sorted(positions), len(data)]
    return [data[a:b] for a, b in pairwise(places) if data[a:b]]


@pytest.mark.parametrize("cuts", [*((position,) for position in range(len(CHUNKED))), tuple(range(len(CHUNKED)))])
def test_response_cut_anywhere_is_the_same(cuts):
    """Two reads that meet at any byte, and reads of one byte, give the head, the body and the end of one read."""
    parser, body = parse(cut(CHUNKED, *cuts))
    assert parser.status == 200
    assert parser.headers == [
        (b"content-type", b"text/event-stream"),
        (b"x-empty", b""),
        (b"transfer-encoding", b"Chunked"),
    ]
    assert body == CHUNKED_BODY
    assert parser.done
    assert parser.reusable


@given(st.sampled_from([(CHUNKED, CHUNKED_BODY), (COUNTED, b"hello")]), st.data())
def test_response_in_any_reads_is_the_same(response, data):
    """Any number of reads gives the same body, and the end with its last byte."""
    wire, expected = response
    positions = data.draw(st.lists(st.integers(1, len(wire) - 1)))
    parser, body = parse(cut(wire, *positions))
    assert body == expected
    assert parser.reusable


def test_body_of_one_read_is_joined():
    """Chunks that came together are given out together."""
    parser = ResponseParser()
    parser.feed(CHUNKED)
    assert parser.take_body() == CHUNKED_BODY


@pytest.mark.parametrize(
    ("response", "bodiless"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", False),
    ],
)
def test_response_without_body_ends_with_its_head(response, bodiless):
    """204, 304, HEAD and a length of 0 leave nothing to wait for."""
    parser, body = parse([response], bodiless=bodiless)
    assert body == b""
    assert parser.done
    assert parser.reusable


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nconnection: x-a, Close\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi and more",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi" + COUNTED,
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 2",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi and more",
    ],
)
def test_connection_is_not_reused(response):
    """A connection that the server closes, or that holds bytes behind the response, serves no other request."""
    parser, body = parse([response])
    assert body == b"hi"
    assert parser.done
    assert parser.failure is None
    assert not parser.reusable


def test_leftover_behind_a_head_response_is_noticed():
    """A body in answer to a HEAD is not given out, and the connection is not used again."""
    parser, body = parse([COUNTED], bodiless=True)
    assert body == b""
    assert parser.done
    assert not parser.reusable


def test_body_until_the_end_of_the_connection():
    """Without length and chunks, the connection's end is the body's, and no fault."""
    parser, body = parse([b"HTTP/1.1 200 OK\r\n\r\nall ", b"of it", b""])
    assert body == b"all of it"
    assert parser.done
    assert not parser.reusable


@pytest.mark.parametrize(
    "begin",
    [COUNTED[:-1], CHUNKED[:-2], CHUNKED[:-30]],
)
def test_connection_that_ends_too_early_is_a_reset(begin):
    """The end before the announced end is a fault, after all that came before it."""
    parser = ResponseParser()
    parser.feed(begin)
    parser.feed(b"")
    assert not parser.done
    parser.take_body()
    with pytest.raises(UpstreamError) as caught:
        parser.take_body()
    assert caught.value.kind is UpstreamErrorKind.RESET


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\ncontent-len", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_connection_that_ends_before_the_head_is_a_reset(begin):
    """No head, no response."""
    parser = ResponseParser()
    if begin:
        parser.feed(begin)
    parser.feed(b"")
    assert not parser.head_done
    assert parser.failure.kind is UpstreamErrorKind.RESET


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", "Transfer-Encoding"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "gzip, chunked"),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "101"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * MAX_HEAD_BYTES, "65536 bytes of status line and headers"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3000, "65536 bytes of status line and headers"),
    ],
)
def test_no_http_is_refused(response, said):
    """What is not HTTP/1.1, or has no end, is a protocol error that says what is wrong."""
    parser, _ = parse([response])
    assert not parser.head_done
    assert parser.failure.kind is UpstreamErrorKind.PROTOCOL
    assert said in parser.failure.message
    assert "\n" not in parser.failure.message


def test_body_before_a_fault_is_given_out_first():
    """A broken chunk costs none of the chunks before it."""
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n")
    assert parser.take_body() == b"hello"
    with pytest.raises(UpstreamError) as caught:
        parser.take_body()
    assert caught.value.kind is UpstreamErrorKind.PROTOCOL


@pytest.mark.parametrize("flood", [b"x-trailer: " + b"a" * MAX_HEAD_BYTES, b"1;" + b"a" * MAX_HEAD_BYTES])
def test_flood_without_data_is_refused(flood):
    """Trailers and chunk extensions are bounded too."""
    parser = ResponseParser()
    start = b"0\r\n" if flood.startswith(b"x") else b""
    parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + start)
    parser.feed(flood)
    assert parser.failure.kind is UpstreamErrorKind.PROTOCOL
    assert "without data" in parser.failure.message


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1))
def test_no_bytes_make_it_crash(pieces):
    """Whatever a server sends is a response or a fault."""
    parser = ResponseParser()
    for piece in pieces:
        if parser.done or parser.failure is not None:
            break
        parser.feed(piece)
