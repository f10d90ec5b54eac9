"""From a sink's name to its class: installed entry points, or ``module:attribute``."""

from __future__ import annotations

from typing import ClassVar, Final

from pipeline.class_registry import ClassRegistry
from server.capture.sink import Sink

__all__ = ["SINK_ENTRY_POINT_GROUP", "SinkRegistry"]

SINK_ENTRY_POINT_GROUP: Final = "callahead.sinks"


class SinkRegistry(ClassRegistry[Sink]):
    """Finds sinks by name."""

    group: ClassVar[str] = SINK_ENTRY_POINT_GROUP
    word: ClassVar[str] = "sink"
    base: ClassVar[type] = Sink
    base_name: ClassVar[str] = "server.capture.sink.Sink"
