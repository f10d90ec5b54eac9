"""The errors of httpx2 as the server knows them. Imported only where the package is."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import httpx2

from pipeline.errors import StreamFailure
from server.errors import ClientError, UpstreamError, UpstreamErrorKind

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["failure_of"]

_HUNG_UP: Final = ("disconnected", "closed connection", "StreamReset", "ConnectionTerminated")
"""How httpx2 words it that the server hung up; the error's class is the same as for what is not HTTP."""


def failure_of(error: Exception, upstream: str) -> StreamFailure:
    """What an error means.

    Args:
        error: anything that came out of httpx2, which lets h2's own errors pass, and those of a request's body.
        upstream: its name.
    """
    message = str(error) or type(error).__name__
    kind = UpstreamErrorKind.PROTOCOL
    match error:
        case StreamFailure():
            return error
        case httpx2.LocalProtocolError():
            return ClientError(400, "invalid_header", f"the request cannot be sent on: {message}")
        case httpx2.ConnectTimeout():
            kind, what = UpstreamErrorKind.CONNECT_TIMEOUT, f"no connection to {upstream} in time"
        case httpx2.ConnectError():
            kind, what = UpstreamErrorKind.CONNECT, f"no connection to {upstream}: {message}"
            for cause in _causes(error):
                if isinstance(cause, ssl.SSLError):
                    reason = getattr(cause, "verify_message", "") or cause.reason or str(cause)
                    kind, what = UpstreamErrorKind.TLS, f"no TLS connection to {upstream}: {reason}"
        case httpx2.ProxyError():
            kind, what = UpstreamErrorKind.CONNECT, f"no connection to {upstream}: the proxy says {message}"
        case httpx2.NetworkError():
            kind, what = UpstreamErrorKind.RESET, f"the connection to {upstream} broke: {message}"
        case httpx2.RemoteProtocolError() if any(words in message for words in _HUNG_UP):
            kind, what = UpstreamErrorKind.RESET, f"{upstream} hung up: {message}"
        case _:
            what = f"what {upstream} sent is not understood: {message}"
    return UpstreamError(kind, what)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it; httpx2 cuts ``__cause__`` off in places, ``__context__`` stays."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
