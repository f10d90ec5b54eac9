"""Frames to items."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.decode import ItemDecoder, item_of
from pipeline.errors import FrameTooLong, UpstreamReported
from pipeline.items import Chunk, End, Item, StreamError, Verbatim
from pipeline.testing import cut_everywhere, frames_of, items_of, random_cuts

STREAMS = sorted(Path(__file__).parents[3].glob("shared/streams/*.sse"))


def decode(pieces: list[bytes]) -> list[Item]:
    decoder = ItemDecoder()
    items = [item for piece in pieces for item in decoder.feed(piece)]
    return [*items, *decoder.close()]


def raw_of(item: Item) -> bytes:
    raw = item.frame.raw if isinstance(item, Verbatim) else item.raw
    assert raw is not None
    return raw


def one_item(data: bytes) -> Item:
    (item,) = items_of(data)
    assert raw_of(item) == data
    return item


class TestKinds:
    """What a frame is."""

    @pytest.mark.parametrize(
        "data",
        [
            b'{"choices":[]}',
            b"{}",
            b'{"choices":[{"logprobs":NaN}]}',
            b'{"content":"\\ud800"}',
            b'{"error":null}',
            b'{"error":{"message":"late"},"choices":[]}',
            b'{"object":"error","choices":[]}',
        ],
    )
    def test_chunk(self, data):
        """Any JSON object is a chunk, also what only the standard library reads; so is an error beside choices."""
        item = one_item(b"data: " + data + b"\n\n")
        assert isinstance(item, Chunk)
        assert json.dumps(item.payload) == json.dumps(json.loads(data))

    def test_event_named_message(self):
        """``event: message`` says nothing, and neither does an empty name."""
        for name in (b"message", b""):
            assert isinstance(one_item(b"event: " + name + b"\ndata: {}\n\n"), Chunk)

    @pytest.mark.parametrize(
        "frame",
        [
            b": OPENROUTER PROCESSING\n\n",
            b"event: ping\ndata: {}\n\n",
            b"event: error\n\n",
            b'error: {"detail":"failed to decode"}\n\n',
            b"data\n\n",
            b"data: null\n\n",
            b"data: [1]\n\n",
            b'data: "text"\n\n',
            b"data: {\n\n",
            b'data: {"a":1}\ndata: [DONE]\n\n',
            b'data: {"a":"\xff"}\n\n',
            b"data: " + b"[" * 100_000 + b"\n\n",
            b'data: {"a":' + b"9" * 5000 + b"}\n\n",
        ],
    )
    def test_verbatim(self, frame):
        """Comments, foreign events and data that is no JSON object are passed on as they are."""
        assert isinstance(one_item(frame), Verbatim)

    @pytest.mark.parametrize("data", [b"[DONE]", b"[DONE] ", b"[DONE]\t", b" [DONE]", b"\t[DONE]"])
    def test_end(self, data):
        """``[DONE]`` is the end, with blanks around it too."""
        assert isinstance(one_item(b"data: " + data + b"\n\n"), End)

    def test_joined_data_lines(self):
        """A chunk in several data lines is one chunk."""
        item = one_item(b'data: {"a":\ndata: 1}\n\n')
        assert isinstance(item, Chunk)
        assert item.payload == {"a": 1}


class TestErrors:
    """An upstream's error in its several forms (spec, real-streams, 5)."""

    @pytest.mark.parametrize(
        ("frame", "message", "kind", "status"),
        [
            (b'data: {"error":{"message":"m","type":"t","code":503}}\n\n', "m", "t", 503),
            (b'data: {"error":{"message":"m","code":"tool_use_failed"}}\n\n', "m", "upstream_error", 502),
            (b'data: {"error":{"message":"m","code":200}}\n\n', "m", "upstream_error", 502),
            (b'data: {"error":{"message":"m","code":5003}}\n\n', "m", "upstream_error", 502),
            (b'data: {"error":{"message":"m","code":true}}\n\n', "m", "upstream_error", 502),
            (b'data: {"error":"overloaded"}\n\n', "overloaded", "upstream_error", 502),
            (
                b'data: {"object":"error","message":"m","type":"BadRequestError","code":400}\n\n',
                "m",
                "BadRequestError",
                400,
            ),
            (b'event: error\ndata: {"error":{"message":"m","type":"t"}}\n\n', "m", "t", 502),
            (b'event: error\ndata: {"message":"m"}\n\n', "m", "upstream_error", 502),
            (b"event: error\ndata: overloaded\n\n", "overloaded", "upstream_error", 502),
            (b"event: error\ndata: \xff\n\n", "\ufffd", "upstream_error", 502),
            (b'data: {"error":{"detail":7}}\n\n', '{"error":{"detail":7}}', "upstream_error", 502),
            (b'data: {"error":[1]}\n\n', '{"error":[1]}', "upstream_error", 502),
            (b'data: {"error":{"message":7,"type":7}}\n\n', '{"error":{"message":7,"type":7}}', "upstream_error", 502),
            (b'data: {"choices":null,"error":{"message":"m"}}\n\n', "m", "upstream_error", 502),
        ],
    )
    def test_reported(self, frame, message, kind, status):
        """An error keeps its bytes, and is put into our words as far as it can be read."""
        item = one_item(frame)
        assert isinstance(item, StreamError)
        assert isinstance(item.failure, UpstreamReported)
        assert (item.failure.message, item.failure.type, item.failure.status) == (message, kind, status)

    def test_what_follows_it(self):
        """An upstream's own error ends nothing: what it sends behind it is decoded too."""
        items = items_of(b'data: {"error":{"message":"m"}}\n\ndata: {}\n\ndata: [DONE]\n\n')
        assert [type(item) for item in items] == [StreamError, Chunk, End]


