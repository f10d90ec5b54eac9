"""``callahead check`` and ``callahead stages``: what a config comes to, and what it can be made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import attrs
import click

from pipeline.errors import RegistryError
from pipeline.plan import Plan
from pipeline.registry import StageRegistry
from pipeline.stage import Flow
from server.capture.registry import SinkRegistry
from server.capture.settings import CaptureSettings
from server.command_config import config_of_command
from server.config import Config
from server.config_values import shown
from server.settings import UpstreamSettings
from server.text_table import aligned

__all__ = ["check", "stages"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", metavar="NAME", help="Show only the pipeline that this model gets.")
def check(file: Path, model: str | None) -> None:
    """Say what a config comes to, stage by stage, or what is wrong with it.

    The environment counts as it does for serve. The exit code is 1 when something is wrong.
    """
    config = config_of_command(file)
    registry = StageRegistry()
    plans = config.plans(registry)
    config.plan_capture(SinkRegistry())
    shown_plans = list(plans) if model is None else [(plans.pattern_of(model), plans.for_model(model))]
    click.echo("\n".join(_report(config, shown_plans, registry)))


@click.command()
@click.pass_context
def stages(context: click.Context) -> None:
    """List the stages there are, with their options and defaults."""
    registry = StageRegistry()
    rows: list[tuple[str, ...]] = []
    failed = False
    for name in registry.names():
        try:
            stage = registry.describe(name)
        except RegistryError as error:
            click.echo(str(error), err=True)
            failed = True
            continue
        rows.append((name, f"{stage.takes.value} -> {stage.gives.value}", stage.summary))
        rows += [("", "", f"  {key} = {shown(value)}") for key, value in stage.options.items()]
    click.echo("\n".join(aligned(rows)))
    context.exit(1 if failed else 0)


def _report(config: Config, plans: Sequence[tuple[str | None, Plan]], registry: StageRegistry) -> Iterator[str]:
    yield f"{config.file}: nothing is wrong"
    yield ""
    for pattern, plan in plans:
        yield "pipeline" if pattern is None else f"pipeline for models {shown(pattern)}"
        yield from aligned([("  source",), *_stage_rows(plan, registry), (f"  -> {Flow.BYTES.value} -> client",)])
        yield ""
    yield f"upstream: {_source(config)}"
    yield from _changes(config.upstream, UpstreamSettings(url=config.upstream.url))
    yield "events"
    for event, policy in config.events.policies.items():
        yield f"  {event} = {policy}"
    yield f"  style = {config.events.style.value}"
    if config.capture.sinks:
        yield f"capture to {', '.join(config.capture.sinks)}"
        yield from _changes(config.capture, CaptureSettings(sinks=config.capture.sinks))


def _stage_rows(plan: Plan, registry: StageRegistry) -> Iterator[tuple[str, str]]:
    for step in plan.steps:
        stage = registry.describe(step.name)
        yield f"  -> {stage.takes.value} -> {step.name}", stage.summary
        for line in _changes(step.options, stage.options):
            yield "", line


def _changes(settings: Any, defaults: Any) -> Iterator[str]:
    """A line for each value that is not the default."""
    before: Mapping[str, object] = defaults if isinstance(defaults, Mapping) else attrs.asdict(defaults, recurse=False)
    for key, value in attrs.asdict(settings, recurse=False).items():
        if value != before[key]:
            yield f"  {key} = {shown(_without_credentials(value) if isinstance(value, str) else value)}"


def _source(config: Config) -> str:
    if config.upstream.url is not None:
        return _without_credentials(config.upstream.url)
    if config.replay.path:
        return f"recordings of {', '.join(str(path) for path in config.replay.path)}"
    return "the bundled recordings"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url
