"""One request between Hypercorn and Quart-Trio, without their sharp edges (traps, H1, H10, H15)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, cast

import h11
import trio
from quart_trio.asgi import TrioASGIHTTPConnection

from pipeline.chunks import encode_json
from server.errors import ClientError
from server.exchange import Exchange
from server.request_body import RequestBody

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, WebsocketScope
    from quart.wrappers import Request

    from server.app import Gateway

__all__ = ["EXCHANGE", "GatewayConnection", "RefusedWebsocket"]

EXCHANGE: Final = "callahead.exchange"
"""The key of the request's ``Exchange`` in its ASGI scope."""

_LAST_SEND: Final = 5.0
"""Seconds that the last message of a response may take although the request is being cancelled."""
_LINGER: Final = 2.0
"""Seconds that a client which is told that its body is too large may go on sending, so that it reads the answer
instead of a reset (RFC 9112, section 9.6)."""


class GatewayConnection(TrioASGIHTTPConnection):
    """Serves one request: an ``Exchange`` around it, its body with backpressure, its last message unharmed."""

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

        async def send_unharmed(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.start":
                exchange.status = event["status"]
                if exchange.response_headers is not None:
                    event = {**event, "headers": exchange.response_headers}
            elif event["type"] == "http.response.body" and not event.get("more_body", False):
                if body.abandoned:
                    with trio.move_on_after(_LINGER):
                        await body.ended.wait()
                # Hypercorn answers this message with http.disconnect, on which Quart-Trio cancels this very task
                # while it is inside Hypercorn's code that recycles or closes the connection (H1).
                with trio.move_on_after(_LAST_SEND, shield=True):
                    await send(event)
                return
            await send(event)

        try:
            await super().__call__(receive, send_unharmed)
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


class RefusedWebsocket:
    """Answers every WebSocket with 404: there is none here, and Quart's own way to say so raises (h11 forbids it)."""

    def __init__(self, app: Gateway, scope: WebsocketScope) -> None:
        self.app = app
        self.scope = scope

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Refuse it once its opening is whole. Checkpoints."""
        await receive()
        body = encode_json(ClientError(404, "not_found", "there is no WebSocket here").body())
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        with contextlib.suppress(h11.LocalProtocolError):  # the client has broken the protocol, and hears nothing
            await send({"type": "websocket.http.response.start", "status": 404, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


def _target(scope: dict[str, Any]) -> str:
    """Path and query as they were sent, not decoded; without scheme and host where a client sent them too."""
    target: str = scope["raw_path"].decode("latin-1")
    if not target.startswith("/"):
        target = "/" + target.partition("://")[2].partition("/")[2]
    query = scope["query_string"].decode("latin-1")
    return f"{target}?{query}" if query else target
