"""Puts reasoning text under the name that the client reads (spec, repairs, 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import attrs

from pipeline.chunks import delta_of, replace_delta
from pipeline.items import Payload
from stages.repair_order import later_stages
from stages.repair_stage import ChoiceRepair, RepairStage

__all__ = ["ReasoningFields", "ReasoningFieldsOptions"]

_OTHER: Final = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}


@attrs.frozen
class ReasoningFieldsOptions:
    """Which names the text has afterwards."""

    write: Literal["both", "reasoning_content", "reasoning"] = "both"
    """``both`` adds the other name; one name replaces the other."""


class _ChoiceReasoning(ChoiceRepair):
    def repair(self, choice: Payload) -> Payload:
        """Rows RF1 to RF4."""
        delta, write = delta_of(choice), self.options.write
        for name, other in _OTHER.items():
            if delta is None or not _is_text(delta.get(name)) or delta.get(other) is not None or write == name:
                continue
            self.report(None, "mirror-reasoning-fields")
            if write == "both":
                return replace_delta(choice, {**delta, other: delta[name]})
            renamed = {other if key == name else key: value for key, value in delta.items() if key != other}
            return replace_delta(choice, renamed)
        return choice


class ReasoningFields(RepairStage):
    """Writes reasoning text under both its names, reasoning and reasoning_content, or under the one that is asked for.

    Servers differ, and clients read one of them (https://github.com/BerriAI/litellm/pull/22573). A delta that has both
    is left alone, and so are ``reasoning_details`` and thinking inside the content.

    Emits: nothing of its own.

    Drops: nothing.

    State: none.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ReasoningFieldsOptions
    name: ClassVar[str] = "reasoning_fields"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceReasoning
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)

    def concerns(self, choice: Any) -> bool:
        """Whether there is reasoning text."""
        delta = delta_of(choice)
        return delta is not None and (_is_text(delta.get("reasoning")) or _is_text(delta.get("reasoning_content")))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""
