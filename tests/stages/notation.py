"""The notation of the numbered tables, and the default pipeline run in process, bytes in and bytes out.

A chunk is written as in the tables: ``t(0, "c", "f", "{}") + FIN("stop")``; ``c1(...)`` moves parts to choice 1. None
stands for an absent key (``-`` in the tables), ``""`` for an empty text.
"""

from __future__ import annotations

import json
from typing import Any

from pipeline.chunks import encode_json
from pipeline.decode import ItemDecoder
from pipeline.errors import StreamFailure
from pipeline.items import StreamError
from pipeline.sse import SseDecoder, sse_frame
from pipeline.stage import EventStyle, RequestContext, Stage
from pipeline.testing import RecordingObserver
from stages.empty_skip import EmptySkip
from stages.parallel_call_filter import ParallelCallFilter
from stages.reasoning_dispatch import ReasoningDispatch
from stages.role_dedup import RoleDedup
from stages.sse_encoder import SseEncoder
from stages.tool_call_dispatch import ToolCallDispatch

DEFAULT_ORDER: tuple[type[Stage], ...] = (
    ParallelCallFilter,
    RoleDedup,
    EmptySkip,
    ToolCallDispatch,
    ReasoningDispatch,
    SseEncoder,
)
SIDE_EVENTS = frozenset({"tool_call_dispatch", "reasoning_dispatch"})


# --- chunks -----------------------------------------------------------------------------------------------------


def t(index, id=None, name=None, arguments=None, type="function"):  # noqa: A002 - the wire's own words
    """A tool-call fragment on choice 0."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment = {"index": index, "id": id, "type": type, "function": function or None}
    return ((0, "tool_calls", {key: value for key, value in fragment.items() if value is not None}),)


def FIN(reason):  # noqa: N802 - as the tables write it
    """A finish reason on choice 0."""
    return ((0, "finish_reason", reason),)


def R(text):  # noqa: N802 - as the tables write it
    """Reasoning text on choice 0."""
    return ((0, "reasoning_content", text),)


def A(text):  # noqa: N802 - as R
    """Reasoning text on choice 0, under its alias."""
    return ((0, "reasoning", text),)


def C(text):  # noqa: N802 - as the tables write it
    """Content on choice 0."""
    return ((0, "content", text),)


def on_choice(index, parts):
    """The same parts on another choice."""
    return tuple((index, key, value) for _, key, value in parts)


def c1(parts):
    """The same parts on choice 1."""
    return on_choice(1, parts)


def chunk(parts, **keys):
    """The payload of a chunk that holds these parts."""
    choices: dict[Any, dict[str, Any]] = {}
    for index, key, value in parts:
        choice = choices.setdefault(index, {"index": index, "delta": {}, "finish_reason": None})
        if key == "finish_reason":
            choice[key] = value
        elif key == "tool_calls":
            choice["delta"].setdefault(key, []).append(value)
        else:
            choice["delta"][key] = value
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1790000000, "model": "demo"}
    return {**envelope, "choices": list(choices.values()), **keys}


# --- events -----------------------------------------------------------------------------------------------------


def E(choice, index, id, name, arguments=None, *, type="function"):  # noqa: A002, N802 - as the tables write it
    """The payload of a tool event."""
    function = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    call = {"index": index, "id": id, "type": type, "function": function}
    return {
        "choice_index": choice,
        "tool_call": {key: value for key, value in call.items() if value is not None},
    }


def T(choice, text):  # noqa: N802 - a thought
    """The payload of a reasoning event."""
    return {"index": choice, "reasoning_content": text}


# --- running ----------------------------------------------------------------------------------------------------


def told(observer, name):
    """What an observer was told under one name, in order."""
    return [tuple(record[1:]) for record in observer.records if record[0] == name]


class Gateway:
    """The default order of stages for one request, fed with the upstream's bytes.

    Args:
        request: the client's request body.
        events: the side events asked for.
        style: how they are written.
        options: for a stage class the options to use.
    """

    def __init__(self, request=None, events=SIDE_EVENTS, style=EventStyle.NAMED, options=None):
        self.observer = RecordingObserver()
        context = RequestContext(request=request or {}, events=events, event_style=style, observer=self.observer)
        chosen = [(stage, (options or {}).get(stage) or stage.Options()) for stage in DEFAULT_ORDER]
        self._stages = [stage(given, context) for stage, given in chosen if not stage.is_idle(given, context)]
        self._decoder = ItemDecoder()

    def feed(self, data: bytes) -> bytes:
        """What the client receives upon some bytes of the upstream."""
        return self._run(self._decoder.feed(data), self._stages)

    def send(self, payload) -> list[tuple[str | None, bytes]]:
        """The frames, name and data, that the client receives upon one chunk."""
        return frames(self.feed(sse_frame(encode_json(payload))))

    def fail(self, failure: StreamFailure) -> bytes:
        """What the client receives when Callahead notices that the upstream failed."""
        return self._run([StreamError(failure)], self._stages)

    def close(self) -> bytes:
        """What the client receives when the upstream's body ends cleanly."""
        out = self._run(self._decoder.close(), self._stages)
        for position, stage in enumerate(self._stages):
            if not self._stages[-1].finished:
                out += self._run(list(stage.close()), self._stages[position + 1 :])
        return out

    @staticmethod
    def _run(items, stages) -> bytes:
        for stage in stages:
            items = [given for item in items for given in ([] if stage.finished else stage.feed(item))]
        return b"".join(items)


def frames(data: bytes) -> list[tuple[str | None, bytes]]:
    """Name and data of every frame that has data."""
    return [(frame.event, frame.data) for frame in SseDecoder().feed(data) if frame.data]


def events_per_chunk(gateway: Gateway, chunks) -> list[list[Any]]:
    """Feed chunks one by one; the payloads of the side events in front of each. The chunk itself must arrive last."""
    seen = []
    for payload in chunks:
        *events, (name, data) = gateway.send(payload) or [(None, b"null")]
        assert name is None
        assert all(event in SIDE_EVENTS for event, _ in events)
        assert json.loads(data) in (payload, None), "the ordinary frame changed"
        seen.append([json.loads(event) for _, event in events])
    return seen


def as_lists(expected) -> list[list[Any]]:
    """The tables' ``0`` and single events as lists."""
    return [[] if not events else events if isinstance(events, list) else [events] for events in expected]
