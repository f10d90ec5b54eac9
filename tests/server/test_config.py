"""The config: what is read from where, who wins, and what each fault is called."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.registry import StageRegistry
from pipeline.stage import EventStyle, Flow, Stage
from server.config import Config, load_config
from server.environment import SECTIONS, unknown_variables
from server.errors import ConfigError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes ``gateway.toml`` into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write_text(text):
        Path("gateway.toml").write_text(text, "utf-8")
        return Path("gateway.toml")

    return write_text


def faults(path, environ=None, flags=None):
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ or {}, flags or {})
    return str(caught.value).splitlines()


class TestFile:
    def test_nothing_given(self):
        """Without a file, a variable or a flag the defaults hold."""
        assert load_config(None, {}, {}) == Config()

    def test_every_section(self, write):
        """Each key of the documented file arrives where it belongs, with its type."""
        path = write("""
            [server]
            host = "::1"
            port = 0
            drain_timeout = 5
            keepalive_interval = 10
            [upstream]
            url = "https://inference.example:8443/v1/"
            client = "httpx2"
            idle_timeout = 10
            proxy = "http://proxy.example:3128"
            http2 = true
            [events]
            tool_call_dispatch = "always"
            reasoning_dispatch = "never"
            style = "chunk"
            [pipeline]
            stages = ["role_dedup", "sse_encoder"]
            max_frame_bytes = 1024
            [stages.role_dedup]
            anything = 3
            [log]
            level = "debug"
            format = "console"
        """)
        config = load_config(path, {}, {})
        assert (config.server.host, config.server.port, config.server.drain_timeout) == ("::1", 0, 5.0)
        assert config.upstream.url == "https://inference.example:8443/v1"
        assert type(config.upstream.idle_timeout) is float
        assert (config.upstream.client, config.upstream.http2) == ("httpx2", True)
        assert config.events.policies == {"tool_call_dispatch": "always", "reasoning_dispatch": "never"}
        assert config.events.style is EventStyle.CHUNK
        assert config.pipeline.stages == ("role_dedup", "sse_encoder")
        assert config.stages == {"role_dedup": {"anything": 3}}
        assert (config.log.level, config.log.format) == ("debug", "console")

    @pytest.mark.parametrize("url", ["http://h/v1", "http://h/v1/", "http://[::1]:8000", "https://user:pw@h/api"])
    def test_urls(self, write, url):
        """Any base URL will do, with or without ``/v1`` and slash; it is kept without the slash."""
        assert load_config(write(f'[upstream]\nurl = "{url}"'), {}, {}).upstream.url == url.rstrip("/")

    def test_paths_are_relative_to_the_file(self, tmp_path, monkeypatch):
        """Paths in a file are relative to its folder, those of a flag to the current one."""
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "a.sse").touch()
        (tmp_path / "b.sse").touch()
        (tmp_path / "etc" / "gateway.toml").write_text('[replay]\npath = "a.sse"')
        monkeypatch.chdir(tmp_path)
        assert load_config(Path("etc/gateway.toml"), {}, {}).replay.path == (Path("etc/a.sse"),)
        assert load_config(Path("etc/gateway.toml"), {}, {"replay": ("b.sse",)}).replay.path == (Path("b.sse"),)

    def test_ca_file_is_relative_to_the_file(self, tmp_path):
        """The certificate file is found beside the config."""
        (tmp_path / "ca.pem").touch()
        (tmp_path / "gateway.toml").write_text('[upstream]\nca_file = "ca.pem"')
        assert load_config(tmp_path / "gateway.toml", {}, {}).upstream.ca_file == tmp_path / "ca.pem"


_FAULTS = [
    ("[upstream]\nidle_timout = 3", 'upstream.idle_timout: is no key of [upstream]; did you mean "idle_timeout"?'),
    ("[log]\nxyz = 3", "log.xyz: is no key of [log]; it has level, format"),
    ("[upstraem]", 'upstraem: is no section of a config; did you mean "upstream"?'),
    (
        "port = 3",
        "port: is no section of a config; there are server, upstream, replay, events, pipeline, capture, log, stages, models",
    ),
    ("server = 3", "server: is 3; it must be a table, [server]"),
    ("stages = 3", "stages: is 3; it must be a table of tables, [stages.NAME]"),
    ("[stages]\nx = 3", "stages.x: is 3; it must be a table of options"),
    ('[stages]\n"m:A.b" = 3', 'stages."m:A.b": is 3; it must be a table of options'),
    ("[server]\nport = 65536", "server.port: is 65536; it must be an integer from 0 to 65535 (0 = any free port)"),
    ("[server]\nport = true", "server.port: is true; it must be an integer from 0 to 65535 (0 = any free port)"),
    ("[server]\nport = 80.0", "server.port: is 80.0; it must be an integer from 0 to 65535 (0 = any free port)"),
    ('[server]\nport = "80"', 'server.port: is "80"; it must be an integer from 0 to 65535 (0 = any free port)'),
    ("[server]\nworkers = 0", "server.workers: is 0; it must be an integer from 1 to 256"),
    ('[server]\nhost = ""', 'server.host: is ""; it must be a host name or address'),
    ("[server]\nmax_body_bytes = 0", "server.max_body_bytes: is 0; it must be a number of bytes, 1 or more"),
    (
        "[server]\nkeepalive_interval = 9.9",
        "server.keepalive_interval: is 9.9; it must be 0 (none) or a number of seconds, 10 or more",
    ),
    *(
        (
            f"[upstream]\ntotal_timeout = {written}",
            f"upstream.total_timeout: is {said}; it must be a number of seconds, 0 or more (0 = no limit)",
        )
        for written, said in [("-1", "-1"), ("nan", "NaN"), ("inf", "Infinity"), ("false", "false"), ('"3"', '"3"')]
    ),
    (
        "[upstream]\ntotal_timeout = 2026-01-01",
        'upstream.total_timeout: is "2026-01-01"; it must be a number of seconds, 0 or more (0 = no limit)',
    ),
    (
        f"[upstream]\ntotal_timeout = 1{'0' * 400}",
        f"upstream.total_timeout: is 1{'0' * 79}...; it must be a number of seconds, 0 or more (0 = no limit)",
    ),
    *(
        (
            f'[upstream]\nurl = "{url}"',
            f'upstream.url: is "{url}"; it must be an http:// or https:// URL without query, such as http://127.0.0.1:8000/v1',
        )
        for url in [
            "127.0.0.1:8000/v1",
            "ftp://h/v1",
            "http://",
            "http://h:x/v1",
            "http://h:0",
            "http://h/v1?a=b",
            "h v",
        ]
    ),
    (
        '[upstream]\nclient = "htpx2"',
        'upstream.client: is "htpx2"; it must be "http" or "httpx2"; did you mean "httpx2"?',
    ),
    ("[upstream]\nclient = [1]", 'upstream.client: is [1]; it must be "http" or "httpx2"'),
    ('[upstream]\napi_key_env = ""', 'upstream.api_key_env: is ""; it must be a non-empty string'),
    (
        '[upstream]\nclient = "httpx2"\nproxy = "h:1"',
        'upstream.proxy: is "h:1"; it must be a proxy\'s URL, such as http://127.0.0.1:3128',
    ),
    (
        '[upstream]\nproxy = "http://h:1"',
        'upstream.proxy: needs upstream.client = "httpx2"; the client "http" speaks HTTP/1.1 straight to the upstream',
    ),
    (
        "[upstream]\nhttp2 = true",
        'upstream.http2: needs upstream.client = "httpx2"; the client "http" speaks HTTP/1.1 straight to the upstream',
    ),
    ('[upstream]\nca_file = "no.pem"', "upstream.ca_file: there is no file no.pem"),
    (
        '[events]\ntool_call_dispatch = "Always"',
        'events.tool_call_dispatch: is "Always"; it must be "never", "request" or "always"; did you mean "always"?',
    ),
    ("[events]\nstyle = 3", 'events.style: is 3; it must be "named" or "chunk"'),
    ('[pipeline]\nstages = "a"', 'pipeline.stages: is "a"; it must be a list of non-empty strings'),
    ('[pipeline]\nstages = ["a", 3]', 'pipeline.stages: is ["a", 3]; it must be a list of non-empty strings'),
    ("[replay]\npath = []", "replay.path: is []; it must be a path or a list of paths"),
    ('[replay]\npath = "no.sse"', "replay.path: there is no file or folder no.sse"),
    ("[replay]\ntokens_per_second = -1", "replay.tokens_per_second: is -1; it must be a number, 0 or more"),
    (
        '[upstream]\nurl = "http://h/v1"\n[replay]\ntokens_per_second = 3',
        "replay.tokens_per_second: cannot stand beside upstream.url (gateway.toml); leave one of the two out",
    ),
    ("[server", "is not TOML: Expected ']' at the end of a table declaration (at end of document)"),
    ("[server]\nport = ", "is not TOML: Invalid value (at end of document)"),
    (
        "[server]\nport = 08\n",
        "is not TOML: Expected newline or end of document after a statement (at line 2, column 9)",
    ),
]


class TestFaults:
    @pytest.mark.parametrize(("text", "said"), _FAULTS, ids=[text[:40] for text, _ in _FAULTS])
    def test_one_line(self, write, text, said):
        """A fault is one line: the file, the key, what was found, what is allowed, the nearest right name."""
        assert faults(write(text)) == [f"gateway.toml: {said}"]

    def test_all_at_once(self, write):
        """Several faults are reported together, a line each."""
        path = write('[server]\nport = -1\nhots = "x"\n[upstream]\nurl = 3\n[log]\nlevel = "loud"\n')
        assert [line.split(": ")[1] for line in faults(path)] == [
            "server.port",
            "server.hots",
            "upstream.url",
            "log.level",
        ]

    def test_no_file(self):
        """A file that is not there is named."""
        assert faults(Path("gone.toml")) == ["gone.toml: cannot be read: No such file or directory"]

    def test_folder(self, tmp_path):
        """A folder in place of a file is named."""
        assert faults(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]

    def test_not_text(self, write):
        """A file that is no text is named, with the byte."""
        write("").write_bytes(b"[log]\n\xff")
        assert faults(Path("gateway.toml")) == ["gateway.toml: is not UTF-8 text: byte 6 is 0xff"]

    def test_deep_nesting(self, write):
        """Nesting that no parser survives is a fault like any other."""
        assert faults(write("a = " + "[" * 100_000)) == ["gateway.toml: is nested too deep"]

    @given(text=st.text() | st.text(alphabet='[]{}="\n.ab1#,'))
    def test_any_text(self, tmp_path_factory, text):
        """No text whatever gives anything but a config or an error of one line a fault."""
        path = tmp_path_factory.getbasetemp() / "any.toml"
        path.write_text(text, "utf-8", newline="")
        said = f"{path}: "
        try:
            load_config(path, {}, {})
        except ConfigError as error:
            said = str(error)
        assert all(line.startswith(f"{path}: ") for line in said.split("\n"))


class TestPrecedence:
    def test_flag_over_variable_over_file_over_default(self, write):
        """Flags win over the environment, the environment over the file, the file over the defaults."""
        path = write("[server]\nport = 1")
        environ = {"CALLAHEAD_SERVER_PORT": "2"}
        assert load_config(None, {}, {}).server.port == 8080
        assert load_config(path, {}, {}).server.port == 1
        assert load_config(path, environ, {}).server.port == 2
        assert load_config(path, environ, {"port": 3}).server.port == 3
        assert load_config(path, environ, {"port": 0}).server.port == 0

    def test_flags_not_given(self):
        """Options that were not given change nothing."""
        flags = {"upstream": None, "replay": (), "port": None, "enable_streaming_tool_dispatch": False}
        assert load_config(None, {}, flags) == Config()

    def test_file_by_variable(self, write):
        """``CALLAHEAD_CONFIG`` names the file, unless the command line does."""
        write("[server]\nport = 1")
        Path("other.toml").write_text("[server]\nport = 2")
        assert load_config(None, {"CALLAHEAD_CONFIG": "gateway.toml"}, {}).server.port == 1
        assert load_config(Path("other.toml"), {"CALLAHEAD_CONFIG": "gateway.toml"}, {}).server.port == 2

    def test_two_sources_from_two_places(self, write):
        """Upstream and replay together are an error that names both places."""
        path = write('[upstream]\nurl = "http://h/v1"')
        Path("a.sse").touch()
        assert faults(path, flags={"replay": ("a.sse",)}) == [
            "--replay: replay.path: cannot stand beside upstream.url (gateway.toml); leave one of the two out"
        ]


_PLAIN_KEYS = [
    (section, field)
    for section, cls in SECTIONS.items()
    for field in attrs.fields(cls)
    if isinstance(field.default, (int, float))
]


class TestEnvironment:
    @pytest.mark.parametrize(("section", "field"), _PLAIN_KEYS, ids=[f"{s}.{f.name}" for s, f in _PLAIN_KEYS])
    def test_every_number_has_a_variable(self, section, field):
        """Each number and truth value can be set by ``CALLAHEAD_<SECTION>_<KEY>``."""
        if field.name == "sample":
            pytest.skip("a share is no more than 1")
        text = {True: "no", False: "yes"}.get(field.default) if isinstance(field.default, bool) else "17"
        config = load_config(None, {f"CALLAHEAD_{section}_{field.name}".upper(): text}, {})
        found = getattr(getattr(config, section), field.name)
        assert (type(found), found) == (type(field.default), {"no": False, "yes": True}.get(text, 17))

    @pytest.mark.parametrize(
        ("name", "text", "section", "key", "value"),
        [
            ("CALLAHEAD_UPSTREAM_URL", "http://h/v1", "upstream", "url", "http://h/v1"),
            ("CALLAHEAD_UPSTREAM", "http://h/v1/", "upstream", "url", "http://h/v1"),
            ("CALLAHEAD_REPLAY", "/", "replay", "path", (Path("/"),)),
            ("CALLAHEAD_HOST", "::", "server", "host", "::"),
            ("CALLAHEAD_PORT", "0", "server", "port", 0),
            ("CALLAHEAD_WORKERS", "1", "server", "workers", 1),
            ("CALLAHEAD_FIRST_CHUNK_TIMEOUT", "2.5", "upstream", "first_chunk_timeout", 2.5),
            ("CALLAHEAD_IDLE_TIMEOUT", "30", "upstream", "idle_timeout", 30.0),
            ("CALLAHEAD_EVENTS_STYLE", "chunk", "events", "style", EventStyle.CHUNK),
            ("CALLAHEAD_LOG_LEVEL", "error", "log", "level", "error"),
            ("CALLAHEAD_UPSTREAM_API_KEY_ENV", "KEY", "upstream", "api_key_env", "KEY"),
        ],
    )
    def test_variables(self, name, text, section, key, value):
        """Variables of keys and of options set the key they name."""
        assert getattr(getattr(load_config(None, {name: text}, {}), section), key) == value

    @pytest.mark.parametrize("prefix", ["DYN", "CALLAHEAD"])
    @pytest.mark.parametrize(
        ("text", "policy"),
        [
            ("1", "always"),
            ("TRUE", "always"),
            ("Yes", "always"),
            ("on", "always"),
            ("0", "request"),
            ("2", "request"),
            ("", "request"),
        ],
    )
    def test_enable_variables(self, prefix, text, policy):
        """The enable variables, Dynamo's too, mean ``always`` where they are truthy, else nothing."""
        environ = {
            f"{prefix}_ENABLE_STREAMING_TOOL_DISPATCH": text,
            f"{prefix}_ENABLE_STREAMING_REASONING_DISPATCH": text,
        }
        policies = load_config(None, environ, {}).events.policies
        assert policies == {"tool_call_dispatch": policy, "reasoning_dispatch": policy}

    def test_own_variable_over_enable_variable(self):
        """A key's own variable wins over Dynamo's."""
        environ = {"CALLAHEAD_EVENTS_TOOL_CALL_DISPATCH": "never", "DYN_ENABLE_STREAMING_TOOL_DISPATCH": "1"}
        assert load_config(None, environ, {}).events.tool_call_dispatch == "never"

    def test_enable_flags(self, write):
        """The enable flags mean ``always`` for their event, whatever the file says."""
        path = write('[events]\ntool_call_dispatch = "never"')
        config = load_config(path, {}, {"enable_streaming_tool_dispatch": True})
        assert config.events.policies == {"tool_call_dispatch": "always", "reasoning_dispatch": "request"}

    @pytest.mark.parametrize(
        ("environ", "flags", "line"),
        [
            ({"CALLAHEAD_PORT": "x"}, {}, 'CALLAHEAD_PORT: server.port: is "x"; it must be an integer from 0 to 65535'),
            ({"CALLAHEAD_SERVER_PORT": "-1"}, {}, "CALLAHEAD_SERVER_PORT: server.port: is -1; it must be"),
            (
                {"CALLAHEAD_UPSTREAM_HTTP2": "x"},
                {},
                'CALLAHEAD_UPSTREAM_HTTP2: upstream.http2: is "x"; it must be true',
            ),
            ({}, {"idle_timeout": float("nan")}, "--idle-timeout: upstream.idle_timeout: is NaN; it must be"),
            ({}, {"workers": 0}, "--workers: server.workers: is 0; it must be an integer from 1 to 256"),
            (
                {"CALLAHEAD_UPSTREAM": "http://a", "CALLAHEAD_UPSTREAM_URL": "http://b"},
                {},
                'CALLAHEAD_UPSTREAM: is "http://a", but CALLAHEAD_UPSTREAM_URL is "http://b"; unset one',
            ),
        ],
    )
    def test_faults_name_the_variable_or_option(self, environ, flags, line):
        """A wrong value from outside the file names its variable or option instead."""
        assert [each[: len(line)] for each in faults(None, environ, flags)] == [line]

    def test_empty_variables(self):
        """An empty variable is as good as none."""
        assert (
            load_config(None, {"CALLAHEAD_PORT": "", "CALLAHEAD_UPSTREAM_URL": "", "CALLAHEAD_CONFIG": ""}, {})
            == Config()
        )

    def test_unknown_variables(self):
        """A variable that means nothing is told, with the nearest name; it stops nothing."""
        environ = {"CALLAHEAD_PROT": "1", "OTHER": "x", "CALLAHEAD_CONFIG": "", "CALLAHEAD_HOST": "h"}
        assert unknown_variables(environ) == [
            'CALLAHEAD_PROT: is no variable of Callahead, and is ignored; did you mean "CALLAHEAD_PORT"?',
        ]

    def test_kubernetes_service_links(self):
        """What Kubernetes tells a pod of a Service named "callahead" is neither read nor complained of."""
        environ = {
            "CALLAHEAD_PORT": "tcp://10.0.0.11:8080",
            "CALLAHEAD_SERVICE_HOST": "10.0.0.11",
            "CALLAHEAD_SERVICE_PORT": "8080",
            "CALLAHEAD_SERVICE_PORT_HTTP": "8080",
            "CALLAHEAD_PORT_8080_TCP": "tcp://10.0.0.11:8080",
            "CALLAHEAD_PORT_8080_TCP_ADDR": "10.0.0.11",
        }
        assert load_config(None, environ, {}) == Config()
        assert unknown_variables(environ) == []

    def test_api_key(self, write):
        """The upstream's key comes from the variable that the config names, which must be set."""
        upstream = load_config(write('[upstream]\napi_key_env = "KEY"'), {}, {}).upstream
        assert upstream.api_key({"KEY": "secret"}) == "secret"
        with pytest.raises(
            ConfigError, match=r"^upstream\.api_key_env: names the environment variable KEY, which is not set"
        ):
            upstream.api_key({})
        assert Config().upstream.api_key({}) is None


