"""What the two stages share that read the model's text: one reader a text, edits that leave the rest alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from pipeline.chunks import (
    MAX_CHOICES,
    delta_of,
    exact_payload,
    finish_reason_of,
    replace_choices,
    replace_delta,
    reports_error,
    usable_index,
)
from pipeline.items import Chunk, End, Evidence, Item, Payload, StreamError
from pipeline.stage import RequestContext, Stage
from stages.formats.call_ids import CallIds
from stages.formats.format import Format, Reader
from stages.formats.output import Output, Taken

__all__ = ["TextParser"]

_ENVELOPE = ("id", "object", "created", "model")


@attrs.define(eq=False)
class _Choice:
    """What is read of one choice."""

    output: Output
    readers: Mapping[str, Reader]
    is_over: bool = False
    """Whether it has finished, or the upstream does the work itself."""


class TextParser(Stage):
    """Runs the readers of a format over the text of each choice that has a usable index.

    Emits: chunks, edited where their text changes; the same objects elsewhere. Where the stream ends without a finish
    reason, one made-up chunk for each choice of which something is held.

    Drops: nothing but markup; never a chunk.

    State: that of at most ``pipeline.chunks.MAX_CHOICES`` choices, each bounded by ``stages.formats.cursor.MAX_HELD``.

    On cancel: nothing to do.
    """

    structured: ClassVar[frozenset[str]]
    """The keys of a delta that show that the upstream does the work itself."""

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._format = self.format_of(options)
        self._choices: dict[int, _Choice] = {}
        self._last: Payload = {}
        self._is_over = False

    @classmethod
    def format_of(cls, options: Any) -> Format:
        """The format that the options name."""
        raise NotImplementedError

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk; what is held goes in front of an end."""
        if self._is_over:
            return (item,)
        if isinstance(item, Chunk):
            if reports_error(item.payload):
                return (*self._release(), item)
            return (self._read(item),)
        if isinstance(item, (StreamError, End)):
            return (*self._release(), item)
        return (item,)

    def close(self) -> Iterable[Item]:
        """Give what is held."""
        return self._release()

    def _read(self, chunk: Chunk) -> Chunk:
        choices = chunk.payload.get("choices")
        if not isinstance(choices, list):
            return chunk
        self._last = chunk.payload
        edits: dict[int, tuple[Payload, Taken]] = {}
        for position, choice in enumerate(choices):
            if isinstance(choice, dict) and (edit := self._read_choice(choice)) is not None:
                edits[position] = edit
        if not edits:
            return chunk
        payload = exact_payload(chunk)
        choices = list(payload["choices"])
        evidence: list[Evidence] = []
        ...
        return chunk

    def _read_choice(self, choice: Payload): ...
