"""Folds the chunks of a stream into the one response that they add up to (spec, dispatch, section 4)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import attrs

from pipeline.chunks import choices_of, delta_of, finish_reason_of, usable_index
from pipeline.items import Payload
from stages.json_syntax import is_json
from stages.merge_values import merge_last, merge_piece, settled
from stages.tool_call_merge import ToolCall, merge

__all__ = ["Aggregate", "AggregateOptions"]

_ENVELOPE: Final = frozenset({"choices", "object"})
_CHOICE: Final = frozenset({"index", "delta", "message", "finish_reason", "logprobs"})


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
        self._envelope: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}
        self.chunks = 0
        """How many chunks were folded."""

    def feed(self, payload: Payload) -> None:
        """Fold one chunk."""
        self.chunks += 1
        for key, value in payload.items():
            if value is not None and key not in _ENVELOPE:
                self._envelope[key] = merge_last(self._envelope.get(key), value)
        for choice in choices_of(payload):
            index = usable_index(choice.get("index", 0)) if isinstance(choice, dict) else None
            if index is not None:
                if index not in self._choices:
                    self._choices[index] = _Choice()
                self._choices[index].feed(choice)

    def drop_call(self, choice_index: int, call_index: int) -> None:
        """Leave a call out of the response: what was taken for one may be none (5.6)."""
        if choice_index in self._choices:
            self._choices[choice_index].dropped.add(call_index)

    def response(self) -> Payload:
        """The response of the chunks so far. Costs its size; more chunks may follow."""
        known = {"id": "", "created": 0, "model": ""} | self._envelope
        return {
            "id": known.pop("id"),
            "choices": [self._choices[index].response(index, self._options) for index in sorted(self._choices)],
            "created": known.pop("created"),
            "model": known.pop("model"),
            "object": "chat.completion",
            **known,
        }


class _Choice:
    """One choice of the response."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.content = _Content()
        self.refusal = io.StringIO()
        self.calls: dict[int, ToolCall] = {}
        self.unnumbered: list[ToolCall] = []
        self.dropped: set[int] = set()
        self.function_call: ToolCall | None = None
        self.others: dict[str, Any] = {}
        self.beside: dict[str, Any] = {}
        self.logprobs: dict[str, Any] | None = None
        self.finish_reason: str | None = None

    def feed(self, choice: Payload) -> None:
        self.finish_reason = finish_reason_of(choice) or self.finish_reason
        if isinstance(choice.get("logprobs"), dict):
            self._add_logprobs(choice["logprobs"])
        for key, value in choice.items():
            if value is not None and key not in _CHOICE:
                self.beside[key] = merge_last(self.beside.get(key), value)
        delta = delta_of(choice)
        if delta:
            self._add_delta(delta)

    def _add_delta(self, delta: Payload) -> None:
        for key, value in delta.items():
            if value is None:
                continue
            if key == "content":
                self.content.add(value)
            elif key == "role":
                self.role = self.role or (value if isinstance(value, str) else None)
            elif key == "refusal":
                self.refusal.write(value if isinstance(value, str) else "")
            elif key == "tool_calls":
                self._add_fragments(value)
            elif key == "function_call":
                self.function_call = self.function_call or ToolCall()
                merge(self.function_call, {"function": value})
            else:
                self.others[key] = merge_piece(self.others.get(key), value, key)

    def _add_fragments(self, fragments: Any) -> None:
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, dict):
                self._add_fragment(fragment)

    def _add_fragment(self, fragment: Payload) -> None:
        index = usable_index(fragment.get("index"))
        if index is not None:
            merge(self.calls.setdefault(index, ToolCall()), fragment)
            return
        # Without an index a fragment that names a function is a call of its own; another one goes on with the last.
        function = fragment.get("function")
        named = isinstance(function, dict) and bool(function.get("name"))
        if named or not self.unnumbered:
            self.unnumbered.append(ToolCall())
        merge(self.unnumbered[-1], fragment)

    def _add_logprobs(self, logprobs: Payload) -> None:
        self.logprobs = self.logprobs or {"content": None, "refusal": None}
        for key, value in logprobs.items():
            if isinstance(value, list):
                known = self.logprobs.get(key)
                self.logprobs[key] = [*known, *value] if isinstance(known, list) else value
            elif value is not None:
                self.logprobs[key] = value

    def response(self, index: int, options: AggregateOptions) -> Payload:
        calls = self._whole_calls(options)
        others = {key: settled(value) for key, value in self.others.items()}
        content = self.content.value()
        if options.nonempty_content and not calls and not self.content.has_parts and not (content or "").strip():
            name = next((key for key in ("reasoning_content", "reasoning") if _is_said(others.get(key))), None)
            if name is not None:
                content = others.pop(name)
        message: dict[str, Any] = {"content": content, "refusal": self.refusal.getvalue() or None}
        if calls:
            message["tool_calls"] = calls
        message["role"] = self.role or "assistant"
        if self.function_call is not None:
            message["function_call"] = {
                "name": self.function_call.name,
                "arguments": self.function_call.arguments or "",
            }
        reason = self.finish_reason
        if calls and reason in (None, "stop"):
            reason = "tool_calls"
        return {
            "index": index,
            "message": {**message, **others},
            "finish_reason": reason,
            "logprobs": self.logprobs,
            **self.beside,
        }

    def _whole_calls(self, options: AggregateOptions) -> list[Payload]:
        numbered = [self.calls[index] for index in sorted(self.calls) if index not in self.dropped]
        calls = [call for call in (*numbered, *self.unnumbered) if call.name or call.custom_name]
        if self.finish_reason == "length" and calls and calls[-1].name and not is_json(calls[-1].arguments or ""):
            del calls[-1]
        if not options.parallel_tool_calls:
            del calls[1:]
        return [_call(call) for call in calls]


class _Content:
    """Text and parts in the order in which they came; neighbouring text is one."""

    def __init__(self) -> None:
        self._runs: list[io.StringIO | Any] = []
        self.has_parts = False

    def add(self, value: Any) -> None:
        """Add a delta's ``content``: text, or a list of parts of which those of type ``text`` are text too."""
        for piece in value if isinstance(value, list) else [value]:
            text = piece
            if isinstance(piece, dict) and piece.get("type") == "text" and piece.keys() <= {"type", "text"}:
                text = piece.get("text")
            if isinstance(text, str):
                self._add_text(text)
            else:
                self.has_parts = True
                self._runs.append(piece)

    def _add_text(self, text: str) -> None:
        if not self._runs or not isinstance(self._runs[-1], io.StringIO):
            self._runs.append(io.StringIO())
        self._runs[-1].write(text)

    def value(self) -> Any:
        """A text where there was nothing but text, null where there was none, else a list of parts."""
        if self.has_parts:
            return [_part(run) for run in self._runs if not isinstance(run, io.StringIO) or run.getvalue()]
        return "".join(run.getvalue() for run in self._runs) or None


def _part(run: Any) -> Any:
    return {"type": "text", "text": run.getvalue()} if isinstance(run, io.StringIO) else run


def _call(call: ToolCall) -> Payload:
    if call.custom_name and not call.name:
        return {
            "id": call.id,
            "type": call.type or "custom",
            "custom": {"name": call.custom_name, "input": call.input or ""},
        }
    function = {"name": call.name, "arguments": call.arguments or ""}
    return {"id": call.id, "type": call.type or "function", "function": function}


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
