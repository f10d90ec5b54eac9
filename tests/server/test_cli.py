"""The command line: options, exit codes, and one line for whatever is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from server.cli import main
from server.config import Config
from server.environment import unknown_variables
from server.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """Each test has a folder and a search path of its own, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch):
    """The configs that ``serve`` was asked to serve."""
    configs = []
    monkeypatch.setitem(sys.modules, "server.run", SimpleNamespace(serve=configs.append))
    return configs


def run(*arguments, **environ):
    return CliRunner().invoke(main, [str(each) for each in arguments], env=environ)


def python(*arguments, **more):
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env=environ, capture_output=True, timeout=60, check=False, **more
    )


class TestServe:
    def test_nothing_given(self, served):
        """Without options the defaults are served."""
        assert run("serve").exit_code == 0
        assert served == [Config()]

    def test_every_option(self, served):
        """Each option ends in the key it stands for."""
        Path("gateway.toml").write_text("[server]\nport = 1\ndrain_timeout = 3")
        result = run(
            *("serve", "--config", "gateway.toml", "--upstream", "http://h/v1", "--host", "::", "--port", "0"),
            *("--workers", "1", "--first-chunk-timeout", "2", "--idle-timeout", "2.5"),
            *("--enable-streaming-tool-dispatch", "--enable-streaming-reasoning-dispatch"),
        )
        assert result.exit_code == 0
        (config,) = served
        assert (config.server.host, config.server.port, config.server.drain_timeout) == ("::", 0, 3.0)
        assert (config.upstream.url, config.upstream.first_chunk_timeout) == ("http://h/v1", 2.0)
        assert config.upstream.idle_timeout == 2.5
        assert set(config.events.policies.values()) == {"always"}
        assert config.file == Path("gateway.toml")

    def test_several_replays(self, served):
        """``--replay`` may be repeated."""
        Path("a.sse").touch()
        Path("folder").mkdir()
        assert run("serve", "--replay", "a.sse", "--replay", "folder").exit_code == 0
        assert served[0].replay.path == (Path("a.sse"), Path("folder"))

    @pytest.mark.parametrize("option", [option for each in main.commands["serve"].params for option in each.opts])
    def test_every_option_has_a_variable(self, option):
        """No option lacks its variable."""
        assert unknown_variables({f"CALLAHEAD_{option.strip('-').replace('-', '_').upper()}": "x"}) == []

    def test_environment(self, served):
        """The environment is read, and what is odd in it is told without stopping anything."""
        result = run("serve", CALLAHEAD_PORT="9", CALLAHEAD_PROT="10")
        assert result.exit_code == 0
        assert result.stderr == (
            'Warning: CALLAHEAD_PROT: is no variable of Callahead, and is ignored; did you mean "CALLAHEAD_PORT"?\n'
        )
        assert served[0].server.port == 9

    def test_workers(self, served):
        """More than one worker is refused for now."""
        result = run("serve", "--workers", "0")
        assert (result.exit_code, result.stderr, served) == (
            1,
            "--workers: server.workers: is 0; it must be an integer from 1 to 256\n",
            [],
        )

    def test_what_serving_finds_wrong(self, monkeypatch):
        """What turns out only while serving begins is one line too."""

        def serve(config):
            raise ConfigError("server.port: cannot listen on 127.0.0.1:80: Permission denied")

        monkeypatch.setitem(sys.modules, "server.run", SimpleNamespace(serve=serve))
        result = run("serve")
        assert (result.exit_code, result.stderr) == (
            1,
            "server.port: cannot listen on 127.0.0.1:80: Permission denied\n",
        )

    @pytest.mark.usefixtures("served")
    def test_stages_beside_the_config(self):
        """A stage beside the config, or in the current folder, can be imported while serving."""
        Path("etc").mkdir()
        Path("etc/gateway.toml").write_text("")
        assert run("serve", "--config", "etc/gateway.toml").exit_code == 0
        assert sys.path[-2:] == [str(Path("etc").resolve()), str(Path.cwd())]


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["serv"], "Error: No such command 'serv'."),
            (["--prot"], "Error: No such option '--prot'."),
            (["serve", "--prot", "1"], "Error: No such option '--prot'."),
            (["serve", "--port", "x"], "Error: Invalid value for '--port': 'x' is not a valid integer."),
            (["serve", "--idle-timeout", "x"], "Error: Invalid value for '--idle-timeout': 'x' is not a valid float."),
            (["serve", "--port"], "Error: Option '--port' requires an argument."),
            (["serve", "x"], "Error: Got unexpected extra argument (x)"),
            (["check"], "Error: Missing argument 'FILE'."),
            (["replay"], "Error: Missing argument 'FILE...'."),
            (
                ["replay", "--tokens-per-second", "0", "x"],
                "Error: Invalid value for '--tokens-per-second': 0.0 is not in",
            ),
            (["replay", "--style", "x", "x"], "Error: Invalid value for '--style': 'x' is not one of"),
        ],
    )
    def test_one_line(self, arguments, said):
        """A wrong command line is one line on stderr, and exit code 2."""
        result = run(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(said)
        assert result.stderr.count("\n") == 1

    def test_nothing_given(self):
        """Without a command there is help."""
        result = run()
        assert result.exit_code == 0
        assert all(command in result.stdout for command in ("serve", "check", "stages", "replay"))

    @pytest.mark.parametrize("command", ["serve", "check", "stages", "replay"])
    def test_help(self, command):
        """Each command explains itself."""
        result = run(command, "--help")
        assert result.exit_code == 0
        assert main.commands[command].help.partition("\n")[0] in " ".join(result.stdout.split())

    def test_version(self):
        """``--version`` says which."""
        result = run("--version")
        assert result.exit_code == 0
        assert result.stdout.startswith("callahead ")


class TestProcess:
    def test_module(self):
        """``python -m server`` is the same program under the same name."""
        result = python("-m", "server", "--help")
        assert result.returncode == 0
        assert result.stdout.startswith(b"Usage: callahead [OPTIONS] ")

    @pytest.mark.parametrize("command", ["check", "stages", "replay"])
    def test_no_web_stack(self, command):
        """``check``, ``stages`` and ``replay`` do without the web stack."""
        Path("gateway.toml").touch()
        Path("stream.sse").write_bytes(b'data: {"choices":[{"index":0,"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        arguments = {"check": ["gateway.toml"], "stages": [], "replay": ["stream.sse", "--timeline"]}[command]
        result = python("-X", "importtime", "-m", "server", command, *arguments)
        imported = {line.rpartition("|")[2].strip() for line in result.stderr.decode().splitlines()}
        assert result.returncode == 0
        assert "trio" in imported
        assert imported.isdisjoint({"quart", "quart_trio", "hypercorn", "httptools", "httpx2", "h11", "structlog"})

    def test_broken_pipe(self):
        """``callahead replay FILE | head`` ends quietly."""
        frame = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 1000)
        Path("stream.sse").write_bytes(frame * 1000)
        with subprocess.Popen(
            [sys.executable, "-m", "server", "replay", "stream.sse"],
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout.read(4) == b"data"
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(timeout=30) == 1
