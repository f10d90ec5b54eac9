"""Gives a choice the role that it lacks (spec, repairs, 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pipeline.chunks import delta_of, replace_delta
from pipeline.items import Payload
from stages.repair_order import later_stages
from stages.repair_stage import ChoiceRepair, RepairStage

__all__ = ["MissingRole"]


class _ChoiceRole(ChoiceRepair):
    def repair(self, choice: Payload) -> Payload:
        """Rows RO1 to RO3."""
        delta = delta_of(choice)
        if self.is_over or delta is None:
            return choice
        self.is_over = True
        if delta.get("role") is not None:
            return choice
        self.report(None, "add-missing-role")
        # Where the key is null it keeps its place; else it comes first, as servers write it.
        return replace_delta(choice, {**({} if "role" in delta else {"role": None}), **delta, "role": "assistant"})


class MissingRole(RepairStage):
    """Puts the role assistant on the first delta of a choice that has none there.

    Seen at gpustack, Cloudflare, some Mistral models, and LiteLLM with n > 1
    (https://github.com/agentgateway/agentgateway/pull/3005). A true role that comes later is then a repeated one, which
    ``role_dedup`` takes out.

    Emits: nothing of its own.

    Drops: nothing.

    State: one flag a choice.

    On cancel: nothing to do.
    """

    name: ClassVar[str] = "missing_role"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceRole
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)

    def concerns(self, choice: Any) -> bool:
        """Whether no delta of its index has come yet."""
        index = choice.get("index", 0) if isinstance(choice, dict) else None
        return type(index) is int and (index not in self._choices or not self._choices[index].is_over)
