"""Lets each choice have its role once (spec, dispatch, 2.4, step 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pipeline.chunks import MAX_CHOICES, choice_key, choices_of, delta_of, exact_payload, replace_choices, replace_delta
from pipeline.items import Chunk, Item
from pipeline.runs import Run
from pipeline.stage import RequestContext, Stage

__all__ = ["RoleDedup"]


class RoleDedup(Stage):
    """Removes every role but the first of each choice.

    Emits: nothing of its own.

    Drops: repeated roles, equal or not; never a chunk.

    State: the choices that have had a role, at most ``pipeline.chunks.MAX_CHOICES``; the roles of others stay.

    On cancel: nothing to do.
    """

    precedes: ClassVar[Mapping[str, str]] = {
        "empty_skip": "a chunk with nothing but a repeated role is empty",
    }

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._seen: set[int | str] = set()

    def wakes_for(self, item: Item) -> bool:
        """Sleep until a choice has a second role."""
        if not isinstance(item, Chunk):
            return False
        if item.shape is not None:
            return item.shape.delta.get("role") is not None
        keys: set[int | str] = set()
        for choice in choices_of(item.payload):
            delta = delta_of(choice)
            if delta is not None and delta.get("role") is not None:
                key = choice_key(choice)
                if key in keys or key in self._seen:
                    return True
                keys.add(key)
        if len(self._seen) + len(keys) > MAX_CHOICES:
            return True
        self._seen |= keys
        return False

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take chunks without a role."""
        if run.shape.delta.get("role") is not None:
            return 0
        out += run.chunks
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk."""
        if not isinstance(item, Chunk):
            return (item,)
        choices = item.payload.get("choices")
        if not isinstance(choices, list):
            return (item,)
        repeated: list[int] = []
        for position, choice in enumerate(choices):
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict) or delta.get("role") is None:
                continue
            key = choice_key(choice)
            if key in self._seen:
                repeated.append(position)
            elif len(self._seen) < MAX_CHOICES:
                self._seen.add(key)
        return (_without_roles(item, repeated),) if repeated else (item,)


def _without_roles(chunk: Chunk, positions: list[int]) -> Chunk:
    payload = exact_payload(chunk)
    choices = list(payload["choices"])
    for position in positions:
        choice = choices[position]
        delta = {key: value for key, value in choice["delta"].items() if key != "role"}
        choices[position] = replace_delta(choice, delta)
    return chunk.edited(replace_choices(payload, choices))
