"""What is odd about the streams of one server, and which repairs and parser formats cure it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from pipeline.items import Chunk
from pipeline.plan import DEFAULT_STAGES, Plan, make_plan
from pipeline.registry import StageRegistry
from server.findings import BY_CHOICE, Examined, Finding, of_parsers, of_repairs, of_runs, of_streams, quoted
from server.markup_finder import Markup, best_format, call_markup, thought_markup, with_tools
from server.recorded_streams import RecordedStream
from server.stage_run import run_stages
from stages.repairs import ALL_REPAIRS, RECOMMENDED, with_repairs

__all__ = ["Diagnosis", "StreamSummary", "diagnose"]

_CHANNELS: Final = "harmony"
"""The format that reads thoughts and calls at once."""


@attrs.frozen
class StreamSummary:
    """What became of one stream."""

    title: str
    chunks: int
    announced: int
    """The calls that the default order announces."""
    announced_cured: int
    """The calls that it announces with all the cures."""


@attrs.frozen
class Diagnosis:
    """All that was found."""

    findings: tuple[Finding, ...]
    streams: tuple[StreamSummary, ...]
    repairs: tuple[str, ...]
    """The repairs that are needed, in running order."""
    parsers: Mapping[str, str]
    """The format for each parser that is needed, by its config key."""

    @property
    def is_well(self) -> bool:
        """Whether the default order is all that is needed."""
        return not self.repairs and not self.parsers

    @property
    def config(self) -> list[str]:
        """The lines to put into a config, none where nothing is needed."""
        if self.is_well:
            return []
        lines = ["[pipeline]"]
        beyond = [name for name in self.repairs if name not in RECOMMENDED]
        names = (["recommended"] if len(beyond) < len(self.repairs) else []) + beyond
        if names:
            lines.append(f"repairs = [{', '.join(map(quoted, names))}]")
        return [*lines, *(f"{key} = {quoted(name)}" for key, name in self.parsers.items())]


def diagnose(streams: Iterable[RecordedStream]) -> Diagnosis:
    """Run streams of one server with and without all repairs, and find what mends them.

    No stream is trusted to be of any shape. Stages of other packages play no part.
    """
    registry = StageRegistry()
    plain = make_plan(DEFAULT_STAGES, {}, registry)
    repaired = make_plan(with_repairs(ALL_REPAIRS, DEFAULT_STAGES), {}, registry)
    examined = [_examine(stream, plain, repaired) for stream in streams]
    thoughts = best_format(each.thoughts for each in examined)
    calls_of = [_calls_behind(each, thoughts[0] if thoughts else "") for each in examined]
    calls = best_format(calls_of)
    parsers: dict[str, str] = {}
    if thoughts and not (calls and calls[0] == _CHANNELS):  # which reads all that gpt_oss does
        parsers["reasoning_parser"] = thoughts[0]
    if calls:
        parsers["tool_call_parser"] = calls[0]
    repairs = tuple(
        name
        for name in ALL_REPAIRS
        if name not in BY_CHOICE and any(name in each.repaired.seen.quirks for each in examined)
    )
    options = {key: {"format": name} for key, name in parsers.items()}
    cured = make_plan((*parsers, *with_repairs(repairs, DEFAULT_STAGES)), options, registry)
    runs = [
        run_stages(cured, each.stream.body, with_tools(each.stream.request) if parsers else each.stream.request)
        for each in examined
    ]
    findings = [
        *of_repairs(examined),
        *of_parsers(parsers, {"reasoning_parser": thoughts, "tool_call_parser": calls}, examined, calls_of),
        *of_streams(examined),
        *of_runs(examined, runs),
    ]
    summaries = [
        StreamSummary(
            each.stream.title,
            sum(isinstance(item, Chunk) for item in each.repaired.decoded),
            each.plain.seen.dispatched,
            run.seen.dispatched,
        )
        for each, run in zip(examined, runs, strict=True)
    ]
    return Diagnosis(tuple(findings), tuple(summaries), repairs, MappingProxyType(parsers))


def _examine(stream: RecordedStream, plain: Plan, repaired: Plan) -> Examined:
    run = run_stages(repaired, stream.body, stream.request)
    thoughts = thought_markup(run.decoded, stream.request)
    return Examined(stream, run_stages(plain, stream.body, stream.request), run, thoughts)


def _calls_behind(examined: Examined, thoughts: str) -> list[Markup]:
    """The calls in the text that is left once its thoughts are out; harmony's formats read both at once."""
    items = [each.items for each in examined.thoughts if each.format == thoughts != _CHANNELS]
    return call_markup(items[0] if items else examined.repaired.decoded, examined.stream.request)
