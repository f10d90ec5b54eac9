"""From a sink's name to its class: installed entry points, or ``module:attribute``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import attrs

from pipeline.errors import RegistryError
from pipeline.registry import nearest
from server.capture.sink import Sink

__all__ = ["SINK_ENTRY_POINT_GROUP", "SinkRegistry"]

SINK_ENTRY_POINT_GROUP: Final = "callahead.sinks"


class SinkRegistry:
    """Finds sinks by name; built-in ones like anybody else's.

    Args:
        points: the entry points to look among; the installed ones by default.
    """

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        found = entry_points(group=SINK_ENTRY_POINT_GROUP) if points is None else points
        self._points = {point.name: point for point in found}

    def names(self) -> list[str]:
        """The names of all installed sinks, sorted."""
        return sorted(self._points)

    def find(self, name: str) -> type[Sink]:
        """The sink class of that name.

        Raises:
            RegistryError: no such sink, it cannot be imported, or it is no sink.
        """
        point = EntryPoint(name, name, SINK_ENTRY_POINT_GROUP) if ":" in name else self._points.get(name)
        if point is None:
            known = self.names()
            raise RegistryError(
                f'there is no sink "{name}"{nearest(name, known)}; installed: {", ".join(known)}; '
                f"a sink of your own is written module:attribute"
            )
        try:
            found = point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise RegistryError(f'sink "{name}" ({point.value}) cannot be imported: {reason}') from error
        return _as_sink(name, found)


def _as_sink(name: str, found: object) -> type[Sink]:
    if not (isinstance(found, type) and issubclass(found, Sink)):
        raise RegistryError(f'sink "{name}" is {found!r}, which is no subclass of server.capture.sink.Sink')
    if not attrs.has(found.Options):
        raise RegistryError(f'sink "{name}": its Options is {found.Options!r}, which is no attrs class')
    for field in attrs.fields(found.Options):
        if field.init and field.default is attrs.NOTHING:
            raise RegistryError(f'sink "{name}": its option {field.name} has no default')
    return found
