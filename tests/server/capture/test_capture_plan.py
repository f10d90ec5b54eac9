"""Capture from a config: what is off, what is wrong, and which sink has which options."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import attrs
import pytest
from cattrs.errors import ClassValidationError
from prometheus_client import CollectorRegistry

from pipeline.errors import RegistryError
from server.capture.capture import Capture
from server.capture.file_sink import FileSink, FileSinkOptions
from server.capture.plan import plan_capture
from server.capture.registry import SinkRegistry
from server.capture.settings import CaptureSettings, sink_tables
from server.capture.sink import Sink
from server.capture.stderr_sink import StderrSink
from server.config_values import structure
from server.errors import ConfigError


class Quiet(Sink):
    """Writes nothing."""

    async def write(self, lines):
        """Nothing."""


class Demanding(Sink):
    @attrs.frozen
    class Options:
        """Not as it must be."""

        url: str


class Plain(Sink):
    class Options:
        """Not as it must be."""

        url = ""


class Broken(Sink):
    def __init__(self, options):  # noqa: ARG002 - the sink's signature
        raise RuntimeError("no route")


def plan(table, folder=None):
    """The plan of what stands in ``[capture]``."""
    settings, tables = sink_tables(table)
    return plan_capture(structure(settings, CaptureSettings), tables, SinkRegistry(), folder)


@pytest.fixture
def own_sinks(monkeypatch):
    """This module under a name of its own."""
    monkeypatch.setitem(sys.modules, "my_sinks", sys.modules[__name__])


class TestRegistry:
    """Names to classes."""

    def test_built_in_ones_are_entry_points(self):
        """``file`` and ``stderr`` are found like anybody else's."""
        registry = SinkRegistry()
        assert {"file", "stderr"} <= set(registry.names())
        assert (registry.find("file"), registry.find("stderr")) == (FileSink, StderrSink)

    @pytest.mark.usefixtures("own_sinks")
    def test_module_and_attribute(self):
        """A sink of one's own needs no entry point."""
        assert SinkRegistry().find("my_sinks:Quiet") is Quiet

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "fiel",
                'there is no sink "fiel"; did you mean "file"?; installed: file, lost; a sink of your own is written module:attribute',
            ),
            ("lost", 'sink "lost" (my_sinks:Lost) cannot be imported: AttributeError: '),
            ("nowhere:X", 'sink "nowhere:X": module nowhere cannot be imported: ModuleNotFoundError: '),
            ("my_sinks:plan", 'sink "my_sinks:plan" is <function plan at '),
            ("my_sinks:Plain", 'sink "my_sinks:Plain": its Options is '),
            ("my_sinks:Demanding", 'sink "my_sinks:Demanding": its option url has no default'),
            (":", 'sink ":": module  cannot be imported: '),
        ],
    )
    @pytest.mark.usefixtures("own_sinks")
    def test_not_found(self, name, message):
        """One line that names the sink and says what is wrong."""
        registry = SinkRegistry(
            [EntryPoint(*each, "g") for each in (("file", "my_sinks:Quiet"), ("lost", "my_sinks:Lost"))]
        )
        with pytest.raises(RegistryError) as caught:
            registry.find(name)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


class TestPlan:
    """What a config may say."""

    def test_off_by_default(self):
        """Without a word of capture there is no sink, and no request is wanted."""
        capture = Capture(plan({}), CollectorRegistry(), "u")
        assert not capture.wants("m", "r")

    def test_options(self, tmp_path):
        """Each sink has its table; paths are relative to the config's folder, absolute ones stay."""
        made = plan({"sinks": ["stderr", "file"], "file": {"path": "c", "gzip": True, "roll_seconds": 60}}, tmp_path)
        assert [each.name for each in made.sinks] == ["stderr", "file"]
        assert made.sinks[1].options == FileSinkOptions(path=tmp_path / "c", gzip=True, roll_seconds=60)
        made = plan({"sinks": ["file"], "file": {"path": "/x"}}, tmp_path)
        assert made.sinks[0].options.path == Path("/x")
        assert plan({"sinks": ["file"]}).sinks[0].options.path == Path("captures")

    @pytest.mark.usefixtures("own_sinks")
    def test_a_sink_of_ones_own(self):
        """Its table is named as the sink is."""
        made = plan({"sinks": ["my_sinks:Quiet"], "my_sinks:Quiet": {}})
        assert made.sinks[0].sink is Quiet

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ({"sinks": ["fiel"]}, 'capture.sinks[0]: there is no sink "fiel"; did you mean "file"?'),
            ({"sinks": ["file", "file"]}, 'capture.sinks[1]: "file" stands there twice'),
            ({"sinks": ["stderr"], "file": {}}, "capture.file: has options but is not in capture.sinks"),
            (
                {"sinks": ["stderr"], "stder": {}},
                'capture.stder: has options but is not in capture.sinks; did you mean "stderr"?',
            ),
            (
                {"sinks": ["file"], "file": {"pth": "x"}},
                'capture.file.pth: is no key of [capture.file]; did you mean "path"?',
            ),
            ({"sinks": ["file"], "file": {"gzip": 1}}, "capture.file.gzip: is 1; it must be true or false"),
            (
                {"sinks": ["file"], "file": {"roll_bytes": 0}},
                "capture.file.roll_bytes: is 0; it must be a number of bytes, 1 or more",
            ),
            (
                {"sinks": ["file"], "file": {"fsync": "allways"}},
                'capture.file.fsync: is "allways"; it must be "never", "batch" or "close"',
            ),
            (
                {"headers": ["Cookie"]},
                'capture.headers[0]: is "Cookie"; credentials, cookies and API keys are never captured',
            ),
            (
                {"redact": ["$.a", "$.["]},
                'capture.redact[1]: "$.[" cannot be read at character 2; it must be a path such as',
            ),
        ],
    )
    def test_wrong(self, table, message):
        """One line that starts with the key."""
        with pytest.raises(ConfigError) as caught:
            plan(table)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("key", "value"),
        [("sample", 1.5), ("sample", -0.1), ("queue_records", 0), ("queue_bytes", 0), ("max_record_bytes", 0)],
    )
    def test_wrong_numbers(self, key, value):
        """Numbers have bounds, which the settings' own rules check."""
        with pytest.raises(ClassValidationError):
            plan({key: value})

    @pytest.mark.parametrize(("name", "options"), [("file", {"path": "taken/deeper"}), ("my_sinks:Broken", {})])
    @pytest.mark.usefixtures("own_sinks")
    def test_a_sink_that_cannot_be_made(self, tmp_path, name, options):
        """The process does not start, and one line says which sink and why."""
        (tmp_path / "taken").write_text("a file")
        made = plan({"sinks": [name], name: options}, tmp_path)
        with pytest.raises(ConfigError, match=rf"^capture\.{name}: the sink cannot be made: "):
            Capture(made, CollectorRegistry(), "u")
