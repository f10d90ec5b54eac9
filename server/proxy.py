"""Every other endpoint under ``/v1``: sent on unchanged, both ways, streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quart import Response
from quart.wrappers.response import ResponseBody
from quart_trio.wrappers import TrioResponse

from server.deadlines import Deadlines
from server.exchange import Exchange
from server.forwarding import forwarded_request_headers, forwarded_response_headers
from server.response_body import ProxyBody
from server.upstreams.base import BodySource, Headers, UpstreamRequest, UpstreamResponse

if TYPE_CHECKING:
    from server.app import Gateway

__all__ = ["proxied_response", "response_with", "serve_proxied"]

_SMALL_BODY: Final = 1024 * 1024
"""A body that declares no more than this is read first: it can be sent again on a fresh connection, and keeps its
``content-length``."""


async def serve_proxied(gateway: Gateway, exchange: Exchange, headers: Headers, method: str) -> Response:
    """Send a request on as it is, and its answer back.

    Checkpoints. Cancellation closes the upstream's connection, by way of the exchange.

    Raises:
        UpstreamError: the upstream failed before its answer began.
    """
    given = dict(headers)
    length = given.get(b"content-length", b"0")
    body: bytes | BodySource
    if b"transfer-encoding" in given or not length.isdigit() or int(length) > _SMALL_BODY:
        body = exchange.body
    else:
        body = await exchange.body.read_all(_SMALL_BODY, gateway.settings.server.body_timeout)
    request = UpstreamRequest(
        method=method,
        target=exchange.target,
        headers=forwarded_request_headers(headers, exchange.request_id, gateway.api_key),
        body=body,
    )
    response = await gateway.upstream.open(request)
    exchange.on_close(response.aclose)
    return proxied_response(response, exchange, Deadlines())


def proxied_response(response: UpstreamResponse, exchange: Exchange, deadlines: Deadlines) -> Response:
    """The upstream's response as it is."""
    exchange.body.abandon()
    if response.status >= 400:  # noqa: PLR2004 - HTTP's first error status
        exchange.outcome = "upstream_status"
    return response_with(ProxyBody(response, exchange, deadlines), response.status, response.headers, exchange)


def response_with(body: ResponseBody, status: int, headers: Headers, exchange: Exchange) -> Response:
    """A response that Quart sends without adding to it or cutting it off (traps, H7).

    Its headers go round Quart, which would encode them anew: values are bytes, and not always ASCII.
    """
    response = TrioResponse(body, status=status)
    response.timeout = None
    response.headers.clear()
    exchange.response_headers = [
        *forwarded_response_headers(headers),
        (b"x-request-id", exchange.request_id.encode()),
    ]
    return response
