"""Stages that keep the promises of a stage, and stages that each break one."""
# ruff: noqa: D102 - each class says what it does, in one method

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

import trio

from pipeline.items import Chunk, End, Item, SideEvent, StreamError, Verbatim
from pipeline.sse import sse_frame
from pipeline.stage import Flow, Stage
from pipeline.testing import text_chunk

Receive: TypeAlias = trio.MemoryReceiveChannel[list[Any]]
Send: TypeAlias = trio.MemorySendChannel[list[Any]]


class Encoder(Stage):
    """The least that an encoder does."""

    gives = Flow.BYTES

    def feed(self, item: Item) -> Iterable[bytes]:
        match item:
            case StreamError():
                yield item.raw or sse_frame(str(item.failure).encode())
                self.finished = item.raw is None
            case Verbatim():
                yield item.frame.raw
            case Chunk() | End():
                yield item.raw or b""


class Shout(Stage):
    """Edits text, and keeps all else as it is."""

    def feed(self, item: Item) -> Iterable[Item]:
        if not isinstance(item, Chunk):
            return (item,)
        try:
            (choice,) = item.payload["choices"]
            text = choice["delta"]["content"].upper()
        except (KeyError, TypeError, ValueError, AttributeError):
            return (item,)
        return (item.edited({**item.payload, "choices": [{**choice, "delta": {**choice["delta"], "content": text}}]}),)


class Teller(Stage):
    """Adds side events and drops comments."""

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            yield SideEvent("told", {"of": 1}, item)
        if not isinstance(item, Verbatim):
            yield item


class Holder(Stage):
    """Keeps one ordinary item back."""

    held: Item | None = None

    def feed(self, item: Item) -> Iterable[Item]:
        if self.held is not None:
            yield self.held
        self.held = None
        if isinstance(item, Chunk):
            self.held = item
        else:
            yield item

    def close(self) -> Iterable[Item]:
        return () if self.held is None else (self.held,)


class Slow(Stage):
    """Takes its time for each burst."""

    async def run(self, receive: Receive, send: Send) -> None:
        async for burst in receive:
            await trio.sleep(0.01)
            await send.send(burst)


class Upper(Stage):
    """Takes bytes and gives bytes."""

    takes = gives = Flow.BYTES

    def feed(self, item: bytes) -> Iterable[bytes]:
        return (item.upper(),)


class Crashes(Stage):
    """Trusts that every choice is an object with a delta."""

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            for choice in item.payload.get("choices") or ():
                assert choice["delta"]["content"]
        return (item,)


class ChangesInPlace(Stage):
    """Writes into what others still read."""

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk):
            item.payload["seen"] = True
        return (item,)


class CountsBursts(Stage):
    """Says something for each burst."""

    async def run(self, receive: Receive, send: Send) -> None:
        async for burst in receive:
            await send.send([*burst, text_chunk("burst")])


class NeverEnds(Stage):
    """Does not notice the end of its source."""

    async def run(self, receive: Receive, send: Send) -> None:
        async for burst in receive:
            await send.send(burst)
        await trio.sleep_forever()


class SwallowsItsErrors(Stage):
    """Ends as if all were well when its own code fails."""

    async def run(self, receive: Receive, send: Send) -> None:
        async for burst in receive:
            try:
                await send.send([given for item in burst for given in self.feed(item)])
            except RuntimeError:
                return


class SwallowsCancelled(Stage):
    """Takes a cancellation for the end of its work."""

    async def run(self, receive: Receive, send: Send) -> None:
        await trio.lowlevel.checkpoint()
        with suppress(trio.Cancelled):
            async for burst in receive:
                await send.send([given for item in burst for given in self.feed(item)])


class SpeaksAfterCancelled(Stage):
    """Says good-bye to a client that is gone."""

    async def run(self, receive: Receive, send: Send) -> None:
        try:
            async for burst in receive:
                await send.send([given for item in burst for given in self.feed(item)])
        except trio.Cancelled:
            send.send_nowait([text_chunk("wait")])
            raise


class LeavesAClone(Stage):
    """Keeps its source's channel open."""

    clones: ClassVar[list[Receive]] = []

    async def run(self, receive: Receive, send: Send) -> None:
        try:
            await super().run(receive, send)
        except trio.Cancelled:
            self.clones.append(receive.clone())
            raise


class LeavesATask(Stage):
    """Starts something that outlives it."""

    async def run(self, receive: Receive, send: Send) -> None:
        async def linger() -> None:
            with trio.move_on_after(1):
                await trio.sleep_forever()

        trio.lowlevel.spawn_system_task(linger)
        await super().run(receive, send)


class GoesOnWhenFinished(Stage):
    """Does not listen to itself."""

    async def run(self, receive: Receive, send: Send) -> None:
        async for burst in receive:
            await send.send([given for item in burst for given in self.feed(item)])

    def feed(self, item: Item) -> Iterable[Item]:
        self.finished = True
        return (item,)


class ClosesTwice(Stage):
    """Ends once more than there is an end."""

    async def run(self, receive: Receive, send: Send) -> None:
        await super().run(receive, send)
        self.close()


class TakesAll(Stage):
    """Has a queue of its own, which nobody bounds."""

    async def run(self, receive: Receive, send: Send) -> None:
        into, out = trio.open_memory_channel(1000)

        async def pull() -> None:
            with into:
                async for burst in receive:
                    await into.send([given for item in burst for given in self.feed(item)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            async for burst in out:
                await send.send(burst)


class DropsErrors(Stage):
    """Keeps bad news to itself."""

    def feed(self, item: Item) -> Iterable[Item]:
        return () if isinstance(item, StreamError) else (item,)


class SpeaksBehindAnError(Stage):
    """Adds something even to a stream that failed."""

    def close(self) -> Iterable[Item]:
        return (text_chunk("the end"),)


class Reverses(Holder):
    """Gives the second chunk before the first."""

    def feed(self, item: Item) -> Iterable[Item]:
        if isinstance(item, Chunk) and self.held is not None:
            return (item,)
        return super().feed(item)


class LosesKeys(Stage):
    """Builds its own chunk from the keys that it knows."""

    def feed(self, item: Item) -> Iterable[Item]:
        return (item.edited({"choices": item.payload.get("choices")}) if isinstance(item, Chunk) else item,)


class LosesBytes(Stage):
    """Edits every chunk, changed or not."""

    def feed(self, item: Item) -> Iterable[Item]:
        return (item.edited(item.payload) if isinstance(item, Chunk) else item,)


class DelayingEncoder(Encoder):
    """Writes a frame when the next one is there."""

    held = b""

    def feed(self, item: Item) -> Iterable[bytes]:
        held, self.held = self.held, b"".join(super().feed(item))
        if isinstance(item, StreamError):
            return (held, self.held)
        return (held,) if held else ()

    def close(self) -> Iterable[bytes]:
        return (self.held,)
