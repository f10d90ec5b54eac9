"""The SSE codec: WHATWG HTML, section 9.2.6, whatever the cut of the reads, and no byte lost."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.errors import FrameTooLong
from pipeline.sse import Frame, SseDecoder, sse_frame
from pipeline.testing import cut_everywhere, frames_of, random_cuts

LINE_ENDS = pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])


def decode(pieces: list[bytes], limit: int = 1 << 20) -> tuple[list[Frame], Frame | None]:
    decoder = SseDecoder(limit)
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    return frames, decoder.close()


def dispatched(frames: list[Frame]) -> list[tuple[str, bytes]]:
    return [(frame.event or "", frame.data) for frame in frames if frame.data is not None]


def reference(body: bytes) -> list[tuple[str, bytes]]:
    """The standard's algorithm, over the whole body at once."""
    *lines, _unended = re.split(rb"\r\n|\n|\r", body.removeprefix(b"\xef\xbb\xbf"))
    events, data, event = [], [], b""
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                events.append((event.decode(errors="replace"), b"\n".join(data)))
            data, event = [], b""
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    return events


class TestFields:
    """How one frame is read."""

    @LINE_ENDS
    def test_line_ends(self, end):
        """A line ends with LF, CRLF or CR, and a blank line of the same kind ends the frame."""
        body = end.join([b"event: e", b"data: 1", b"", b"data: 2", b"", b""])
        assert dispatched(frames_of(body)) == [("e", b"1"), ("", b"2")]

    @pytest.mark.parametrize("ends", [b"\n\r\n", b"\r\n\n", b"\r\r\n", b"\n\r", b"\r\n\r"])
    def test_mixed_line_ends(self, ends):
        """The two line ends that end a frame may be of different kinds."""
        frame, following = frames_of(b"data: 1" + ends + b"data: 2\n\n")
        assert (frame.raw, frame.data) == (b"data: 1" + ends, b"1")
        assert following.data == b"2"

    def test_crlf_is_one_line_end(self):
        """CR and LF together do not make a blank line."""
        assert dispatched(frames_of(b"data: 1\r\ndata: 2\r\n\r\n")) == [("", b"1\n2")]

    def test_several_data_lines(self):
        """Data lines are joined by LF, blank ones included."""
        assert frames_of(b"data: {\ndata\ndata:\ndata: }\n\n")[0].data == b"{\n\n\n}"

    @pytest.mark.parametrize(
        ("line", "data"),
        [
            (b"data:x", b"x"),
            (b"data: x", b"x"),
            (b"data:  x", b" x"),
            (b"data:\tx", b"\tx"),
            (b"data:x:y", b"x:y"),
            (b"data: x ", b"x "),
            (b"data", b""),
            (b"data:", b""),
            (b"data: ", b""),
        ],
    )
    def test_one_space_after_the_colon_is_dropped(self, line, data):
        """Of what follows the colon one space goes, if there is one; a line without a colon is a field without value."""
        assert frames_of(line + b"\n\n")[0].data == data

    @pytest.mark.parametrize("line", [b"Data: x", b" data: x", b"dat: x", b"error: x", b"data : x", b"\0data: x"])
    def test_unknown_field(self, line):
        """A field of another name is ignored: names are compared as they are."""
        (frame,) = frames_of(line + b"\n\n")
        assert (frame.data, frame.event, frame.raw) == (None, None, line + b"\n\n")

    def test_comment(self):
        """A line that begins with a colon is a comment, alone or inside of a frame."""
        frames = frames_of(b": OPENROUTER PROCESSING\n\n:\n\n:data: no\ndata: yes\n\n")
        assert [frame.data for frame in frames] == [None, None, b"yes"]

    def test_event(self):
        """The last event field names the frame; an empty one stands for no name."""
        frames = frames_of(b"event: a\nevent: b\ndata: 1\n\nevent\ndata: 2\n\nevent: c\n\ndata: 3\n\n")
        assert [frame.event for frame in frames] == ["b", "", "c", None]

    @pytest.mark.parametrize(("value", "read"), [(b" 7", "7"), (b"", ""), (b" a\0b", None), (b" \xff", "\ufffd")])
    def test_id(self, value, read):
        """An id with NUL is ignored; another is kept, with what is no UTF-8 replaced."""
        assert frames_of(b"id:" + value + b"\ndata: 1\n\n")[0].last_event_id == read

    @pytest.mark.parametrize(
        ("value", "read"),
        [(b"1500", 1500), (b"007", 7), (b"1.5", None), (b"-1", None), (b"", None), ("²".encode(), None)],
    )
    def test_retry(self, value, read):
        """Only ASCII digits make a retry time."""
        assert frames_of(b"retry: " + value + b"\ndata: 1\n\n")[0].retry == read

    def test_endless_retry(self):
        """A retry time of any length is read in no time."""
        assert frames_of(b"retry: " + b"9" * 100_000 + b"\n\n")[0].retry is not None

    def test_unicode_line_separators_are_text(self):
        """U+2028, U+2029, U+0085, form feed and vertical tab end no line."""
        data = "a\u2028b\u2029c\u0085d\fe\vf".encode()
        assert frames_of(b"data: " + data + b"\n\n")[0].data == data


