"""A stage alone, a few in a row, and one between real memory channels."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import trio

from pipeline.assembly import open_pipeline
from pipeline.observer import Observer
from pipeline.options import read_options
from pipeline.stage import EventStyle, RequestContext, Stage

__all__ = ["RecordingObserver", "make_stage", "run_stage", "run_stage_in_channels", "run_stages"]

StageT = TypeVar("StageT", bound=Stage)


class RecordingObserver(Observer):
    """Keeps all that it is told.

    Example::

        observer = RecordingObserver()
        run_stage(make_stage(ToolCallDispatch, observer=observer), items)
        assert observer.records == [("call_opened", 0, 0), ("call_refused", 0, 0, "no_id", None)]
    """

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []
        """For each call in order the method's name and its arguments, those by keyword behind the others."""
        for name, method in inspect.getmembers(Observer, inspect.isfunction):
            if not name.startswith("_"):
                setattr(self, name, self._recorder(name, inspect.signature(method)))

    def _recorder(self, name: str, signature: inspect.Signature) -> Any:
        def record(*args: Any, **kwargs: Any) -> None:
            told = signature.bind(self, *args, **kwargs).arguments
            self.records.append((name, *list(told.values())[1:]))

        return record


def make_stage(  # noqa: PLR0913 - one for each thing that a stage may depend on
    stage: type[StageT],
    *,
    options: Mapping[str, Any] | None = None,
    request: Mapping[str, Any] | None = None,
    events: Iterable[str] = (),
    event_style: EventStyle = EventStyle.NAMED,
    observer: Observer | None = None,
) -> StageT:
    """A stage for one request, made as the gateway makes it.

    Args:
        stage: its class.
        options: what a config file has under ``[stages.NAME]``.
        request: the parsed request body.
        events: the side events in force.
        event_style: how side events are written.
        observer: told what the stage sees.

    Raises:
        PlanError: an option is unknown or of the wrong type.

    Example::

        stage = make_stage(ToolCallDispatch, options={"max_argument_bytes": 64}, events=["tool_call_dispatch"])
    """
    context = RequestContext(
        request=request or {},
        events=frozenset(events),
        event_style=event_style,
        request_id="test",
        observer=observer or Observer(),
    )
    return stage(read_options(stage.__name__, stage, options or {}), context)


def run_stage(stage: Stage, items: Iterable[Any]) -> list[Any]:
    """What a stage gives for items and the end behind them; nothing is fed once it is ``finished``.

    What it raises comes out as it is. A stage that overrides ``run`` is for ``run_stage_in_channels``.

    Example::

        assert run_stage(make_stage(EmptySkip), [text_chunk("")]) == []
    """
    given: list[Any] = []
    for item in items:
        given += stage.feed(item)
        if stage.finished:
            return given
    given += stage.close()
    return given


def run_stages(stages: Iterable[Stage], items: Iterable[Any]) -> list[Any]:
    """What the last of several stages in a row gives.

    Example::

        stages = [make_stage(RoleDedup), make_stage(EmptySkip), make_stage(SseEncoder)]
        assert b"".join(run_stages(stages, items_of(body))) == body
    """
    given = list(items)
    for stage in stages:
        given = run_stage(stage, given)
    return given


async def run_stage_in_channels(stage: Stage, bursts: Iterable[list[Any]]) -> list[Any]:
    """What a stage gives between two memory channels without room, run by the real driver.

    Checkpoints. What it raises comes in band, as in a request: a ``StreamError``, or an error frame where the
    stage gives bytes.

    Args:
        stage: any stage, also one that overrides ``run``.
        bursts: what its source sends, burst by burst.

    Example::

        assert await run_stage_in_channels(make_stage(EmptySkip), [[text_chunk("")], [text_chunk("a")]])
    """

    async def source(send: trio.MemorySendChannel[list[Any]]) -> None:
        await trio.lowlevel.checkpoint()
        for burst in bursts:
            await send.send(burst)

    given: list[Any] = []
    async with open_pipeline(source, [(type(stage).__name__, stage)]) as receive:
        async for burst in receive:
            given += burst
    return given