@attrs.frozen
class EncoderOptions:
    """One option."""

    size: int = 3


class Encoder(Stage):
    """Gives bytes."""

    Options = EncoderOptions
    gives = Flow.BYTES


REGISTRY = StageRegistry([EntryPoint("encoder", f"{__name__}:Encoder", "callahead.stages")])


class TestPlan:
    def test_options(self, write):
        """The plan's stages have the options of their tables."""
        config = load_config(write('[pipeline]\nstages = ["encoder"]\n[stages.encoder]\nsize = 4'), {}, {})
        (step,) = config.plan(REGISTRY).steps
        assert (step.name, step.options.size) == ("encoder", 4)

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            (
                '[pipeline]\nstages = ["encodr"]',
                'gateway.toml: pipeline.stages[0]: there is no stage "encodr"; did you mean',
            ),
            (
                '[pipeline]\nstages = ["encoder"]\n[stages.encoder]\nsise = 4',
                "gateway.toml: stages.encoder.sise: is no option",
            ),
            (
                '[pipeline]\nstages = ["encoder"]\n[stages.encodr]',
                "gateway.toml: stages.encodr: has options but is in no",
            ),
            ("[pipeline]\nstages = []", "gateway.toml: pipeline.stages: is empty"),
        ],
    )
    def test_faults(self, write, text, line):
        """A pipeline that cannot run is one line with file and key."""
        config = load_config(write(text), {}, {})
        with pytest.raises(ConfigError) as caught:
            config.plan(REGISTRY)
        assert str(caught.value).startswith(line)
        assert "\n" not in str(caught.value)
