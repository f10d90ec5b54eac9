"""A configured order of stages, checked once, instantiated for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from pipeline.class_registry import nearest
from pipeline.errors import PlanError, RegistryError
from pipeline.options import read_options
from pipeline.registry import StageRegistry
from pipeline.stage import Flow, RequestContext, Stage

__all__ = ["DEFAULT_STAGES", "Plan", "Step", "make_plan"]

DEFAULT_STAGES: tuple[str, ...] = (
    "parallel_call_filter",
    "role_dedup",
    "empty_skip",
    "tool_call_dispatch",
    "reasoning_dispatch",
    "sse_encoder",
)
"""The order of the handler loop (spec, dispatch, 2.4)."""


@attrs.frozen(eq=False)
class Step:
    """One stage of a plan with its options."""

    name: str
    stage: type[Stage]
    options: Any


@attrs.frozen(eq=False)
class Plan:
    """A checked order of stages."""

    steps: tuple[Step, ...]

    @property
    def events(self) -> frozenset[str]:
        """The side events that these stages can produce."""
        return frozenset().union(*(step.stage.events for step in self.steps))

    def request_defaults(self, context: RequestContext) -> dict[str, Any]:
        """The fields that these stages need in the request to the upstream, and that the client has not set."""
        needed: dict[str, Any] = {}
        for step in self.steps:
            if not step.stage.is_idle(step.options, context):
                needed.update(step.stage.request_defaults(step.options))
        return {key: value for key, value in needed.items() if key not in context.request}

    def stages_for(self, context: RequestContext) -> list[tuple[str, Stage]]:
        """Fresh stages for one request, each with its name; those with nothing to do are left out."""
        return [
            (step.name, step.stage(step.options, context))
            for step in self.steps
            if not step.stage.is_idle(step.options, context)
        ]


def make_plan(
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    registry: StageRegistry,
) -> Plan:
    """Find each stage, read its options, and check the order.

    Args:
        names: the stages' names in running order.
        options: for each name its options, as a config file has them.
        registry: where names are looked up.

    Raises:
        PlanError: an unknown stage, a wrong option, or an order that cannot run. One line, with the config key.
    """
    if not names:
        raise PlanError("pipeline.stages", "is empty; the last stage must give bytes, as sse_encoder does")
    steps: list[Step] = []
    for position, name in enumerate(names):
        key = f"pipeline.stages[{position}]"
        if name in names[:position]:
            raise PlanError(key, f'stage "{name}" stands in the order twice')
        try:
            stage = registry.find(name)
        except RegistryError as error:
            raise PlanError(key, str(error)) from error
        steps.append(Step(name, stage, read_options(name, stage, options.get(name, {}))))
    for name in options:
        if name not in names:
            near = nearest(name, names)
            raise PlanError(f"stages.{name}", f"has options but is not in pipeline.stages{near}")
    _check_order(steps)
    return Plan(tuple(steps))


def _check_order(steps: Sequence[Step]) -> None:
    flow, source = Flow.ITEMS, "the source"
    for position, step in enumerate(steps):
        key = f"pipeline.stages[{position}]"
        if step.stage.takes is not flow:
            raise PlanError(key, f'stage "{step.name}" takes {step.stage.takes.value}, but {source} gives {flow.value}')
        for later in steps[:position]:
            if reason := step.stage.precedes.get(later.name):
                raise PlanError(key, f'stage "{step.name}" must stand before "{later.name}": {reason}')
        flow, source = step.stage.gives, f'stage "{step.name}" before it'
    if flow is not Flow.BYTES:
        last = f"pipeline.stages[{len(steps) - 1}]"
        raise PlanError(
            last, f'the last stage "{steps[-1].name}" gives {flow.value}; it must give bytes: put "sse_encoder" last'
        )
