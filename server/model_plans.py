"""Which pipeline a model gets: one gateway serves models whose servers do different things to their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import attrs

from pipeline.plan import Plan

__all__ = ["ModelPlans", "ModelSettings"]


@attrs.frozen
class ModelSettings:
    """``[models]``, one pattern: what is different for the models that it matches."""

    tool_call_parser: str | None = None
    """The format of the model's calls, where its server leaves them in the text."""
    reasoning_parser: str | None = None
    """The format of its thoughts, likewise."""
    repairs: tuple[str, ...] | None = None
    """Instead of ``pipeline.repairs``."""
    stages: tuple[str, ...] | None = None
    """Instead of ``pipeline.stages``."""


@attrs.frozen(eq=False)
class ModelPlans:
    """The default plan, and those of patterns; the first pattern that matches counts."""

    default: Plan
    by_pattern: Mapping[str, Plan] = attrs.field(factory=dict)

    def pattern_of(self, model: str | None) -> str | None:
        """The pattern that a model's name matches, as a shell would (``*``, ``?``, ``[...]``); none if none does."""
        name = model or ""
        return next((pattern for pattern in self.by_pattern if fnmatchcase(name, pattern)), None)

    def for_model(self, model: str | None) -> Plan:
        """The plan of a model's requests."""
        pattern = self.pattern_of(model) if self.by_pattern else None
        return self.default if pattern is None else self.by_pattern[pattern]

    def __iter__(self) -> Iterator[tuple[str | None, Plan]]:
        """Each pattern with its plan, the default first, under none."""
        yield None, self.default
        yield from self.by_pattern.items()