class TestByteOrderMark:
    """One at the start is no part of the first line."""

    BODY = b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n"

    def test_wherever_it_is_cut(self):
        """The mark is ignored also where a read ends inside of it, and is kept in the raw bytes."""
        for pieces in cut_everywhere(self.BODY):
            frames, tail = decode(pieces)
            assert [frame.data for frame in frames] == [b"1", b"2"]
            assert frames[0].raw == self.BODY[:12]
            assert tail is None

    def test_only_at_the_start(self):
        """A mark anywhere else is text."""
        frames = frames_of(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n")
        assert [frame.data for frame in frames] == [b"1", None]

    @pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb", b"\xef\xbb\xbf"])
    def test_alone(self, start):
        """A body that is no more than the beginning of a mark comes out at the end."""
        frames, tail = decode([start])
        assert frames == []
        assert tail is not None
        assert tail.raw == start


class TestReads:
    """What a read does not hold yet."""

    def test_frame_is_given_with_the_last_byte_of_its_blank_line(self):
        """A frame does not wait for an LF that may never come."""
        decoder = SseDecoder()
        assert decoder.feed(b"data: 1\r\n") == []
        assert [frame.data for frame in decoder.feed(b"\r")] == [b"1"]
        (frame,) = decoder.feed(b"\ndata: 2\n\n")
        assert (frame.raw, frame.data) == (b"\ndata: 2\n\n", b"2")

    def test_lf_after_the_last_cr(self):
        """The LF of the last line end, in a read of its own, is not lost."""
        frames, tail = decode([b"data: 1\r\n\r", b"\n"])
        assert [frame.raw for frame in frames] == [b"data: 1\r\n\r"]
        assert tail is not None
        assert (tail.raw, tail.data) == (b"\n", None)

    def test_utf_8_cut_anywhere(self):
        """A character whose bytes come in different reads is whole again."""
        body = "data: Zoë 🌊 海\r\n\r\n".encode()
        for pieces in cut_everywhere(body):
            assert dispatched(decode(pieces)[0]) == [("", "Zoë 🌊 海".encode())]

    @pytest.mark.parametrize("tail", [b"data: 1", b"data: 1\n", b"data: 1\r", b"data: 1\r\n", b"event: e\ndata: 1"])
    def test_last_frame_without_its_blank_line(self, tail):
        """What follows the last blank line is given at the end, as far as it came."""
        frames, last = decode([b"data: 0\n\n" + tail])
        assert dispatched(frames) == [("", b"0")]
        assert last is not None
        assert (last.raw, last.data) == (tail, b"1")

    def test_nothing_left(self):
        """A body that ends with a blank line leaves nothing, and closing twice gives nothing twice."""
        decoder = SseDecoder()
        decoder.feed(b"data: 0\n\ndata: 1")
        assert decoder.close() is not None
        assert decoder.close() is None
        assert decode([b"data: 0\n\n", b""])[1] is None
        assert decode([])[1] is None


class TestLimit:
    """No frame is longer than the limit, however it comes."""

    FIRST = b"data: 1\n\n"

    @LINE_ENDS
    def test_exactly_at_the_limit(self, end):
        """A frame of just the limit passes, blank line included."""
        body = self.FIRST + b"data: " + b"x" * 20 + end * 2
        for pieces in cut_everywhere(body):
            frames, _ = decode(pieces, limit=len(body) - len(self.FIRST))
            assert [frame.data for frame in frames] == [b"1", b"x" * 20]

    @LINE_ENDS
    def test_one_byte_over_it(self, end):
        """A frame of one byte more is refused, and the frames before it are not lost.

        A read may end between the last CR and its LF; then that LF does not count.
        """
        body = self.FIRST + b"data: " + b"x" * 20 + end * 2
        limit = len(body) - len(self.FIRST) - len(end)
        for pieces in cut_everywhere(body):
            decoder, frames = SseDecoder(limit), []
            with pytest.raises(FrameTooLong, match=f"max_frame_bytes = {limit}") as caught:  # noqa: PT012 - any of the reads
                for piece in pieces:
                    frames += decoder.feed(piece)
            assert b"".join([*(frame.raw for frame in frames), *caught.value.raws]) == self.FIRST

    def test_endless_line(self):
        """A line that does not end is refused as soon as it is over the limit, and is not kept."""
        decoder = SseDecoder(100)
        assert decoder.feed(b"data: " + b"x" * 94) == []
        with pytest.raises(FrameTooLong):
            decoder.feed(b"x")
        assert decoder.close() is None

    def test_many_frames_in_a_read(self):
        """The limit is that of a frame, not of a read."""
        assert len(decode([self.FIRST * 1000], limit=len(self.FIRST))[0]) == 1000


BYTES = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"\n\n",
            b"data",
            b"event",
            b"id",
            b"retry",
            b":",
            b": ",
            b"x",
            b"\0",
            b"7",
            b"\xef",
            b"\xbb\xbf",
        ]
    )
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)
SEEDS = st.integers(0, 1 << 32)
LINES = st.sampled_from(
    ["", "data: {}", "data:x", "data", "event: e", "event", ": c", "id: 1", "nonsense", "data: é\u2028"]
)
LINE_ENDS_OF_TEXT = st.sampled_from(["\n", "\r\n", "\r"])


