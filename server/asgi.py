"""One request between Hypercorn and Quart-Trio, without their sharp edges (traps, H10, H15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import trio
from quart_trio.asgi import TrioASGIHTTPConnection

from server.exchange import Exchange
from server.request_body import RequestBody

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
    from quart.wrappers import Request

    from server.app import Gateway

__all__ = ["EXCHANGE", "GatewayConnection"]

EXCHANGE: Final = "callahead.exchange"
"""The key of the request's ``Exchange`` in its ASGI scope."""

_LINGER: Final = 2.0
"""Seconds that a client which is told that its body is too large may go on sending, so that it reads the answer
instead of a reset (RFC 9112, section 9.6)."""


class GatewayConnection(TrioASGIHTTPConnection):
    """Serves one request: an ``Exchange`` around it, its body with backpressure, its client's leaving its end."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Run the request to its end; whatever was registered with its exchange is closed then."""
        scope = cast("dict[str, Any]", self.scope)
        app = cast("Gateway", self.app)
        headers = dict(scope["headers"])
        body = RequestBody()
        exchange = Exchange(
            app.metrics,
            scope["method"],
            _target(scope),
            headers.get(b"x-request-id", b"").decode("latin-1"),
            body,
        )
        scope[EXCHANGE] = exchange

        async def send_on(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.start":
                exchange.status = event["status"]
                if exchange.response_headers is not None:
                    event = {**event, "headers": exchange.response_headers}
            elif event["type"] == "http.response.body" and not event.get("more_body", False) and body.abandoned:
                with trio.move_on_after(_LINGER):
                    await body.ended.wait()
            await send(event)

        try:
            await super().__call__(receive, send_on)
        finally:
            await exchange.aclose()  # each closer is bounded and shields itself

    async def handle_messages(  # type: ignore[override]  # as in the parent
        self,
        nursery: trio.Nursery,
        request: Request,  # noqa: ARG002 - the parent's signature
        receive: ASGIReceiveCallable,
    ) -> None:
        """Hand the body over piece by piece; cancel the request when the client leaves."""
        exchange: Exchange = cast("dict[str, Any]", self.scope)[EXCHANGE]
        while True:
            message = await receive()
            if message["type"] == "http.request":
                await exchange.body.put(message.get("body", b""), more=message.get("more_body", False))
            elif message["type"] == "http.disconnect":
                exchange.client_left = True
                nursery.cancel_scope.cancel()
                return


def _target(scope: dict[str, Any]) -> str:
    """Path and query as they were sent, not decoded; without scheme and host where a client sent them too."""
    target: str = scope["raw_path"].decode("latin-1")
    if not target.startswith("/"):
        target = "/" + target.partition("://")[2].partition("/")[2]
    query = scope["query_string"].decode("latin-1")
    return f"{target}?{query}" if query else target
