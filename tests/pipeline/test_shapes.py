"""Frames that repeat one another but for a text are read as if each were read alone."""

from __future__ import annotations

import json
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import shapes
from pipeline.chunks import exact_payload
from pipeline.decode import ItemDecoder, item_of
from pipeline.items import Chunk
from pipeline.runs import runs_in
from pipeline.sse import SseDecoder
from pipeline.testing import text_chunk, with_shapes
from pipeline.testing.fingerprint import fingerprint

ENVELOPE = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def framed(payload: Any, separators: tuple[str, str] = (",", ":")) -> bytes:
    """A frame of one line."""
    return b"data: " + json.dumps(payload, separators=separators, ensure_ascii=False).encode() + b"\n\n"


def of_delta(delta: Any, **more: Any) -> dict[str, Any]:
    """A chunk of one choice."""
    return {**ENVELOPE, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}


def read_apart(raws: list[bytes]) -> list[bytes]:
    """What each frame is for a decoder that has seen no other."""
    return [fingerprint(item_of(SseDecoder().read(raw))) for raw in raws]


def shapes_of(*payloads: dict[str, Any]) -> list[Any]:
    """The shapes of the items of a stream."""
    items = ItemDecoder().feed(b"".join(map(framed, payloads)))
    return [item.shape if isinstance(item, Chunk) else None for item in items]


class TestWhatHasAShape:
    """Chunks whose only news is a text."""

    @pytest.mark.parametrize(
        ("key", "delta"),
        [
            ("content", {"content": "TEXT"}),
            ("content", {"role": "assistant", "content": "TEXT", "refusal": None, "tool_calls": None}),
            ("content", {"content": "TEXT", "reasoning_content": ""}),
            ("reasoning_content", {"reasoning_content": "TEXT", "content": None}),
            ("reasoning", {"reasoning": "TEXT"}),
            ("arguments", {"tool_calls": [{"index": 1, "function": {"arguments": "TEXT"}}]}),
            (
                "arguments",
                {"tool_calls": [{"index": 0, "id": "i", "type": "function", "function": {"arguments": "TEXT"}}]},
            ),
            ("arguments", {"tool_calls": [{"index": 0, "id": None, "function": {"name": "", "arguments": "TEXT"}}]}),
        ],
    )
    @pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
    def test_they_share_it(self, key, delta, separators):
        """A text, or a fragment's arguments, in any layout; the texts are read, and the payload is what came."""
        texts = ["a", 'quo"ted', "back\\slash", "n\new", "grüße 🙂", "\u2028", "TEXT"]
        payloads = [json.loads(json.dumps(of_delta(delta)).replace('"TEXT"', json.dumps(text))) for text in texts]
        items = ItemDecoder().feed(b"".join(framed(payload, separators) for payload in payloads))
        assert [item.text for item in items] == texts
        assert [item.payload for item in items] == payloads
        assert len({id(item.shape) for item in items}) == 1
        assert items[0].shape.key == key
        assert [run.chunks for run in runs_in(items)] == [items]

    @pytest.mark.parametrize(
        "payload",
        [
            of_delta({"content": ""}),
            of_delta({"content": ["a"]}),
            of_delta({"content": "a", "reasoning": "b"}),
            of_delta({"content": "a", "unknown": 1}),
            of_delta({"role": 1, "content": "a"}),
            of_delta({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "a"}}]}),
            of_delta({"tool_calls": [{"function": {"arguments": "a"}}]}),
            of_delta({"tool_calls": [{"index": True, "function": {"arguments": "a"}}]}),
            of_delta({"tool_calls": [{"index": 0, "function": {"arguments": "a"}}] * 2}),
            of_delta({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}),
            of_delta({"content": "a"}, finish_reason="stop"),
            of_delta({"content": "a"}, logprobs={"content": []}),
            of_delta({"content": "a"}, index=1),
            of_delta({"content": "a"}, index=False),
            of_delta({"content": "a"}) | {"usage": {"total_tokens": 3}},
            of_delta({"content": "a"}) | {"created": 1.5},
            of_delta({"content": "a"}) | {"error": None},
            of_delta({"content": "a"}) | {"object": "error"},
            {**ENVELOPE, "choices": of_delta({"content": "a"})["choices"] * 2},
            {**ENVELOPE, "choices": []},
        ],
    )
    def test_others_have_none(self, payload):
        """What a stage might have to look at has no shape."""
        assert shapes_of(payload, payload) == [None, None]

    @pytest.mark.parametrize("keys", [b'"content":"old","content":"%b"', b'"content":"%b","content":"x"'])
    def test_a_key_that_comes_twice(self, keys):
        """A frame with the key of its text more than once has no shape."""
        frames = [b'data: {"choices":[{"index":0,"delta":{' + keys % text + b"}}]}\n\n" for text in (b"a", b"b")]
        items = ItemDecoder().feed(b"".join(frames))
        assert [item.shape for item in items] == [None, None]
        assert [fingerprint(item) for item in items] == read_apart(frames)

    def test_a_key_that_comes_very_often(self, monkeypatch):
        """However often a key comes: a frame is parsed twice at most."""
        parsed: list[int] = []
        loads = orjson.loads

        def counted(data):
            parsed.append(len(data))
            return loads(data)

        monkeypatch.setattr("orjson.loads", counted)
        ItemDecoder().feed(
            b'data: {"choices":[{"index":0,"delta":{%b"content":"b"}}]}\n\n' % (b'"content":"a",' * 5000)
        )
        assert len(parsed) <= 2

    @pytest.mark.parametrize(
        "delta", [rb'"content":"a","content":"\u0000"', rb'"content":"\u0000"', rb'"cont\u0065nt":"\u0000"']
    )
    def test_a_text_that_is_the_one_to_try_with(self, delta):
        """A place is tried with a NUL; a text that is one says nothing of the place."""
        frame = rb'data: {"content":"\u0000","choices":[{"index":0,"delta":{' + delta + b"}}]}\n\n"
        frames = [frame, frame.replace(b'"a"', b'"b"'), frame.replace(rb'{"content":"\u0000"', b'{"content":"other"')]
        items = ItemDecoder().feed(b"".join(frames))
        assert [item.text for item in items] == ["", "", ""]
        assert [fingerprint(item) for item in items] == read_apart(frames)

    def test_calls_that_take_turns(self):
        """Several shapes are known at a time."""
        fragments = [{"index": n % 3, "function": {"arguments": "ab"}} for n in range(9)]
        shapes = shapes_of(*(of_delta({"tool_calls": [each]}) for each in fragments))
        assert len(set(shapes)) == 3
        assert shapes[:3] == shapes[3:6] == shapes[6:]

    def test_integers_of_any_length(self):
        """An edit of a chunk with a shape keeps long integers as they came: such a chunk has none."""
        payload = of_delta({"content": "a"}) | {"created": 2**70}
        first, second = ItemDecoder().feed(framed(payload) * 2)
        assert exact_payload(first) == exact_payload(second) == payload

    def test_a_stream_that_can_have_none(self, monkeypatch):
        """Frames that can have no shape are looked at seldom after a while; once others come, those get theirs."""
        looked: list[Any] = []
        look = shapes._text_in  # noqa: SLF001 - how often it is called is what is tested
        monkeypatch.setattr("pipeline.shapes._text_in", lambda payload: looked.append(payload) or look(payload))
        with_usage = [framed(of_delta({"content": "a"}) | {"usage": {"total_tokens": n}}) for n in range(1000)]
        plain = [framed(of_delta({"content": text})) for text in ("b", "c")] * 20
        items = ItemDecoder().feed(b"".join([*with_usage, *plain]))
        assert len(looked) < 200
        assert [item.shape is not None for item in items[1000:]].count(True) > 30
        assert [fingerprint(item) for item in items] == read_apart([*with_usage, *plain])

    def test_a_stream_that_never_repeats(self):
        """Where no shape is ever of use, looking for one is given up."""
        frames = [framed(of_delta({"content": "a"}) | {"obfuscation": "x" * n}) for n in range(40)]
        items = ItemDecoder().feed(b"".join(frames))
        assert items[0].shape is not None
        assert [item.shape for item in items[-20:]] == [None] * 20
        assert [fingerprint(item) for item in items] == read_apart(frames)


