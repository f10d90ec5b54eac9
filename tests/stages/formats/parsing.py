"""Runs the parser stages over raw text in process, and keeps what a client would have seen."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

from pipeline.items import Chunk, SideEvent
from pipeline.stage import RequestContext
from pipeline.testing import chunk
from stages.reasoning_parser import ReasoningParser
from stages.tool_call_dispatch import ToolCallDispatch
from stages.tool_call_parser import ToolCallParser

_CASES = Path(__file__).parents[2] / "parsers"
_PARSERS = {"reasoning_parser": ReasoningParser, "tool_call_parser": ToolCallParser}
_LENGTHS = [1, 1, 2, 3, 5, 8, 13, 40]

TOOLS = json.loads((_CASES / "qwen3_coder--typed-values.json").read_text("utf-8"))["tools"]


@functools.cache
def cases() -> dict[str, dict[str, Any]]:
    """The vectors by their names (spec, parsers, 10)."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(_CASES.glob("*.json"))}


def random_cut(text: str, seed: object) -> list[str]:
    """The text in pieces of random lengths, the same ones for the same seed."""
    chooser = random.Random(str(seed))
    pieces = []
    while text:
        length = chooser.choice(_LENGTHS)
        pieces.append(text[:length])
        text = text[length:]
    return pieces


class Client:
    """What comes out of the parsers and the dispatcher for one choice.

    Args:
        request: the request body; tools and the like.
        **formats: ``tool_call_parser`` and ``reasoning_parser``.
    """

    def __init__(self, request=None, **formats):
        context = RequestContext(request=request or {}, events=frozenset({"tool_call_dispatch"}))
        steps = [(stage, stage.Options(format=formats[key])) for key, stage in _PARSERS.items() if formats.get(key)]
        self.parsers = [stage(options, context) for stage, options in steps if not stage.is_idle(options, context)]
        self._stages = [*self.parsers, ToolCallDispatch(ToolCallDispatch.Options(), context)]
        self.texts = {"content": "", "reasoning_content": ""}
        self.calls: dict[int, dict[str, Any]] = {}
        self.finish_reason: str | None = None
        self.dispatched: list[dict[str, Any]] = []
        self.evidence: list[Any] = []

    @classmethod
    def of(cls, case):
        """A client that sends the request of a vector."""
        request = dict(case.get("request") or {})
        if case.get("tools"):
            request |= {"tools": case["tools"], "tool_choice": case["tool_choice"]}
        return cls(request, **case["format"])

    @property
    def content(self):
        """The text of the answer."""
        return self.texts["content"]

    @property
    def reasoning(self):
        """The text of the thoughts."""
        return self.texts["reasoning_content"]

    @property
    def arguments(self):
        """The argument text of each call."""
        return [self.calls[index]["arguments"] for index in sorted(self.calls)]

    def feed(self, *pieces):
        """Send the text on in pieces."""
        for piece in pieces:
            self.send(chunk(content=piece))
        return self

    def finish(self, reason="stop"):
        """End the choice."""
        self.send(chunk(finish=reason))
        return self

    def send(self, item):
        """Send any item; what comes out."""
        items = [item]
        for stage in self._stages:
            items = [given for each in items for given in stage.feed(each)]
        for given in items:
            self._take(given)
        return items

    def _take(self, item):
        if isinstance(item, SideEvent):
            self.dispatched.append(item.payload["tool_call"])
        elif isinstance(item, Chunk):
            self.evidence += item.evidence
            for choice in item.payload["choices"]:
                self._take_delta(choice["delta"])
                self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def _take_delta(self, delta):
        for key in self.texts:
            assert delta.get(key, " ") or "role" in delta, "an empty text is no filler"
            self.texts[key] += delta.get(key) or ""
        for entry in delta.get("tool_calls") or []:
            function = entry["function"]
            if "id" in entry:
                assert entry["index"] == len(self.calls), "indexes count up"
                assert entry["type"] == "function"
                self.calls[entry["index"]] = {"id": entry["id"], "name": function["name"], "arguments": ""}
            self.calls[entry["index"]]["arguments"] += function["arguments"]

    def state(self):
        """All that a client knows in the end, but for made-up ids."""
        calls = [(call["name"], call["arguments"]) for _, call in sorted(self.calls.items())]
        return self.texts, calls, [call["index"] for call in self.dispatched], self.finish_reason
