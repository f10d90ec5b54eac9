"""Which parser formats read what a model wrote into its text (spec, parsers, 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from pipeline.chunks import delta_of, numbered_choices
from pipeline.driver import outcome
from pipeline.items import Chunk, Item
from pipeline.stage import RequestContext
from stages.formats.format import CallFormat, Channels, Format, MarkedCalls, MarkedThoughts, ReasoningFormat
from stages.formats.registry import find_call_format, find_reasoning_format, format_names
from stages.reasoning_parser import ReasoningParser, ReasoningParserOptions
from stages.text_parser import TextParser
from stages.tool_call_parser import ToolCallParser, ToolCallParserOptions

__all__ = ["Markup", "best_format", "call_markup", "thought_markup", "with_tools"]

_SOME_TOOL: Final = [{"type": "function", "function": {"name": "any"}}]


@attrs.frozen
class Markup:
    """What one format reads in one stream."""

    format: str
    found: int
    """The calls that are whole, or the choices with thoughts."""
    frames: int
    """The frames that it changes."""
    left: int
    """The characters of content that it leaves."""
    items: Sequence[Item]
    """What becomes of the stream."""


def call_markup(items: Sequence[Item], request: Mapping[str, Any]) -> list[Markup]:
    """What each format of calls reads, in the registry's order; those that read nothing are left out.

    A request that declares no tools counts as one that declares some: a recording seldom has its request.
    """
    texts = _texts(items)
    formats = ((name, find_call_format(name)) for name in _names(CallFormat, find_call_format))
    candidates = [name for name, each in formats if any(_may_hold_calls(each, text) for text in texts)]
    stages = (
        (name, ToolCallParser(ToolCallParserOptions(name), RequestContext(with_tools(request)))) for name in candidates
    )
    return [found for name, stage in stages if (found := _read(name, stage, items, _whole_calls)).found]


def thought_markup(items: Sequence[Item], request: Mapping[str, Any]) -> list[Markup]:
    """As ``call_markup``, for formats of thoughts."""
    texts = _texts(items)
    formats = ((name, find_reasoning_format(name)) for name in _names(ReasoningFormat, find_reasoning_format))
    candidates = [name for name, each in formats if any(_holds_thoughts(each, text) for text in texts)]
    stages = ((name, ReasoningParser(ReasoningParserOptions(name), RequestContext(request))) for name in candidates)
    return [found for name, stage in stages if (found := _read(name, stage, items, _thinking_choices)).found]


def with_tools(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request, with a tool if it has none: without any, parsers look for no calls."""
    return request if request.get("tools") else {**request, "tools": _SOME_TOOL}


def best_format(markups: Iterable[Sequence[Markup]]) -> tuple[str, tuple[str, ...]] | None:
    """The format that finds the most in all streams and leaves the least, and those that do as well; none if none does.

    Of equals the first of the registry wins, which is the most used.
    """
    scores: dict[str, tuple[int, int]] = {}
    for markup in (each for stream in markups for each in stream):
        found, left = scores.get(markup.format, (0, 0))
        scores[markup.format] = (found + markup.found, left - markup.left)
    if not scores:
        return None
    top = max(scores.values())
    best, *equals = (name for name, score in scores.items() if score == top)
    return best, tuple(equals)


def _names(kind: type[Format], find: Callable[[str], Format]) -> list[str]:
    """The formats of a kind, each once; an installed name may be of the other kind only."""
    known = []
    for name in format_names(kind):
        try:
            find(name)
        except Exception:  # noqa: BLE001, S112 - another package's format that cannot be had fits nothing
            continue
        known.append(name)
    return known


def _texts(items: Sequence[Item]) -> list[str]:
    """The content of each choice."""
    texts: dict[int | None, list[str]] = {}
    for chunk in items:
        for index, choice in numbered_choices(chunk.payload) if isinstance(chunk, Chunk) else ():
            text = (delta_of(choice) or {}).get("content")
            if isinstance(text, str):
                texts.setdefault(index, []).append(text)
    return ["".join(parts) for parts in texts.values()]


def _may_hold_calls(found: CallFormat, text: str) -> bool:
    """Whether it is worth a look; quick to say no."""
    if isinstance(found, MarkedCalls):
        starts = (start for body in found.bodies for start in body.starts)
        return text.lstrip()[:1] in tuple(found.bare) or found.is_bare_at_lines or any(each in text for each in starts)
    return not isinstance(found, Channels) or _holds_channels(text)


def _holds_thoughts(found: ReasoningFormat, text: str) -> bool:
    """Whether there is an opener; for a format whose prompt has opened the thought, a closer that has none."""
    if isinstance(found, MarkedThoughts):
        openers, closers = found.markup.openers, found.markup.closers
        if found.is_inside:
            ends = [place for closer in closers if (place := text.find(closer)) >= 0]
            return bool(ends) and not any(opener in text[: min(ends)] for opener in openers)
        return not found.switch and any(opener in text for opener in openers)
    return not isinstance(found, Channels) or _holds_channels(text)


def _holds_channels(text: str) -> bool:
    return "<|message|>" in text


def _read(name: str, stage: TextParser, items: Sequence[Item], count: Callable[[Sequence[Item]], int]) -> Markup:
    given, error = outcome(stage, [*items])
    if error is None:
        rest, error = outcome(stage, None)
        given += rest
    before = {id(item) for item in items}
    frames = sum(id(item) not in before for item in given)
    left = sum(map(len, _texts(given)))
    return Markup(name, 0 if error is not None else count(given) - count(items), frames, left, given)


def _whole_calls(items: Sequence[Item]) -> int:
    return sum(each.complete for item in items if isinstance(item, Chunk) for each in item.evidence)


def _thinking_choices(items: Sequence[Item]) -> int:
    return len(
        {
            index
            for item in items
            if isinstance(item, Chunk)
            for index, choice in numbered_choices(item.payload)
            if (delta_of(choice) or {}).get("reasoning_content")
        }
    )
