"""Response bodies for Quart: each owns what it streams from, entered and left in the task that sends it.

Quart enters and leaves a body in the sending task, so a nursery inside keeps structured concurrency, and a client
that leaves arrives here as ``Cancelled`` (traps, "The response body that works").
"""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self

import trio
from quart.wrappers.response import ResponseBody

from pipeline.errors import StreamFailure
from server.deadlines import Deadlines, read_within
from server.demand import Demand
from server.exchange import Exchange
from server.logs import BodyBroken
from server.upstreams.base import UpstreamResponse

__all__ = ["PipelineBody", "ProxyBody"]

_KEEPALIVE: Final = b": keepalive\n\n"


class PipelineBody(ResponseBody):
    """The bytes of one request's pipeline; one burst is one ASGI message.

    Args:
        pipeline: of ``open_pipeline``; entered and left with the body.
        demand: told when a burst is taken, and when more is wanted.
        keepalive_interval: seconds of silence after which a comment frame is sent; 0 = never.
    """

    def __init__(
        self,
        pipeline: AbstractAsyncContextManager[trio.MemoryReceiveChannel[list[Any]]],
        demand: Demand,
        keepalive_interval: float,
    ) -> None:
        self._pipeline = pipeline
        self._bursts: trio.MemoryReceiveChannel[list[bytes]] | None = None
        self._demand = demand
        self._keepalive_interval = keepalive_interval

    async def __aenter__(self) -> Self:
        """Start the request's tasks."""
        self._bursts = await self._pipeline.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End them, whatever they are doing."""
        await self._pipeline.__aexit__(exc_type, exc_value, tb)  # noqa: ASYNC102 - the nursery's end, which is bounded

    def __aiter__(self) -> Self:
        """Iterate once."""
        return self

    async def __anext__(self) -> bytes:
        """The next message: whole frames only. Waits for the next burst."""
        bursts = self._bursts
        assert bursts is not None
        self._demand.wants_more()
        try:
            if self._keepalive_interval:
                with trio.move_on_after(self._keepalive_interval) as scope:
                    burst = await bursts.receive()
                if scope.cancelled_caught:
                    self._demand.busy()
                    return _KEEPALIVE
            else:
                burst = await bursts.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        self._demand.taken()
        return b"".join(burst)


class ProxyBody(ResponseBody):
    """An upstream's body, unchanged. If it breaks, so does the client's: half an answer must not look whole."""

    def __init__(self, response: UpstreamResponse, exchange: Exchange, deadlines: Deadlines) -> None:
        self._response = response
        self._exchange = exchange
        self._deadlines = deadlines
        announced = dict(response.headers).get(b"content-length", b"")
        self._left: float = int(announced[:18]) if announced.isdigit() else math.inf

    async def __aenter__(self) -> Self:
        """Nothing to start."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Let go of the upstream."""
        await self._response.aclose()

    def __aiter__(self) -> Self:
        """Iterate once."""
        return self

    async def __anext__(self) -> bytes:
        """The next piece. Waits for the upstream."""
        try:
            data = await read_within(self._response, self._deadlines)
        except StreamFailure as failure:
            self._exchange.fail(failure)
            raise BodyBroken from failure
        self._left -= len(data)
        if (not data or self._left <= 0) and self._exchange.outcome is None:
            self._exchange.outcome = "ok"  # a client may leave as soon as it has all that was announced
        if not data:
            raise StopAsyncIteration
        return data
