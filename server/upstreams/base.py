"""What every upstream is to the rest of the server."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import attrs

__all__ = ["BodySource", "Headers", "Upstream", "UpstreamRequest", "UpstreamResponse"]

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Name and value of each header line, names in lower case, order and repetitions kept."""


class BodySource(Protocol):
    """A request body that is still arriving."""

    async def receive(self) -> bytes:
        """The next bytes, or ``b""`` at the end. Checkpoints; raises ``ClientError`` where the client broke off."""
        ...


@attrs.frozen(eq=False)
class UpstreamRequest:
    """One request as it is to go upstream."""

    method: str
    target: str
    """The path below the upstream's base URL, with its query: ``/chat/completions``, ``/files?limit=3``."""
    headers: Headers
    """End-to-end headers only. ``host``, ``content-length``, ``transfer-encoding`` and ``accept-encoding`` are the
    upstream's business and are not in it. It asks for no content coding (``identity``), since a coding can only delay a
    stream, and undoes what comes all the same."""
    body: bytes | BodySource = b""
    """Whole, or read piece by piece and sent with chunked coding."""
    model: str | None = None
    """The model's name, where the body has one; the replay upstream chooses by it."""


class UpstreamResponse(Protocol):
    """A response whose status and headers have arrived."""

    status: int
    headers: Headers
    """End-to-end headers; without ``content-length`` and ``content-encoding`` where a coding was undone."""

    async def receive(self) -> bytes:
        """What one read gave of the body, content coding undone; ``b""`` at its clean end, and ever after.

        Checkpoints. Cancellation loses no byte that a later call would need only if the response is then closed.

        Raises:
            UpstreamError: the connection broke, or the bytes make no sense. Never a bare ``OSError``.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the connection at once; idempotent, safe in a cancelled scope, never blocks for long.

        A connection whose response was read to its end goes back to the pool; any other is closed, so that the
        server notices.
        """
        ...


class Upstream(Protocol):
    """Where completions come from. Made before the server starts, used by many requests at once."""

    name: str
    """For logs and ``/health``: the base URL without credentials, or what is replayed."""

    async def open(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request and wait for status and headers.

        Checkpoints. On cancellation the connection is closed and its place in the pool is free again.

        Raises:
            UpstreamError: no connection within ``connect_timeout``, TLS failure, reset, or no HTTP.
        """
        ...

    async def probe(self) -> str | None:
        """Whether the upstream can be reached: none if so, else the reason in one line. Checkpoints, bounded."""
        ...

    async def aclose(self) -> None:
        """Close idle connections. Safe in a cancelled scope."""
        ...
