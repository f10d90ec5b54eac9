"""The config: one TOML file, the environment and the command line, checked as a whole.

Flags win over the environment, the environment over the file, the file over the defaults.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from cattrs.errors import ClassValidationError

from pipeline.class_registry import nearest
from pipeline.errors import PlanError
from pipeline.plan import Plan, make_plan
from pipeline.registry import StageRegistry
from server.capture.plan import CapturePlan, plan_capture
from server.capture.registry import SinkRegistry
from server.capture.settings import CaptureSettings, sink_tables
from server.config_values import KeyPath, dotted, problems, shown, structure
from server.environment import ADDED_UP, CONFIG_VARIABLE, SECTIONS, Setting, from_environment, from_flags
from server.errors import ConfigError
from server.model_plans import ModelPlans, ModelSettings
from server.settings import (
    EventSettings,
    LogSettings,
    PipelineSettings,
    ReplaySettings,
    ServerSettings,
    UpstreamSettings,
)
from stages.repairs import with_repairs

__all__ = ["Config", "load_config"]

_CAPTURE: Final = "payload_capture"


@attrs.frozen
class _Order:
    """Stages by name, and the options that their being named brings."""

    names: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]]


@attrs.frozen
class Config:
    """A checked configuration."""

    server: ServerSettings = attrs.field(factory=ServerSettings)
    upstream: UpstreamSettings = attrs.field(factory=UpstreamSettings)
    replay: ReplaySettings = attrs.field(factory=ReplaySettings)
    events: EventSettings = attrs.field(factory=EventSettings)
    pipeline: PipelineSettings = attrs.field(factory=PipelineSettings)
    stages: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """For each stage its options, ``[stages.NAME]``; read by ``plan``."""
    capture: CaptureSettings = attrs.field(factory=CaptureSettings)
    capture_sinks: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """For each sink its options, ``[capture.NAME]``; read by ``plan_capture``."""
    log: LogSettings = attrs.field(factory=LogSettings)
    models: Mapping[str, ModelSettings] = attrs.field(factory=dict)
    """For each pattern of model names what is different for them, ``[models]``."""
    file: Path | None = None
    """Where it was read from, as the user named it."""

    def plan(self, registry: StageRegistry) -> Plan:
        """The default pipeline's plan; see ``plans``."""
        return self.plans(registry).default

    def plans(self, registry: StageRegistry) -> ModelPlans:
        """The plans of all models: parsers first, then repairs, then the stages.

        ``payload_capture`` is put before the last stage where there is a sink for it.

        Raises:
            ConfigError: an unknown stage, a wrong option, or an order that cannot run.
        """
        default = self._named(ModelSettings())
        named = {pattern: self._named(each) for pattern, each in self.models.items()}
        known = [*default.names, *(name for order in named.values() for name in order.names)]
        for name in self.stages:
            if name not in known:
                problem = f"has options but is in no order of stages{nearest(name, known)}"
                raise self._fault(f"{dotted(('stages', name))}: {problem}")
        try:
            plan = make_plan(default.names, self._options_of(default), registry)
        except PlanError as error:
            raise self._fault(str(error)) from error
        by_pattern = {}
        for pattern, order in named.items():
            try:
                by_pattern[pattern] = make_plan(order.names, self._options_of(order), registry)
            except PlanError as error:
                raise self._fault(f"{dotted(('models', pattern))}: {error}") from error
        return ModelPlans(plan, by_pattern)

    def _named(self, model: ModelSettings) -> _Order:
        stages = self.pipeline.stages if model.stages is None else model.stages
        if self.capture.sinks and stages and _CAPTURE not in stages:
            stages = (*stages[:-1], _CAPTURE, stages[-1])
        try:
            names = with_repairs(self.pipeline.repairs if model.repairs is None else model.repairs, stages)
        except PlanError as error:
            raise self._fault(str(error)) from error
        formats = {
            "reasoning_parser": model.reasoning_parser or self.pipeline.reasoning_parser,
            "tool_call_parser": model.tool_call_parser or self.pipeline.tool_call_parser,
        }
        formats = {parser: name for parser, name in formats.items() if name}
        return _Order((*formats, *names), {parser: {"format": name} for parser, name in formats.items()})

    def _options_of(self, order: _Order) -> dict[str, Mapping[str, Any]]:
        given = {name: self.stages[name] for name in order.names if name in self.stages}
        return given | {name: {**given.get(name, {}), **options} for name, options in order.options.items()}

    def _fault(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.file}: {problem}" if self.file else problem)

    def plan_capture(self, registry: SinkRegistry) -> CapturePlan:
        """The plan of what is captured.

        Raises:
            ConfigError: an unknown sink, a wrong option, or a path or header that cannot be.
        """
        folder = self.file.parent if self.file else None
        try:
            return plan_capture(self.capture, self.capture_sinks, registry, folder)
        except ConfigError as error:
            raise self._fault(str(error)) from error


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """Read and check a config.

    Args:
        path: the file; none for that of ``CALLAHEAD_CONFIG``, if there is one.
        environ: the environment.
        flags: the command line, as ``environment.from_flags`` takes it.

    Raises:
        ConfigError: something is wrong; one line for each fault, all of them.
    """
    if path is None and (named := environ.get(CONFIG_VARIABLE)):
        path = Path(named)
    table = {} if path is None else _read(path)
    try:
        settings = [*from_environment(environ), *from_flags(flags)]
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return _Loader(path, table, settings).load()


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deep") from None


