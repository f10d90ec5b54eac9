"""What is odd about the streams of one server, and which repairs and parser formats cure it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from pipeline.chunks import delta_of, numbered_choices
from pipeline.items import Chunk
from pipeline.plan import DEFAULT_STAGES, Plan, make_plan
from pipeline.registry import StageRegistry
from server.markup_finder import Markup, best_format, call_markup, thought_markup
from server.oddities import oddities_of
from server.recorded_streams import RecordedStream
from server.stage_run import Seen, StageRun, run_stages
from stages.refusals import Refusal
from stages.repairs import ALL_REPAIRS, RECOMMENDED, with_repairs

__all__ = ["Diagnosis", "Finding", "Kind", "StreamSummary", "diagnose"]

QUIRKS: Final = MappingProxyType(
    {
        "split-glued-events": "chunks joined by a single line feed",
        "function-call-to-tool-call": "function_call instead of tool_calls",
        "infer-missing-index": "calls without a usable index",
        "coerce-index": "an index that is a text or a float",
        "reindex-parallel-calls": "one index for several calls",
        "reattach-orphan-fragments": "an index that drifts away from its call",
        "wrap-single-tool-call": "tool_calls is one object, no list",
        "join-name-fragments": "names in pieces",
        "synthesize-missing-id": "calls without an id",
        "pin-first-id": "an id that changes within a call",
        "unique-ids": "one id for several calls",
        "drop-duplicate-calls": "a call that is sent twice",
        "strip-empty-object-prefix": "{} in front of the arguments",
        "stringify-arguments": "arguments that are no text",
        "empty-arguments-to-object": "no arguments at all",
        "replace-cumulative-arguments": "arguments sent again and again",
        "decode-double-encoding": "arguments encoded twice",
        "escape-control-characters": "raw control characters in arguments",
        "trim-trailing-text": "text behind the arguments",
        "finish-reason-tool-calls": "finish_reason stop although there are calls",
        "add-missing-role": "no role",
        "mirror-reasoning-fields": "thoughts under one of their two names",
    }
)
"""Each quirk that a repair reports, in words."""

_BY_CHOICE: Final = MappingProxyType(
    {
        "legacy_function_call": "if your clients expect tool_calls",
        "reasoning_fields": "if your clients read the other name",
    }
)
_DEFAULT_ORDER: Final = (
    ("role_dedup", "the role more than once"),
    ("empty_skip", "chunks that hold nothing"),
    ("parallel_call_filter", "several calls where one was asked for"),
)


class Kind(enum.Enum):
    """What a finding asks for."""

    REPAIR = "repair"
    """A repair that should be turned on."""
    BY_CHOICE = "by choice"
    """A repair that is right for some clients only."""
    PARSER = "parser"
    """A format for one of the parsers."""
    INFORMATION = "information"
    """Nothing: it is done already, or nothing can be done."""


@attrs.frozen
class Finding:
    """Something odd."""

    kind: Kind
    what: str
    cure: str
    """The repair's name, the config line of a parser, or what happens without any."""
    streams: int
    """In how many streams it was seen."""
    calls: int = 0
    """The tool calls that have it; 0 where it is not of calls."""
    frames: int = 0
    """The frames that have it, or that its cure changes; 0 where it is not of frames."""
    note: str = ""
    """What else there is to say of the cure."""


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
            lines.append(f"repairs = [{', '.join(map(_quoted, names))}]")
        return [*lines, *(f"{key} = {_quoted(name)}" for key, name in self.parsers.items())]


@attrs.frozen
class _Examined:
    """One stream as it is, and with every repair."""

    stream: RecordedStream
    plain: StageRun
    repaired: StageRun
    thoughts: Sequence[Markup]


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
    if thoughts and not (calls and calls[0] == "harmony"):  # which reads all that gpt_oss does
        parsers["reasoning_parser"] = thoughts[0]
    if calls:
        parsers["tool_call_parser"] = calls[0]
    repairs = tuple(
        name
        for name in ALL_REPAIRS
        if name not in _BY_CHOICE and any(name in each.repaired.seen.quirks for each in examined)
    )
    options = {key: {"format": name} for key, name in parsers.items()}
    cured = make_plan((*parsers, *with_repairs(repairs, DEFAULT_STAGES)), options, registry)
    runs = [run_stages(cured, each.stream.body, _with_tools(each, parsers)) for each in examined]
    findings = [
        *_of_repairs(examined),
        *_of_parsers(parsers, {"reasoning_parser": thoughts, "tool_call_parser": calls}, examined, calls_of),
        *_of_streams(examined),
        *_of_runs(examined, runs),
    ]
    summaries = [
        StreamSummary(
            each.stream.title,
            sum(isinstance(item, Chunk) for item in each.repaired.items),
            each.plain.seen.dispatched,
            run.seen.dispatched,
        )
        for each, run in zip(examined, runs, strict=True)
    ]
    return Diagnosis(tuple(findings), tuple(summaries), repairs, MappingProxyType(parsers))
