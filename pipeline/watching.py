"""A stage that only looks on: whoever stands in front of it sends past it, and then shows it what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import trio

from pipeline.items import Item
from pipeline.sending_end import Send, SendingEnd
from pipeline.stage import RequestContext, Stage

__all__ = ["WatchedEnd", "WatchingStage"]


class WatchingStage(Stage):
    """A stage that gives every item as it came, and delays none. Override ``watch``, ``end`` and ``leave``.

    In a pipeline it has no task, unless it stands behind a stage with a loop of its own; and it is never joined. An
    error in it is told to the observer and ends its watching; the stream goes on.
    """

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self.name = type(self).__name__
        """What the observer is told; a pipeline sets the stage's name there."""
        self._is_watching = True

    def watch(self, burst: list[Item]) -> None:
        """See a burst, which is not empty."""

    def end(self) -> None:
        """The source has ended. Not called where the request is cancelled or downstream is done."""

    def leave(self) -> None:
        """The request is over, whatever has ended it. Called by the pipeline, once, last of all."""

    # --- what the pipeline does with it ---------------------------------------

    def show(self, burst: list[Any]) -> None:
        """Have a burst watched."""
        if burst and self._is_watching:
            self._guard(self.watch, burst)

    def feed(self, item: Item) -> Iterable[Item]:
        """Pass an item on."""
        self.show([item])
        return (item,)

    def feed_burst(self, burst: list[Any], out: list[Any]) -> None:
        """Pass a burst on."""
        out += burst
        self.show(burst)

    def close(self) -> Iterable[Item]:
        """The source has ended."""
        if self._is_watching:
            self._is_watching = False
            self._guard(self.end)
        return ()

    def let_go(self) -> None:
        """The request is over."""
        self._is_watching = False
        self._guard(self.leave)

    def _guard(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception as error:  # noqa: BLE001 - it costs nobody else anything
            self._is_watching = False
            self.context.observer.stage_failed(self.name, error)


class WatchedEnd(SendingEnd):
    """The sending end of a channel, with somebody looking on.

    Args:
        stage: who looks on.
        send: where it sends to.
    """

    def __init__(self, stage: WatchingStage, send: Send) -> None:
        super().__init__(send)
        self._stage = stage
        self._is_broken = False

    def send_nowait(self, burst: list[Any]) -> None:
        """Send a burst. Raises as a channel."""
        try:
            self._send.send_nowait(burst)
        except trio.BrokenResourceError:
            self._is_broken = True
            raise
        self._stage.show(burst)

    async def send(self, burst: list[Any]) -> None:
        """Send a burst. Checkpoints; raises as a channel."""
        try:
            await self._send.send(burst)
        except trio.BrokenResourceError:
            self._is_broken = True
            raise
        self._stage.show(burst)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it; without an error that is the end of the source."""
        if exc_type is None and not self._is_broken:
            self._stage.close()
        super().__exit__(exc_type, exc_value, tb)
