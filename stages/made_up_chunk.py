"""How what a repair kept back comes out (spec, repairs, 2, "Made-up chunk")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.chunks import delta_of, replace_delta
from pipeline.items import Chunk, Payload
from stages.call_entry import entry_text, with_arguments

__all__ = ["made_up_chunk", "with_entries"]

_ENVELOPE: Final = ("id", "object", "created", "model")


def with_entries(choice: Payload, entries: Sequence[Payload]) -> Payload:
    """The choice with entries added to its delta; the choice itself where there are none.

    The text of an entry is appended to the one of its index that the delta has already; else the entry goes to
    the end of the list. What is no list, or no delta, is replaced.

    Args:
        choice: the choice of a chunk.
        entries: what was kept back, in ascending index.
    """
    if not entries:
        return choice
    delta = delta_of(choice) or {}
    calls = delta.get("tool_calls")
    calls = list(calls) if isinstance(calls, list) else []
    places = {
        call["index"]: place
        for place, call in enumerate(calls)
        if isinstance(call, dict) and type(call.get("index")) is int
    }
    for entry in entries:
        place = places.get(entry["index"])
        if place is None:
            calls.append(entry)
        else:
            calls[place] = with_arguments(calls[place], entry_text(calls[place]) + entry_text(entry))
    return replace_delta(choice, {**delta, "tool_calls": calls})


def made_up_chunk(last: Payload, index: int, entries: Sequence[Payload]) -> Chunk:
    """A chunk that the upstream did not send.

    Args:
        last: the upstream's last chunk; its envelope is used as far as it has one.
        index: the choice's.
        entries: what was kept back of it, in ascending index.
    """
    envelope: Payload = {key: last[key] for key in _ENVELOPE if key in last}
    choice = with_entries({"index": index, "delta": {}, "finish_reason": None}, entries)
    return Chunk({**envelope, "choices": [choice]}, None)
