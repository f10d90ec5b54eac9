"""Gives each tool call an index of its own (spec, repairs, 6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from pipeline.chunks import delta_of, replace_delta, usable_index
from pipeline.items import Payload
from stages.indexed_calls import Entry, IndexedCall, IndexedCalls
from stages.repair_order import later_stages
from stages.repair_stage import MAX_CALLS, ChoiceRepair, RepairContext, RepairStage

__all__ = ["ToolCallIndex", "ToolCallIndexOptions"]

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_MAX_WHOLE_NUMBER: Final = 999_999_999


@attrs.frozen
class ToolCallIndexOptions:
    """The quirks that are repaired."""

    wrap: bool = True
    """One object where the list of calls would be becomes a list."""
    coerce: bool = True
    """An index that is a decimal text or a whole float becomes an integer."""
    infer: bool = True
    """An entry without an index gets that of its call."""
    reindex: bool = True
    """Calls that share an index get one each."""
    reattach: bool = True
    """Arguments under an index that nothing opened go to the one call that is open."""


class _ChoiceIndexes(ChoiceRepair):
    def __init__(self, index: int, context: RepairContext) -> None:
        super().__init__(index, context)
        self._calls = IndexedCalls()

    def repair(self, choice: Payload) -> Payload:
        """Steps 1 to 4."""
        delta = delta_of(choice) or {}
        entries = delta.get("tool_calls")
        is_wrapped = isinstance(entries, dict) and bool(entries) and self.options.wrap
        if is_wrapped:
            entries = [entries]
        elif not isinstance(entries, list) or not entries:
            return choice
        self._calls.begin_delta()
        repaired = [self._numbered(entry) if isinstance(entry, dict) else entry for entry in entries]
        if is_wrapped:
            self.report(usable_index(repaired[0].get("index")), "wrap-single-tool-call")
        elif all(new is old for new, old in zip(repaired, entries, strict=True)):
            return choice
        return replace_delta(choice, {**delta, "tool_calls": repaired})

    def _numbered(self, entry: Payload) -> Payload:
        given = entry.get("index")
        index = usable_index(given)
        if index is None and self.options.coerce:
            index = _coerced(given)
        if index is None and not self.options.infer:
            return entry
        call, is_orphan = self._call_of(index, Entry.of(entry))
        if call is None or (type(given) is int and given == call.index):
            return entry
        if index is None:
            self.report(call.index, "infer-missing-index")
        elif type(given) is not int:
            self.report(call.index, "coerce-index")
        if is_orphan:
            self.report(call.index, "reattach-orphan-fragments")
        elif index is not None and index != call.index:
            self.report(call.index, "reindex-parallel-calls")
        return {**entry, "index": call.index}

    def _call_of(self, index: int | None, entry: Entry) -> tuple[IndexedCall | None, bool]:
        """The call of an entry, and whether the entry strayed to a foreign index."""
        calls, is_orphan = self._calls, False
        if index is None:
            call, is_new = calls.find_without_index(entry)
        else:
            call, is_new = calls.find(index, entry, reindex=self.options.reindex)
            if is_new and call is None and self.options.reattach:
                call = calls.open_call_of_orphan(index, entry)
                is_orphan, is_new = call is not None, call is None
        if is_new:
            if self.context.calls >= MAX_CALLS:
                return None, False
            self.context.calls += 1
            call = calls.open(index)
        if call is not None:
            calls.add(call, entry, index=None if is_orphan else index)
        return call, is_orphan


def _coerced(given: Any) -> int | None:
    if isinstance(given, str) and _DECIMAL.fullmatch(given):
        return int(given)
    if isinstance(given, float) and given.is_integer() and 0 <= given <= _MAX_WHOLE_NUMBER:
        return int(given)
    return None


class ToolCallIndex(RepairStage):
    """Gives each tool call one index of its own where it has none, text, -1, another call's or a drifting one.

    None: Gemini, gpustack, Mistral of 2024, older Ollama (https://github.com/ollama/ollama/issues/7881). One for all:
    Ollama (https://github.com/ollama/ollama/issues/15457), Gemini behind OpenRouter. ``-1``: Z.ai. Text: some proxies
    (https://github.com/zed-industries/zed/pull/59403). Drifting: https://github.com/sgl-project/sglang/issues/6310. An
    object instead of a list: https://github.com/huggingface/text-generation-inference/pull/2949.

    Emits: nothing of its own.

    Drops: nothing.

    State: for each call its index, ids, name and how far its text is; the text itself while there is no id.

    On cancel: nothing to do.
    """

    Options: ClassVar[type[Any]] = ToolCallIndexOptions
    name: ClassVar[str] = "tool_call_index"
    choice_repair: ClassVar[type[ChoiceRepair]] = _ChoiceIndexes
    precedes: ClassVar[Mapping[str, str]] = later_stages(name)
