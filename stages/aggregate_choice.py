"""One choice of a response as far as its chunks have come (spec, dispatch, 4.1.4 and 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.chunks import usable_index
from pipeline.items import Payload, Shape
from stages.aggregate_call import CallAggregate
from stages.aggregate_content import ContentAggregate
from stages.json_syntax import is_json
from stages.merge_values import merge_beside, merge_piece, settled

if TYPE_CHECKING:
    from stages.aggregate import AggregateOptions

__all__ = ["ChoiceAggregate"]


class ChoiceAggregate:
    """What the deltas of one choice add up to. Takes any JSON value anywhere."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        """The last one."""
        self.dropped: set[int] = set()
        """Indexes of calls that are to be left out."""
        self._role: str | None = None
        self._content = ContentAggregate()
        self._refusal: Any = None
        self._logprobs: Any = None
        self._calls: dict[tuple[bool, int], CallAggregate] = {}
        self._last_call: CallAggregate | None = None
        self._function_call: CallAggregate | None = None
        self._others: dict[str, Any] = {}
        self._beside: dict[str, Any] = {}

    def feed(self, choice: Payload) -> None:  # noqa: C901 - the hot path: a call costs what the work does
        """Fold what a chunk says of the choice."""
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key == "delta":
                if type(value) is dict:
                    for name, piece in value.items():
                        if name == "content":
                            self._content.add(piece)
                        elif name == "tool_calls":
                            self._add_fragments(piece)
                        elif piece is not None:
                            self._add_piece(name, piece)
            elif key == "finish_reason":
                if value and type(value) is str:
                    self.finish_reason = value
            elif key == "logprobs":
                self._logprobs = merge_piece(self._logprobs, value, key)
            elif key != "message":  # Writer and Perplexity say everything again in one
                self._beside[key] = merge_beside(self._beside.get(key), value)

    def add_text(self, shape: Shape, text: str) -> None:
        """Fold what chunks of a shape say of the choice, whose delta was fed before: a text, joined."""
        if shape.fragment is not None:
            self._last_call = self._call_of(shape.fragment)
            self._last_call.add_arguments(text)
        elif shape.key == "content":
            self._content.add(text)
        else:
            self._add_piece(shape.key, text)

    def _add_piece(self, key: str, value: Any) -> None:
        if key == "role":
            if self._role is None and isinstance(value, str):
                self._role = value
        elif key == "refusal":
            self._refusal = merge_piece(self._refusal, value, key)
        elif key == "function_call":
            self._add_function_call(value)
        else:
            self._others[key] = merge_piece(self._others.get(key), value, key)

    def _add_function_call(self, value: Any) -> None:
        if isinstance(value, dict):
            self._function_call = self._function_call or CallAggregate()
            self._function_call.feed({"function": value})

    def _add_fragments(self, fragments: Any) -> None:
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, dict):
                self._last_call = self._call_of(fragment)
                self._last_call.feed(fragment)

    def _call_of(self, fragment: Payload) -> CallAggregate:
        """The call that a fragment belongs to.

        Without an index a fragment that names a tool is a call of its own, behind those with one; any other goes on
        with the last call.
        """
        index = usable_index(fragment.get("index"))
        if index is None:
            if self._last_call is not None and not _names_a_tool(fragment):
                return self._last_call
            place = True, len(self._calls)
        else:
            place = False, index
        if place not in self._calls:
            self._calls[place] = CallAggregate()
        return self._calls[place]

    def response(self, index: int | str, options: AggregateOptions) -> Payload:
        """The choice of the response."""
        calls = self._whole_calls(options)
        others = {key: settled(value) for key, value in self._others.items()}
        content = self._content.value()
        if options.nonempty_content and not calls and not self._content.has_parts and not (content or "").strip():
            name = next((key for key in ("reasoning_content", "reasoning") if _is_said(others.get(key))), None)
            if name is not None:
                content = others.pop(name)
        message: Payload = {"content": content, "refusal": settled(self._refusal) or None}
        if calls:
            message["tool_calls"] = [call.response() for call in calls]
        message["role"] = self._role or "assistant"
        if self._function_call is not None:
            message["function_call"] = self._function_call.function()
        reason = self.finish_reason
        if calls and reason in (None, "stop"):
            reason = "tool_calls"
        logprobs = settled(self._logprobs)
        return {
            "index": index,
            "message": {**message, **others},
            "finish_reason": reason,
            "logprobs": {"content": None, "refusal": None, **logprobs} if isinstance(logprobs, dict) else logprobs,
            **{key: settled(value) for key, value in self._beside.items()},
        }

    def _whole_calls(self, options: AggregateOptions) -> list[CallAggregate]:
        calls = [
            self._calls[place]
            for place in sorted(self._calls)
            if self._calls[place].is_named and (place[0] or place[1] not in self.dropped)
        ]
        # Dynamo's check builds values here, and refuses 1e999; this one is the dispatcher's.
        if self.finish_reason == "length" and calls and calls[-1].name and not is_json(calls[-1].argument_text):
            del calls[-1]
        return calls if options.parallel_tool_calls else calls[:1]


def _names_a_tool(fragment: Payload) -> bool:
    kinds = fragment.get("function"), fragment.get("custom")
    return any(isinstance(kind, dict) and kind.get("name") for kind in kinds)


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
