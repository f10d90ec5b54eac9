"""The one loop that runs a stage between two memory channels, burst by burst."""

from __future__ import annotations

from typing import Any

import trio

from pipeline.chunks import encode_json
from pipeline.errors import StageFailed, StreamFailure
from pipeline.items import StreamError
from pipeline.sse import sse_frame
from pipeline.stage import Flow, Stage

__all__ = ["MAX_BURST_ITEMS", "move_bursts", "run_stage"]

MAX_BURST_ITEMS = 512
"""Bursts that wait are taken together up to this many items, which bounds the time between two checkpoints."""


async def run_stage(
    stage: Stage,
    name: str,
    receive: trio.MemoryReceiveChannel[list[Any]],
    send: trio.MemorySendChannel[list[Any]],
) -> None:
    """Run a stage until its source ends, it is finished, or downstream is done; close both channels whatever comes.

    A stage that raises ends the stream with a ``StreamError`` that names it, or with the error frame itself if it is
    the encoder; the stages before it find their channel closed and stop. Checkpoints. On cancellation both channels
    are closed and nothing more is sent.
    """
    with receive, send:
        try:
            await stage.run(receive, send)
        except trio.BrokenResourceError:
            return  # downstream is done
        except Exception as error:  # noqa: BLE001 - a stage is anybody's code; it may end its own request only
            failure = error if isinstance(error, StreamFailure) else StageFailed(name, error)
            stage.context.observer.stage_failed(name, error)
            receive.close()
            try:
                await send.send([_last_words(failure, stage.gives)])
            except trio.BrokenResourceError:
                return


async def move_bursts(
    stage: Stage,
    receive: trio.MemoryReceiveChannel[list[Any]],
    send: trio.MemorySendChannel[list[Any]],
) -> None:
    """The body of ``Stage.run``: receive a burst, feed its items in order, send what came of it.

    Waits only when there is nothing to take or no room to give; a wait is a checkpoint. What a stage gave before it
    raised is sent before the error is.

    Raises:
        trio.BrokenResourceError: downstream is done.
    """
    feed = stage.feed
    while True:
        try:
            burst = receive.receive_nowait()
        except trio.WouldBlock:
            try:
                burst = await receive.receive()
            except trio.EndOfChannel:
                break
        except trio.EndOfChannel:
            break
        out: list[Any] = []
        try:
            for item in _take_more(burst, receive):
                out += feed(item)
                if stage.finished:
                    break
        except Exception:
            await _send(out, send)
            raise
        await _send(out, send)
        if stage.finished:
            return
    await _send(list(stage.close()), send)


def _take_more(burst: list[Any], receive: trio.MemoryReceiveChannel[list[Any]]) -> list[Any]:
    """The burst and whatever else can be had without waiting."""
    while len(burst) < MAX_BURST_ITEMS:
        try:
            burst = burst + receive.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            break
    return burst


async def _send(out: list[Any], send: trio.MemorySendChannel[list[Any]]) -> None:
    if not out:
        return
    try:
        send.send_nowait(out)
    except trio.WouldBlock:
        await send.send(out)


def _last_words(failure: StreamFailure, gives: Flow) -> Any:
    if gives is Flow.BYTES:
        return sse_frame(encode_json(failure.body()))
    return StreamError(failure)