def test_another_payload_has_no_shape():
    """A chunk that is made from one with a shape is looked at as a whole."""
    _, shaped = with_shapes([text_chunk("a"), text_chunk("b")])
    assert isinstance(shaped, Chunk)
    assert shaped.shape is not None
    other = attrs.evolve(shaped, evidence=(), raw=None)
    assert (other.shape, other.payload) == (None, text_chunk("b").payload)
    _, shaped = with_shapes([text_chunk("a"), text_chunk("b")])
    assert attrs.evolve(shaped, raw=b": note\n" + (shaped.raw or b"")).payload == text_chunk("b").payload
    assert shaped.edited({}).shape is None


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames that mostly repeat one another, some of them damaged."""
    texts = st.text(max_size=6) | st.sampled_from(['"', "\\", '"},"', "\u2028", "\x7f", "content"])
    deltas = st.one_of(
        st.builds(lambda text: {"content": text}, texts),
        st.builds(lambda text: {"reasoning": text, "content": None}, texts),
        st.builds(
            lambda index, text: {"tool_calls": [{"index": index, "function": {"arguments": text}}]},
            st.integers(0, 2),
            texts,
        ),
        st.sampled_from([{}, {"role": "assistant"}, {"content": "a", "x": 1}]),
    )
    frames = [framed(of_delta(delta)) for delta in draw(st.lists(deltas, min_size=2, max_size=12))]
    for at in draw(st.lists(st.integers(0, len(frames) - 1), max_size=4)):
        raw = frames[at][:-2]
        place = draw(st.integers(6, len(raw)))
        piece = draw(st.sampled_from([b"", b'"', b"\\", b"\x00", b"\xed\xa0\x80", b"}", b",", b"\xff", b'"content":"']))
        frames[at] = raw[:place] + piece + raw[place + draw(st.integers(0, 2)) :] + b"\n\n"
    return frames


@given(streams())
def test_every_frame_is_what_it_is_alone(frames):
    """Whatever came before, and however a frame is damaged: payload and bytes are those of the frame read alone."""
    items = ItemDecoder().feed(b"".join(frames))
    assert [fingerprint(item) for item in items] == read_apart(frames)
