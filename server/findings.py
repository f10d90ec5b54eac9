"""What there is to say of streams that were run through stages: one finding for each thing that is odd."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from server.markup_finder import Markup
from server.oddities import oddities_of
from server.recorded_streams import RecordedStream
from server.stage_run import Seen, StageRun
from stages.refusals import Refusal
from stages.repairs import ALL_REPAIRS

__all__ = [
    "BY_CHOICE",
    "QUIRKS",
    "Examined",
    "Finding",
    "Kind",
    "of_parsers",
    "of_repairs",
    "of_runs",
    "of_streams",
    "quoted",
]

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


BY_CHOICE: Final = MappingProxyType(
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
class Examined:
    """One stream as it is, and with every repair."""

    stream: RecordedStream
    plain: StageRun
    repaired: StageRun
    thoughts: Sequence[Markup]


def of_repairs(examined: Sequence[Examined]) -> Iterator[Finding]:
    """Of each repair that changed something."""
    for name in ALL_REPAIRS:
        runs = [each for each in examined if name in each.repaired.seen.quirks]
        if not runs:
            continue
        quirks = {quirk for each in runs for quirk in each.repaired.seen.quirks[name]}
        if name == "glued_events":
            frames = sum(len(each.repaired.decoded) - len(each.plain.decoded) for each in runs)
        else:
            frames = sum(each.repaired.changed[name] for each in runs)
        yield Finding(
            Kind.BY_CHOICE if name in BY_CHOICE else Kind.REPAIR,
            ", ".join(words for quirk, words in QUIRKS.items() if quirk in quirks),
            name,
            len(runs),
            sum(len(each.repaired.seen.calls[name]) for each in runs),
            frames,
            BY_CHOICE.get(name, ""),
        )


def of_parsers(
    parsers: Mapping[str, str],
    equals: Mapping[str, tuple[str, tuple[str, ...]] | None],
    examined: Sequence[Examined],
    calls_of: Sequence[Sequence[Markup]],
) -> Iterator[Finding]:
    """Of each parser that is needed.

    Args:
        parsers: the format for each, by config key.
        equals: the best format for each, with those that do as well.
        examined: the streams.
        calls_of: for each stream what formats of calls read in it.
    """
    markups = {"reasoning_parser": [each.thoughts for each in examined], "tool_call_parser": calls_of}
    whats = {"reasoning_parser": "thoughts in the content", "tool_call_parser": "calls in the content"}
    for key, name in parsers.items():
        found = [each for stream in markups[key] for each in stream if each.format == name]
        best = equals[key]
        others = best[1] if best else ()
        yield Finding(
            Kind.PARSER,
            whats[key],
            f"{key} = {quoted(name)}",
            len(found),
            sum(each.found for each in found) if key == "tool_call_parser" else 0,
            sum(each.frames for each in found),
            f"or {', '.join(map(quoted, others))}" if others else "",
        )


def of_streams(examined: Sequence[Examined]) -> Iterator[Finding]:
    """What no repair is for."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in examined:
        for what, cure, frames in oddities_of(each.stream.body, each.repaired.decoded):
            found.setdefault((what, cure), []).append(frames)
    for (what, cure), counts in found.items():
        yield Finding(Kind.INFORMATION, what, cure, len(counts), frames=sum(counts))


def of_runs(examined: Sequence[Examined], runs: Sequence[StageRun]) -> Iterator[Finding]:
    """What the default order does already, and what is left with all the cures."""
    for name, what in _DEFAULT_ORDER:
        if counts := [each.plain.changed[name] for each in examined if each.plain.changed.get(name)]:
            cure = f"none needed: {name}, in the default order"
            yield Finding(Kind.INFORMATION, what, cure, len(counts), frames=sum(counts))
    for reason in Refusal:
        if counts := [run.seen.refused[reason] for run in runs if run.seen.refused[reason]]:
            is_blind = reason is Refusal.IDENTITY_CONFLICT and not all(each.stream.request for each in examined)
            cure = "none; with --request FILE it may be found to be names in pieces" if is_blind else "none"
            yield Finding(Kind.INFORMATION, f"calls that cannot be announced: {reason}", cure, len(counts), sum(counts))
    offered = [run for each, run in zip(examined, runs, strict=True) if each.stream.request.get("tools")]
    if silent := [run for run in offered if not run.seen.dispatched and not run.seen.refused]:
        yield Finding(Kind.INFORMATION, "tools, but no call", "none: record a stream with calls", len(silent))
    for name, error in {
        name: error for seen in _all_seen(examined, runs) for name, error in seen.failed.items()
    }.items():
        yield Finding(Kind.INFORMATION, f"stage {name} failed", f"none: {type(error).__name__}; please report it", 1)


def _all_seen(examined: Sequence[Examined], runs: Sequence[StageRun]) -> Iterator[Seen]:
    for each, run in zip(examined, runs, strict=True):
        yield from (each.plain.seen, each.repaired.seen, run.seen)


def quoted(name: str) -> str:
    """As TOML writes it."""
    return f'"{name}"'
