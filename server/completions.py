"""``POST /v1/chat/completions``: from a request body to a response that streams through the stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from quart import Response

from pipeline.chunks import choices_of, encode_json, error_of, parse_json
from pipeline.stage import EventStyle, RequestContext
from server.errors import ClientError, UpstreamError, UpstreamErrorKind
from server.exchange import Exchange
from server.forwarding import forwarded_request_headers
from server.proxy import proxied_response, response_with
from server.response_body import PipelineBody
from server.side_events import EVENTS_HEADER, STYLE_HEADER, EventsInForce, decide_events
from server.source import Deadlines, UpstreamSource, read_within
from server.upstreams.base import Headers, UpstreamRequest, UpstreamResponse
from server.whole_completion import CannedResponse, stream_of_completion

if TYPE_CHECKING:
    from server.app import Gateway

__all__ = ["serve_completion"]

_EVENT_STREAM: Final = b"text/event-stream"
_SSE_STARTS: Final = (b"data", b"event", b"id", b"retry", b":", b"\xef\xbb\xbf")
_BODY_SHOWN: Final = 500


async def serve_completion(gateway: Gateway, exchange: Exchange, headers: Headers) -> Response:
    """Answer one request for a completion.

    Checkpoints. Cancellation closes the upstream's connection, by way of the exchange.

    Raises:
        ClientError: the request cannot be served.
        UpstreamError: the upstream failed before its answer began.
    """
    config = gateway.settings
    length = dict(headers).get(b"content-length", b"")
    body = await exchange.body.read_all(config.server.max_body_bytes, config.server.body_timeout, length)
    request = read_request(body)
    model = request.get("model")
    exchange.model = model if isinstance(model, str) else None
    streaming = request.get("stream") is True
    events = EventsInForce(frozenset(), EventStyle.NAMED)
    if streaming:
        events = decide_events(
            _joined(headers, EVENTS_HEADER),
            _joined(headers, STYLE_HEADER),
            gateway.event_policies,
            gateway.plan.events,
            EventStyle(config.events.style),
        )
    upstream = config.upstream
    deadlines = Deadlines(
        first_chunk_timeout=upstream.first_chunk_timeout if streaming else 0,
        idle_timeout=upstream.idle_timeout if streaming else 0,
        total_timeout=upstream.total_timeout,
    )
    upstream_request = UpstreamRequest(
        method="POST",
        target=exchange.target,
        headers=forwarded_request_headers(headers, exchange.request_id, gateway.api_key),
        body=body,
        model=exchange.model,
    )
    response = await _within(deadlines, gateway.upstream.open, upstream_request)
    exchange.on_close(response.aclose)
    if not streaming or response.status != 200:  # noqa: PLR2004 - HTTP's OK
        return proxied_response(response, exchange, deadlines)
    response, first = await _as_event_stream(response, deadlines, config.server.max_body_bytes)
    context = RequestContext(
        request=request,
        events=events.names,
        event_style=events.style,
        request_id=exchange.request_id,
        observer=exchange,
    )
    source = UpstreamSource(response, first, exchange, deadlines, config.pipeline.max_frame_bytes)
    gateway.streams.add(source)

    async def forget() -> None:
        gateway.streams.discard(source)

    exchange.on_close(forget)
    pipeline = PipelineBody(source, gateway.plan.stages_for(context), config.server.keepalive_interval)
    answer = response_with(pipeline, 200, _stream_headers(response.headers), exchange)
    for name, value in events.response_headers():
        answer.headers[name] = value
    return answer


def read_request(body: bytes) -> dict[str, Any]:
    """The request object.

    Raises:
        ClientError: 400, naming the fault.
    """
    try:
        request = parse_json(body)
    except ValueError as error:
        raise ClientError(400, "invalid_json", f"the request body is not JSON: {error}") from error
    if not isinstance(request, dict):
        kind = {list: "array", str: "string", bool: "boolean", type(None): "null"}.get(type(request), "number")
        raise ClientError(400, "invalid_json", f"the request body is a JSON {kind}; it must be an object")
    if not isinstance(request.get("messages"), list):
        found = "has no" if "messages" not in request else "has a wrong type of"
        message = f'the request {found} "messages"; it must be an array'
        raise ClientError(400, "missing_messages", message, param="messages")
    return request


async def _within(deadlines: Deadlines, opening: Any, request: UpstreamRequest) -> UpstreamResponse:
    """Open the upstream within the limits on its first word."""
    deadline, kind = deadlines.next()
    with trio.CancelScope(deadline=deadline):
        response: UpstreamResponse = await opening(request)
        return response
    raise deadlines.expired(kind)


async def _as_event_stream(
    response: UpstreamResponse, deadlines: Deadlines, limit: int
) -> tuple[UpstreamResponse, bytes]:
    """The response as an event stream, and what was already read of it.

    What says that it is one is believed. Of anything else the first bytes decide: servers label streams
    ``text/plain``, errors and whole completions come as JSON with status 200.
    """
    content_type = dict(response.headers).get(b"content-type", b"").strip().lower()
    if content_type.startswith(_EVENT_STREAM):
        return response, b""
    first = b""
    while not first.strip():
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
    return CannedResponse(_stream_of(b"".join(whole), said)), b""


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


def _stream_headers(headers: Headers) -> Headers:
    """The upstream's headers without those that describe another body; what no cache and no proxy may spoil."""
    dropped = {
        b"content-length",
        b"content-encoding",
        b"content-type",
        b"cache-control",
        b"x-accel-buffering",
    }
    kept = [(name, value) for name, value in headers if name not in dropped]
    given = dict(headers)
    content_type = given.get(b"content-type", b"")
    if not content_type.lower().startswith(_EVENT_STREAM):
        content_type = b"text/event-stream; charset=utf-8"
    return [
        *kept,
        (b"content-type", content_type),
        (b"cache-control", given.get(b"cache-control", b"no-cache")),
        (b"x-accel-buffering", b"no"),
    ]


def _joined(headers: Headers, name: str) -> str:
    wanted = name.lower().encode()
    return ", ".join(value.decode("latin-1") for key, value in headers if key == wanted)


def _shown(body: bytes) -> str:
    return encode_json(body[:_BODY_SHOWN].decode(errors="replace")).decode() if body else "an empty body"
