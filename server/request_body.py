"""A request's body as it arrives: bounded, counted, with backpressure (traps, H15)."""

from __future__ import annotations

import contextlib

import trio

from server.errors import ClientError

__all__ = ["RequestBody"]


class RequestBody:
    """Between the connection, which puts pieces in, and whoever reads them.

    It holds one piece. A reader that has seen enough calls ``abandon``: what still arrives is then thrown away, so
    that the connection goes on noticing whether the client is there.
    """

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[bytes](1)
        self.ended = trio.Event()
        self.abandoned = False

    async def put(self, data: bytes, *, more: bool) -> None:
        """Hand over what came. Waits while the reader is behind; that is how a client is slowed down."""
        await trio.lowlevel.checkpoint()
        if data:
            with contextlib.suppress(trio.BrokenResourceError):  # abandoned
                await self._send.send(data)
        if not more:
            self._send.close()
            self.ended.set()

    async def receive(self) -> bytes:
        """The next piece, ``b""`` at the end and once the body is abandoned. Checkpoints."""
        try:
            return await self._receive.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            return b""  # noqa: ASYNC910 - a receive that finds the end has been a checkpoint

    async def read_all(self, limit: int, body_timeout: float, declared: bytes = b"") -> bytes:
        """The whole body. Checkpoints.

        Args:
            limit: the most bytes that are accepted.
            body_timeout: seconds for the whole body to arrive; 0 = no limit.
            declared: the ``content-length`` header; one over the limit is refused without reading.

        Raises:
            ClientError: 413 over the limit, 408 over the time.
        """
        if declared.isdigit() and int(declared[:18]) > limit:
            raise self.too_large(limit)
        pieces: list[bytes] = []
        size = 0
        with trio.move_on_after(body_timeout or float("inf")) as scope:
            while piece := await self.receive():
                size += len(piece)
                if size > limit:
                    raise self.too_large(limit)
                pieces.append(piece)
        if scope.cancelled_caught:
            self.abandon()
            raise ClientError(
                408,
                "body_timeout",
                f"the request body did not arrive within server.body_timeout = {body_timeout:g} s",
            )
        return b"".join(pieces)

    def too_large(self, limit: int) -> ClientError:
        """Give up on a body over the limit."""
        self.abandon()
        return ClientError(413, "body_too_large", f"the request body is larger than server.max_body_bytes = {limit}")

    def abandon(self) -> None:
        """Throw away what has not been read."""
        self.abandoned = True
        self._receive.close()
