"""Whether a stream that ended is whole."""

import json
from pathlib import Path

import pytest

from pipeline.completeness import Completeness
from pipeline.items import Chunk, End, StreamError
from pipeline.testing import call_chunk, chunk, items_of, odd_payloads, text_chunk

STREAMS = Path(__file__).parents[3] / "shared" / "streams"
EXPECTED = json.loads((STREAMS / "EXPECT.json").read_text()) if STREAMS.is_dir() else {}


def cut_of(*chunks: Chunk) -> str | None:
    completeness = Completeness()
    for each in chunks:
        completeness.see(each.payload)
    failure = completeness.cut()
    return None if failure is None else failure.message


class TestWhole:
    """Every choice that was opened has finished; recorded shapes are those of spec, real-streams."""

    def test_one_choice(self):
        """An ordinary stream."""
        assert cut_of(text_chunk("a"), text_chunk("b", finish="stop")) is None

    def test_finish_in_the_only_chunk(self):
        """A whole answer in one chunk."""
        assert cut_of(call_chunk(0, "c", "f", "{}", finish="tool_calls")) is None

    def test_chunks_without_choices_open_nothing(self):
        """Azure's prompt filter results first, usage last, OpenAI's padding chunks in between (7)."""
        filters = chunk({"id": "", "created": 0, "choices": [], "prompt_filter_results": []})
        padding = chunk({"id": "a", "usage": None, "obfuscation": "xx"})
        usage = chunk({"choices": [], "usage": {"total_tokens": 2}})
        assert cut_of(filters, text_chunk("a"), padding, text_chunk("", finish="length"), usage) is None

    def test_choice_after_its_finish(self):
        """A choice that has finished is not opened again: usage chunks with a null reason, the same reason twice (9)."""
        assert (
            cut_of(text_chunk("a", finish="stop"), text_chunk(""), text_chunk("", finish="stop"), text_chunk(""))
            is None
        )

    def test_content_filter_after_the_finish(self):
        """Azure's asynchronous filter sends a choice without delta behind the finish (7)."""
        late = chunk({"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]})
        assert cut_of(text_chunk("a", finish="stop"), late) is None

    def test_finish_reason_absent_until_the_end(self):
        """xAI, Z.ai and Cerebras leave the key out (9)."""
        assert cut_of(chunk({"choices": [{"index": 0, "delta": {}}]}), text_chunk("", finish="stop")) is None

    def test_no_index(self):
        """Choices without an index, or with a null one, are the one choice there is."""
        opening = chunk({"choices": [{"delta": {"content": "a"}}]})
        finish = chunk({"choices": [{"index": None, "delta": {}, "finish_reason": "stop"}]})
        assert cut_of(opening, finish) is None

    def test_several_choices(self):
        """Each of several choices, in its own time."""
        chunks = [text_chunk("a", choice=n) for n in (0, 1)] + [text_chunk("", choice=n, finish="stop") for n in (1, 0)]
        assert cut_of(*chunks) is None


class TestCut:
    """The upstream ended too early."""

    def test_no_finish(self):
        """Text and then nothing (6: evroc)."""
        assert cut_of(text_chunk("a")) == "the upstream ended the stream before choice 0 had finished"

    def test_one_of_two(self):
        """n=2 through LiteLLM: a finish reason for choice 0 only (9)."""
        assert cut_of(text_chunk("a", choice=1), text_chunk("b", finish="stop")) == (
            "the upstream ended the stream before choice 1 had finished"
        )

    def test_several(self):
        """Each open choice is named."""
        message = cut_of(text_chunk("a", choice=2), text_chunk("a", choice=0))
        assert message == "the upstream ended the stream before choice 0, 2 had finished"

    @pytest.mark.parametrize("reason", ["", None, 0, True, [], {}])
    def test_no_reason(self, reason):
        """What is no text is no finish reason."""
        assert cut_of(chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})) is not None

    @pytest.mark.parametrize("chunks", [[], [chunk({"choices": [], "usage": {}})], [chunk({"choices": None})]])
    def test_nothing_at_all(self, chunks):
        """A stream without a choice is no answer."""
        assert cut_of(*chunks) == "the upstream ended the stream before it sent any choice"

    def test_its_error(self):
        """The failure is a cut, in the upstream's name."""
        failure = Completeness().cut()
        assert failure is not None
        assert failure.body()["error"]["code"] == "upstream_cut"
        assert failure.status == 502


class TestFailed:
    """The upstream said itself that it failed."""

    @pytest.mark.parametrize(
        ("payload", "failed"),
        [
            ({"error": {"message": "m"}, "choices": []}, True),
            ({"error": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, True),
            ({"object": "error", "message": "m", "choices": []}, True),
            ({"error": None, "choices": []}, False),
            ({"choices": []}, False),
        ],
    )
    def test_error_beside_choices(self, payload, failed):
        """OpenRouter's error comes in an ordinary chunk (5)."""
        completeness = Completeness()
        completeness.see(payload)
        assert completeness.failed is failed

    def test_stays(self):
        """What follows an error does not undo it."""
        completeness = Completeness()
        completeness.see({"error": "m"})
        completeness.see(text_chunk("", finish="stop").payload)
        assert completeness.failed


def test_any_json_value():
    """No JSON value crashes it, and no number of choices makes it grow without end."""
    completeness = Completeness()
    for payload in odd_payloads():
        completeness.see(payload)
    completeness.cut()
    for index in range(5000):
        completeness.see(text_chunk("", choice=index).payload)
        completeness.see(text_chunk("", choice=-index, finish="stop").payload)
    assert len(completeness._open) + len(completeness._finished) < 2100  # noqa: SLF001 - memory has no other witness


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".sse")])
def test_recorded_streams(name):
    """Of every recorded stream that ends without ``[DONE]`` or an error, it is known whether it was cut."""
    items = items_of((STREAMS / name).read_bytes())
    completeness = Completeness()
    for item in items:
        if isinstance(item, Chunk):
            completeness.see(item.payload)
    if not completeness.failed and not any(isinstance(item, (End, StreamError)) for item in items):
        assert (completeness.cut() is not None) == EXPECTED[name]["cut"]
