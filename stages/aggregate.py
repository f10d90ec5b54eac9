"""Folds the chunks of a stream into the one response that they add up to (spec, dispatch, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pipeline.chunks import choice_key, choices_of
from pipeline.completeness import Completeness
from pipeline.errors import StreamCut
from pipeline.items import Payload, Shape
from pipeline.runs import Run
from stages.aggregate_choice import ChoiceAggregate
from stages.merge_values import merge_last
from stages.tool_call_merge import bare_text

__all__ = ["Aggregate", "AggregateOptions"]

_IDENTITY: Final = frozenset({"created", "id", "model"})
"""Keys that say nothing where they are empty, as in Azure's content filter chunks."""


@attrs.frozen
class AggregateOptions:
    """What the request says about its answer."""

    parallel_tool_calls: bool = True
    """False: only the first call of a choice is kept (4.2.7)."""
    nonempty_content: bool = False
    """True: a choice without content and calls answers with its reasoning (4.2.8)."""

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> AggregateOptions:
        """The options that a request body asks for."""
        return cls(parallel_tool_calls=request.get("parallel_tool_calls") is not False)


class Aggregate:
    """A response as far as its chunks have come.

    It holds the response, not the stream: text is joined as it comes. Any JSON value may stand anywhere; what has
    another shape than expected is kept as it is, or passed over where there is no place for it.
    """

    def __init__(self, options: AggregateOptions | None = None) -> None:
        self._options = options or AggregateOptions()
        self._envelope: Payload = {}
        self._shape: Shape | None = None
        """That of the chunk before, if it has one."""
        self._choices: dict[int | str, ChoiceAggregate] = {}
        self.chunks = 0
        """How many chunks were folded."""

    def feed(self, payload: Payload) -> None:
        """Fold one chunk."""
        self.chunks += 1
        self._shape = None
        self._add_envelope(payload)
        choices = self._choices
        for choice in choices_of(payload):
            if type(choice) is dict:
                index = choice.get("index")
                if type(index) is not int:
                    index = choice_key(choice)
                if index not in choices:
                    choices[index] = ChoiceAggregate()
                choices[index].feed(choice)

    def feed_run(self, run: Run) -> None:
        """Fold neighbouring chunks of one shape: behind the first of them only their texts are new."""
        shape = run.shape
        if shape is not self._shape:
            if _is_bare(shape) and 0 in self._choices:
                self._add_envelope(shape.payload)
            else:
                self.feed(run.chunks[0].payload)
                run = Run(shape, run.chunks[1:])
            self._shape = shape
        if run.chunks:
            self.chunks += len(run.chunks)
            self._choices[0].add_text(shape, run.text)

    def _add_envelope(self, payload: Payload) -> None:
        """Fold what a chunk says beside its choices."""
        envelope = self._envelope
        for key, value in payload.items():
            if type(value) is str:
                if value or key not in _IDENTITY:
                    envelope[key] = value
            elif key == "choices":
                pass
            elif type(value) is dict and key != "usage":  # the counts of two chunks do not belong together
                envelope[key] = merge_last(envelope.get(key), value)
            elif value or not (value is None or key in _IDENTITY):
                envelope[key] = value

    def drop_call(self, choice_index: int, call_index: int) -> None:
        """Leave a call out of the response: what was taken for one may be none (5.6)."""
        if choice_index in self._choices:
            self._choices[choice_index].dropped.add(call_index)

    def cut(self) -> StreamCut | None:
        """What a clean end without ``[DONE]`` means now: a failure, or none if every choice has finished."""
        completeness = Completeness()
        for key, choice in self._choices.items():
            completeness.see({"choices": [{"index": key, "finish_reason": choice.finish_reason}]})
        return completeness.cut()

    def response(self) -> Payload:
        """The response of the chunks so far. Costs its size; more chunks may follow."""
        known = {"id": "", "created": 0, "model": "", **self._envelope}
        for key in ("object", "choices"):  # a text instead of choices has no place
            known.pop(key, None)
        keys = sorted(self._choices, key=lambda key: (isinstance(key, str), key))
        return {
            "id": known.pop("id"),
            "choices": [self._choices[key].response(key, self._options) for key in keys],
            "created": known.pop("created"),
            "model": known.pop("model"),
            "object": "chat.completion",
            **known,
        }


def _is_bare(shape: Shape) -> bool:
    """Whether the delta of its chunks has nothing but the text, as that of nearly every one."""
    return len(shape.delta) == 1 and (shape.fragment is None or bare_text(shape.fragment) is not None)
