"""Drops chunks that hold nothing (spec, dispatch, 2.4, step 3, and its first table)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from pipeline.items import Chunk, Item, Payload
from pipeline.runs import Run
from pipeline.stage import Stage

__all__ = ["EmptySkip"]

_ENVELOPE: Final = frozenset({"id", "object", "created", "model", "system_fingerprint", "service_tier", "choices"})


class EmptySkip(Stage):
    """Drops chunks that carry nothing a client could use.

    A chunk is empty if its ``choices`` are a list, perhaps of none, and nothing in it but the envelope is set: no other
    key of the chunk, no key of a choice but ``index`` and ``delta``, no key of a delta but a blank ``content``.
    Null is not set; an empty list of ``tool_calls`` is.

    Emits: nothing of its own.

    Drops: empty chunks.

    State: none.

    On cancel: nothing to do.
    """

    precedes: ClassVar[Mapping[str, str]] = {
        "reasoning_dispatch": "an empty chunk must not end a block of reasoning",
    }

    def wakes_for(self, item: Item) -> bool:
        """Sleep until a chunk is empty."""
        return isinstance(item, Chunk) and item.shape is None and _is_empty(item.payload)

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take them all: none is empty."""
        out += run.chunks
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item unless it is an empty chunk."""
        if isinstance(item, Chunk) and _is_empty(item.payload):
            return ()
        return (item,)


def _is_empty(payload: Payload) -> bool:
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return False
    for choice in choices:  # first, since nearly every chunk is decided by its first delta
        if not _is_empty_choice(choice):
            return False
    return all(value is None or key in _ENVELOPE for key, value in payload.items())


def _is_empty_choice(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        for key, value in delta.items():
            if value is not None and not (key == "content" and value in ("", [])):
                return False
    elif delta is not None:
        return False
    return all(value is None or key in ("index", "delta") for key, value in choice.items())
