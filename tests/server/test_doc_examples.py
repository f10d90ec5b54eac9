"""What the documents show is what happens: their commands are run, their programs too, and their code is in files."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner
from harness import make_config, running_gateway

from server.cli import main
from server.config import Config
from server.welcome import welcome

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A prompt, a command, whatever follows up to the next prompt.
COMMAND = re.compile(r"^\$ ((?:\w+=\S+ )*)(cat|callahead) (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.name, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text("utf-8")) if kind == language
    ]


@attrs.frozen
class Command:
    """A command of a page, and what is shown below it."""

    page: str
    variables: str
    program: str
    arguments: str
    shown: str

    def __str__(self) -> str:
        return f"{self.page}: {self.program} {self.arguments}"


def commands() -> list[Command]:
    """The commands that can be run without anything around them."""
    found = [Command(page, *parts) for page, block in blocks("console") for parts in COMMAND.findall(block)]
    return [each for each in found if each.shown and not each.shown.startswith("callahead listens")]


@pytest.fixture
def custom_format(tmp_path, monkeypatch):
    """The example of a format of your own, as if it were installed."""
    folder = EXAMPLES / "custom-format"
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = tmp_path / "my_formats-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items()) for group, points in groups
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(folder)])
    yield
    sys.modules.pop("my_formats", None)


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_command_prints_what_its_page_shows(command, monkeypatch, custom_format):
    """Commands run at the root of a clone; `...` stands for anything."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)
    if command.program == "cat":
        printed = Path(command.arguments).read_text("utf-8")
    else:
        environ = dict(each.split("=", 1) for each in shlex.split(command.variables))
        printed = CliRunner().invoke(main, shlex.split(command.arguments), env=environ).output
    printed, shown = printed.rstrip() + "\n", command.shown.rstrip() + "\n"
    if not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
        assert printed == shown


def test_the_readme_shows_the_welcome():
    """The first thing that a newcomer sees is what the README says."""
    text = welcome(Config(), "recordings two-parallel-calls, text-only", "127.0.0.1", 8080)
    assert text.strip() in (ROOT / "README.md").read_text("utf-8")


def test_recordings_of_ones_own_get_no_advice():
    """The request to try names a bundled recording, so it is shown where those are served only."""
    config = make_config(replay={"path": EXAMPLES / "streams"})
    assert welcome(config, "6 recordings", "127.0.0.1", 8080).count("\n") == 1


@pytest.mark.parametrize("language", ["python", "toml"])
def test_shown_code_is_in_an_example_that_runs(language):
    """Each line of Python, and each TOML of the page on stages of your own, is in a file that a test runs."""
    files = [path for suffix in ("*.py", "*.toml") for path in EXAMPLES.rglob(suffix)]
    texts = ["\n".join(map(str.strip, path.read_text("utf-8").splitlines())) for path in files]
    for page, code in blocks(language):
        if page == "capture.md" or "entry-points" in code:
            continue
        wanted = "\n".join(map(str.strip, code.splitlines()))
        assert any(wanted in text for text in texts), code


def run_own_tests(folder: str, program: str) -> str:
    """Run an example's tests in its folder; what they print."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", program]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    where = EXAMPLES / folder
    done = subprocess.run(command, cwd=where, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_custom_format_passes_its_own_tests():
    """The example of a format of your own, alone."""
    assert "passed" in run_own_tests("custom-format", "test_my_formats.py")


def test_the_custom_stage_passes_its_own_tests():
    """The example of a stage of your own, as its page says to run it."""
    printed = run_own_tests("custom-stage", "test_my_stages.py")
    shown = next(text for page, text in blocks("console") if "test_my_stages.py" in text)
    assert printed.splitlines()[0] in shown


async def printed_by(program: str, **replay) -> tuple[int, list[str]]:
    """Exit code and lines of an example, run against a gateway that replays."""
    async with running_gateway(make_config(replay=replay)) as gateway:
        command = [sys.executable, str(EXAMPLES / program), f"http://127.0.0.1:{gateway.port}/v1"]
        with trio.fail_after(40):
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode().splitlines()


async def test_a_folded_answer_is_what_the_page_shows():
    """Each request of `docs/non-streaming.md` gets the answer and the status that stand below it."""
    text = (ROOT / "docs" / "non-streaming.md").read_text("utf-8")
    shown = re.findall(r"^\$ curl .* -d '(.*)'\n(.*)\n(\d{3})?", text, flags=re.MULTILINE)
    assert len(shown) == 3
    async with running_gateway(make_config(replay={"path": EXAMPLES / "streams"})) as gateway:
        for request, answer, status in shown:
            response = await gateway.request(body=request.encode())
            assert (response.status, (await response.read_all()).decode()) == (int(status or 200), answer)


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r"^ *\d+\.\d+ s", "", line) for line in lines]


def shown_output(program: str) -> list[str]:
    text = next(text for page, text in blocks("console") if program in text)
    return text.splitlines()[1:]


async def test_the_harness_starts_tools_before_the_finish():
    """It prints what the page shows; at this pace only the place of the line "is done" may differ."""
    code, lines = await printed_by("harness.py", tokens_per_second=400)
    assert code == 0
    assert sorted(without_times(lines)) == sorted(without_times(shown_output("harness.py")))
    places = [next(place for place, line in enumerate(lines) if word in line) for word in (" starts", "finish:")]
    assert places == sorted(places)


async def test_the_harness_runs_calls_that_were_not_announced():
    """Without an event a call is run at the finish; one that cannot be run has an answer too."""
    code, lines = await printed_by("harness.py", path=EXAMPLES / "streams" / "refused.sse")
    assert code == 0
    assert any("0 of 3 calls were announced" in line for line in lines)
    assert sum('"role": "tool"' in line for line in lines) == 3


async def test_the_harness_gives_up_on_a_failed_stream():
    """An error frame ends the turn without results."""
    code, lines = await printed_by("harness.py", path=EXAMPLES / "streams" / "cut.sse")
    assert code == 1
    assert "the turn failed" in lines[-1]


async def test_the_sdk_example_sees_events():
    """The official client prints what the page shows."""
    code, lines = await printed_by("openai_sdk.py", tokens_per_second=1000)
    assert (code, lines) == (0, shown_output("openai_sdk.py"))
