"""What came instead of an event stream, and what becomes of it."""

from __future__ import annotations

from typing import Final

import trio

from pipeline.chunks import choices_of, encode_json, error_of, parse_json
from server.errors import UpstreamError, UpstreamErrorKind
from server.source import Deadlines, read_within
from server.upstreams.base import UpstreamResponse
from server.whole_completion import CannedResponse, stream_of_completion

__all__ = ["EVENT_STREAM", "as_event_stream"]

EVENT_STREAM: Final = b"text/event-stream"
_SSE_STARTS: Final = (b"data", b"event", b"id", b"retry", b":", b"\xef\xbb\xbf")
_LONGEST_START: Final = 65_536
"""Bytes of nothing but blanks after which a body is no stream."""
_BODY_SHOWN: Final = 500


async def as_event_stream(
    response: UpstreamResponse, deadlines: Deadlines, limit: int
) -> tuple[UpstreamResponse, bytes]:
    """The response as an event stream, and what was already read of it.

    What says that it is one is believed. Of anything else the first bytes decide: servers label streams
    ``text/plain``, errors and whole completions come as JSON with status 200.
    """
    await trio.lowlevel.checkpoint()
    content_type = dict(response.headers).get(b"content-type", b"").strip().lower()
    if content_type.startswith(EVENT_STREAM):
        return response, b""
    first = start = b""
    while len(first) < _LONGEST_START and any(each.startswith(start) for each in _SSE_STARTS):
        data = await read_within(response, deadlines)
        if not data:
            break
        first += data
        start = first.lstrip()
        if start.startswith(_SSE_STARTS):
            return response, first
    said = content_type.decode("latin-1") or "no content type"
    if not start.startswith((b"{", b"[")):
        raise UpstreamError(
            UpstreamErrorKind.NOT_A_STREAM,
            f"the upstream answered a streaming request with {said}: {_shown(first)}",
        )
    whole = [first]
    size = len(first)
    while data := await read_within(response, deadlines):
        size += len(data)
        if size > limit:
            raise UpstreamError(
                UpstreamErrorKind.NOT_A_STREAM,
                f"the upstream answered a streaming request with over {limit} bytes of {said}",
            )
        whole.append(data)
    await response.aclose()
    return CannedResponse(_stream_of(b"".join(whole), said), response.headers), b""


def _stream_of(body: bytes, said: str) -> bytes:
    """The stream that a JSON body should have been."""
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
            raise UpstreamError(UpstreamErrorKind.NOT_A_STREAM, message)
    raise UpstreamError(
        UpstreamErrorKind.NOT_A_STREAM,
        f"the upstream answered a streaming request with {said}: {_shown(body)}",
    )


def _shown(body: bytes) -> str:
    return encode_json(body[:_BODY_SHOWN].decode(errors="replace")).decode() if body else "an empty body"
