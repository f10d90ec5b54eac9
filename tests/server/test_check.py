"""``check`` and ``stages``: what a config comes to, and what it can be made of."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from pipeline.plan import DEFAULT_STAGES
from pipeline.registry import StageRegistry
from pipeline.stage import Flow, Stage
from server.cli import main


@attrs.frozen
class TrimOptions:
    """Options for the tests."""

    limit: int = 10
    word: str = "x"


class Trim(Stage):
    """Trims what is too long.

    More that is not shown.
    """

    Options = TrimOptions


class Write(Stage):
    """Writes frames."""

    gives = Flow.BYTES


def point(name, value):
    return EntryPoint(name, value, "callahead.stages")


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """Each test has a folder and a search path of its own, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def registry(monkeypatch):
    """Two small stages instead of the installed ones."""
    points = [point("write", f"{__name__}:Write"), point("trim", f"{__name__}:Trim")]
    monkeypatch.setattr("server.check_command.StageRegistry", lambda: StageRegistry(points))
    return points


def run(*arguments, **environ):
    return CliRunner().invoke(main, [str(each) for each in arguments], env=environ)


def check(text, **environ):
    Path("gateway.toml").write_text(text)
    return run("check", "gateway.toml", **environ)


class TestCheck:
    @pytest.mark.usefixtures("registry")
    def test_report(self):
        """The pipeline is printed stage by stage with what flows between them, then the upstream and the events."""
        result = check("""
            [upstream]
            url = "https://user:secret@inference.example/v1/"
            idle_timeout = 30
            [events]
            reasoning_dispatch = "never"
            [pipeline]
            stages = ["trim", "write"]
            [stages.trim]
            limit = 3
        """)
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "gateway.toml: nothing is wrong",
            "",
            "pipeline",
            "  source",
            "  -> items -> trim    Trims what is too long.",
            "                        limit = 3",
            "  -> items -> write   Writes frames.",
            "  -> bytes -> client",
            "",
            "upstream: https://inference.example/v1",
            "  idle_timeout = 30.0",
            "events",
            "  tool_call_dispatch = request",
            "  reasoning_dispatch = never",
            "  style = named",
        ]

    def test_default_pipeline(self):
        """An empty config comes to the default stages in their order, and the bundled recordings."""
        result = check("")
        lines = result.stdout.splitlines()
        found = [line.split()[3] for line in lines if line.startswith("  -> items -> ")]
        assert result.exit_code == 0
        assert tuple(found) == DEFAULT_STAGES
        assert "upstream: the bundled recordings" in lines

    @pytest.mark.usefixtures("registry")
    def test_recordings(self):
        """Recordings are named."""
        Path("a.sse").touch()
        result = check('[replay]\npath = ["a.sse", "."]\n[pipeline]\nstages = ["write"]')
        assert "upstream: recordings of a.sse, ." in result.stdout.splitlines()

    def test_faults(self):
        """All that is wrong is on stderr, a line each, and the exit code is 1."""
        result = check('[server]\nport = -1\n[log]\nlevel = "loud"')
        assert (result.exit_code, result.stdout) == (1, "")
        assert [line[:24] for line in result.stderr.splitlines()] == [
            "gateway.toml: server.por",
            "gateway.toml: log.level:",
        ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                '[pipeline]\nstages = ["trimm", "write"]',
                'pipeline.stages[0]: there is no stage "trimm"; did you mean "trim"?',
            ),
            (
                '[pipeline]\nstages = ["trim"]',
                'pipeline.stages[0]: the last stage "trim" gives items; it must give bytes',
            ),
            (
                '[pipeline]\nstages = ["write", "trim"]',
                'pipeline.stages[1]: stage "trim" takes items, but stage "write"',
            ),
            (
                '[pipeline]\nstages = ["trim", "write"]\n[stages.trim]\nlimit = "3"',
                "stages.trim.limit: is '3', of type str;",
            ),
            (
                '[pipeline]\nstages = ["no_such_module:Stage"]',
                'pipeline.stages[0]: stage "no_such_module:Stage": module',
            ),
        ],
    )
    @pytest.mark.usefixtures("registry")
    def test_pipeline_that_cannot_run(self, text, said):
        """A pipeline that cannot run is one line with the file and the key."""
        result = check(text)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"gateway.toml: {said}")
        assert result.stderr.count("\n") == 1

    @pytest.mark.usefixtures("registry")
    def test_stage_beside_the_config(self):
        """A stage in a module beside the config is found, wherever the command is run."""
        Path("etc").mkdir()
        Path("etc/stages_beside.py").write_text(
            'from pipeline import Stage\nclass Redact(Stage):\n    """Redacts."""\n', "utf-8"
        )
        Path("etc/gateway.toml").write_text('[pipeline]\nstages = ["stages_beside:Redact", "write"]')
        result = run("check", "etc/gateway.toml")
        assert result.exit_code == 0
        assert "  -> items -> stages_beside:Redact  Redacts." in result.stdout.splitlines()

    @pytest.mark.usefixtures("registry")
    def test_stage_that_cannot_be_imported(self):
        """A stage's module that raises is one line, not a traceback."""
        Path("raising_stage.py").write_text("1 / 0")
        result = check('[pipeline]\nstages = ["raising_stage:Stage", "write"]')
        assert result.exit_code == 1
        assert result.stderr.endswith("raising_stage cannot be imported: ZeroDivisionError: division by zero\n")
        assert result.stderr.count("\n") == 1

    @pytest.mark.usefixtures("registry")
    def test_environment_counts(self):
        """The environment counts, as it does for ``serve``, and is named where it is wrong."""
        config = '[pipeline]\nstages = ["write"]'
        assert "upstream: http://h/v1" in check(config, CALLAHEAD_UPSTREAM="http://h/v1").stdout.splitlines()
        assert check(config, CALLAHEAD_PORT="x").stderr.startswith("CALLAHEAD_PORT: server.port: ")

    def test_no_file(self):
        """A file that is not there is named."""
        result = run("check", "gone.toml")
        assert (result.exit_code, result.stderr) == (1, "gone.toml: cannot be read: No such file or directory\n")


class TestStages:
    @pytest.mark.usefixtures("registry")
    def test_list(self):
        """Each stage is listed with what it takes and gives, its line, and its options with their defaults."""
        result = run("stages")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "trim   items -> items  Trims what is too long.",
            "                         limit = 10",
            '                         word = "x"',
            "write  items -> bytes  Writes frames.",
        ]

    def test_installed(self):
        """The built-in stages are found like anybody else's, and each describes itself in a line."""
        result = run("stages")
        lines = {line.split()[0]: line for line in result.stdout.splitlines() if line[0] != " "}
        assert result.exit_code == 0
        assert set(DEFAULT_STAGES) <= set(lines)
        assert all(line.endswith((".", ")")) for line in lines.values())

    def test_broken_stage(self, registry):
        """A stage that cannot be imported is told on stderr; the others are still listed."""
        registry.append(point("broken", "no_such_module:Stage"))
        result = run("stages")
        assert result.exit_code == 1
        assert [line.split()[0] for line in result.stdout.splitlines() if line[0] != " "] == ["trim", "write"]
        assert result.stderr == (
            'stage "broken" (no_such_module:Stage) cannot be imported: '
            "ModuleNotFoundError: No module named 'no_such_module'\n"
        )
