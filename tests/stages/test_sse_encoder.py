"""The encoder: bytes as they came, edited chunks anew, events in two styles, and the last frame of every ending."""

from __future__ import annotations

import json

import pytest
from notation import FIN, C, E, Gateway, R, c1, chunk, frames, t, told

from pipeline.errors import StreamFailure, UpstreamReported
from pipeline.items import Chunk, End, SideEvent, StreamError, Verbatim
from pipeline.sse import Frame, sse_frame
from pipeline.stage import EventStyle, Flow
from pipeline.testing import RecordingObserver, make_stage
from stages.sse_encoder import SseEncoder

DONE = b"data: [DONE]\n\n"
FINISHED = Chunk(chunk(FIN("stop")), b"finish\n\n")
OPENED = Chunk(chunk(C("x")), b"open\n\n")
REPORTED = StreamError(UpstreamReported("boom"), b"event: error\ndata: {}\n\n")
NOTICED = StreamError(StreamFailure("the connection broke"))


def encoder(style=EventStyle.NAMED):
    return make_stage(SseEncoder, event_style=style, observer=RecordingObserver())


def encode(*items, style=EventStyle.NAMED):
    """The frames of some items, then those of the close."""
    stage = encoder(style)
    out = [b"".join(stage.feed(item)) for item in items]
    return [*out, b"" if stage.finished else b"".join(stage.close())]


def test_it_gives_bytes():
    """The plan may put it last."""
    assert (SseEncoder.takes, SseEncoder.gives) == (Flow.ITEMS, Flow.BYTES)


@pytest.mark.parametrize(
    "raw",
    [
        b'data:{"choices" : []  ,"a":1}\r\n\r\n',
        b': note\nid: 7\ndata: {"a":\ndata: 1}\n\n',
        b"event: message\rdata: {}\r\r",
        b'\xef\xbb\xbfdata: {"a":"\xe2\x80\xa8"}\n\n',
        b": only a comment\n\n",
        b"event: trace\ndata: {}\n\n",
        b"data: no json\n\n",
        b"retry: 10\n\n",
        b"\n\n",
    ],
)
def test_untouched_frames_keep_their_bytes(raw):
    """Spacing, line ends, comments and fields arrive as the upstream wrote them."""
    assert Gateway().feed(raw) == raw


def test_an_edited_chunk_is_one_data_line():
    """Compact JSON, raw UTF-8, control characters escaped as short as can be."""
    payload = {"choices": [], "text": 'é🦊\u2028\x7f"\\\b\f\n\r\t\x00\x1f', "n": [1, 2.5, None]}
    (frame, _) = encode(Chunk(payload, None))
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    assert frame == f"data: {text}\n\n".encode()


# --- events -----------------------------------------------------------------------------------------------------------


def test_named_events():
    """Dynamo's wire form: the name, then the payload in its key order, in front of the ordinary frame."""
    gateway = Gateway()
    gateway.send(chunk(R("Check the port first.")))
    call = chunk(t(0, "call_9a", "lookup_tide", '{"port":"Bergen"}'))
    raw = sse_frame(json.dumps(call).encode())
    assert gateway.feed(raw) == (
        b"event: tool_call_dispatch\n"
        rb'data: {"choice_index":0,"tool_call":{"index":0,"id":"call_9a","type":"function",'
        rb'"function":{"name":"lookup_tide","arguments":"{\"port\":\"Bergen\"}"}}}'
        b"\n\n"
        b"event: reasoning_dispatch\n"
        b'data: {"index":0,"reasoning_content":"Check the port first."}\n\n' + raw
    )


def test_chunk_style_events_look_like_the_streams_own_chunks():
    """An unnamed frame with the envelope of the chunk that brought it about, no choices, and the payload by name."""
    gateway = Gateway(style=EventStyle.CHUNK)
    (name, event), _ = gateway.send({**chunk(t(0, "c", "f", "{}")), "id": "chatcmpl-a1", "created": 1790000001})
    assert name is None
    assert json.loads(event) == {
        "id": "chatcmpl-a1",
        "object": "chat.completion.chunk",
        "created": 1790000001,
        "model": "demo",
        "choices": [],
        "tool_call_dispatch": E(0, 0, "c", "f", "{}"),
    }
    assert list(json.loads(event)) == ["id", "object", "created", "model", "choices", "tool_call_dispatch"]


@pytest.mark.parametrize(
    ("earlier", "cause", "expected"),
    [
        ({}, {}, ("", "chat.completion.chunk", 0, "")),
        ({"id": "a", "model": "m", "created": 7, "object": "o"}, {}, ("a", "o", 7, "m")),
        ({"id": "a", "model": "m"}, {"id": "b"}, ("b", "chat.completion.chunk", 0, "m")),
        ({"id": "a", "created": 7}, {"id": "", "created": 0, "model": None}, ("a", "chat.completion.chunk", 7, "")),
        ({"id": "a", "created": 7}, {"id": 5, "created": "8", "object": []}, ("a", "chat.completion.chunk", 7, "")),
        ({"created": True}, {"created": 1.5, "model": {}}, ("", "chat.completion.chunk", 0, "")),
    ],
)
def test_chunk_style_falls_back_key_by_key(earlier, cause, expected):
    """The cause's own values first, then the last usable ones of the stream, then defaults; never a wrong type."""
    brought = Chunk(cause, b"cause\n\n")
    _, event, _ = encode(Chunk(earlier, b"earlier\n\n"), SideEvent("news", {"a": 1}, brought), style=EventStyle.CHUNK)
    ((_, data),) = frames(event)
    written = json.loads(data)
    assert (written["id"], written["object"], written["created"], written["model"]) == expected
    assert written["news"] == {"a": 1}


