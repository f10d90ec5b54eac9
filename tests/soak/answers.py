"""One choice of a conversation: what its deltas say one by one, and the message that they add up to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import attrs

__all__ = ["Choice", "Move", "choice_of"]

_WORDS: Final = (
    "the",
    " tide",
    " is",
    " low",
    " at",
    " Bergen",
    ".",
    "\n\n",
    " 14:32",
    " ☂",
    " größer",
    " 潮",
    ' "',
    "\\",
    " }",
)
_STRINGS: Final = (
    "",
    "a",
    "} not yet {",
    '"quoted"',
    "back\\slash",
    "Grüße 潮 🌊",
    "line\nbreak\ttab",
    "[DONE]",
    "data: x",
)
_NAMES: Final = ("lookup_tide", "write_note", "search", "now", "f")


@attrs.define(eq=False)
class Move:
    """What one chunk says of one choice, and the events that stand before it."""

    choice: int
    delta: dict[str, Any]
    finish_reason: str | None = None
    call_events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    reasoning_events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class Choice:
    """All of it."""

    moves: list[Move]
    message: dict[str, Any]
    """The choice of the folded response."""
    cut_calls: int


def choice_of(rng: Random, index: int, kind: str, tokens: int, width: int) -> Choice:
    """Make a choice of a kind; see ``conversations.conversation``."""
    answer = _Answer(rng, index)
    answer.add({"role": "assistant", "content": ""})
    if kind == "reasoning" or (kind in ("tools", "mixed") and rng.random() < 0.4):
        answer.add_reasoning(max(1, tokens // 2))
    has_calls = kind == "tools" or (kind in ("choices", "mixed") and rng.random() < 0.5)
    if not has_calls or rng.random() < 0.3:
        answer.add_text(tokens, width)
    if kind == "reasoning" and rng.random() < 0.3:
        answer.add_reasoning(3)
    if has_calls:
        answer.add_calls(rng.randint(1, 4))
    return answer.finish()


@attrs.define(eq=False)
class _Call:
    """One call as it is to be said."""

    index: int
    call_id: str
    name: str
    text: str | None
    """The arguments; none: the key never comes."""
    is_cut: bool = False
    said: str = ""


class _Answer:
    """Collects moves, and what they come to."""

    def __init__(self, rng: Random, index: int) -> None:
        self._rng = rng
        self._index = index
        self._moves: list[Move] = []
        self._content = ""
        self._reasoning = ""
        self._block = ""
        self._calls: list[_Call] = []

    def add(self, delta: dict[str, Any]) -> Move:
        """One more delta; it ends a block of reasoning unless it goes on with it."""
        move = Move(self._index, delta)
        if "reasoning_content" not in delta:
            self._end_block(move)
        self._moves.append(move)
        return move

    def add_text(self, tokens: int, width: int) -> None:
        """So many chunks of content."""
        for _ in range(tokens):
            token = self._rng.choice(_WORDS) * width
            self._content += token
            self.add({"content": token})

    def add_reasoning(self, tokens: int) -> None:
        """So many chunks of reasoning."""
        for _ in range(tokens):
            token = self._rng.choice(_WORDS)
            self._block += token
            self._reasoning += token
            self.add({"reasoning_content": token})

    def add_calls(self, number: int) -> None:
        """Calls, one after the other or their fragments among each other."""
        rng = self._rng
        queues = [list(self._fragments(self._new_call(index))) for index in range(number)]
        is_parallel = rng.random() < 0.5
        while queues := [queue for queue in queues if queue]:
            chosen = [rng.choice(queues)] if is_parallel else queues[:1]
            if is_parallel and rng.random() < 0.2:
                chosen = queues
            said = [queue.pop(0) for queue in chosen]
            move = self.add({"tool_calls": [fragment for fragment, _ in said]})
            move.call_events += [self._event(call) for _, call in said if call is not None]

    def finish(self) -> Choice:
        """The end; some calls have waited for it, and one may be cut off by it."""
        rng = self._rng
        reason = "tool_calls" if self._calls else "stop"
        cut_calls = 0
        last = self._calls[-1] if self._calls else None
        if last is not None and rng.random() < 0.1:
            cut = self.add({"tool_calls": [{"index": len(self._calls), "id": "call_cut", "function": {"name": "f"}}]})
            cut.delta["tool_calls"][0]["function"]["arguments"] = '{"never": "who'
            reason, cut_calls = "length", 1
        waiting = [call for call in self._calls if not call.text]
        if reason == "length":
            cut_calls += len(waiting)
        # Empty content keeps its own move: with a finish reason it is no empty chunk, but one that says something.
        move = self._moves[-1] if rng.random() < 0.3 and len(self._moves) > 1 else self.add({})
        move.finish_reason = reason
        if reason != "length":
            move.call_events += [self._event(call) for call in waiting]
        self._end_block(move)
        return Choice(self._moves, self._message(reason), cut_calls)

    def _end_block(self, move: Move) -> None:
        if self._block:
            block = {"index": self._index, "reasoning_content": self._block}
            move.reasoning_events.append(("reasoning_dispatch", block))
            self._block = ""

    def _new_call(self, index: int) -> _Call:
        rng = self._rng
        text: str | None = _arguments(rng)
        if rng.random() < 0.1:
            text = rng.choice([None, ""])
        call = _Call(index, f"call_{rng.getrandbits(40):010x}", rng.choice(_NAMES), text)
        self._calls.append(call)
        return call

    def _fragments(self, call: _Call) -> Iterator[tuple[dict[str, Any], _Call | None]]:
        """The call's fragments; the one that completes it comes with the call."""
        rng = self._rng
        function = {"name": call.name}
        first = {"index": call.index, "id": call.call_id, "type": "function", "function": function}
        pieces = list(_cut(rng, call.text)) if call.text else []
        if call.text == "" or (pieces and rng.random() < 0.3):
            function["arguments"] = ""
        elif pieces and rng.random() < 0.5:
            function["arguments"] = pieces.pop(0)
        yield first, call if call.text and not pieces else None
        for place, piece in enumerate(pieces, start=1):
            fragment = {"index": call.index, "function": {"arguments": piece}}
            yield fragment, call if place == len(pieces) else None

    def _event(self, call: _Call) -> tuple[str, dict[str, Any]]:
        function = {"name": call.name} if call.text is None else {"name": call.name, "arguments": call.text}
        tool_call = {"index": call.index, "id": call.call_id, "type": "function", "function": function}
        return "tool_call_dispatch", {"choice_index": self._index, "tool_call": tool_call}

    def _message(self, reason: str) -> dict[str, Any]:
        message: dict[str, Any] = {"content": self._content or None, "refusal": None, "role": "assistant"}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.text or ""}}
                for call in self._calls
            ]
        return {"index": self._index, "message": message, "finish_reason": reason, "logprobs": None}


def _arguments(rng: Random) -> str:
    """Argument text: always JSON, never twice in the same dress."""
    value: Any = {f"k{number}": _value(rng, 2) for number in range(rng.randrange(5))}
    if rng.random() < 0.1:
        value = list(value.values())
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))
    return text + rng.choice(["", "", "", " \n"])


def _value(rng: Random, depth: int) -> Any:
    match rng.randrange(6 if depth else 4):
        case 0:
            return rng.choice(_STRINGS)
        case 1:
            return rng.choice([0, -1, 3.25, 10**20])
        case 2:
            return rng.choice([True, False, None])
        case 3:
            return "x" * rng.randrange(60)
        case 4:
            return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice(_STRINGS): _value(rng, depth - 1) for _ in range(rng.randrange(4))}


def _cut(rng: Random, text: str) -> Iterator[str]:
    """The text in pieces; the blanks at its end stay with what they follow."""
    end = len(text.rstrip()) - 1
    start = 0
    while (stop := start + rng.randint(1, 12)) <= end:
        yield text[start:stop]
        start = stop
    yield text[start:]
