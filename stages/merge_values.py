"""How values of keys that nobody knows add up over the chunks of a stream.

Inside a delta they are pieces: text is joined, lists are extended, objects merged key by key, and of other values the
last one stays. Beside the delta, on the chunk and on the choice, servers repeat a whole value (``provider``,
``citations``, ``native_finish_reason``): there the last one stays, and only objects are merged.
"""

from __future__ import annotations

import io
from typing import Any, Final

from pipeline.chunks import usable_index

__all__ = ["merge_last", "merge_piece", "settled"]

# Keys whose value is repeated, not continued, wherever they stand in a delta.
_LABELS: Final = frozenset({"id", "type", "index", "object", "role", "name", "format"})


def merge_last(known: Any, value: Any) -> Any:
    """The value of a repeated key: the last one that is not null; of objects each key's last one."""
    if isinstance(known, dict) and isinstance(value, dict):
        return known | {key: each for key, each in value.items() if each is not None}
    return value


def merge_piece(known: Any, value: Any, key: str) -> Any:
    """What is known of a key with the next piece added; ``settled`` makes a JSON value of it.

    Elements of lists that are objects with the same ``index`` are pieces of one element, as in ``tool_calls``
    (``reasoning_details``).
    """
    if value is None:
        return known
    if isinstance(value, str):
        if key in _LABELS:
            return value
        if not isinstance(known, io.StringIO):
            known = io.StringIO()
        known.write(value)
        return known
    if isinstance(value, dict):
        merged = known if isinstance(known, _Merged) else _Merged()
        for name, each in value.items():
            merged[name] = merge_piece(merged.get(name), each, name)
        return merged
    if isinstance(value, list):
        pieces = known if isinstance(known, _Pieces) else _Pieces()
        for each in value:
            pieces.add(each)
        return pieces
    return value


def settled(value: Any) -> Any:
    """The JSON value of merged pieces."""
    if isinstance(value, io.StringIO):
        return value.getvalue()
    if isinstance(value, _Merged):
        return {key: settled(each) for key, each in value.items()}
    if isinstance(value, _Pieces):
        return [settled(each) for each in value]
    return value


class _Merged(dict[str, Any]):
    """An object being merged; tells it from one that is kept as it came."""


class _Pieces(list[Any]):
    """A list being extended."""

    def __init__(self) -> None:
        super().__init__()
        self._by_index: dict[int, int] = {}

    def add(self, element: Any) -> None:
        index = usable_index(element.get("index")) if isinstance(element, dict) else None
        if index is None:
            self.append(element)
            return
        if index not in self._by_index:
            self._by_index[index] = len(self)
            self.append(None)
        place = self._by_index[index]
        self[place] = merge_piece(self[place], element, "")
