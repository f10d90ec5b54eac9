"""From a format's name to its declaration: built in, or installed by others."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from pipeline.class_registry import nearest
from pipeline.errors import RegistryError
from stages.formats.declarations import FORMATS
from stages.formats.format import CallFormat, Format, ReasoningFormat

__all__ = ["ENTRY_POINT_GROUP", "find_call_format", "find_reasoning_format", "format_names"]

ENTRY_POINT_GROUP: Final = "callahead.formats"
"""Where other packages name theirs: each entry point is called as its format, and leads to a ``Format`` or to a
sequence of them, one of each kind."""

FormatT = TypeVar("FormatT", bound=Format)


@functools.cache  # asked for each request
def find_call_format(name: str) -> CallFormat:
    """The format of tool calls of that name; case, hyphens and low lines do not count.

    Raises:
        RegistryError: there is none, or it cannot be imported. One line, with the nearest right name.
    """
    return _find(name, CallFormat, "tool-call")


@functools.cache
def find_reasoning_format(name: str) -> ReasoningFormat:
    """The format of thoughts of that name; case, hyphens and low lines do not count.

    Raises:
        RegistryError: there is none, or it cannot be imported. One line, with the nearest right name.
    """
    return _find(name, ReasoningFormat, "reasoning")


def format_names(kind: type[Format]) -> list[str]:
    """The own names of the built-in formats of a kind, the most used first, then those of installed ones."""
    own = [each.names[0] for each in FORMATS if isinstance(each, kind)]
    return [*own, *sorted(point.name for point in _installed())]


def _find(name: str, kind: type[FormatT], word: str) -> FormatT:
    wanted = _normal(name)
    known = {each: found for found in FORMATS if isinstance(found, kind) for each in found.names}
    for each, found in known.items():
        if _normal(each) == wanted:
            return found
    points = list(_installed())
    for point in points:
        if _normal(point.name) == wanted:
            return _load(point, kind, word)
    raise RegistryError(
        f'there is no {word} format "{name}"{nearest(name, [*known, *(point.name for point in points)])}; '
        f"there are: {', '.join(format_names(kind))}"
    )


def _normal(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _installed() -> Iterable[EntryPoint]:
    return entry_points(group=ENTRY_POINT_GROUP)


def _load(point: EntryPoint, kind: type[FormatT], word: str) -> FormatT:
    try:
        loaded: object = point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise RegistryError(f'{word} format "{point.name}" ({point.value}) cannot be imported: {reason}') from error
    for found in loaded if isinstance(loaded, (list, tuple)) else (loaded,):
        if isinstance(found, kind):
            return found
    raise RegistryError(f'{word} format "{point.name}" ({point.value}) is {loaded!r}, which is no {kind.__name__}')
