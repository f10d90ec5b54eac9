"""``POST /v1/chat/completions``: from a request body to a response that streams through the stages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio
from quart import Response
from quart.wrappers.response import DataBody

from pipeline.assembly import open_pipeline
from pipeline.chunks import encode_json, parse_json
from pipeline.decode import ItemDecoder
from pipeline.plan import Plan
from pipeline.stage import EventStyle, RequestContext
from server.deadlines import Deadlines
from server.demand import Demand
from server.errors import ClientError, TooManyStreams
from server.event_stream import EVENT_STREAM, as_event_stream
from server.exchange import Exchange
from server.fold import as_streaming, fold, with_fields
from server.forwarding import forwarded_request_headers
from server.proxy import proxied_response, response_with
from server.response_body import PipelineBody
from server.side_events import EVENTS_HEADER, STYLE_HEADER, EventsInForce, decide_events
from server.source import UpstreamSource
from server.upstreams.base import Headers, UpstreamRequest, UpstreamResponse
from stages.aggregate import AggregateOptions
from stages.glued_events import splitter_for

if TYPE_CHECKING:
    from server.app import Gateway

__all__ = ["serve_completion"]

_NO_EVENTS: Final = EventsInForce(frozenset(), EventStyle.NAMED)


async def serve_completion(gateway: Gateway, exchange: Exchange, headers: Headers) -> Response:
    """Answer one request for a completion.

    Checkpoints. Cancellation closes the upstream's connection, by way of the exchange.

    Raises:
        ClientError: the request cannot be served.
        UpstreamError: the upstream failed before its answer began.
        StreamFailure: the stream that was to be folded failed.
    """
    config = gateway.settings
    if config.server.max_streams and gateway.completions >= config.server.max_streams:
        raise TooManyStreams(config.server.max_streams)
    gateway.completions += 1
    exchange.on_end(gateway.completion_ended)
    length = dict(headers).get(b"content-length", b"")
    body = await exchange.body.read_all(config.server.max_body_bytes, config.server.body_timeout, length)
    request = read_request(body)
    model = request.get("model")
    exchange.model = model if isinstance(model, str) else None
    captured = gateway.capture.wants(exchange.model, exchange.request_id)
    if captured:
        exchange.capture(gateway.capture, body, headers)
    plan = gateway.plans.for_model(exchange.model)
    streaming = request.get("stream") is True
    events = _decide_events(gateway, plan, headers) if streaming else _NO_EVENTS
    context = RequestContext(
        request=request,
        events=events.names,
        event_style=events.style,
        request_id=exchange.request_id,
        observer=exchange,
        capture=captured,
    )
    folding = not streaming and config.upstream.unary == "fold"
    limited = streaming or folding
    deadlines = Deadlines(
        first_chunk_timeout=config.upstream.first_chunk_timeout if limited else 0,
        idle_timeout=config.upstream.idle_timeout if limited else 0,
        total_timeout=config.upstream.total_timeout,
    )
    if limited:
        body = with_fields(body, plan.request_defaults(context))
    upstream_request = UpstreamRequest(
        method="POST",
        target=exchange.target,
        headers=forwarded_request_headers(headers, exchange.request_id, gateway.api_key),
        body=as_streaming(body) if folding else body,
        model=exchange.model,
    )
    response = await _within(deadlines, gateway.upstream.open, upstream_request)
    exchange.on_close(response.aclose)
    if not limited or response.status != 200:  # noqa: PLR2004 - HTTP's OK
        return proxied_response(response, exchange, deadlines)
    response, first = await as_event_stream(response, deadlines)
    max_frame_bytes = config.pipeline.max_frame_bytes
    decoder = ItemDecoder(max_frame_bytes, splitter_for(plan, exchange, max_frame_bytes))
    stages = plan.stages_for(context)
    demand = Demand(len(stages), gateway.burst_gate)
    source = UpstreamSource(response, first, exchange, deadlines, decoder, demand)
    gateway.streams.add(source)
    exchange.on_end(partial(gateway.streams.discard, source))
    if folding:
        completion = await fold(source, stages, AggregateOptions.of_request(request), demand)
        exchange.stream_ended()
        whole = encode_json(completion)
        headers_sent = [*_json_headers(response.headers), (b"content-length", b"%d" % len(whole))]
        return response_with(DataBody(whole), 200, headers_sent, exchange)
    pipeline = PipelineBody(
        open_pipeline(source, stages, join=config.pipeline.join), demand, config.server.keepalive_interval
    )
    told = [(name.lower().encode(), value.encode()) for name, value in events.response_headers()]
    return response_with(pipeline, 200, [*_stream_headers(response.headers), *told], exchange)


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
    deadline, kind = deadlines.next(trio.current_time())
    with trio.CancelScope(deadline=deadline):
        response: UpstreamResponse = await opening(request)
        return response
    raise deadlines.expired(kind)


def _decide_events(gateway: Gateway, plan: Plan, headers: Headers) -> EventsInForce:
    return decide_events(
        _joined(headers, EVENTS_HEADER),
        _joined(headers, STYLE_HEADER),
        gateway.event_policies,
        plan.events,
        gateway.settings.events.style,
    )


def _json_headers(headers: Headers) -> Headers:
    """The upstream's headers without those that describe a stream."""
    dropped = {b"content-length", b"content-encoding", b"content-type", b"cache-control", b"x-accel-buffering"}
    return [*((name, value) for name, value in headers if name not in dropped), (b"content-type", b"application/json")]


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
    content_type = given.get(b"content-type", b"").strip()
    if content_type[: len(EVENT_STREAM)].lower() != EVENT_STREAM:
        content_type = b"text/event-stream; charset=utf-8"
    elif not content_type.startswith(EVENT_STREAM):
        content_type = EVENT_STREAM + content_type[len(EVENT_STREAM) :]
    return [
        *kept,
        (b"content-type", content_type),
        (b"cache-control", given.get(b"cache-control", b"no-cache")),
        (b"x-accel-buffering", b"no"),
    ]


def _joined(headers: Headers, name: str) -> str:
    wanted = name.lower().encode()
    return ", ".join(value.decode("latin-1") for key, value in headers if key == wanted)
