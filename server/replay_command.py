"""``callahead replay``: recorded streams through a pipeline, without a server."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import click
import trio
import trio.testing

from pipeline.assembly import open_pipeline
from pipeline.class_registry import nearest
from pipeline.decode import ItemDecoder
from pipeline.items import Chunk, Item
from pipeline.registry import StageRegistry
from pipeline.stage import EventStyle, RequestContext, Stage
from server.command_config import config_of_command
from server.errors import ConfigError
from server.recorded_streams import read_request, streams_of
from server.text_table import aligned
from server.timeline import Timeline, count
from stages.glued_events import splitter_for

__all__ = ["replay"]

_Stages: TypeAlias = Sequence[tuple[str, Stage]]


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--config", "path", type=click.Path(path_type=Path), metavar="FILE", help="Where the pipeline stands.")
@click.option("--events", metavar="NAME,NAME", help="The side events asked for (all that the pipeline can produce).")
@click.option("--style", type=click.Choice([each.value for each in EventStyle]), help="How side events look.")
@click.option("--request", "request_file", type=click.Path(path_type=Path), metavar="FILE", help="The request's body.")
@click.option("--tool-call-parser", metavar="FORMAT", help="How the model marks its calls in raw text.")
@click.option("--reasoning-parser", metavar="FORMAT", help="How the model marks its thoughts in raw text.")
@click.option("--repair", multiple=True, metavar="NAME", help="A repair to put before the stages; repeatable.")
@click.option("--timeline", is_flag=True, help="Print when each call opened, closed and was dispatched instead.")
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    default=40.0,
    show_default=True,
    metavar="N",
    help="The pace at which a timeline turns chunks into seconds, a token each.",
)
@click.pass_context
def replay(  # noqa: PLR0913 - one for each option
    context: click.Context,
    files: tuple[Path, ...],
    *,
    path: Path | None,
    events: str | None,
    style: str | None,
    request_file: Path | None,
    tool_call_parser: str | None,
    reasoning_parser: str | None,
    repair: tuple[str, ...],
    timeline: bool,
    tokens_per_second: float,
) -> None:
    """Run recorded streams (.sse, .jsonl, captures) through a pipeline and print what a client would receive."""
    flags = {"repair": repair, "tool_call_parser": tool_call_parser, "reasoning_parser": reasoning_parser}
    config = config_of_command(path, flags)
    plans = config.plans(StageRegistry())
    producible = plans.default.events
    wanted = producible if events is None else _names(events, producible)
    if timeline:
        wanted |= producible & {"tool_call_dispatch"}
    request = read_request(request_file)
    event_style = EventStyle(style or config.events.style)
    failed = False
    for file in files:
        try:
            streams = streams_of(file, request)
        except ConfigError as error:
            click.echo(str(error), err=True)
            failed = True
            continue
        for stream in streams:
            report = _Report(stream.title)
            plan = plans.for_model(stream.model)
            stages = plan.stages_for(RequestContext(stream.request, wanted, event_style, "replay", report))
            limit = config.pipeline.max_frame_bytes
            decoder = ItemDecoder(limit, splitter_for(plan, report, limit))
            items = [*decoder.feed(stream.body), *decoder.close()]
            if timeline:
                trio.run(_play_stepwise, items, stages, report)
                rows = report.rows(tokens_per_second)
                title = f"{stream.title}: {count(report.chunks, 'chunk')}{'' if rows else ', no tool calls'}"
                click.echo("\n".join([title, *aligned(rows), ""]))
            else:
                trio.run(_play, items, stages, sys.stdout.buffer.write)
            failed = failed or report.stage_has_failed
    context.exit(1 if failed else 0)


class _Report(Timeline):
    """The timeline of one file; says on stderr what a server would log."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._file = title
        self.stage_has_failed = False

    def stage_failed(self, stage: str, error: Exception) -> None:
        """Show whoever writes a stage where it raised."""
        self.stage_has_failed = True
        trace = "".join(traceback.format_exception(error))
        click.echo(f"{self._file}: stage {stage} failed\n{trace}", err=True, nl=False)

    def warned(self, stage: str, message: str) -> None:
        """Pass on what a stage found odd."""
        click.echo(f"{self._file}: stage {stage}: {message}", err=True)


async def _play(items: list[Item], stages: _Stages, write: Callable[[bytes], object]) -> None:
    """Run a whole stream through its stages, and write the bytes that come out."""

    async def source(send: trio.MemorySendChannel[list[Item]]) -> None:
        await trio.lowlevel.checkpoint()
        if items:
            await send.send(items)

    async with open_pipeline(source, stages) as receive:
        async for burst in receive:
            write(b"".join(burst))


async def _play_stepwise(items: list[Item], stages: _Stages, timeline: Timeline) -> None:
    """Run a stream through its stages item by item, each after all stages are done with the one before."""

    async def source(send: trio.MemorySendChannel[list[Item]]) -> None:
        await trio.lowlevel.checkpoint()
        for item in items:
            if type(item) is Chunk:
                timeline.next_chunk(item)
            await send.send([item])
            await trio.testing.wait_all_tasks_blocked()

    async with open_pipeline(source, stages) as receive:
        async for _ in receive:
            pass


def _names(text: str, producible: frozenset[str]) -> frozenset[str]:
    names = {name.strip() for name in text.split(",")} - {""}
    if unknown := sorted(names - producible):
        known = f"it produces: {', '.join(sorted(producible)) or 'none'}"
        raise ConfigError(
            f'--events: the pipeline produces no "{unknown[0]}"{nearest(unknown[0], producible)}; {known}'
        )
    return frozenset(names)
