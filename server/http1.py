"""HTTP/1.1 with clients, and nothing else (traps, H1).

Hypercorn would speak HTTP/2 and WebSocket as well. Nobody talks to an inference server in HTTP/2 without TLS, and there
it never lets an unused connection idle out; and it raises where a peer breaks the opening of a WebSocket.
"""

from __future__ import annotations

from typing import Final

import h11
import trio
from hypercorn.events import Closed, Event
from hypercorn.protocol.h11 import H11Protocol

from pipeline.chunks import encode_json
from server.errors import ClientError

__all__ = ["OnlyHttp1"]

_RECYCLE: Final = 5.0
"""Seconds that a connection may take to be made ready for its next request, or closed, behind a response."""


class OnlyHttp1(H11Protocol):
    """Hypercorn's, which answers whatever proposes another itself."""

    async def handle(self, event: Event) -> None:
        """Take what came from the client. Checkpoints."""
        try:
            await super().handle(event)
        except _Refused as refused:
            await self._answer(refused.error, has_body=refused.request.method != b"HEAD")
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        """Refuse what is not HTTP/1.1; an upgrade to anything but a WebSocket is ignored (RFC 9110, section 7.8)."""
        await trio.lowlevel.checkpoint()
        version = event.http_version.decode("ascii")
        if not version.startswith("1."):
            message = f"the request is in HTTP/{version}; this server speaks HTTP/1.1"
            raise _Refused(event, ClientError(505, "http_version_not_supported", message))
        upgrades = [value.strip().lower() for name, value in event.headers if name == b"upgrade"]
        if upgrades[-1:] == [b"websocket"] and event.method.upper() == b"GET":  # as Hypercorn has it
            raise _Refused(event, ClientError(404, "not_found", "there is no WebSocket here"))
        if upgrades:
            # h11 would wait for our answer to it, and read nothing until the response has ended: not the client's
            # leaving either. Java's own client asks for h2c unless told otherwise.
            self.connection._cstate.pending_switch_proposals.clear()  # type: ignore[union-attr]  # noqa: SLF001

    async def _send_error_response(self, status_code: int) -> None:
        """Answer what is no HTTP."""
        await self._answer(ClientError(status_code, "invalid_http", "the request is no valid HTTP/1.1"))

    async def _answer(self, error: ClientError, *, has_body: bool = True) -> None:
        body = encode_json(error.body())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=error.status, headers=headers))
        if has_body:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    async def _maybe_recycle(self) -> None:
        """Be ready for the next request, or close.

        It begins with a ``http.disconnect`` for the request that is over, on which Quart-Trio cancels the very task
        that is in here (H1).
        """
        with trio.move_on_after(_RECYCLE, shield=True):
            await super()._maybe_recycle()


class _Refused(Exception):  # noqa: N818 - it is the client's error
    def __init__(self, request: h11.Request, error: ClientError) -> None:
        super().__init__()
        self.request = request
        self.error = error
