"""Which headers go through a gateway, and how a request is sent on (RFC 9110, section 7.6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.upstreams.base import Headers

__all__ = ["forwarded_request_headers", "forwarded_response_headers"]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
# The upstream client writes these itself, or they are for this gateway only.
_NOT_SENT_ON: Final = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"accept-encoding",
    b"expect",
    b"x-request-id",
}
# Hypercorn writes the date; the request id is ours.
_NOT_SENT_BACK: Final = _HOP_BY_HOP | {b"date", b"server", b"x-request-id"}


def forwarded_request_headers(headers: Iterable[tuple[bytes, bytes]], request_id: str, api_key: str | None) -> Headers:
    """The client's headers as the upstream is to see them.

    Args:
        headers: the client's, names in lower case.
        request_id: sent as ``x-request-id``.
        api_key: replaces the client's ``authorization`` where there is one.
    """
    lines = list(headers)
    named = _named_by_connection(lines)
    sent = [
        (name, value)
        for name, value in lines
        if name not in _NOT_SENT_ON and name not in named and not name.startswith(b"callahead-")
    ]
    if api_key is not None:
        sent = [(name, value) for name, value in sent if name != b"authorization"]
        sent.append((b"authorization", b"Bearer " + api_key.encode()))
    sent.append((b"x-request-id", request_id.encode()))
    return sent


def forwarded_response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The upstream's headers as the client is to see them."""
    lines = list(headers)
    named = _named_by_connection(lines)
    return [(name, value) for name, value in lines if name not in _NOT_SENT_BACK and name not in named]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    return frozenset(
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
        if token.strip()
    )
