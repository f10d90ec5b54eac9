"""What the two stages share that read the model's text: one reader a text, edits that leave the rest alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

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
from pipeline.items import Chunk, End, Evidence, Item, Payload, Shape, StreamError
from pipeline.runs import Run
from pipeline.stage import RequestContext, Stage
from stages.formats.call_ids import CallIds
from stages.formats.format import REASONING_KEYS, Format
from stages.formats.output import Output, Taken
from stages.formats.reader import Reader

__all__ = ["TextParser"]

_ENVELOPE: Final = ("id", "object", "created", "model")


@attrs.define(eq=False)
class _Choice:
    """What is read of one choice."""

    output: Output
    readers: Mapping[str, Reader]
    watched: frozenset[str]
    """The keys of a delta that make a difference."""
    is_over: bool = False
    """Whether all that follows stays as it is: it has finished, the upstream does the work itself, or nothing that the
    stage looks for can come any more."""

    def finish(self, reason: str | None) -> None:
        """Let go what is held."""
        self.is_over = True
        for reader in self.readers.values():
            reader.finish(reason)


@attrs.frozen(eq=False)
class _Edit:
    """What changes in a choice of one chunk."""

    read: Mapping[str, str]
    """The text that was read, by its key in the delta."""
    taken: Taken
    """What takes its place."""
    reason: str | None
    """The finish reason to write, if another one."""

    def applied(self, choice: Payload) -> Payload:
        """The choice with the edit, everything else kept."""
        delta = delta_of(choice) or {}
        texts = dict(self.taken.texts)
        for key in texts.keys() - self.read.keys():
            if isinstance(delta.get(key), str):  # held text goes in front of what nobody reads any more
                texts[key] += delta[key]
        edited: Payload = {}
        for key, value in delta.items():
            if key in self.read or key in texts:
                edited |= texts
            else:
                edited[key] = value
        edited |= texts
        if self.taken.fragments:
            calls = edited.get("tool_calls")
            edited["tool_calls"] = [*calls, *self.taken.fragments] if isinstance(calls, list) else self.taken.fragments
        choice = replace_delta(choice, edited)
        return choice if self.reason is None else {**choice, "finish_reason": self.reason}


class TextParser(Stage):
    """Runs the readers of a format over the text of each choice that has a usable index.

    A choice is left alone once it has finished, once the upstream itself sends what the stage is to find, and once
    nothing of that can come any more: an answer has begun in which no thought counts.

    Emits: chunks, edited where their text changes; the same objects elsewhere. Where the stream ends without a finish
    reason, one made-up chunk for each choice of which something is held.

    Drops: nothing but markup; never a chunk.

    State: that of at most ``pipeline.chunks.MAX_CHOICES`` choices. Each holds what may be markup, at most
    ``stages.formats.cursor.MAX_HELD`` characters in one piece.

    On cancel: nothing to do.
    """

    def __init__(self, options: Any, context: RequestContext) -> None:
        super().__init__(options, context)
        self._format = self.format_of(options)
        self._choices: dict[int, _Choice] = {}
        self._last: Payload = {}
        self._is_over = False
        self._ahead: tuple[list[Any], list[Any]] | None = None

    @classmethod
    def format_of(cls, options: Any) -> Format:
        """The format that the options name."""
        raise NotImplementedError

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:
        """Whether the answer to the request can hold nothing for the stage to find."""
        return not cls.format_of(options).concerns(context.request)

    @classmethod
    def request_defaults(cls, options: Any) -> Mapping[str, Any]:
        """The fields that a request to the upstream needs where the client has not set them."""
        return {"skip_special_tokens": False} if cls.format_of(options).hides_tokens else {}

    def first_to_wake(self, burst: list[Any]) -> int | None:
        """Sleep as long as every item goes out as it came: then nothing was found, and nothing is held."""
        if len(burst) == 1 and type(chunk := burst[0]) is Chunk:
            shape = chunk.shape
            if self._passes(chunk.payload) if shape is None else self._passes_shaped(shape, chunk.text):
                return None
        out: list[Any] = []
        super().feed_burst(burst, out)
        if out == burst:  # items are equal only to themselves
            return None
        self._ahead = burst, out
        return 0

    def feed_burst(self, burst: list[Any], out: list[Any]) -> None:
        """See ``Stage``; the burst that woke the stage was read before."""
        if self._ahead is not None and self._ahead[0] is burst:
            out += self._ahead[1]
            self._ahead = None
        else:
            super().feed_burst(burst, out)

    def feed_run(self, run: Run, out: list[Item]) -> int:
        """Take text that all goes out as it is."""
        if not self._passes_shaped(run.shape, run.text):
            return 0
        out += run.chunks
        return len(run.chunks)

    def feed(self, item: Item) -> Iterable[Item]:
        """Give the item, or an edited chunk; what is held goes in front of the end."""
        if self._is_over:
            return (item,)
        if isinstance(item, Chunk):
            if self._passes(item.payload):
                return (item,)
            if not reports_error(item.payload):
                return (self._read(item),)
        if isinstance(item, (Chunk, StreamError, End)):
            return (*self._release(), item)
        return (item,)

    def close(self) -> Iterable[Item]:
        """Give what is held."""
        return self._release()

    def _passes_shaped(self, shape: Shape, text: str) -> bool:
        """Whether the text of chunks of a shape goes out as it is. It counts as read then."""
        state = self._choices.get(0)
        if state is None:
            return False
        if not state.is_over:
            key = shape.key if shape.fragment is None else "tool_calls"
            reader = state.readers.get(key)
            if key in state.watched if reader is None else not reader.passes(text):
                return False
        self._last = shape.payload
        return True

    def _passes(self, payload: Payload) -> bool:
        """Whether a chunk has nothing to read, or one text that goes out as it is. It counts as read then.

        A short cut for nearly every chunk of an answer without markup; ``_read`` would not change them either.
        """
        choices = payload.get("choices")
        # As reports_error begins; calling it for each chunk would cost more than the rest of this line.
        if type(choices) is not list or len(choices) != 1 or "error" in payload or payload.get("object") == "error":
            return False
        (choice,) = choices
        index = choice.get("index") if type(choice) is dict else None
        state = self._choices.get(index) if type(index) is int else None
        if state is None:
            return False
        if state.is_over:
            self._last = payload
            return True
        delta = choice.get("delta")
        if type(delta) is not dict or choice.get("finish_reason") is not None:
            return False
        reader, text = None, ""
        for key, value in delta.items():
            if value and key in state.watched:
                if reader is not None or type(value) is not str or key not in state.readers:
                    return False
                reader, text = state.readers[key], value
        self._last = payload
        return reader is None or reader.passes(text)

    def _read(self, chunk: Chunk) -> Chunk:
        choices = chunk.payload.get("choices")
        if not isinstance(choices, list):
            return chunk
        self._last = chunk.payload
        edits: dict[int, _Edit] = {}
        for position, choice in enumerate(choices):
            if isinstance(choice, dict) and (edit := self._read_choice(choice)) is not None:
                edits[position] = edit
        if not edits:
            return chunk
        payload = exact_payload(chunk)
        choices = list(payload["choices"])
        evidence: list[Evidence] = []
        for position, edit in edits.items():
            choices[position] = edit.applied(choices[position])
            evidence += edit.taken.evidence
        edited = chunk.edited(replace_choices(payload, choices))
        return attrs.evolve(edited, evidence=(*edited.evidence, *evidence)) if evidence else edited

    def _read_choice(self, choice: Payload) -> _Edit | None:
        """Read a choice's text and its finish; none if it stays as it is."""
        state = self._state_of(choice)
        if state is None or state.is_over:
            return None
        delta = delta_of(choice) or {}
        read: dict[str, str] = {}
        structured = self._format.structured
        if not structured.isdisjoint(delta) and any(delta.get(key) for key in structured):
            state.finish(None)
        else:
            for key, text in delta.items():
                reader = state.readers.get(key)
                if reader is None or not text or not isinstance(text, str) or _is_doubled(key, delta):
                    continue
                if not reader.passes(text):
                    reader.feed(text)
                    read[key] = text
        reason = finish_reason_of(choice)
        if reason is not None and not state.is_over:
            state.finish(reason)
        elif not state.is_over:
            state.is_over = all(reader.is_done for reader in state.readers.values())
        taken = state.output.take()
        rewritten = "tool_calls" if reason == "stop" and state.output.closed else None
        if taken.texts == read and not taken.fragments and rewritten is None:
            return None
        return _Edit(read, taken, rewritten)

    def _state_of(self, choice: Payload) -> _Choice | None:
        index = usable_index(choice.get("index", 0))
        if index is None:
            return None
        state = self._choices.get(index)
        if state is None and len(self._choices) < MAX_CHOICES:
            output = Output(index, CallIds(self._format.id_style))
            readers = self._format.readers(self.context.request, output)
            watched = self._format.structured.union(readers)
            state = self._choices[index] = _Choice(output, readers, watched)
        return state

    def _release(self) -> list[Chunk]:
        """What is held when the stream ends, as chunks of its own."""
        self._is_over = True
        released: list[Chunk] = []
        for index, state in sorted(self._choices.items()):
            if not state.is_over:
                state.finish(None)
                taken = state.output.take()
                if taken.texts or taken.fragments:
                    choice = _Edit({}, taken, None).applied({"index": index, "delta": {}, "finish_reason": None})
                    envelope: Payload = {key: self._last[key] for key in _ENVELOPE if key in self._last}
                    released.append(Chunk({**envelope, "choices": [choice]}, None, taken.evidence))
        self._choices.clear()
        return released


def _is_doubled(key: str, delta: Payload) -> bool:
    """Whether a delta has a thought under two keys; then it stays as it is."""
    return key in REASONING_KEYS and all(delta.get(each) for each in REASONING_KEYS)
