"""The command line: ``callahead serve | check | stages | replay | doctor``.

Whatever a user does wrong is one line on stderr for each fault. The exit code is 2 where the command line
itself is wrong, and 1 where what it names is. Only ``serve`` imports the web stack.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from pipeline.errors import CallaheadError
from server.check_command import check, stages
from server.command_config import config_of_command
from server.doctor_command import doctor
from server.replay_command import replay

__all__ = ["main"]


class _Program(click.Group):
    """A group whose errors are one line, without a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """As ``click.Group.main``; all the exits of the program are here."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            _fail(f"Error: {' '.join(error.format_message().split())}", error.exit_code)
        except CallaheadError as error:
            _fail(str(error), 1)
        except BrokenPipeError:
            # Whoever read our output has enough; the interpreter must not complain about it at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except click.Abort:
            sys.exit(130)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's order
    if wanted:
        click.echo(f"callahead {importlib.metadata.version('callahead')}")
        context.exit()


@click.group(cls=_Program, invoke_without_command=True)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """A streaming gateway that announces each tool call the moment its arguments are complete.

    Every option of serve is also a variable: --idle-timeout is CALLAHEAD_IDLE_TIMEOUT. So is each key of
    the config: upstream.idle_timeout is CALLAHEAD_UPSTREAM_IDLE_TIMEOUT. Options win over variables, those over
    the config.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command()
@click.option("--config", "path", type=click.Path(path_type=Path), metavar="FILE", help="The config, a TOML file.")
@click.option("--upstream", metavar="URL", help="The inference server's base URL; it ends in /v1.")
@click.option(
    "--replay",
    multiple=True,
    metavar="PATH",
    help="Recordings to serve instead: a file or a folder.",
)
@click.option("--host", metavar="HOST", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, metavar="N", help="The port to listen on (8080); 0 = any free one.")
@click.option("--workers", type=int, metavar="N", help="Processes (1).")
@click.option("--first-chunk-timeout", type=float, metavar="S", help="Longest wait for a first chunk (no limit).")
@click.option("--idle-timeout", type=float, metavar="S", help="Longest silence between two frames (no limit).")
@click.option("--tool-call-parser", metavar="FORMAT", help="How the model marks its calls in raw text.")
@click.option("--reasoning-parser", metavar="FORMAT", help="How the model marks its thoughts in raw text.")
@click.option("--repair", multiple=True, metavar="NAME", help="A repair to put before the stages; repeatable.")
@click.option("--enable-streaming-tool-dispatch", is_flag=True, help="Send tool_call_dispatch to every client.")
@click.option("--enable-streaming-reasoning-dispatch", is_flag=True, help="Send reasoning_dispatch to every client.")
def serve(path: Path | None, **flags: Any) -> None:
    """Run the gateway. With neither upstream nor replay it serves bundled recordings."""
    config = config_of_command(path, flags)
    from server.run import serve as run  # noqa: PLC0415 - the web stack, which no other command needs

    run(config)


main.add_command(check)
main.add_command(stages)
main.add_command(replay)
main.add_command(doctor)
