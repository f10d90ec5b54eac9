"""How each command comes to its config: from the process's environment, with the user's own stages in reach."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from server.config import Config, load_config
from server.environment import unknown_variables

__all__ = ["config_of_command"]


def config_of_command(path: Path | None, flags: Mapping[str, Any] | None = None) -> Config:
    """Read the config, and warn on stderr of variables that mean nothing.

    Modules beside the config file and in the current folder become importable, as ``module:attribute`` stages. They
    come last on ``sys.path``, so that a file there can never hide an installed package.

    Args:
        path: the file that the command line names, or none.
        flags: as ``load_config`` takes them.

    Raises:
        ConfigError: as ``load_config``.
    """
    for line in unknown_variables(os.environ):
        click.echo(f"Warning: {line}", err=True)
    config = load_config(path, os.environ, flags or {})
    for folder in ([config.file.parent] if config.file else []) + [Path()]:
        name = str(folder.resolve())
        if name not in sys.path:
            sys.path.append(name)
    return config
