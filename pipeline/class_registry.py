"""From a name to a class that was installed under it, or to ``module:attribute``."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, TypeVar, cast

import attrs

from pipeline.errors import RegistryError

__all__ = ["ClassRegistry", "nearest"]

ClassT = TypeVar("ClassT")


class ClassRegistry(Generic[ClassT]):
    """Finds classes that have ``Options`` by name; built-in ones like anybody else's. A subclass says which.

    Args:
        points: the entry points to look among; the installed ones by default.
    """

    group: ClassVar[str]
    """The group of entry points."""
    word: ClassVar[str]
    """What such a class is called in messages."""
    base: ClassVar[type]
    """``ClassT``."""
    base_name: ClassVar[str]
    """Where others import it from."""

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        found = entry_points(group=self.group) if points is None else points
        self._points = {point.name: point for point in found}

    def names(self) -> list[str]:
        """The names of all that are installed, sorted."""
        return sorted(self._points)

    def find(self, name: str) -> type[ClassT]:
        """The class of that name.

        Raises:
            RegistryError: there is none, it cannot be imported, or it is of another kind.
        """
        if ":" in name:
            return self._checked(name, self._import(name))
        point = self._points.get(name)
        if point is None:
            known = self.names()
            raise RegistryError(
                f'there is no {self.word} "{name}"{nearest(name, known)}; installed: {", ".join(known)}; '
                f"a {self.word} of your own is written module:attribute"
            )
        try:
            found = point.load()
        except Exception as error:
            raise RegistryError(
                f'{self.word} "{name}" ({point.value}) cannot be imported: {_one_line(error)}'
            ) from error
        return self._checked(name, found)

    def _import(self, name: str) -> object:
        module_name, _, attribute = name.partition(":")
        where = f'{self.word} "{name}": module {module_name}'
        try:
            found: object = importlib.import_module(module_name)
        except Exception as error:
            raise RegistryError(f"{where} cannot be imported: {_one_line(error)}") from error
        for part in attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise RegistryError(f"{where} has no attribute {part}{nearest(part, dir(found))}") from None
        return found

    def _checked(self, name: str, found: object) -> type[ClassT]:
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise RegistryError(f'{self.word} "{name}" is {found!r}, which is no subclass of {self.base_name}')
        checked: Any = found
        options = checked.Options
        if not attrs.has(options):
            raise RegistryError(f'{self.word} "{name}": its Options is {options!r}, which is no attrs class')
        try:
            attrs.resolve_types(options)
        except NameError as error:
            raise RegistryError(
                f'{self.word} "{name}": a type in its Options is unknown at run time: {error}'
            ) from error
        for field in attrs.fields(options):
            if field.init and field.default is attrs.NOTHING:
                raise RegistryError(f'{self.word} "{name}": its option {field.name} has no default')
        return cast("type[ClassT]", found)


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean "..."?`` where some known name is near, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
