"""The opt-in repairs: what there is, which belong together, and how they get into an order of stages."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from pipeline.class_registry import nearest
from pipeline.errors import PlanError
from stages.repair_order import ALL_REPAIRS

__all__ = ["ALL_REPAIRS", "RECOMMENDED", "STAGE_OF_REPAIR", "with_repairs"]

_PRESET: Final = "recommended"

RECOMMENDED: Final[tuple[str, ...]] = (
    "glued_events",
    "tool_call_index",
    "tool_call_name",
    "tool_call_id",
    "tool_call_arguments",
    "finish_reason",
    "missing_role",
)
"""The preset ``recommended``: those whose triggers all break OpenAI's contract, so that a right stream passes as the
same bytes, and without which a call is lost, run twice or refused by clients (spec, repairs, 1)."""

STAGE_OF_REPAIR: Final = MappingProxyType(
    {
        "split-glued-events": "glued_events",
        "function-call-to-tool-call": "legacy_function_call",
        "infer-missing-index": "tool_call_index",
        "coerce-index": "tool_call_index",
        "reindex-parallel-calls": "tool_call_index",
        "reattach-orphan-fragments": "tool_call_index",
        "wrap-single-tool-call": "tool_call_index",
        "join-name-fragments": "tool_call_name",
        "synthesize-missing-id": "tool_call_id",
        "pin-first-id": "tool_call_id",
        "unique-ids": "tool_call_id",
        "drop-duplicate-calls": "tool_call_id",
        "strip-empty-object-prefix": "leading_empty_object",
        "stringify-arguments": "tool_call_arguments",
        "empty-arguments-to-object": "tool_call_arguments",
        "replace-cumulative-arguments": "tool_call_arguments",
        "decode-double-encoding": "tool_call_arguments",
        "escape-control-characters": "tool_call_arguments",
        "trim-trailing-text": "trim_tool_call_arguments",
        "finish-reason-tool-calls": "finish_reason",
        "add-missing-role": "missing_role",
        "mirror-reasoning-fields": "reasoning_fields",
    }
)
"""For each quirk, by the name that ``Observer.call_repaired`` is told, the stage that repairs it."""


def with_repairs(repairs: Sequence[str], stages: Sequence[str]) -> tuple[str, ...]:
    """The order of stages with repairs in front of it.

    Args:
        repairs: names of repairs and ``recommended``, in any order, also more than once.
        stages: the order as it is configured. A repair may stand in it too, but then not in ``repairs``.

    Returns:
        The repairs in their running order, then ``stages``.

    Raises:
        PlanError: a name is unknown, or a repair stands in both. One line that names the right one.
    """
    wanted: set[str] = set()
    for position, name in enumerate(repairs):
        named = RECOMMENDED if name == _PRESET else (name,)
        for repair in named:
            key = f"pipeline.repairs[{position}]"
            if repair not in ALL_REPAIRS:
                raise PlanError(key, _unknown(repair))
            if repair in stages:
                part = f' (part of "{_PRESET}")' if name == _PRESET else ""
                raise PlanError(key, f'repair "{repair}"{part} stands in pipeline.stages too; name it in one of them')
            wanted.add(repair)
    return (*(repair for repair in ALL_REPAIRS if repair in wanted), *stages)


def _unknown(name: str) -> str:
    stage = STAGE_OF_REPAIR.get(name.replace("_", "-"))
    if stage is not None:
        return f'"{name}" is done by the repair "{stage}"; name that'
    known = (_PRESET, *ALL_REPAIRS)
    return f'there is no repair "{name}"{nearest(name, known)}; there are: {", ".join(known)}'
