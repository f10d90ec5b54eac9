"""Items as an upstream's bytes would become them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipeline.chunks import encode_json, parse_json
from pipeline.decode import ItemDecoder
from pipeline.items import Chunk, Item, Payload
from pipeline.sse import Frame, SseDecoder, sse_frame

__all__ = ["call_chunk", "chunk", "frames_of", "items_of", "text_chunk", "with_shapes"]

_ENVELOPE: Final = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1790000001,
    "model": "demo-7b",
}


def chunk(payload: Payload | None = None, /, *, choice: int = 0, finish: str | None = None, **delta: Any) -> Chunk:
    """A chunk as the decoder makes it, with the bytes of its frame.

    Args:
        payload: the whole chunk, as it is to be. Without it, one choice in an ordinary envelope is built from
            the other arguments.
        choice: the choice's index.
        finish: the choice's finish reason.
        **delta: the keys of the choice's delta.

    Example::

        chunk(role="assistant", content="")
        chunk(reasoning_content="Check the port first.", choice=1)
        chunk(finish="tool_calls")
        chunk({"choices": [], "usage": {"total_tokens": 20}})
    """
    if payload is None:
        payload = {**_ENVELOPE, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}
    data = encode_json(payload)
    return Chunk(parse_json(data), sse_frame(data))


def text_chunk(text: str, *, choice: int = 0, finish: str | None = None) -> Chunk:
    """A chunk with a piece of a choice's text.

    Example::

        text_chunk("hi")
        text_chunk(" there.", choice=1, finish="stop")
    """
    return chunk(content=text, choice=choice, finish=finish)


def call_chunk(  # noqa: PLR0913 - a fragment has that many parts
    index: int = 0,
    id: str | None = None,  # noqa: A002 - the key's own name
    name: str | None = None,
    arguments: str | None = None,
    *,
    choice: int = 0,
    finish: str | None = None,
) -> Chunk:
    """A chunk with one fragment of a tool call; what is none is left out, as providers do.

    Args:
        index: the call's index within its choice.
        id: the call's id, which usually comes with the first fragment; ``type`` comes with it.
        name: the function's name.
        arguments: a piece of the JSON text.
        choice: the choice's index.
        finish: the choice's finish reason.

    Example::

        call_chunk(0, "call_9a", "lookup_tide", '{"port":')
        call_chunk(0, arguments='"Bergen"}', finish="tool_calls")
    """
    fragment: Payload = {"index": index}
    if id is not None:
        fragment |= {"id": id, "type": "function"}
    function = {"name": name, "arguments": arguments}
    fragment["function"] = {key: value for key, value in function.items() if value is not None}
    return chunk(tool_calls=[fragment], choice=choice, finish=finish)


def frames_of(data: bytes) -> list[Frame]:
    r"""The frames of a whole body, with what follows its last blank line.

    Example::

        assert [frame.data for frame in frames_of(b": hi\n\ndata: 1\n\n")] == [None, b"1"]
    """
    decoder = SseDecoder(len(data))
    frames = decoder.feed(data)
    tail = decoder.close()
    return frames if tail is None else [*frames, tail]


def items_of(data: bytes) -> list[Item]:
    r"""The items of a whole body, as a source sends them.

    Example::

        assert run_stage(make_stage(Stage), items_of(b"data: [DONE]\n\n"))
    """
    decoder = ItemDecoder(len(data))
    return [*decoder.feed(data), *decoder.close()]


def with_shapes(items: Sequence[Item]) -> list[Item]:
    """The items as one decoder gives them: chunks that differ from a neighbour in one text have its shape.

    Example::

        assert with_shapes([text_chunk("a"), text_chunk("b")])[1].text == "b"
    """
    decoder = ItemDecoder()
    found: list[Item] = []
    for item in items:
        if isinstance(item, Chunk) and item.raw is not None:
            read = decoder.feed(item.raw)
            found += read if len(read) == 1 and isinstance(read[0], Chunk) else [item]
        else:
            found.append(item)
    return found