class TestEnd:
    """Where a stream is over."""

    def test_nothing_after_done_counts(self):
        """What follows ``[DONE]``, in the same read or later, is no item."""
        decoder = ItemDecoder()
        assert [type(item) for item in decoder.feed(b"data: [DONE]\n\ndata: {}\n\ndata: {")] == [End]
        assert decoder.ended
        assert decoder.feed(b"}\n\n") == []
        assert decoder.close() == []

    def test_last_lf_of_done(self):
        """Where the read ends between the last CR and LF of ``[DONE]``, the LF is put in its place."""
        (item,) = ItemDecoder().feed(b"data: [DONE]\r\n\r")
        assert raw_of(item) == b"data: [DONE]\r\n\r\n"

    def test_cr_alone(self):
        """With CR as the line end, nothing is added to ``[DONE]``."""
        assert raw_of(one_item(b"data: [DONE]\r\r")) == b"data: [DONE]\r\r"

    def test_frame_over_the_limit(self):
        """Such a frame ends the stream with an error behind the items that were whole."""
        decoder = ItemDecoder(30)
        chunk, error = decoder.feed(b"data: {}\n\ndata: " + b"x" * 40)
        assert isinstance(chunk, Chunk)
        assert isinstance(error, StreamError)
        assert isinstance(error.failure, FrameTooLong)
        assert error.raw is None
        assert decoder.ended
        assert decoder.feed(b"\n\ndata: {}\n\n") == []
        assert decoder.close() == []

    def test_done_before_a_frame_over_the_limit(self):
        """What comes behind ``[DONE]`` cannot even be too long."""
        decoder = ItemDecoder(30)
        assert [type(item) for item in decoder.feed(b"data: [DONE]\n\ndata: " + b"x" * 40)] == [End]


class TestTail:
    """A body that ends without a blank line."""

    @pytest.mark.parametrize(
        ("tail", "whole"),
        [
            (b"data: {}", b"data: {}\n\n"),
            (b"data: {}\n", b"data: {}\n\n"),
            (b"data: {}\r", b"data: {}\r\n\n"),
            (b"data: {}\r\n", b"data: {}\r\n\n"),
            (b"data: [DONE]", b"data: [DONE]\n\n"),
            (b": comment", b": comment\n\n"),
            (b'event: error\ndata: {"message":"m"}', b'event: error\ndata: {"message":"m"}\n\n'),
        ],
    )
    def test_whole_frame_is_completed(self, tail, whole):
        """A last frame that lacks only its blank line counts, and gets a line end that any parser takes for one."""
        first, last = items_of(b"data: {}\n\n" + tail)
        assert isinstance(first, Chunk)
        assert raw_of(last) == whole
        assert [frame.raw for frame in frames_of(whole)] == [whole]

    @pytest.mark.parametrize(
        "tail", [b'data: {"a', b"data: [DO", b"data:", b"data", b"data: ", b"event: error\ndata", b"event: e\ndata: {}"]
    )
    def test_frame_cut_in_its_data_is_left_out(self, tail):
        """Half a frame would hurt whoever parses it."""
        assert [type(item) for item in items_of(b"data: {}\n\n" + tail)] == [Chunk]

    @pytest.mark.parametrize("body", [b"data: {}\n\n\n", b"data: {}\r\n\r\n\r\n", b"\n", b"\r\n"])
    def test_blank_lines_stay_as_they_are(self, body):
        """Blank lines at the end are no frame to be completed."""
        assert b"".join(raw_of(item) for item in items_of(body)) == body

    def test_nothing(self):
        """An empty body has no items."""
        assert items_of(b"") == []
        assert ItemDecoder().close() == []


PIECES = st.lists(
    st.sampled_from(
        [
            b"data: {}",
            b"data: [DONE]",
            b"data: [1]",
            b": c",
            b"event: e",
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"data: [",
            b"x",
        ]
    ),
    max_size=25,
)


class TestAnyCut:
    """What must hold for all bodies and all reads."""

    @given(body=PIECES.map(b"".join), seed=st.integers(0, 1 << 32))
    def test_cut_does_not_matter(self, body, seed):
        """The same body gives the same kinds of items with the same payloads, however it is read."""

        def told(items: list[Item]) -> list[object]:
            return [(type(item), item.payload if isinstance(item, Chunk) else raw_of(item).strip()) for item in items]

        expected = [told_item for told_item in told(decode([body])) if told_item != (Verbatim, b"")]
        whole, byte_by_byte, *_ = cut_everywhere(body)
        for pieces in (whole, byte_by_byte, *random_cuts(body, seed, 5)):
            assert [told_item for told_item in told(decode(pieces)) if told_item != (Verbatim, b"")] == expected

    @given(data=st.binary(max_size=40), event=st.sampled_from([b"", b"event: error\n", b"event: x\n"]))
    def test_no_data_crashes_it(self, data, event):
        """Any bytes as data make some item of every frame."""
        for frame in frames_of(event + b"data: " + data + b"\n\n"):
            item_of(frame)

    @pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
    def test_recorded_streams(self, path):
        """The items of every recorded stream hold all its bytes up to its ``[DONE]``, however it is read."""
        body = path.read_bytes()
        for pieces in ([body], *random_cuts(body, seed=1, n=2)):
            joined = b"".join(raw_of(item) for item in decode(pieces))
            assert body.startswith(joined.rstrip()) or joined.startswith(body)
            assert b"data: " not in body[len(joined) :]
