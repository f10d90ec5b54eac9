"""``replay``: recorded streams through the real stages, without a server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from server.cli import main
from server.timeline import Timeline

STREAMS = Path(__file__).parents[3] / "shared" / "streams"


def frame(finish=None, index=0, **delta):
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c1", "choices": [choice]}).encode()


def call(arguments, name=None, id_=None, index=0):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    fragment = {"index": index, "function": function} | ({"id": id_} if id_ else {})
    return fragment if index is not None else {key: fragment[key] for key in fragment if key != "index"}


DONE = b"data: [DONE]\n\n"
FRAMES = [
    frame(role="assistant", reasoning_content="Two tides."),
    frame(tool_calls=[call("", "lookup_tide", "call_a")]),
    frame(tool_calls=[call('{"port":')]),
    b": a comment\n\n",
    frame(tool_calls=[call('"Bergen"}')]),
    frame(tool_calls=[call('{"port":"Oslo"}', "lookup_tide", "call_b", index=1)]),
    frame(finish="tool_calls"),
    DONE,
]
STREAM = b"".join(FRAMES)


def event(index, id_, port):
    arguments = json.dumps({"port": port}, separators=(",", ":"))
    tool_call = {"index": index, "id": id_, "function": {"name": "lookup_tide", "arguments": arguments}}
    payload = json.dumps({"choice_index": 0, "tool_call": tool_call}, separators=(",", ":"))
    return b"event: tool_call_dispatch\ndata: %b\n\n" % payload.encode()


REASONING = b'event: reasoning_dispatch\ndata: {"index":0,"reasoning_content":"Two tides."}\n\n'


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """Each test has a folder and a search path of its own, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)
    Path("stream.sse").write_bytes(STREAM)


