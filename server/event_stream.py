"""What came instead of an event stream, and what becomes of it."""

from __future__ import annotations

from typing import Final

import trio

from pipeline.chunks import choices_of, encode_json, error_of, parse_json
from server.deadlines import Deadlines, read_within
from server.errors import UpstreamError, UpstreamErrorKind
from server.upstreams.base import UpstreamResponse
from server.whole_completion import CannedResponse, stream_of_completion

__all__ = ["EVENT_STREAM", "as_event_stream", "begins_as_json", "begins_with_nothing", "stream_of_whole"]

EVENT_STREAM: Final = b"text/event-stream"
_BOM: Final = b"\xef\xbb\xbf"
_SSE_STARTS: Final = (b"data", b"event", b"id", b"retry", b":")
_LONGEST_START: Final = 65_536
"""Bytes of nothing but blanks after which a body is no stream."""
_MAX_WHOLE_BYTES: Final = 64 * 1024 * 1024
"""The longest body that is read whole to make a stream of it."""
_BODY_SHOWN: Final = 500


async def as_event_stream(response: UpstreamResponse, deadlines: Deadlines) -> tuple[UpstreamResponse, bytes]:
    """The response as an event stream, and what was already read of it.

    What says that it is one is believed so far that the client's response can begin; ``UpstreamSource`` looks again.
    Of anything else the first bytes decide: servers label streams ``text/plain``, errors and whole completions come
    as JSON with status 200. Checkpoints.

    Raises:
        UpstreamError: it is neither a stream nor a completion, or as ``read_within``.
    """
    await trio.lowlevel.checkpoint()
    content_type = dict(response.headers).get(b"content-type", b"").strip().lower()
    if content_type.startswith(EVENT_STREAM):
        return response, b""
    first = start = b""
    while len(first) < _LONGEST_START and (
        _BOM.startswith(first) or any(each.startswith(start) for each in _SSE_STARTS)
    ):
        data = await read_within(response, deadlines)
        if not data:
            break
        first += data
        start = _significant(first)
        if start.startswith(_SSE_STARTS):
            return response, first
    said = content_type.decode("latin-1") or "no content type"
    if not begins_as_json(first):
        raise _no_stream(said, _shown(first))
    return CannedResponse(await stream_of_whole(response, deadlines, first, said), response.headers), b""


def begins_as_json(body: bytes) -> bool:
    """Whether a body can only be JSON: no line of an event stream begins so."""
    return _significant(body[:_LONGEST_START])[:1] in (b"{", b"[")


def begins_with_nothing(body: bytes) -> bool:
    """Whether what has come of a body are blanks and a byte-order mark, or a part of one: it may become anything."""
    return len(body) < _LONGEST_START and (not _significant(body) or _BOM.startswith(body.lstrip()))


async def stream_of_whole(response: UpstreamResponse, deadlines: Deadlines, first: bytes, said: str) -> bytes:
    """The event stream that a whole JSON body should have been. Checkpoints.

    Args:
        response: what the body is read from, to its end.
        deadlines: the limits on waiting.
        first: what was already read of it.
        said: its content type.

    Raises:
        UpstreamError: it is an error, with the upstream's message, or no completion; or as ``read_within``.
    """
    whole = [first]
    size = len(first)
    while data := await read_within(response, deadlines):
        size += len(data)
        if size > _MAX_WHOLE_BYTES:
            raise _no_stream(said, f"more than {_MAX_WHOLE_BYTES} bytes")
        whole.append(data)
    await response.aclose()
    body = b"".join(whole).strip().removeprefix(_BOM)
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    if isinstance(value, dict):
        error = error_of(value)
        if error is None and any(isinstance(each, dict) and "message" in each for each in choices_of(value)):
            return stream_of_completion(value)
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str):
            logged = f"the upstream answered a streaming request with an error in {said}"
            raise UpstreamError(UpstreamErrorKind.NOT_A_STREAM, message, logged=logged)
    raise _no_stream(said, _shown(body))


def _significant(body: bytes) -> bytes:
    return body.lstrip().removeprefix(_BOM).lstrip()


def _no_stream(said: str, what: str) -> UpstreamError:
    message = f"the upstream answered a streaming request with {said}"
    return UpstreamError(UpstreamErrorKind.NOT_A_STREAM, f"{message}: {what}", logged=message)


def _shown(body: bytes) -> str:
    return encode_json(body[:_BODY_SHOWN].decode(errors="replace")).decode() if body else "an empty body"
