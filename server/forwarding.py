"""Which headers go through a gateway, and how a request is sent on (RFC 9110, section 7.6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.hop_headers import end_to_end
from server.upstreams.base import Headers

__all__ = ["forwarded_request_headers", "forwarded_response_headers"]

# The upstream client writes these itself, or they are for this gateway only.
_NOT_SENT_ON: Final = frozenset({b"host", b"content-length", b"accept-encoding", b"expect", b"x-request-id"})
# Hypercorn writes the date; the request id is ours.
_NOT_SENT_BACK: Final = frozenset({b"date", b"server", b"x-request-id"})


def forwarded_request_headers(headers: Iterable[tuple[bytes, bytes]], request_id: str, api_key: str | None) -> Headers:
    """The client's headers as the upstream is to see them.

    Args:
        headers: the client's, names in lower case.
        request_id: sent as ``x-request-id``.
        api_key: replaces the client's ``authorization`` where there is one.
    """
    going_on = end_to_end(headers, _NOT_SENT_ON)
    sent = [(name, value) for name, value in going_on if not name.startswith(b"callahead-")]
    if api_key is not None:
        sent = [(name, value) for name, value in sent if name != b"authorization"]
        sent.append((b"authorization", b"Bearer " + api_key.encode()))
    sent.append((b"x-request-id", request_id.encode()))
    return sent


def forwarded_response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The upstream's headers as the client is to see them."""
    return end_to_end(headers, _NOT_SENT_BACK)
