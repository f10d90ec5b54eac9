import json
from pathlib import Path

import pytest

import server.recordings
from pipeline.decode import ItemDecoder
from pipeline.items import Chunk, End
from server.recordings import BUNDLED_TOKENS_PER_SECOND, bundled_recordings
from server.upstreams.replay import load_recording

TOOL_CALLS, TEXT = bundled_recordings()


def chunks_of(path):
    *chunks, end = ItemDecoder().feed(path.read_bytes())
    assert isinstance(end, End)
    assert all(isinstance(item, Chunk) for item in chunks)
    return [chunk.payload for chunk in chunks]


def deltas_of(path):
    return [choice["delta"] for chunk in chunks_of(path) for choice in chunk["choices"]]


def test_all_files_are_listed():
    """What is in the package is what is served."""
    assert set(bundled_recordings()) == set(Path(server.recordings.__file__).parent.glob("*.sse"))


@pytest.mark.parametrize("path", bundled_recordings(), ids=lambda path: path.stem)
def test_envelope(path):
    """Each is a whole stream of one response: chunks with one envelope, one finish, the usage last, ``[DONE]``."""
    chunks = chunks_of(path)
    envelopes = {tuple((key, chunk[key]) for key in list(chunk)[:5]) for chunk in chunks}
    assert len(envelopes) == 1
    assert [key for key, _ in envelopes.pop()] == ["id", "object", "created", "model", "system_fingerprint"]
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]] == [
        chunks[-2]["choices"][0]["finish_reason"]
    ]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == len(chunks) - 3
    assert ["role" in delta for delta in deltas_of(path)] == [True] + [False] * (len(chunks) - 2)


def test_text_only():
    """The short answer is text and nothing else."""
    said = [delta.get("content", "") for delta in deltas_of(TEXT)]
    assert "".join(said).endswith(".")
    assert chunks_of(TEXT)[-2]["choices"][0]["finish_reason"] == "stop"


def test_two_parallel_calls():
    """A thought, a sentence and two calls with valid arguments, one after the other, in pieces the size of tokens."""
    deltas = deltas_of(TOOL_CALLS)
    kinds = [next((key for key in ("reasoning_content", "tool_calls") if key in delta), "content") for delta in deltas]
    assert [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before] == [
        "content",
        "reasoning_content",
        "content",
        "tool_calls",
        "content",
    ]
    fragments = [call for delta in deltas for call in delta.get("tool_calls", ())]
    for index, name in enumerate(("search_flights", "write_file")):
        opening, *rest = (fragment for fragment in fragments if fragment["index"] == index)
        assert opening["function"] == {"name": name, "arguments": ""}
        assert isinstance(json.loads("".join(fragment["function"]["arguments"] for fragment in rest)), dict)
        assert len(rest) > 50
    assert load_recording(TOOL_CALLS).model == "demo"
    assert chunks_of(TOOL_CALLS)[-2]["choices"][0]["finish_reason"] == "tool_calls"
    pieces = [delta.get("reasoning_content") or delta.get("content") for delta in deltas]
    assert max(len(piece) for piece in pieces if piece) <= 8


def test_first_call_is_complete_long_before_the_finish():
    """A reader at the bundled pace sees the first call some seconds before the stream ends."""
    arguments, complete = "", None
    deltas = deltas_of(TOOL_CALLS)
    for place, delta in enumerate(deltas):
        for call in delta.get("tool_calls", ()):
            if call["index"] == 0:
                arguments += call["function"]["arguments"]
                complete = place
    json.loads(arguments)
    assert len(deltas) - complete > 3 * BUNDLED_TOKENS_PER_SECOND
