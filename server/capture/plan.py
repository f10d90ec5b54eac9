"""Configured capture, checked once: which sinks with which options, what is redacted, which headers are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from cattrs.errors import ClassValidationError

from pipeline.class_registry import nearest
from pipeline.errors import RegistryError
from server.capture.headers import checked_header_names
from server.capture.redact import Redaction
from server.capture.registry import SinkRegistry
from server.capture.settings import CaptureSettings
from server.capture.sink import Sink
from server.config_values import dotted, problems, structure
from server.errors import ConfigError

__all__ = ["CapturePlan", "PlannedSink", "plan_capture"]


@attrs.frozen(eq=False)
class PlannedSink:
    """One sink of a plan with its options."""

    name: str
    sink: type[Sink]
    options: Any


@attrs.frozen(eq=False)
class CapturePlan:
    """What ``Capture`` is made from."""

    settings: CaptureSettings
    sinks: tuple[PlannedSink, ...]
    redaction: Redaction
    headers: frozenset[str]


def plan_capture(
    settings: CaptureSettings,
    tables: Mapping[str, Mapping[str, Any]],
    registry: SinkRegistry,
    folder: Path | None = None,
) -> CapturePlan:
    """Find each sink, read its options, and check what a type cannot say.

    Args:
        settings: ``[capture]``.
        tables: for each sink its options, ``[capture.NAME]``.
        registry: where names are looked up.
        folder: what paths in the tables are relative to; that of the config file.

    Raises:
        ConfigError: one line that starts with the config key.
    """
    try:
        redaction = Redaction(settings.redact)
    except ValueError as error:
        raise ConfigError(f"capture.redact{error}") from error
    try:
        headers = checked_header_names(settings.headers)
    except ValueError as error:
        raise ConfigError(f"capture.headers{error}") from error
    sinks = []
    for place, name in enumerate(settings.sinks):
        if name in settings.sinks[:place]:
            raise ConfigError(f'capture.sinks[{place}]: "{name}" stands there twice')
        try:
            sink = registry.find(name)
        except RegistryError as error:
            raise ConfigError(f"capture.sinks[{place}]: {error}") from error
        sinks.append(PlannedSink(name, sink, _options(name, sink, tables.get(name, {}), folder)))
    for name in tables:
        if name not in settings.sinks:
            near = nearest(name, [*settings.sinks, *attrs.fields_dict(CaptureSettings)])
            raise ConfigError(f"{dotted(('capture', name))}: has options but is not in capture.sinks{near}")
    return CapturePlan(settings, tuple(sinks), redaction, headers)


def _options(name: str, sink: type[Sink], table: Mapping[str, Any], folder: Path | None) -> Any:
    try:
        options = structure(table, sink.Options)
    except ClassValidationError as error:
        path, problem = next(problems(error, ("capture", name), sink.Options))
        raise ConfigError(f"{dotted(path)}: {problem}") from error
    if folder is None:
        return options
    paths = {
        field.alias: folder / value
        for field in attrs.fields(sink.Options)
        if field.init and isinstance(value := getattr(options, field.name), Path)
    }
    return attrs.evolve(options, **paths)