def test_a_payload_with_a_lone_surrogate_is_escaped():
    """UTF-8 cannot write it; JSON can."""
    event, _ = encode(SideEvent("news", {"text": "\ud800é"}, OPENED))
    assert event == b'event: news\ndata: {"text":"\\ud800\\u00e9"}\n\n'


# --- endings ----------------------------------------------------------------------------------------------------------


def error_of(frame):
    assert frame.startswith(b"data: {")
    return json.loads(frame.removeprefix(b"data: "))["error"]


def test_done_is_passed_on_and_nothing_follows():
    """Whatever comes after [DONE] is not written, and nothing is added."""
    assert encode(OPENED, End(b"data:[DONE]\r\n\r\n"), OPENED, FINISHED, NOTICED) == [
        OPENED.raw,
        b"data:[DONE]\r\n\r\n",
        b"",
        b"",
        b"",
        b"",
    ]


def test_done_is_added_to_a_whole_stream():
    """A clean end with every choice finished that lacks its [DONE] gets one."""
    assert encode(OPENED, FINISHED) == [OPENED.raw, FINISHED.raw, DONE]


@pytest.mark.parametrize(
    "items",
    [[], [OPENED], [FINISHED, Chunk(chunk(c1(C("x"))), b"second\n\n")], [Verbatim(Frame(b": hm\n\n", None))]],
    ids=["nothing", "unfinished", "one-of-two", "comments"],
)
def test_a_cut_stream_ends_with_an_error_frame(items):
    """A clean end before every choice has finished is a failure, and looks like one: no [DONE]."""
    error = error_of(encode(*items)[-1])
    assert (error["code"], error["type"], error["param"]) == ("upstream_cut", "upstream_error", None)
    assert error["message"]


def test_a_failure_that_was_noticed_ends_the_stream():
    """One error frame, and nothing after it."""
    opened, failed, *rest = encode(OPENED, NOTICED, FINISHED, End(DONE))
    assert opened == OPENED.raw
    assert error_of(failed)["message"] == "the connection broke"
    assert rest == [b"", b"", b""]


def test_a_failure_that_was_reported_is_passed_on_with_what_follows():
    """The upstream's own frame and the rest of its stream go on; nothing is added at a clean end."""
    assert encode(OPENED, REPORTED, OPENED) == [OPENED.raw, REPORTED.raw, OPENED.raw, b""]
    assert encode(REPORTED, End(DONE)) == [REPORTED.raw, DONE, b""]


@pytest.mark.parametrize("error", [{"error": {"message": "late", "code": 503}}, {"object": "error", "message": "late"}])
def test_an_error_inside_a_chunk_counts_as_reported(error):
    """With choices or without: the upstream has said that it failed, so no second error is added."""
    stage = encoder()
    stage.feed(Chunk({**chunk(C("x")), **error}, b"raw\n\n"))
    assert list(stage.close()) == []
    ((failure, reported),) = told(stage.context.observer, "stream_failed")
    assert (failure.code, reported) == ("upstream_reported", True)
    assert "late" in failure.message


def test_the_observer_learns_how_it_ended():
    """Whole, cut, noticed or reported: said once, when the client is told."""

    def heard(*items):
        stage = encoder()
        for item in items:
            stage.feed(item)
        stage.close()
        ended, failed = (told(stage.context.observer, name) for name in ("stream_ended", "stream_failed"))
        return len(ended), [(failure.code, reported) for failure, reported in failed]

    assert heard(FINISHED) == heard(OPENED, End(DONE)) == (1, [])
    assert heard(OPENED) == (0, [("upstream_cut", False)])
    assert heard(OPENED, NOTICED) == (0, [("upstream_error", False)])
    assert heard(REPORTED, End(DONE)) == (0, [("upstream_reported", True)])


# --- frames never glue ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_frame_without_its_blank_line_does_not_glue(ending):
    """What Callahead adds behind an unfinished last frame is a frame of its own."""
    gateway = Gateway()
    last = b"data: " + json.dumps(chunk(FIN("stop"))).encode() + ending
    out = gateway.feed(b"data: {}\n\n" + last) + gateway.close()
    assert [data for _, data in frames(out)] == [b"{}", json.dumps(chunk(FIN("stop"))).encode(), b"[DONE]"]


def test_a_line_end_that_is_cut_in_two_stays_whole():
    """CR in one read and LF in the next: an event in between is read by itself, and all bytes arrive."""
    gateway = Gateway()
    call = b"data: " + json.dumps(chunk(t(0, "c", "f", "{}"))).encode() + b"\r\n\r\n"
    out = gateway.feed(call[:-1]) + gateway.feed(call[-1:] + call) + gateway.feed(DONE)
    assert [name for name, _ in frames(out)] == ["tool_call_dispatch", None, None, None]
    assert out.replace(out[: out.index(b'data: {"id"')], b"") == call + call + DONE


def test_a_break_after_a_reported_failure_adds_no_second_error():
    """The client is told once: the upstream's own error frame is enough."""
    assert encode(OPENED, REPORTED, NOTICED) == [b"open\n\n", REPORTED.raw, b"", b""]


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b'event: message\nid: 7\ndata: {"a":1}\n: note\n\n', b"event: message\nid: 7\n: note\n"),
        (b'\ndata:{"a":1}\r\n\r\n', b""),
        (b'retry: 5\rdata: {"a"\rdata: :1}\r\r', b"retry: 5\n"),
    ],
)
def test_an_edit_keeps_the_frames_other_lines(raw, lines):
    """What stood beside the data of an edited frame goes on, also after a second edit."""
    edited = Chunk({"a": 1}, raw).edited({"a": 2}).edited({"a": 3})
    assert encode(edited)[0] == lines + b'data: {"a":3}\n\n'
