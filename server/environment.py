"""What the environment and the command line say of a config, in the terms of its keys.

Every key that holds one value is also a variable: ``CALLAHEAD_UPSTREAM_URL`` is ``upstream.url``. Each option
of ``callahead serve`` has one of its own name: ``CALLAHEAD_IDLE_TIMEOUT`` is ``--idle-timeout``. An empty
variable is as good as none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from pipeline.class_registry import nearest
from server.capture.settings import CaptureSettings
from server.config_values import KeyPath, shown
from server.settings import (
    EventSettings,
    LogSettings,
    PipelineSettings,
    ReplaySettings,
    ServerSettings,
    UpstreamSettings,
)

__all__ = ["ADDED_UP", "CONFIG_VARIABLE", "SECTIONS", "Setting", "from_environment", "from_flags", "unknown_variables"]

CONFIG_VARIABLE: Final = "CALLAHEAD_CONFIG"

SECTIONS: Final[Mapping[str, type[Any]]] = {
    "server": ServerSettings,
    "upstream": UpstreamSettings,
    "replay": ReplaySettings,
    "events": EventSettings,
    "pipeline": PipelineSettings,
    "capture": CaptureSettings,
    "log": LogSettings,
}
"""The class of each section that has fixed keys."""

_FLAGS: Final[Mapping[str, KeyPath]] = {
    "upstream": ("upstream", "url"),
    "replay": ("replay", "path"),
    "repair": ("pipeline", "repairs"),
    "tool_call_parser": ("pipeline", "tool_call_parser"),
    "reasoning_parser": ("pipeline", "reasoning_parser"),
    "host": ("server", "host"),
    "port": ("server", "port"),
    "workers": ("server", "workers"),
    "first_chunk_timeout": ("upstream", "first_chunk_timeout"),
    "idle_timeout": ("upstream", "idle_timeout"),
}
_ENABLE_FLAGS: Final[Mapping[str, KeyPath]] = {
    "enable_streaming_tool_dispatch": ("events", "tool_call_dispatch"),
    "enable_streaming_reasoning_dispatch": ("events", "reasoning_dispatch"),
}
ADDED_UP: Final = frozenset({("pipeline", "repairs")})
"""Keys of which the values from everywhere count together."""
_LISTS: Final = frozenset(
    {
        ("pipeline", "stages"),
        ("pipeline", "repairs"),
        *(("capture", key) for key in ("sinks", "models", "redact", "headers")),
    }
)
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})

# Kubernetes gives a pod such variables for a Service that is named "callahead"; they are none of ours
# (https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables).
_SERVICE_LINK: Final = re.compile(r"CALLAHEAD_(SERVICE_(HOST|PORT)|PORT_\d+_)")
_SERVICE_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


@attrs.frozen
class Setting:
    """One value from outside the file."""

    origin: str
    """The variable's or option's name."""
    path: KeyPath
    value: Any


def _variable(*parts: str) -> str:
    return "_".join(("CALLAHEAD", *parts)).upper()


_LONG_NAMES: Final[Mapping[str, KeyPath]] = {
    _variable(section, field.name): (section, field.name)
    for section, cls in SECTIONS.items()
    for field in attrs.fields(cls)
    if (section, field.name) not in _LISTS
}
_SHORT_NAMES: Final[Mapping[str, KeyPath]] = {_variable(name): path for name, path in _FLAGS.items()}
_ENABLE_NAMES: Final[Mapping[str, KeyPath]] = {
    name: path for flag, path in _ENABLE_FLAGS.items() for name in (f"DYN_{flag.upper()}", _variable(flag))
}


def from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    """What the environment says; a later setting of a key wins over an earlier one.

    The enable variables, Dynamo's too, mean ``always`` where they are truthy, else nothing. A key's own
    variable wins over them.

    Raises:
        ValueError: two variables give one key different values. One line.
    """
    given = {name: value for name, value in environ.items() if value and not _is_service_link(name, value)}
    for name, path in _ENABLE_NAMES.items():
        if given.get(name, "").strip().lower() in _TRUE:
            yield Setting(name, path, "always")
    for name, path in _SHORT_NAMES.items():
        long_name = _variable(*path)
        if name in given and given.get(long_name, given[name]) != given[name]:
            raise ValueError(
                f"{name}: is {shown(given[name])}, but {long_name} is {shown(given[long_name])}; unset one"
            )
    for name, path in {**_SHORT_NAMES, **_LONG_NAMES}.items():
        if name in given:
            yield Setting(name, path, _typed(given[name], path))


def from_flags(flags: Mapping[str, Any]) -> Iterator[Setting]:
    """What the command line says.

    Args:
        flags: options by their names, with underscores; those that were not given are none, false or empty.
    """
    for flag, value in flags.items():
        option = f"--{flag.replace('_', '-')}"
        if value is None or value is False or value == ():
            continue
        if flag in _ENABLE_FLAGS:
            yield Setting(option, _ENABLE_FLAGS[flag], "always")
        else:
            yield Setting(option, _FLAGS[flag], value)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A line for each ``CALLAHEAD_*`` variable that means nothing, with the nearest name that does."""
    known = {CONFIG_VARIABLE, *_LONG_NAMES, *_SHORT_NAMES, *_ENABLE_NAMES}
    return [
        f"{name}: is no variable of Callahead, and is ignored{nearest(name, known)}"
        for name, value in sorted(environ.items())
        if name.startswith("CALLAHEAD_") and name not in known and not _is_service_link(name, value)
    ]


def _is_service_link(name: str, value: str) -> bool:
    if _SERVICE_LINK.match(name):
        return True
    return name == "CALLAHEAD_PORT" and _SERVICE_LINK_VALUE.match(value) is not None


def _typed(text: str, path: KeyPath) -> Any:
    """The value that TOML would have; the text itself where it is none of the key's type, for the error."""
    section, key = path
    kind = type(getattr(attrs.fields(SECTIONS[section]), key).default)
    try:
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except ValueError:
        return text
    if kind is bool and text.strip().lower() in _TRUE | _FALSE:
        return text.strip().lower() in _TRUE
    return text
