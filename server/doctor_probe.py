"""Asks a live server for tool calls, to see how it streams them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import trio

from pipeline.chunks import encode_json, error_of, parse_json
from pipeline.errors import StreamFailure
from server.errors import ConfigError
from server.recorded_streams import RecordedStream
from server.upstreams.base import UpstreamRequest, UpstreamResponse
from server.upstreams.http import HttpUpstream, HttpUpstreamOptions

__all__ = ["probe_request", "probe_server"]

MAX_BYTES: Final = 8 * 1024 * 1024
"""The longest answer that is read."""

_OK: Final = 200
_TOOL: Final = MappingProxyType(
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city now.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
)


def probe_request(model: str) -> dict[str, Any]:
    """A request that most models answer with two small calls of one tool."""
    question = "Call get_weather twice in this one turn, once for Bergen and once for Lisbon. Say nothing else."
    return {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": question}],
        "tools": [dict(_TOOL)],
    }


async def probe_server(
    url: str, model: str, api_key: str | None, seconds: float, request: Mapping[str, Any] | None = None
) -> RecordedStream:
    """Send the request and read the whole answer, over HTTP/1.1 and without any stage.

    Args:
        url: the server's base URL.
        model: a model of the server's.
        api_key: sent as a bearer token, or none.
        seconds: how long all of it may take.
        request: the body to send in place of ``probe_request``; ``model`` and ``stream`` are set in it.

    Checkpoints. On cancellation the connection is closed.

    Raises:
        ConfigError: the URL cannot be used, the server cannot be reached or refuses, its answer is no event stream,
            or too long in bytes or seconds. One line, without the key.
    """
    await trio.lowlevel.checkpoint()
    try:
        upstream = HttpUpstream(HttpUpstreamOptions(url, connect_timeout=0, keep_alive_timeout=0))
    except ConfigError as error:
        raise ConfigError(f"--url: {str(error).removeprefix('upstream.url: ')}") from error
    asked = {**(request or probe_request(model)), "model": model, "stream": True}
    headers = [(b"content-type", b"application/json"), (b"accept", b"text/event-stream")]
    if api_key is not None:
        headers.append((b"authorization", b"Bearer " + api_key.encode()))
    message = UpstreamRequest("POST", "/chat/completions", headers, encode_json(asked), model)
    name = f"{upstream.name}/chat/completions"
    body = bytearray()
    with trio.move_on_after(seconds) as scope:
        try:
            await _receive(upstream, message, body)
        except StreamFailure as error:
            raise ConfigError(_line(f"{name}: {error.message}", api_key)) from error
        except _Refused as error:
            raise ConfigError(_line(f"{name}: {error}", api_key)) from error
        finally:
            await upstream.aclose()
    if scope.cancelled_caught:
        raise ConfigError(f"{name}: the answer was not complete within {seconds:g} s; {len(body)} bytes had come")
    return RecordedStream(f"{name} {model}", bytes(body), asked, model)


class _Refused(Exception):  # noqa: N818 - never seen outside of this module
    """The answer is none that can be looked at."""


async def _receive(upstream: HttpUpstream, request: UpstreamRequest, body: bytearray) -> None:
    response = await upstream.open(request)
    try:
        await _read(response, body)
    finally:
        await response.aclose()
    media_type = dict(response.headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if response.status != _OK:
        raise _Refused(f"answered with status {response.status}: {_reason(bytes(body))}")
    if media_type != b"text/event-stream":
        shown = media_type.decode("latin-1") or "no content type"
        raise _Refused(f"answered with {shown}; it must be text/event-stream")


async def _read(response: UpstreamResponse, body: bytearray) -> None:
    while piece := await response.receive():
        body += piece
        if len(body) > MAX_BYTES:
            raise _Refused(f"answered with more than {MAX_BYTES} bytes")


def _reason(body: bytes) -> str:
    """The message of an error's body, or its beginning."""
    try:
        payload = parse_json(body)
    except ValueError:
        payload = None
    error = error_of(payload) if isinstance(payload, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else body[:200].decode(errors="replace") or "no body"


def _line(text: str, api_key: str | None) -> str:
    """One line without the key, and without what would steer a terminal."""
    text = text.replace(api_key, "***") if api_key else text
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
