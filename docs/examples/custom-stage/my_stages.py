"""Stages of your own: one that edits chunks, one that awaits, and one that only looks on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs
import trio

from pipeline import Chunk, Item, RequestContext, Stage, WatchingStage
from pipeline.chunks import choices_of, delta_of, exact_payload, replace_choices, replace_delta


@attrs.frozen
class RedactOptions:
    """What is hidden, and behind what."""

    mask: str = attrs.field(default="#", validator=attrs.validators.min_len(1))
    """What stands in place of each digit."""
    keys: tuple[str, ...] = ("content", "reasoning_content", "reasoning")
    """The texts of a delta that are looked at."""


class Redact(Stage):
    """Hides every digit of what the model says; tool calls and logprobs stay as they are.

    Emits: nothing of its own.

    Drops: nothing but digits.

    State: none. A digit is one character, so it does not matter how the text is cut into chunks.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = RedactOptions
    precedes: ClassVar[Mapping[str, str]] = {"reasoning_dispatch": "its event would tell what the chunks hide"}

    def __init__(self, options: RedactOptions, context: RequestContext) -> None:
        super().__init__(options, context)
        self._keys = options.keys
        self._table = dict.fromkeys(map(ord, "0123456789"), options.mask)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk."""
        if not isinstance(item, Chunk):
            return (item,)
        if all(self._redacted(choice) is choice for choice in choices_of(item.payload)):
            return (item,)
        payload = exact_payload(item)
        return (item.edited(replace_choices(payload, [self._redacted(choice) for choice in payload["choices"]])),)

    def _redacted(self, choice: Any) -> Any:
        """The choice without digits; the very same one where there is nothing to hide."""
        delta = delta_of(choice) or {}
        texts = {key: delta[key] for key in self._keys if isinstance(delta.get(key), str)}
        hidden = {key: text.translate(self._table) for key, text in texts.items()}
        return choice if hidden == texts else replace_delta(choice, {**delta, **hidden})


@attrs.frozen
class PaceOptions:
    """How fast."""

    chunks_per_second: float = attrs.field(default=50.0, validator=attrs.validators.gt(0))


class Pace(Stage):
    """Lets chunks through at a steady pace, as a demonstration may want them.

    Emits: nothing of its own.

    Drops: nothing.

    State: one burst.

    On cancel: the burst is forgotten.
    """

    Options: ClassVar[type[Any]] = PaceOptions

    async def run(
        self, receive: trio.MemoryReceiveChannel[list[Item]], send: trio.MemorySendChannel[list[Item]]
    ) -> None:
        """Wait before each chunk. Checkpoints."""
        async for burst in receive:
            for item in burst:
                if isinstance(item, Chunk):
                    await trio.sleep(1 / self.options.chunks_per_second)
                await send.send([item])


class Measure(WatchingStage):
    """Says in the log how much text each request was answered with.

    Emits: every item as it came.

    Drops: nothing.

    State: a number.

    On cancel: what was sent until then counts.
    """

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._characters = 0

    def watch(self, burst: list[Item]) -> None:
        """Count what was sent."""
        for item in burst:
            for choice in choices_of(item.payload) if isinstance(item, Chunk) else ():
                text = (delta_of(choice) or {}).get("content")
                self._characters += len(text) if isinstance(text, str) else 0

    def leave(self) -> None:
        """Say it."""
        self.context.observer.warned(self.name, f"{self._characters} characters")