class TestAnyCut:
    """What must hold for all bodies and all reads."""

    @given(body=BYTES, seed=SEEDS)
    @example(body=b"x\r\r\n", seed=0)
    @example(body=b"\xef\xbb\xbf\r\n\r\n", seed=1)
    def test_no_byte_is_lost(self, body, seed):
        """The raw bytes of all frames and of the rest, joined, are the body."""
        whole, byte_by_byte, *_ = cut_everywhere(body)
        for pieces in (whole, byte_by_byte, *random_cuts(body, seed, 5)):
            frames, tail = decode(pieces)
            assert b"".join(frame.raw for frame in frames) + (tail.raw if tail else b"") == body

    @given(body=BYTES, seed=SEEDS)
    def test_agrees_with_the_standard(self, body, seed):
        """Event names and data are those of the standard's own algorithm, for any bytes and any cut."""
        expected = reference(body)
        whole, byte_by_byte, *_ = cut_everywhere(body)
        for pieces in (whole, byte_by_byte, *random_cuts(body, seed, 5)):
            assert dispatched(decode(pieces)[0]) == expected

    @given(lines=st.lists(st.tuples(LINES, LINE_ENDS_OF_TEXT), max_size=20), seed=SEEDS)
    def test_lines_with_any_ends(self, lines, seed):
        """Lines whose ends are of random kinds give the same frames, whatever the cut."""
        body = "".join(line + end for line, end in lines).encode()
        expected = reference(body)
        for pieces in (*cut_everywhere(body), *random_cuts(body, seed, 5)):
            assert dispatched(decode(pieces)[0]) == expected


@LINE_ENDS
def test_linear_time(end):
    """A frame of eight times the length, in reads of 1 KB, takes about eight times as long; not 64 times."""

    def seconds(size: int) -> float:
        decoder, read, best = SseDecoder(size + 2048), b"x" * 1024, float("inf")
        for _ in range(3):
            started = time.perf_counter()
            decoder.feed(b"data: ")
            for _ in range(size // 1024 + 1):
                assert decoder.feed(read) == []
            (frame,) = decoder.feed(end * 2)
            best = min(best, time.perf_counter() - started)
            assert len(frame.raw) >= size
        return best

    assert seconds(8_000_000) < 32 * seconds(1_000_000)


class TestWriting:
    """Frames as Callahead writes them."""

    def test_plain_and_named(self):
        """LF only; an event line only where there is a name."""
        assert sse_frame(b"{}") == b"data: {}\n\n"
        assert sse_frame(b"{}", "reasoning_dispatch") == b"event: reasoning_dispatch\ndata: {}\n\n"

    @given(
        data=st.binary().filter(lambda data: not re.search(rb"[\r\n]", data)),
        event=st.none() | st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1),
    )
    def test_is_read_back(self, data, event):
        """What was written is what the decoder reads."""
        (frame,) = frames_of(sse_frame(data, event))
        assert (frame.data, frame.event) == (data, event)
