"""Announces each block of reasoning once it has ended (spec, dispatch, 2.4, step 5)."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any, ClassVar, Final

import attrs

from pipeline.chunks import MAX_CHOICES, choices_of, delta_of, reports_error, usable_index
from pipeline.items import Chunk, End, Item, Payload, SideEvent, StreamError
from pipeline.runs import Run
from pipeline.stage import RequestContext, Stage

__all__ = ["ReasoningDispatch", "ReasoningDispatchOptions"]

_EVENT: Final = "reasoning_dispatch"
_KEYS: Final = ("reasoning_content", "reasoning")


@attrs.frozen
class ReasoningDispatchOptions:
    """How much the stage keeps at most of one block."""

    max_reasoning_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=attrs.validators.ge(1))
    """The UTF-8 bytes of one block of reasoning. A longer block is not announced."""


@attrs.define(eq=False)
class _Block:
    text: io.StringIO | None = attrs.field(factory=io.StringIO)
    """None: the block is too long, and its text was let go."""
    size: int = 0


class ReasoningDispatch(Stage):
    """Announces each block of reasoning when its choice goes on to something else or finishes.

    The text is ``reasoning_content``, or its alias ``reasoning``; the event always says ``reasoning_content``.

    Emits: ``reasoning_dispatch`` events, in front of the chunk that ended the block.

    Drops: nothing; every item goes on as it came.

    State: per choice the text of its unfinished block, bounded by ``max_reasoning_bytes``. It ends with the stream:
    a block that the stream's end, its ``[DONE]`` or an error cuts off is not announced.

    On cancel: unfinished blocks are forgotten.
    """

    Options: ClassVar[type[Any]] = ReasoningDispatchOptions
    events: ClassVar[frozenset[str]] = frozenset({_EVENT})

    def __init__(self, options: ReasoningDispatchOptions, context: RequestContext) -> None:
        super().__init__(options, context)
        self._max_bytes = options.max_reasoning_bytes
        self._blocks: dict[int, _Block] = {}
        self._is_over = False

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - no option matters
        """Whether nobody asked for the event."""
        return _EVENT not in context.events

    def wakes_for(self, item: Item) -> bool:
        """Sleep until there is reasoning; after an error nothing is announced."""
        if not isinstance(item, Chunk):
            return isinstance(item, StreamError)
        if item.shape is not None:
            return item.shape.key in _KEYS
        payload = item.payload
        for choice in choices_of(payload):
            if _reasoning_of(delta_of(choice)):
                return True
        return reports_error(payload)

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take reasoning, which has no finish reason; and anything else where it ends no block."""
        if run.shape.key in _KEYS:
            if not self._is_over:
                self._add(0, run.text)
        elif 0 in self._blocks:
            return 0
        out += run.chunks
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the events that a chunk brings about, then the item itself."""
        if not isinstance(item, Chunk):
            if isinstance(item, (StreamError, End)):
                self._end()
            return (item,)
        payload = item.payload
        if reports_error(payload):
            self._end()
        choices = payload.get("choices")
        if self._is_over or not isinstance(choices, list):
            return (item,)
        out: list[Item] = []
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            text = _reasoning_of(choice.get("delta"))
            if (text or self._blocks) and (event := self._feed_choice(choice, text)):
                self.context.observer.event_sent(_EVENT)
                out.append(SideEvent(_EVENT, event, item))
        out.append(item)
        return out

    def close(self) -> Iterable[Item]:
        """Forget what is unfinished."""
        self._end()
        return ()

    def _end(self) -> None:
        self._is_over = True
        self._blocks.clear()

    def _feed_choice(self, choice: Payload, text: str) -> Payload | None:
        index = usable_index(choice.get("index", 0))
        if index is None:
            return None
        if text:
            self._add(index, text)
            reason = choice.get("finish_reason")
            if not (reason and isinstance(reason, str)):
                return None
        block = self._blocks.pop(index, None)
        if block is None or block.text is None:
            return None
        return {"index": index, "reasoning_content": block.text.getvalue()}

    def _add(self, index: int, text: str) -> None:
        block = self._blocks.get(index)
        if block is None:
            if len(self._blocks) >= MAX_CHOICES:
                return
            block = self._blocks[index] = _Block()
        if block.text is None:
            return
        block.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if block.size > self._max_bytes:
            block.text = None
            limit = f"max_reasoning_bytes = {self._max_bytes}"
            self.context.observer.warned(_EVENT, f"choice {index}: a block is longer than {limit}; not announced")
        else:
            block.text.write(text)


def _reasoning_of(delta: Any) -> str:
    """The reasoning text of a delta, empty where it has none."""
    if isinstance(delta, dict):
        for name in _KEYS:
            text = delta.get(name)
            if text and isinstance(text, str):
                return text
    return ""
