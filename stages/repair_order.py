"""Which repair must stand in front of which stage, and why (spec, repairs, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pipeline.plan import DEFAULT_STAGES

__all__ = ["ALL_REPAIRS", "later_stages"]

ALL_REPAIRS: Final = (
    "glued_events",
    "legacy_function_call",
    "tool_call_index",
    "tool_call_name",
    "tool_call_id",
    "leading_empty_object",
    "tool_call_arguments",
    "trim_tool_call_arguments",
    "finish_reason",
    "missing_role",
    "reasoning_fields",
)
"""The repairs in their running order."""

_PER_CALL: Final = (
    "tool_call_name",
    "tool_call_id",
    "leading_empty_object",
    "tool_call_arguments",
    "trim_tool_call_arguments",
    "tool_call_dispatch",
)

# Before, after, and the reason; where a pair stands twice the first reason counts.
_RULES: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("glued_events", (*ALL_REPAIRS[1:], *DEFAULT_STAGES), "the others need chunks"),
    ("legacy_function_call", ("tool_call_index",), "it makes entries of tool_calls, which may need an index"),
    ("tool_call_index", _PER_CALL, "it has state per call, and a call's key is its index"),
    (
        "tool_call_index",
        ("parallel_call_filter",),
        "the filter keeps index 0, and with all calls on 0 it would let them all through",
    ),
    ("tool_call_name", ("tool_call_id",), "names are compared whole, and a call that is held must not be opened twice"),
    (
        "leading_empty_object",
        ("tool_call_arguments",),
        "{} in front of arguments looks like junk there, and hides that a call has none",
    ),
    ("tool_call_arguments", ("trim_tool_call_arguments",), "arguments that are sent again are not trailing text"),
    *((repair, ("tool_call_dispatch",), "the dispatcher must see what the client sees") for repair in ALL_REPAIRS[:9]),
    ("missing_role", ("role_dedup",), "a true role that comes late is then a repeated one and goes"),
    *((repair, ("empty_skip",), "a frame whose entries are taken out may become empty") for repair in ALL_REPAIRS),
)


def later_stages(repair: str) -> Mapping[str, str]:
    """``Stage.precedes`` of a repair: the stages that must stand behind it, each with the reason."""
    found: dict[str, str] = {}
    for before, after, reason in _RULES:
        if before == repair:
            found |= {stage: reason for stage in after if stage not in found}
    return MappingProxyType(found)
