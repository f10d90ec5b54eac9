"""The errors of the server: whose fault, which HTTP status, and OpenAI's error object."""

from __future__ import annotations

import enum
from typing import Final

from pipeline.errors import CallaheadError, StreamFailure

__all__ = [
    "ClientError",
    "ConfigError",
    "InternalError",
    "ShuttingDown",
    "TooManyStreams",
    "UpstreamError",
    "UpstreamErrorKind",
]


class ConfigError(CallaheadError):
    """A configuration that cannot be used: file, key, what was found, what is allowed. One line."""


class ClientError(StreamFailure):
    """The client's request cannot be served; answered before any stream begins."""

    type = "invalid_request_error"
    logged = "the client's request cannot be served"

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class InternalError(StreamFailure):
    """A bug of the gateway: one request's 500, with the traceback in the log."""

    status = 500
    type = "internal_server_error"
    code = "internal_error"

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the gateway failed: {type(error).__name__}")


class TooManyStreams(StreamFailure):
    """The process serves as many completions as it may."""

    status = 503
    type = "service_unavailable"
    code = "too_many_streams"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the gateway is serving server.max_streams = {limit} completions; try again")


class ShuttingDown(StreamFailure):
    """The gateway is shutting down and the drain time is over."""

    status = 503
    type = "service_unavailable"
    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("the gateway is shutting down, and the stream did not end within server.drain_timeout")


class UpstreamErrorKind(enum.Enum):
    """What went wrong with an upstream; the same word in error codes, logs and metrics."""

    CONNECT = "upstream_connect"
    """No connection: refused, unreachable, name not found."""
    TLS = "upstream_tls"
    """The TLS handshake failed: certificate, host name, protocol."""
    CONNECT_TIMEOUT = "upstream_connect_timeout"
    FIRST_CHUNK_TIMEOUT = "upstream_first_chunk_timeout"
    IDLE_TIMEOUT = "upstream_idle_timeout"
    TOTAL_TIMEOUT = "upstream_total_timeout"
    RESET = "upstream_reset"
    """The connection broke before the response was whole."""
    PROTOCOL = "upstream_protocol"
    """What came is not HTTP, or its content coding is unknown or broken."""
    NOT_A_STREAM = "upstream_not_a_stream"
    """A streaming request was answered with something that is neither a stream nor a completion."""


_TIMEOUTS: Final = frozenset(
    {
        UpstreamErrorKind.CONNECT_TIMEOUT,
        UpstreamErrorKind.FIRST_CHUNK_TIMEOUT,
        UpstreamErrorKind.IDLE_TIMEOUT,
        UpstreamErrorKind.TOTAL_TIMEOUT,
    }
)


class UpstreamError(StreamFailure):
    """The upstream failed: 504 for a timeout, else 502; in a stream that has begun, the error frame."""

    def __init__(self, kind: UpstreamErrorKind, message: str, *, logged: str | None = None) -> None:
        super().__init__(message)
        self.logged = logged
        self.kind = kind
        self.code = kind.value
        timeout = kind in _TIMEOUTS
        self.status = 504 if timeout else 502
        self.type = "timeout_error" if timeout else "upstream_error"
