"""A response of httpx2 as an ``UpstreamResponse``. Imported only where the package is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import httpx2
import trio

from server.errors import UpstreamError, UpstreamErrorKind
from server.hop_headers import end_to_end
from server.upstreams.codings import content_decoder, undone_headers
from server.upstreams.httpx2_errors import failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from server.upstreams.httpx2_connection import Httpx2Connection
    from server.upstreams.pool import Place

__all__ = ["Httpx2Response"]

_CLOSE_TIMEOUT: Final = 2.0
"""Seconds. Nothing in it waits for the server; the limit is for what is not foreseen."""


class Httpx2Response:
    """An ``UpstreamResponse``, with the place in the pool of the connection that it comes on.

    Args:
        response: as the transport gave it.
        place: the connection's.
        upstream: its name, for errors.
    """

    def __init__(self, response: httpx2.Response, place: Place[Httpx2Connection], upstream: str) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        self.status = response.status_code
        self._decoder = content_decoder(headers)
        self.headers = end_to_end(headers, undone_headers(self._decoder))
        self._place = place
        self._upstream = upstream
        self._ended = False
        self._stream = response.stream
        # Not here while somebody reads, and never again once a read has failed or the response is closed.
        self._parts: AsyncIterator[bytes] | None = aiter(response.stream)

    async def receive(self) -> bytes:
        """See ``UpstreamResponse.receive``."""
        while True:
            await trio.lowlevel.checkpoint()  # httpx2 may have several parts of one read at hand
            if self._decoder is not None and (piece := self._decoder.pull()):
                return piece
            data = b"" if self._ended else await self._read()
            if self._decoder is None:
                return data
            if not data:
                self._decoder.finish()
                return b""
            self._decoder.push(data)

    async def aclose(self) -> None:
        """See ``UpstreamResponse.aclose``."""
        parts, self._parts = self._parts, None
        self._place.release()
        await trio.lowlevel.cancel_shielded_checkpoint()
        if parts is None:
            return
        # Reading on from a closed connection gives what was buffered, then an error that ends all generators. If
        # the outer one were closed instead, httpx2 would leave the one inside it to the garbage collector, and Trio
        # would warn of it.
        with trio.move_on_after(_CLOSE_TIMEOUT, shield=True), contextlib.suppress(Exception):
            while True:
                await anext(parts)

    async def _read(self) -> bytes:
        parts, self._parts = self._parts, None
        if parts is None:
            raise UpstreamError(UpstreamErrorKind.RESET, f"the response of {self._upstream} is closed")
        try:
            while not (part := await anext(parts)):
                pass  # an HTTP/2 frame without data is no end
        except StopAsyncIteration:
            await self._stream.aclose()
            self._place.release(keep=True)
            self._ended = True
            return b""
        except Exception as error:
            raise failure_of(error, self._upstream) from error
        self._parts = parts
        return part
