"""How the repairs are tested: chunks in the notation of the tables, one stage alone, and whole orders on bytes.

A chunk is written ``chunk(e(0, "a", "f", "{}"), finish="stop", content="x")``. None stands for an absent key, ``NULL`` for
a null. What is expected is a list with an int for an input that comes out as the same object, or a payload in which
``<any>`` stands for a made-up id.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

from pipeline.chunks import encode_json
from pipeline.decode import ItemDecoder
from pipeline.items import Chunk, End, StreamError, Verbatim
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.registry import ENTRY_POINT_GROUP, StageRegistry
from pipeline.sse import sse_frame
from pipeline.stage import RequestContext
from pipeline.testing import RecordingObserver, items_of, make_stage, run_stage
from stages.glued_events import splitter_for
from stages.repairs import ALL_REPAIRS, with_repairs

NULL = object()
ENVELOPE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1790000000, "model": "demo"}
DONE = End(b"data: [DONE]\n\n")


def registry():
    """The built-in stages, whatever is installed."""
    names = (*ALL_REPAIRS, *DEFAULT_STAGES)
    points = {name: f"stages.{name}:{name.title().replace('_', '')}" for name in names}
    return StageRegistry(EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in points.items())


REGISTRY = registry()
CLASSES = [REGISTRY.find(name) for name in ALL_REPAIRS]
"""The repair stages in their running order."""


# --- chunks -------------------------------------------------------------------------------------------------------


def _present(**keys):
    return {key: None if value is NULL else value for key, value in keys.items() if value is not None}


def e(index=None, id=None, name=None, arguments=None, **keys):  # noqa: A002 - the wire's own words
    """An entry of ``tool_calls``."""
    function = _present(name=name, arguments=arguments)
    return _present(index=index, id=id, function=function or None, **keys)


def piece(text, index=0):
    """An entry with nothing but argument text."""
    return e(index, arguments=text)


def choice(*entries, index=0, finish=None, **delta):
    """A choice of a chunk."""
    calls = {"tool_calls": list(entries)} if entries else {}
    return {"index": index, "delta": {**delta, **calls}, "finish_reason": finish}


def chunk(*entries, index=0, finish=None, **delta):
    """The payload of a chunk with one choice."""
    return {**ENVELOPE, "choices": [choice(*entries, index=index, finish=finish, **delta)]}


def made_up(*entries, index=0):
    """The payload of a made-up chunk."""
    return chunk(*entries, index=index)


# --- one stage ----------------------------------------------------------------------------------------------------


def item(payload):
    """The item that a payload arrives as; items stay."""
    if not isinstance(payload, dict):
        return payload
    data = encode_json(payload)
    (decoded,) = items_of(sse_frame(data))
    return decoded


def matches(want: Any, have: Any) -> bool:
    """Equal as JSON, where a wanted ``<any>`` is any text but the empty one."""
    if want == "<any>":
        return isinstance(have, str) and have != ""
    if isinstance(want, dict) and isinstance(have, dict):
        return want.keys() == have.keys() and all(matches(value, have[key]) for key, value in want.items())
    if isinstance(want, list) and isinstance(have, list):
        return len(want) == len(have) and all(map(matches, want, have))
    return json.dumps(want, sort_keys=True) == json.dumps(have, sort_keys=True)


def show(given):
    """Items for the eye."""
    return [encode_json(one.payload).decode() if isinstance(one, Chunk) else type(one).__name__ for one in given]


def run(stage, before, *, options=None, request=None, observer=None):
    """The inputs as items, and what a stage gives for them."""
    items = [item(payload) for payload in before]
    return items, run_stage(make_stage(stage, options=options, request=request, observer=observer), items)


def check(stage, before, after, *, options=None, request=None, repairs=None, again=True):
    """Run a stage alone and compare; then run it again over what it gave, which must stay as it is.

    Args:
        stage: its class.
        before: payloads and other items.
        after: what must come out.
        options: the stage's.
        request: the request body.
        repairs: what the observer must be told, ``(choice, call, repair)``, where that matters.
        again: whether the second run is made.
    """
    observer = RecordingObserver()
    items, given = run(stage, before, options=options, request=request, observer=observer)
    assert len(given) == len(after), show(given)
    for want, have in zip(after, given, strict=True):
        if isinstance(want, int):
            assert have is items[want], show([have])
        elif isinstance(want, dict):
            assert isinstance(have, Chunk)
            assert have.raw is None
            assert matches(want, have.payload), f"\nwant {json.dumps(want)}\nhave {json.dumps(have.payload)}"
        else:
            assert have is want
    assert {record[0] for record in observer.records} <= {"call_repaired"}
    told = [tuple(record[2:]) for record in observer.records]
    assert len(set(told)) == len(told), "a repair is told once a call"
    if repairs is not None:
        assert told == repairs
    if again:
        _, once_more = run(stage, given, options=options, request=request)
        assert [encode_json(one.payload) if isinstance(one, Chunk) else one for one in once_more] == [
            encode_json(one.payload) if isinstance(one, Chunk) else one for one in given
        ]
    return given


def untouched(stage, *before, options=None, request=None):
    """A stage gives the very objects that it got."""
    check(stage, list(before), list(range(len(before))), options=options, request=request, repairs=[])


# --- a whole order ------------------------------------------------------------------------------------------------


class Repaired:
    """Repairs in front of the default order, for one request, fed with the upstream's bytes.

    Args:
        repairs: their names, in any order.
        request: the client's request body.
        events: the side events asked for.
        options: for a stage's name its options.
    """

    def __init__(
        self, repairs=(), request=None, events=("tool_call_dispatch", "reasoning_dispatch"), options=None, stages=None
    ):
        self.observer = RecordingObserver()
        plan = make_plan(with_repairs(repairs, stages or DEFAULT_STAGES), options or {}, REGISTRY)
        self._splitter = splitter_for(plan, self.observer)
        context = RequestContext(request=request or {}, events=frozenset(events), observer=self.observer)
        self._stages = [stage for _, stage in plan.stages_for(context)]
        self._decoder = ItemDecoder()

    def feed(self, data):
        """What the client receives upon some bytes of the upstream."""
        if self._splitter is not None:
            data = self._splitter.feed(data)
        return self._run(self._decoder.feed(data), self._stages)

    def close(self, failure=None):
        """What the client receives when the upstream ends, cleanly or not."""
        rest = self._splitter.close() if self._splitter is not None else b""
        items = [*self._decoder.feed(rest), *self._decoder.close()]
        out = self._run([*items, StreamError(failure)] if failure else items, self._stages)
        for position, stage in enumerate(self._stages):
            if not self._stages[-1].finished:
                out += self._run(list(stage.close()), self._stages[position + 1 :])
        return out

    def all_of(self, reads, failure=None):
        """What the client receives in all."""
        return b"".join(map(self.feed, reads)) + self.close(failure)

    @staticmethod
    def _run(items, stages):
        for stage in stages:
            items = [given for one in items for given in ([] if stage.finished else stage.feed(one))]
        return b"".join(items)

    def repairs(self):
        """What the observer was told of repairs."""
        return [tuple(record[1:]) for record in self.observer.records if record[0] == "call_repaired"]


def body_of(payloads):
    """A whole stream of these payloads; bytes are written as they are."""
    frames = [one if isinstance(one, bytes) else sse_frame(encode_json(one)) for one in payloads]
    return b"".join([*frames, DONE.raw])


def comment(text="hi"):
    """A comment as an item."""
    (found,) = items_of(f": {text}\n\n".encode())
    assert isinstance(found, Verbatim)
    return found
