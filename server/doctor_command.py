"""``callahead doctor``: what is odd about the streams of a server, and what to put into the config."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import trio

from server.diagnosis import Diagnosis, diagnose
from server.errors import ConfigError
from server.findings import Finding
from server.recorded_streams import read_request, streams_of
from server.text_table import aligned
from server.timeline import count

__all__ = ["doctor"]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path))
@click.option("--request", "request_file", type=click.Path(path_type=Path), metavar="FILE", help="The request's body.")
@click.option("--url", metavar="URL", help="Ask this server instead; a base URL as of serve --upstream.")
@click.option("--model", metavar="NAME", help="The model to ask.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the server's key.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="How long the server may take, in seconds.",
)
@click.pass_context
def doctor(  # noqa: PLR0913 - one for each option
    context: click.Context,
    files: tuple[Path, ...],
    *,
    request_file: Path | None,
    url: str | None,
    model: str | None,
    api_key_env: str | None,
    timeout: float,
) -> None:
    """Say what is odd about recorded streams of one server (.sse, .jsonl, captures), and which repairs cure it.

    Or ask a live server for two small tool calls: --url URL --model NAME. The exit code is 1 when a file cannot be
    read or the server gives no stream; findings do not change it.
    """
    if bool(files) == (url is not None):
        raise click.UsageError("name files, or a server with --url and --model; not both")
    if (url is None) != (model is None):
        raise click.UsageError("--url and --model belong together")
    if api_key_env is not None and url is None:
        raise click.UsageError("--api-key-env needs --url")
    request = read_request(request_file)
    failed = False
    if url is not None and model is not None:
        from server.doctor_probe import probe_server  # noqa: PLC0415 - the HTTP client, which files do not need

        key = _key(api_key_env)
        streams = [trio.run(probe_server, url, model, key, timeout, request)]
    else:
        streams = []
        for file in files:
            try:
                streams += streams_of(file, request)
            except ConfigError as error:
                click.echo(str(error), err=True)
                failed = True
    if streams:
        click.echo("\n".join(_report(diagnose(streams))))
    elif not failed:
        click.echo("no stream: the captures hold no response")
    context.exit(1 if failed else 0)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if key := os.environ.get(variable):
        return key
    raise ConfigError(f"--api-key-env: names the environment variable {variable}, which is not set")


def _report(diagnosis: Diagnosis) -> Iterator[str]:
    for each in diagnosis.streams:
        with_cures = "" if diagnosis.is_well else f", {each.announced_cured} with the config below"
        yield f"{each.title}: {count(each.chunks, 'chunk')}, {count(each.announced, 'call')} announced{with_cures}"
    yield ""
    if diagnosis.findings:
        headings = ("what is odd", "streams", "calls", "frames", "cure")
        yield from aligned([headings, *map(_row, diagnosis.findings)])
        yield ""
    if diagnosis.is_well:
        yield "no repair and no parser is needed"
    yield from diagnosis.config


def _row(finding: Finding) -> tuple[str, ...]:
    numbers = (str(finding.streams), *(str(number or "-") for number in (finding.calls, finding.frames)))
    return (finding.what, *numbers, f"{finding.cure}, {finding.note}" if finding.note else finding.cure)
