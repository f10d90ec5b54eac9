"""Requests as bytes: the head, the chunks (RFC 9112)."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from server.errors import ClientError

if TYPE_CHECKING:
    from server.upstreams.base import UpstreamRequest
    from server.upstreams.origin import Origin

__all__ = ["LAST_CHUNK", "encode_chunk", "encode_head"]

LAST_CHUNK: Final = b"0\r\n\r\n"
"""What ends a body in chunked coding."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN: Final = re.compile(rb"[\r\n\0]")
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})


def encode_head(request: UpstreamRequest, origin: Origin) -> bytes:
    """The request line and the header lines, with the blank line.

    ``identity`` is what it asks of content codings: a coding saves nothing next to a model and can only delay a
    stream. What no target may hold is sent percent-encoded.

    Raises:
        ClientError: the method or a header cannot be sent, because it would be read as something else.
    """
    method = request.method.encode("latin-1", "replace")
    if not _TOKEN.fullmatch(method):
        raise _refused(f"the method {request.method!r} is no HTTP token")
    target = quote(origin.prefix + request.target, safe=string.punctuation)
    lines = [
        b"%b %b HTTP/1.1" % (method, target.encode("ascii")),
        b"host: " + origin.authority.encode("ascii"),
        b"accept-encoding: identity",
    ]
    has_authorization = False
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            raise _refused(f"the header name {name!r} is no HTTP token")
        if _FORBIDDEN.search(value):
            raise _refused(f"the header {name.decode('ascii')} contains a line break or NUL")
        has_authorization = has_authorization or name == b"authorization"
        lines.append(b"%b: %b" % (name, value))
    if origin.credentials is not None and not has_authorization:
        lines.append(b"authorization: " + origin.credentials)
    if not isinstance(request.body, bytes):
        lines.append(b"transfer-encoding: chunked")
    elif request.body or request.method not in _WITHOUT_BODY:
        lines.append(b"content-length: %d" % len(request.body))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a body in chunked coding; ``data`` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _refused(message: str) -> ClientError:
    return ClientError(400, "invalid_header", f"the request cannot be sent on: {message}")
