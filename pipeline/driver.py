"""The one loop that runs a stage between two memory channels, burst by burst."""

from __future__ import annotations

from typing import Any

import trio

from pipeline.chunks import encode_json
from pipeline.errors import StageFailed, StreamFailure
from pipeline.items import StreamError
from pipeline.sse import sse_frame
from pipeline.stage import Flow, Stage

__all__ = ["last_words", "move_bursts", "outcome", "run_stage"]


async def run_stage(
    stage: Stage,
    name: str,
    receive: trio.MemoryReceiveChannel[list[Any]],
    send: trio.MemorySendChannel[list[Any]],
) -> None:
    """Run a stage until its source ends, it is finished, or downstream is done; then close both channels.

    A stage that raises ends the stream with a ``StreamError`` that names it, or with the error frame itself if it is
    the encoder; the stages before it find their channel closed and stop. Checkpoints. On cancellation both channels
    are closed and nothing more is sent.
    """
    with receive, send:
        await trio.lowlevel.checkpoint()
        try:
            if type(stage).run is Stage.run:
                await move_bursts(stage, receive, send)  # as it does, with one frame less to go through at each turn
            else:
                await stage.run(receive, send)
        except Exception as error:  # noqa: BLE001 - anybody's code may end its own request only
            if isinstance(error, trio.BrokenResourceError) and not send.statistics().open_receive_channels:
                return  # downstream is done
            failure = error if isinstance(error, StreamFailure) else StageFailed(name, error)
            stage.context.observer.stage_failed(name, error)
        else:
            return
        receive.close()
        try:
            await send.send([last_words(failure, stage.gives)])
        except trio.BrokenResourceError:
            return


async def move_bursts(
    stage: Stage,
    receive: trio.MemoryReceiveChannel[list[Any]],
    send: trio.MemorySendChannel[list[Any]],
) -> None:
    """The body of ``Stage.run``: receive a burst, feed its items in order, send what came of it.

    Checkpoints; after that it waits only when there is nothing to take or no room to give. What a stage gave
    before it raised is sent before the error is raised again.

    Raises:
        trio.BrokenResourceError: downstream is done.
    """
    await trio.lowlevel.checkpoint()
    burst: list[Any] | None = []
    while burst is not None and not stage.finished:
        try:
            burst = await receive.receive()
        except trio.EndOfChannel:
            # A source that is being cancelled closes its channel too: that is no end of the stream.
            await trio.lowlevel.checkpoint_if_cancelled()
            burst = None
        out, error = outcome(stage, burst)
        if out:
            try:
                send.send_nowait(out)
            except trio.WouldBlock:
                await send.send(out)
        if error is not None:
            raise error
        if burst is not None:
            burst = out = []  # a stage that waits holds nothing


def outcome(stage: Stage, burst: list[Any] | None) -> tuple[list[Any], Exception | None]:
    """What a stage makes of a burst, or of the end of its source, and what it raised after that."""
    out: list[Any] = []
    try:
        if burst is None:
            out += stage.close()
        else:
            stage.feed_burst(burst, out)
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        return out, error
    return out, None


def last_words(failure: StreamFailure, gives: Flow) -> Any:
    """What a stage that raised gives last: an error item, or the error frame where it gives bytes."""
    if gives is Flow.BYTES:
        return sse_frame(encode_json(failure.body()))
    return StreamError(failure)
