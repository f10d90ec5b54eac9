"""What remains of a response's headers behind a hop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.upstreams.base import Headers

__all__ = ["end_to_end"]

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
    }
)
"""RFC 9110, section 7.6.1."""


def end_to_end(headers: Headers, *, is_undone: bool) -> Headers:
    """The headers that concern more than one connection, in their order.

    Args:
        headers: names in lower case.
        is_undone: a content coding was undone: what tells of it is left out.
    """
    dropped = set(_HOP_BY_HOP)
    for name, value in headers:
        if name == b"connection":
            dropped.update(token.strip().lower() for token in value.split(b","))
    if is_undone:
        dropped |= {b"content-encoding", b"content-length"}
    return [(name, value) for name, value in headers if name not in dropped]