def replay(*arguments):
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def output(*arguments):
    result = replay(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


class TestBytes:
    def test_both_events(self):
        """A client that asks for everything receives the events in front of the frames that cause them."""
        assert output("stream.sse") == b"".join(
            [
                FRAMES[0],
                REASONING,
                *FRAMES[1:4],
                event(0, "call_a", "Bergen"),
                FRAMES[4],
                event(1, "call_b", "Oslo"),
                *FRAMES[5:],
            ]
        )

    def test_no_events(self):
        """Without events the very bytes of the recording come out."""
        assert output("stream.sse", "--events", "") == STREAM

    def test_one_event(self):
        """``--events`` chooses."""
        found = output("stream.sse", "--events", "reasoning_dispatch")
        assert b"reasoning_dispatch" in found
        assert b"tool_call_dispatch" not in found

    def test_style(self):
        """``--style chunk`` writes events as chunks of the stream."""
        found = output("stream.sse", "--style", "chunk", "--events", "reasoning_dispatch")
        chunk = next(json.loads(each[6:]) for each in found.split(b"\n\n") if b"reasoning_dispatch" in each)
        assert (chunk["id"], chunk["choices"]) == ("c1", [])
        assert chunk["reasoning_dispatch"] == {"index": 0, "reasoning_content": "Two tides."}

    def test_style_of_the_config(self):
        """Without ``--style`` the config's holds."""
        Path("gateway.toml").write_text('[events]\nstyle = "chunk"')
        assert b"event:" not in output("stream.sse", "--config", "gateway.toml")

    def test_several_files(self):
        """Files come out in their order."""
        Path("other.sse").write_bytes(frame(finish="stop", content="x") + DONE)
        found = output("other.sse", "stream.sse", "other.sse", "--events", "")
        other = Path("other.sse").read_bytes()
        assert found == other + STREAM + other

    def test_jsonl(self):
        """A file of one chunk a line is a stream too."""
        Path("stream.jsonl").write_bytes(b"".join(each[6:-1] for each in FRAMES if each.startswith(b"data: {")))
        expected = b"".join(each for each in FRAMES if each.startswith(b"data: "))
        assert output("stream.jsonl", "--events", "") == expected

    def test_request(self):
        """The request's body reaches the stages."""
        Path("request.json").write_text('{"parallel_tool_calls": false}')
        found = output("stream.sse", "--request", "request.json")
        assert b"call_a" in found
        assert b"call_b" not in found

    def test_cut_stream(self):
        """A recording that ends too early ends as a client would see it: with an error frame."""
        Path("cut.sse").write_bytes(b"".join(FRAMES[:3]))
        found = output("cut.sse", "--events", "")
        assert found.startswith(b"".join(FRAMES[:3]) + b'data: {"error":')

    def test_stages_of_the_config(self):
        """The config's stages are run, those in a module beside it too."""
        Path("etc").mkdir()
        Path("etc/stages_of_replay.py").write_text(
            "from pipeline import Stage, Verbatim\n"
            "class NoComments(Stage):\n"
            "    def feed(self, item):\n"
            "        return () if isinstance(item, Verbatim) else (item,)\n",
            "utf-8",
        )
        Path("etc/gateway.toml").write_text('[pipeline]\nstages = ["stages_of_replay:NoComments", "sse_encoder"]')
        expected = STREAM.replace(FRAMES[3], b"")
        assert output("stream.sse", "--config", "etc/gateway.toml") == expected


class TestFaults:
    @pytest.mark.parametrize("options", [[], ["--timeline"]])
    def test_missing_file(self, options):
        """A file that is not there is one line and exit code 1; the others are still done."""
        result = replay("gone.sse", "stream.sse", *options)
        assert result.exit_code == 1
        assert result.stderr == "recording gone.sse: cannot be read: No such file or directory\n"
        assert result.stderr.count("\n") == 1
        assert result.stdout_bytes == replay("stream.sse", *options).stdout_bytes

    @pytest.mark.parametrize(
        ("name", "content"),
        [("bad.jsonl", b"{}\nno JSON\n"), ("bad.jsonl", b"[1]"), ("bad.jsonl", b"{}\n\xff"), ("bad.txt", b"")],
    )
    def test_undecodable_file(self, name, content):
        """A file that is no recording is one line and exit code 1."""
        Path(name).write_bytes(content)
        result = replay(name)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"recording {name}")
        assert result.stderr.count("\n") == 1

    def test_unknown_event(self):
        """An event that no stage produces is named with the nearest that one does."""
        result = replay("stream.sse", "--events", "tool_dispatch")
        assert result.exit_code == 1
        assert result.stderr == (
            '--events: the pipeline produces no "tool_dispatch"; did you mean "tool_call_dispatch"?; '
            "it produces: reasoning_dispatch, tool_call_dispatch\n"
        )

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{", "request.json: is not JSON: "),
            ("[]", "request.json: is JSON, but no object; it must be a request's body"),
            (None, "request.json: cannot be read: No such file or directory"),
        ],
    )
    def test_wrong_request(self, text, said):
        """A request that cannot be used is one line."""
        if text is not None:
            Path("request.json").write_text(text)
        result = replay("stream.sse", "--request", "request.json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(said)
        assert result.stderr.count("\n") == 1

    def test_wrong_config(self):
        """A config that cannot be used is one line."""
        Path("gateway.toml").write_text("[log]\nlevel = 3")
        result = replay("stream.sse", "--config", "gateway.toml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("gateway.toml: log.level: is 3; ")

    def test_stage_that_raises(self):
        """A stage that raises ends its stream as for a client, with its traceback on stderr for whoever wrote it."""
        Path("stage_that_raises.py").write_text(
            "from pipeline import Stage\nclass Bug(Stage):\n    def feed(self, item):\n        return 1 / 0\n", "utf-8"
        )
        Path("gateway.toml").write_text('[pipeline]\nstages = ["stage_that_raises:Bug", "sse_encoder"]')
        result = replay("stream.sse", "--config", "gateway.toml")
        assert result.exit_code == 1
        assert json.loads(result.stdout_bytes[6:])["error"]["code"] == "stage_failed"
        assert result.stderr.startswith("stream.sse: stage stage_that_raises:Bug failed\nTraceback")
        assert "ZeroDivisionError" in result.stderr


class TestTimeline:
    def test_table(self):
        """Each call has a row: which, when it opened, closed and was dispatched, and how far ahead of the finish."""
        assert output("stream.sse", "--timeline").decode().splitlines() == [
            "stream.sse: 6 chunks",
            "choice  call  name         id      opened  closed  dispatched  finish  ahead of the finish",
            "0       0     lookup_tide  call_a  2       4       4           6       2 chunks, 0.05 s",
            "0       1     lookup_tide  call_b  5       5       5           6       1 chunk, 0.03 s",
            "",
        ]

    def test_pace(self):
        """``--tokens-per-second`` is the pace of the seconds."""
        assert b"2 chunks, 0.20 s" in output("stream.sse", "--timeline", "--tokens-per-second", "10")

    def test_events_do_not_matter(self):
        """The table shows dispatches whatever events are asked for."""
        assert output("stream.sse", "--timeline", "--events", "") == output("stream.sse", "--timeline")

    def test_no_calls(self):
        """A stream without calls says so."""
        Path("text.sse").write_bytes(frame(finish="stop", content="x") + DONE)
        assert output("text.sse", "--timeline").decode().splitlines() == ["text.sse: 1 chunk, no tool calls", ""]

    @pytest.mark.parametrize(
        ("frames", "row"),
        [
            (
                [frame(tool_calls=[call('{"a":', "f", "c")]), frame(finish="length")],
                "1 - - 2 not dispatched: finish_reason",
            ),
            ([frame(tool_calls=[call("{}}", "f", "c")]), frame(finish="stop")], "not dispatched: malformed (repair:"),
            (
                [frame(tool_calls=[call("{}", "f", "c", index=None)]), frame(finish="stop")],
                "not dispatched: no_index (",
            ),
            ([frame(tool_calls=[call("{}", "f", "c")])], "1 1 1 - the choice never finished"),
            ([frame(tool_calls=[call('{"a":', "f", "c")])], "1 - - - not dispatched: cut_off"),
        ],
    )
    def test_no_lead(self, frames, row):
        """A call that was not dispatched, or never finished, says why."""
        Path("stream.sse").write_bytes(b"".join(frames))
        assert row in " ".join(output("stream.sse", "--timeline").decode().split())

    def test_call_that_another_stage_left_out(self):
        """A call that never reached the dispatcher says so."""
        Path("request.json").write_text('{"parallel_tool_calls": false}')
        lines = output("stream.sse", "--timeline", "--request", "request.json").decode().splitlines()
        assert lines[3].endswith("not dispatched: left out by a stage before")

    def test_any_shape(self):
        """No JSON whatever in place of calls, names and ids hurts the table."""
        timeline = Timeline()
        for odd in (None, 3, "x", [], {}, [None], [3], [{"index": 0, "function": 3}], [{"index": 0, "id": 3}]):
            Path("odd.sse").write_bytes(frame(tool_calls=odd) + frame(finish="stop") + DONE)
            assert replay("odd.sse", "--timeline").exit_code == 0
        assert timeline.rows(40) == []

    @pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not there")
    def test_recorded_streams(self):
        """Every recorded stream gives the dispatches it should, each before its finish."""
        expected = json.loads((STREAMS / "EXPECT.json").read_text("utf-8"))
        for name, want in expected.items():
            lines = output(STREAMS / name, "--timeline").decode().splitlines()[2:-1]
            dispatched = [line for line in lines if "not dispatched" not in line]
            assert len(dispatched) == len(want["dispatch"]), name
