"""How repairs get into an order of stages, and which orders are refused (spec, repairs, 1 and 3)."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_helpers import CLASSES, REGISTRY

from pipeline.errors import PlanError
from pipeline.plan import DEFAULT_STAGES, make_plan
from stages.repairs import ALL_REPAIRS, RECOMMENDED, STAGE_OF_REPAIR, with_repairs

PER_CALL = ALL_REPAIRS[3:8]
RULES = [
    *(("glued_events", later) for later in (*ALL_REPAIRS[1:], *DEFAULT_STAGES)),
    ("legacy_function_call", "tool_call_index"),
    *(("tool_call_index", later) for later in (*PER_CALL, "parallel_call_filter")),
    ("tool_call_name", "tool_call_id"),
    ("leading_empty_object", "tool_call_arguments"),
    ("tool_call_arguments", "trim_tool_call_arguments"),
    *((earlier, "tool_call_dispatch") for earlier in ALL_REPAIRS[:9]),
    ("missing_role", "role_dedup"),
    *((earlier, "empty_skip") for earlier in ALL_REPAIRS),
]


@pytest.mark.parametrize(("earlier", "later"), RULES)
def test_another_order_is_refused_with_the_reason(earlier, later):
    """The plan says in one line which stage must stand where, and why."""
    order = [later, earlier, *(["sse_encoder"] if later != "sse_encoder" else [])]
    with pytest.raises(PlanError) as caught:
        make_plan(order, {}, REGISTRY)
    message = str(caught.value)
    if later != "sse_encoder":  # there the flow of bytes is told first
        assert f'"{earlier}" must stand before "{later}": ' in message
    assert "\n" not in message
    right = [earlier, *order[:1], *(["sse_encoder"] if later != "sse_encoder" else [])]
    assert make_plan(right, {}, REGISTRY)


def test_no_other_order_is_refused():
    """What the table does not name may stand in any order."""
    rules = set(RULES)
    for one, other in itertools.permutations([*ALL_REPAIRS, *DEFAULT_STAGES[:-1]], 2):
        if (other, one) in rules or (one in DEFAULT_STAGES and other in DEFAULT_STAGES):
            continue
        assert make_plan([one, other, "sse_encoder"], {}, REGISTRY)


@given(st.sets(st.sampled_from(ALL_REPAIRS)))
def test_any_subset_is_allowed(chosen):
    """In their running order, any repairs go with the default stages."""
    order = with_repairs(sorted(chosen), DEFAULT_STAGES)
    assert [step.name for step in make_plan(order, {}, REGISTRY).steps] == list(order)


def test_the_preset():
    """Seven repairs, in the running order of all."""
    assert tuple(name for name in ALL_REPAIRS if name in RECOMMENDED) == RECOMMENDED
    assert set(ALL_REPAIRS) - set(RECOMMENDED) == {
        "legacy_function_call",
        "leading_empty_object",
        "trim_tool_call_arguments",
        "reasoning_fields",
    }
    assert with_repairs(["recommended"], DEFAULT_STAGES) == (*RECOMMENDED, *DEFAULT_STAGES)


def test_what_was_named_runs_in_order_and_once():
    """Names add up, wherever and however often they were named."""
    repairs = ["reasoning_fields", "recommended", "leading_empty_object", "tool_call_id", "recommended"]
    wanted = {*RECOMMENDED, "reasoning_fields", "leading_empty_object"}
    assert with_repairs(repairs, ("x", "y")) == (*(name for name in ALL_REPAIRS if name in wanted), "x", "y")
    assert with_repairs([], ("x",)) == ("x",)


def refused(repairs, stages=DEFAULT_STAGES):
    with pytest.raises(PlanError) as caught:
        with_repairs(repairs, stages)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest():
    """One line: the key, what was found, what is meant, what there is."""
    message = refused(["recommended", "tool_call_indexes"])
    assert message.startswith(
        'pipeline.repairs[1]: there is no repair "tool_call_indexes"; did you mean "tool_call_index"?'
    )
    assert all(name in message for name in (*ALL_REPAIRS, "recommended"))
    assert 'did you mean "recommended"?' in refused(["recomended"])
    assert "did you mean" not in refused(["zzz"])


@pytest.mark.parametrize("repair", STAGE_OF_REPAIR)
def test_a_case_name_is_answered_with_its_stage(repair):
    """With dashes or underscores."""
    for name in (repair, repair.replace("-", "_")):
        assert (
            refused([name])
            == f'pipeline.repairs[0]: "{name}" is done by the repair "{STAGE_OF_REPAIR[repair]}"; name that'
        )


def test_a_repair_stands_in_one_of_both_lists():
    """A repair among the stages is no repair to be named again, alone or in the preset."""
    stages = ("tool_call_id", *DEFAULT_STAGES)
    assert refused(["tool_call_id"], stages) == (
        'pipeline.repairs[0]: repair "tool_call_id" stands in pipeline.stages too; name it in one of them'
    )
    assert 'repair "tool_call_id" (part of "recommended") stands in pipeline.stages too' in refused(
        ["recommended"], stages
    )
    assert with_repairs(["missing_role"], stages) == ("missing_role", *stages)


def test_there_are_22_repairs_of_eleven_stages():
    """The names of the cases cover every stage."""
    assert len(STAGE_OF_REPAIR) == 22
    assert set(STAGE_OF_REPAIR.values()) == set(ALL_REPAIRS)
    assert len(ALL_REPAIRS) == 11


def test_all_are_entry_points():
    """They are found like anybody's stage."""
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text("utf-8"))["project"]
    points = project["entry-points"]["callahead.stages"]
    assert {name: points.get(name) for name in ALL_REPAIRS} == {
        name: f"{stage.__module__}:{stage.__name__}" for name, stage in zip(ALL_REPAIRS, CLASSES, strict=True)
    }


@pytest.mark.parametrize("stage", CLASSES)
def test_a_repair_is_described_where_users_look(stage):
    """The first line is the summary; what it emits, drops, keeps and does on cancellation follows."""
    text = stage.__doc__
    assert text.partition("\n")[0].endswith(".")
    assert [word for word in ("Emits:", "Drops:", "State:", "On cancel:") if word not in text] == []
