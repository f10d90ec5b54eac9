"""Headers that concern one connection only, and those that go on behind it (RFC 9110, section 7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.upstreams.base import Headers

__all__ = ["end_to_end"]

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"http2-settings",
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


def end_to_end(headers: Iterable[tuple[bytes, bytes]], also_without: Iterable[bytes] = ()) -> Headers:
    """The headers that go on, in their order.

    Args:
        headers: names in lower case.
        also_without: more names that are left out.
    """
    lines = list(headers)
    dropped = {*_HOP_BY_HOP, *also_without}
    for name, value in lines:
        if name == b"connection":
            dropped.update(token.strip().lower() for token in value.split(b","))
    return [(name, value) for name, value in lines if name not in dropped]
