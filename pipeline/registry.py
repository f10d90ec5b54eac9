"""From a stage's name to its class: installed entry points, or ``module:attribute``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import attrs

from pipeline.errors import RegistryError
from pipeline.stage import Flow, Stage

__all__ = ["ENTRY_POINT_GROUP", "StageInfo", "StageRegistry", "nearest"]

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


class StageRegistry:
    """Finds stages by name; built-in ones like anybody else's.

    Args:
        points: the entry points to look among; the installed ones by default.
    """

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        found = entry_points(group=ENTRY_POINT_GROUP) if points is None else points
        self._points = {point.name: point for point in found}

    def names(self) -> list[str]:
        """The names of all installed stages, sorted."""
        return sorted(self._points)

    def find(self, name: str) -> type[Stage]:
        """The stage class of that name.

        Raises:
            RegistryError: no such stage, it cannot be imported, or it is no stage.
        """
        if ":" in name:
            return _as_stage(name, _import(name))
        point = self._points.get(name)
        if point is None:
            known = self.names()
            raise RegistryError(
                f'there is no stage "{name}"{nearest(name, known)}; installed: {", ".join(known)}; '
                f"a stage of your own is written module:attribute"
            )
        try:
            found = point.load()
        except Exception as error:
            raise RegistryError(f'stage "{name}" ({point.value}) cannot be imported: {_one_line(error)}') from error
        return _as_stage(name, found)

    def describe(self, name: str) -> StageInfo:
        """What there is to know of a stage, from its class.

        Raises:
            RegistryError: as ``find``.
        """
        stage = self.find(name)
        summary = (stage.__doc__ or "").strip().partition("\n")[0]
        defaults = attrs.asdict(stage.Options(), recurse=False)
        return StageInfo(name, summary, stage.takes, stage.gives, defaults)


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean "..."?`` where some known name is near, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def _import(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise RegistryError(f'stage "{name}": module {module_name} cannot be imported: {_one_line(error)}') from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = nearest(part, dir(found))
            raise RegistryError(f'stage "{name}": module {module_name} has no attribute {part}{near}') from None
    return found


def _as_stage(name: str, found: object) -> type[Stage]:
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise RegistryError(f'stage "{name}" is {found!r}, which is no subclass of pipeline.Stage')
    if not attrs.has(found.Options):
        raise RegistryError(f'stage "{name}": its Options is {found.Options!r}, which is no attrs class')
    try:
        attrs.resolve_types(found.Options)
    except NameError as error:
        raise RegistryError(f'stage "{name}": a type in its Options is unknown at run time: {error}') from error
    for field in attrs.fields(found.Options):
        if field.init and field.default is attrs.NOTHING:
            raise RegistryError(f'stage "{name}": its option {field.name} has no default')
    return found


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
