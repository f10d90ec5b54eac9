"""The Quart-Trio app: routes, and errors as JSON whatever happens (traps, H10, H16)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import structlog
import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from pipeline.chunks import encode_json
from pipeline.errors import StreamFailure
from server.asgi import EXCHANGE, GatewayConnection
from server.burst_gate import new_burst_gate
from server.capture.capture import Capture
from server.capture.registry import SinkRegistry
from server.completions import serve_completion
from server.errors import ClientError, InternalError, TooManyStreams
from server.exchange import Exchange
from server.metrics import METRICS_CONTENT_TYPE, Metrics
from server.model_plans import ModelPlans
from server.proxy import serve_proxied
from server.source import UpstreamSource
from server.upstreams.base import Headers, Upstream

if TYPE_CHECKING:
    from server.config import Config

__all__ = ["Gateway"]

_log = structlog.get_logger("callahead")
_COMPLETIONS: Final = "/v1/chat/completions"
_METHODS: Final = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]


class Gateway(QuartTrio):
    """The app of one process.

    Args:
        config: the checked configuration.
        plans: its stages, for each model.
        upstream: where completions come from.
        metrics: where everything is counted.
    """

    asgi_http_class = GatewayConnection

    def __init__(self, config: Config, plans: ModelPlans, upstream: Upstream, metrics: Metrics | None = None) -> None:
        super().__init__("callahead", static_folder=None)
        self.settings = config
        self.plans = plans
        self.upstream = upstream
        self.metrics = metrics if metrics is not None else Metrics()
        plan_of_capture = config.plan_capture(SinkRegistry())
        self.capture = Capture(plan_of_capture, self.metrics.registry, upstream.name)
        self.draining = False
        self.streams: set[UpstreamSource] = set()
        self.completions = 0
        self.burst_gate = new_burst_gate()
        self.event_policies = {
            "tool_call_dispatch": config.events.tool_call_dispatch,
            "reasoning_dispatch": config.events.reasoning_dispatch,
        }
        self.api_key = config.upstream.api_key(os.environ)
        self.url_map.merge_slashes = False
        self.url_map.strict_slashes = False
        # Streams are bounded by our own limits, which tell the client what happened (H7).
        self.config["RESPONSE_TIMEOUT"] = None
        self.config["BODY_TIMEOUT"] = None
        self.config["MAX_CONTENT_LENGTH"] = None
        self._add_routes()

    def completion_ended(self) -> None:
        """One completion less is being served."""
        self.completions -= 1

    def stop_streams(self) -> None:
        """End every stream that is still open with an error frame; for the end of the drain time."""
        for source in list(self.streams):
            source.stop()

    def _add_routes(self) -> None:
        def route(path: str, endpoint: str, serve: Callable[..., Awaitable[Response]], methods: list[str]) -> None:
            async def view(**_: Any) -> Response:
                return await _answer(endpoint, serve)

            self.add_url_rule(path, f"{endpoint} {path}", view, methods=methods, provide_automatic_options=False)

        route(_COMPLETIONS, "chat_completions", self._completion, ["POST"])
        route("/v1/models", "models", self._proxied, ["GET", "HEAD", "OPTIONS"])
        route("/v1/<path:rest>", "proxy", self._proxied, _METHODS)
        route("/live", "live", self._live, ["GET"])
        route("/health", "health", self._health, ["GET"])
        route("/metrics", "metrics", self._metrics, ["GET"])
        self.register_error_handler(HTTPException, _http_error)
        self.register_error_handler(Exception, _unforeseen)

    async def _completion(self, exchange: Exchange, headers: Headers) -> Response:
        if exchange.path.rstrip("/") != _COMPLETIONS:  # an encoded slash: a path of the upstream's own
            return await serve_proxied(self, exchange, headers, request.method)
        return await serve_completion(self, exchange, headers)

    async def _proxied(self, exchange: Exchange, headers: Headers) -> Response:
        if exchange.path == _COMPLETIONS and request.method != "OPTIONS":
            raise MethodNotAllowed(["OPTIONS", "POST"])
        return await serve_proxied(self, exchange, headers, request.method)

    async def _live(self, exchange: Exchange, headers: Headers) -> Response:  # noqa: ARG002 - a view's signature
        await trio.lowlevel.checkpoint()
        exchange.outcome = "ok"
        return _json(200, {"status": "live"}, exchange)

    async def _health(self, exchange: Exchange, headers: Headers) -> Response:  # noqa: ARG002 - a view's signature
        await trio.lowlevel.checkpoint()
        exchange.outcome = "ok"
        if self.draining:
            return _json(503, {"status": "draining", "reason": "the gateway is shutting down"}, exchange)
        reason = await self.upstream.probe()
        if reason is not None:
            return _json(503, {"status": "unhealthy", "upstream": self.upstream.name, "reason": reason}, exchange)
        return _json(200, {"status": "healthy", "upstream": self.upstream.name}, exchange)

    async def _metrics(self, exchange: Exchange, headers: Headers) -> Response:  # noqa: ARG002 - a view's signature
        await trio.lowlevel.checkpoint()
        exchange.outcome = "ok"
        return Response(self.metrics.expose(), content_type=METRICS_CONTENT_TYPE)


async def _answer(endpoint: str, serve: Callable[..., Awaitable[Response]]) -> Response:
    """Run a view; make whatever it raises a JSON answer. No group ever reaches Quart, which would lose it (H10)."""
    scope: Any = request.scope
    exchange: Exchange = scope[EXCHANGE]
    exchange.enter(endpoint)
    if endpoint not in ("live", "health", "metrics") and not _is_below_base(exchange.path):
        raise NotFound
    await trio.lowlevel.checkpoint()
    try:
        return await serve(exchange, list(scope["headers"]))
    except StreamFailure as failure:
        return _failed(failure, exchange)
    except HTTPException:
        raise  # the router's own words
    except BaseExceptionGroup as group:
        cancelled, errors = group.split(trio.Cancelled)
        if errors is None:
            assert cancelled is not None
            raise cancelled from None
        return _internal(errors, exchange)
    except Exception as error:  # noqa: BLE001 - one request's bug is one request's 500
        return _internal(error, exchange)


def _is_below_base(path: str) -> bool:
    """Whether the path as it was sent leads below ``/v1``, which Quart sees decoded, and does not lead out again."""
    segments = unquote(path).split("/")
    return path.startswith("/v1/") and not {".", ".."} & set(segments)


def _failed(failure: StreamFailure, exchange: Exchange) -> Response:
    exchange.fail(failure)
    exchange.body.abandon()
    response = _json(failure.status, failure.body(), exchange)
    if isinstance(failure, TooManyStreams):
        response.headers["retry-after"] = "1"
    if not exchange.body.ended.is_set():
        response.headers["connection"] = "close"
    return response


def _internal(error: BaseException, exchange: Exchange) -> Response:
    _log.error("request failed", request_id=exchange.request_id, exc_info=error)
    return _failed(InternalError(error), exchange)


async def _http_error(error: HTTPException) -> Response:
    """404, 405 and what else the router refuses."""
    await trio.lowlevel.checkpoint()
    exchange: Exchange = request.scope[EXCHANGE]  # type: ignore[typeddict-item]
    exchange.body.abandon()
    status = error.code or 500
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "http_error")
    what = {
        404: f"there is no {request.path}; the API is under /v1",
        405: f"{request.path} does not take {request.method}",
    }.get(status, error.description or error.name)
    failure = ClientError(status, code, what)
    exchange.fail(failure)
    response = _json(status, failure.body(), exchange)
    if allowed := getattr(error, "valid_methods", None):
        response.headers["allow"] = ", ".join(sorted(allowed))
    return response


async def _unforeseen(error: Exception) -> Response:
    await trio.lowlevel.checkpoint()
    exchange: Exchange = request.scope[EXCHANGE]  # type: ignore[typeddict-item]
    return _internal(error, exchange)


def _json(status: int, value: Any, exchange: Exchange) -> Response:
    exchange.response_headers = None
    response = Response(encode_json(value), status=status, content_type="application/json")
    response.headers["x-request-id"] = exchange.request_id
    return response