class _Loader:
    """Lays the settings over the file's table, and collects what is wrong."""

    def __init__(self, file: Path | None, table: dict[str, Any], settings: Iterable[Setting]) -> None:
        self._file = file
        self._table = table
        self._origins: dict[KeyPath, str] = {}
        self._faults: list[str] = []
        for section, key in ADDED_UP:
            below = table.get(section)
            if isinstance(below, dict) and isinstance(below.get(key), str):
                below[key] = [below[key]]
        for setting in settings:
            section, key = setting.path
            below = table.setdefault(section, {})
            if isinstance(below, dict):
                value = setting.value
                if setting.path in ADDED_UP:
                    value = [*_listed(below.get(key)), *_listed(value)]
                below[key] = value
                self._origins[setting.path] = setting.origin

    def load(self) -> Config:
        sinks = self._part_capture()
        sections = {name: self._section(name, cls) for name, cls in SECTIONS.items()}
        stages = self._stages(self._table.get("stages", {}))
        models = self._models(self._table.get("models", {}))
        known = [*SECTIONS, "stages", "models"]
        for name in self._table:
            if name not in known:
                near = nearest(name, known) or f"; there are {', '.join(known)}"
                self._fault((name,), f"is no section of a config{near}")
        if not self._faults:
            config = Config(**sections, stages=stages, models=models, capture_sinks=sinks, file=self._file)
            config = attrs.evolve(config, **self._beside_file(config))
            for path, problem in _contradictions(config, self._table, self._origin):
                self._fault(path, problem)
        if self._faults:
            raise ConfigError("\n".join(self._faults))
        return config

    def _section(self, name: str, cls: type[Any]) -> Any:
        table = self._table.get(name, {})
        if not isinstance(table, dict):
            self._fault((name,), f"is {shown(table)}; it must be a table, [{name}]")
            return None
        try:
            return structure(table, cls)
        except ClassValidationError as error:
            for path, problem in problems(error, (name,), cls):
                self._fault(path, problem)
        return None

    def _models(self, table: Any) -> dict[str, ModelSettings]:
        if not isinstance(table, dict):
            self._fault(("models",), f"is {shown(table)}; it must be a table, [models]")
            return {}
        found = {}
        for pattern, settings in table.items():
            path = ("models", pattern)
            if not isinstance(settings, dict):
                self._fault(path, f"is {shown(settings)}; it must be a table")
                continue
            if isinstance(settings.get("repairs"), str):
                settings["repairs"] = [settings["repairs"]]
            try:
                found[pattern] = structure(settings, ModelSettings)
            except ClassValidationError as error:
                for each, problem in problems(error, path, ModelSettings):
                    self._fault(each, problem)
        return found

    def _part_capture(self) -> dict[str, dict[str, Any]]:
        """The tables of sinks, taken out of ``[capture]``."""
        table = self._table.get("capture", {})
        if not isinstance(table, dict):
            return {}
        self._table["capture"], sinks = sink_tables(table)
        return sinks

    def _stages(self, table: Any) -> dict[str, dict[str, Any]]:
        if not isinstance(table, dict):
            self._fault(("stages",), f"is {shown(table)}; it must be a table of tables, [stages.NAME]")
            return {}
        for name, options in table.items():
            if not isinstance(options, dict):
                self._fault(("stages", name), f"is {shown(options)}; it must be a table of options")
        return table

    def _beside_file(self, config: Config) -> dict[str, Any]:
        """The sections whose paths the file names: those are relative to its folder."""
        if self._file is None:
            return {}
        folder = self._file.parent
        changed: dict[str, Any] = {}
        if config.upstream.ca_file is not None and ("upstream", "ca_file") not in self._origins:
            changed["upstream"] = attrs.evolve(config.upstream, ca_file=folder / config.upstream.ca_file)
        if ("replay", "path") not in self._origins:
            paths = tuple(folder / path for path in config.replay.path)
            changed["replay"] = attrs.evolve(config.replay, path=paths)
        return changed

    def _origin(self, path: KeyPath) -> str:
        return self._origins.get(path) or str(self._file)

    def _fault(self, path: KeyPath, problem: str) -> None:
        self._faults.append(f"{self._origin(path)}: {dotted(path)}: {problem}")


def _listed(value: Any) -> list[Any]:
    """A list of names, or one name, or none, as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def _contradictions(
    config: Config, given: Mapping[str, Any], origin: Callable[[KeyPath], str]
) -> Iterator[tuple[KeyPath, str]]:
    """What each value alone may be, but not together with another, or not on this machine."""
    upstream = config.upstream
    if upstream.url is not None:
        for key in given.get("replay", {}):
            where = origin(("upstream", "url"))
            yield ("replay", key), f"cannot stand beside upstream.url ({where}); leave one of the two out"
    if upstream.client == "http":
        needs = 'needs upstream.client = "httpx2"; the client "http" speaks HTTP/1.1 straight to the upstream'
        if upstream.proxy is not None:
            yield ("upstream", "proxy"), needs
        if given.get("upstream", {}).get("http2") is True:
            yield ("upstream", "http2"), needs
    if upstream.ca_file is not None and not upstream.ca_file.is_file():
        yield ("upstream", "ca_file"), f"there is no file {upstream.ca_file}"
    for path in config.replay.path:
        if not path.exists():
            yield ("replay", "path"), f"there is no file or folder {path}"
