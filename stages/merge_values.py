"""How values of keys that nobody knows add up over the chunks of a stream.

Where a key stands says what its values are. Inside a delta they are pieces of one: text is joined, lists are
extended, objects merged key by key, and of other values the last one stays. On the choice, beside the delta, only
lists are pieces (vLLM's ``token_ids``); text is said again (OpenRouter's ``native_finish_reason``). On the chunk
everything is (``provider``, ``citations``, ``x_groq``): the last value stays. Objects are merged on every level, and a
null never replaces a value.
"""

from __future__ import annotations

import io
from typing import Any, Final

from pipeline.chunks import usable_index

__all__ = ["merge_beside", "merge_last", "merge_piece", "settled"]

_LABELS: Final = frozenset({"channel", "format", "id", "index", "name", "object", "role", "type"})
"""Keys whose text is said again, not continued, wherever they stand in a delta."""

_MAX_DEPTH: Final = 32
"""Objects within objects are merged down to here; what lies deeper is replaced. No provider goes below 6."""


def merge_last(known: Any, value: Any) -> Any:
    """The value of a key on the chunk, given one that is not null: the last; of objects each key's last but nulls."""
    if isinstance(known, dict) and isinstance(value, dict):
        return known | {key: each for key, each in value.items() if each is not None}
    return value


def merge_beside(known: Any, value: Any) -> Any:
    """The value of a key on the choice, given one that is not null; ``settled`` makes a JSON value of it."""
    return merge_piece(known, value, "") if isinstance(value, list) else merge_last(known, value)


def merge_piece(known: Any, value: Any, key: str, depth: int = 0) -> Any:
    """What is known of a key in a delta with the next piece added; ``settled`` makes a JSON value of it.

    Elements of lists that are objects with the same ``index`` are pieces of one element, as in ``tool_calls``.
    OpenRouter numbers all ``reasoning_details`` 0, so another ``type`` or ``id`` begins another element
    (https://github.com/OpenRouterTeam/ai-sdk-provider/issues/519).
    """
    if value is None:
        return known
    if isinstance(value, str):
        if key in _LABELS:
            return value
        text = known if isinstance(known, io.StringIO) else io.StringIO()
        text.write(value)
        return text
    if depth < _MAX_DEPTH:
        if isinstance(value, dict):
            merged = known if isinstance(known, _Merged) else _Merged()
            for name, each in value.items():
                merged[name] = merge_piece(merged.get(name), each, name, depth + 1)
            return merged
        if isinstance(value, list):
            pieces = known if isinstance(known, _Pieces) else _Pieces()
            for each in value:
                pieces.add(each, depth + 1)
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
        self._places: dict[int, int] = {}

    def add(self, element: Any, depth: int) -> None:
        """Append an element, or merge it into the last one of its index."""
        index = usable_index(element.get("index")) if isinstance(element, dict) else None
        if index is None:
            self.append(element)
            return
        place = self._places.get(index)
        if place is None or _is_another(self[place], element):
            self._places[index] = len(self)
            self.append(merge_piece(None, element, "", depth))
        else:
            self[place] = merge_piece(self[place], element, "", depth)


def _is_another(known: Any, element: dict[str, Any]) -> bool:
    """Whether an element contradicts the one that its index says it continues."""
    return isinstance(known, dict) and any(
        known.get(label) and element.get(label) and known[label] != element[label] for label in ("type", "id")
    )
