"""From a stage's name to its class: installed entry points, or ``module:attribute``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import attrs

from pipeline.class_registry import ClassRegistry
from pipeline.stage import Flow, Stage

__all__ = ["ENTRY_POINT_GROUP", "StageInfo", "StageRegistry"]

ENTRY_POINT_GROUP: Final = "callahead.stages"


@attrs.frozen
class StageInfo:
    """What ``callahead stages`` lists."""

    name: str
    summary: str
    """The first line of the class's docstring."""
    takes: Flow
    gives: Flow
    options: Mapping[str, object]
    """Each option with its default."""


class StageRegistry(ClassRegistry[Stage]):
    """Finds stages by name."""

    group: ClassVar[str] = ENTRY_POINT_GROUP
    word: ClassVar[str] = "stage"
    base: ClassVar[type] = Stage
    base_name: ClassVar[str] = "pipeline.Stage"

    def describe(self, name: str) -> StageInfo:
        """What there is to know of a stage, from its class.

        Raises:
            RegistryError: as ``find``.
        """
        stage = self.find(name)
        summary = (stage.__doc__ or "").strip().partition("\n")[0]
        defaults = attrs.asdict(stage.Options(), recurse=False)
        return StageInfo(name, summary, stage.takes, stage.gives, defaults)
