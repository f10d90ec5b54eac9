"""``doctor`` as a command, on files and against a live server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from harness import DONE, TEXT_STREAM, ScriptedUpstream, call, chunk

from server.cli import main
from server.diagnosis import diagnose
from server.doctor_probe import probe_server
from server.errors import ConfigError

TEXT = b"".join(TEXT_STREAM)


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """Each test has a folder of its own, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)


def doctor(*arguments, **environ):
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)], env=environ)


class TestCommand:
    def test_files(self):
        """Findings do not change the exit code; every stream has its line."""
        Path("text.sse").write_bytes(TEXT.replace(b'"content":""', b'"content":"Hi"'))
        Path("stop.jsonl").write_bytes(json.dumps({"choices": [{"delta": {"content": "Hi"}}]}).encode())
        result = doctor("text.sse", "stop.jsonl")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines() == [
            "text.sse: 3 chunks, 0 calls announced, 0 with the config below",
            "stop.jsonl: 1 chunk, 0 calls announced, 0 with the config below",
            "",
            "what is odd                   streams  calls  frames  cure",
            "no role                       1        -      1       missing_role",
            "[DONE], but no finish_reason  1        -      -       none: passed on; clients may take it for cut off",
            "",
            "[pipeline]",
            'repairs = ["recommended"]',
        ]

    def test_a_well_stream(self):
        """Then no config is shown."""
        Path("text.sse").write_bytes(TEXT.replace(b'"content":""', b'"content":"Hi"'))
        assert doctor("text.sse").stdout.splitlines() == [
            "text.sse: 3 chunks, 0 calls announced",
            "",
            "no repair and no parser is needed",
        ]

    def test_a_capture(self):
        """Each response of a capture is a stream, with the request that it answers."""
        message = {"role": "assistant", "content": "<think>Hm.</think>Hi."}
        record = {
            "request_id": "req_1",
            "request": {"model": "m", "messages": []},
            "response": {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]},
        }
        Path("capture.jsonl").write_text(json.dumps({"schema": "callahead.capture.v1", **record}) + "\n")
        result = doctor("capture.jsonl")
        assert "capture.jsonl req_1: 2 chunks" in result.stdout
        assert 'reasoning_parser = "basic"' in result.stdout

    def test_a_file_that_cannot_be_read(self):
        """It is one line on stderr and exit code 1; the other files are looked at."""
        Path("text.sse").write_bytes(TEXT)
        result = doctor("missing.sse", "text.sse")
        assert result.exit_code == 1
        assert result.stderr.splitlines() == ["recording missing.sse: cannot be read: No such file or directory"]
        assert "text.sse: 3 chunks" in result.stdout

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("a.sse", "--url", "http://127.0.0.1:1/v1", "--model", "m"),
            ("--url", "http://127.0.0.1:1/v1"),
            ("a.sse", "--model", "m"),
            ("a.sse", "--api-key-env", "KEY"),
            ("--url", "http://127.0.0.1:1/v1", "--model", "m", "--timeout", "0"),
        ],
    )
    def test_usage(self, arguments):
        """A wrong command line is one line and exit code 2."""
        result = doctor(*arguments)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--url", "ftp://x", "--model", "m"), "--url: 'ftp://x' cannot be used"),
            (("--url", "http://127.0.0.1:1/v1", "--model", "m"), "127.0.0.1:1"),
            (
                ("--url", "http://127.0.0.1:1/v1", "--model", "m", "--api-key-env", "NO_KEY"),
                "--api-key-env: names the environment variable NO_KEY, which is not set",
            ),
        ],
    )
    def test_a_server_that_cannot_be_asked(self, arguments, message):
        """It is one line and exit code 1."""
        result = doctor(*arguments)
        assert result.exit_code == 1
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1

    def test_no_web_stack(self):
        """Files are looked at without the web stack and without the HTTP client."""
        Path("text.sse").write_bytes(TEXT)
        program = (
            "import sys\nfrom server.cli import main\n"
            "try:\n    main(['doctor', 'text.sse'])\nexcept SystemExit:\n    pass\n"
            "print([name for name in ('quart_trio', 'quart', 'hypercorn', 'server.upstreams.http') if name in sys.modules])"
        )
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


async def ask(upstream, *, seconds=20.0, api_key=None, request=None):
    """Probe a scripted server."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(upstream.serve)
            url = f"http://127.0.0.1:{upstream.port}/v1"
            try:
                answer = await probe_server(url, "tide-1", api_key, seconds, request)
            except ConfigError as error:
                answer = str(error)
            nursery.cancel_scope.cancel()
    return answer


class TestLive:
    async def test_the_request(self):
        """It streams, offers a tool, and carries the key; what comes back is the stream."""
        upstream = ScriptedUpstream()
        stream = await ask(upstream, api_key="key-1")
        [seen] = upstream.requests
        body = json.loads(seen.body)
        assert (seen.method, seen.target, seen.headers["authorization"]) == (
            "POST",
            "/v1/chat/completions",
            "Bearer key-1",
        )
        assert (body["model"], body["stream"], len(body["tools"])) == ("tide-1", True, 1)
        assert (stream.body, stream.request) == (TEXT, body)

    async def test_a_request_of_ones_own(self):
        """Model and stream are set in it."""
        upstream = ScriptedUpstream()
        await ask(upstream, request={"model": "other", "messages": [], "temperature": 0})
        [seen] = upstream.requests
        assert json.loads(seen.body) == {"model": "tide-1", "messages": [], "temperature": 0, "stream": True}
        assert "authorization" not in seen.headers

    async def test_the_command(self):
        """A live server's stream is reported as a recorded one is."""
        upstream = ScriptedUpstream([*TEXT_STREAM[1:]])
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(upstream.serve)
                url = f"http://127.0.0.1:{upstream.port}/v1"
                arguments = ("--url", url, "--model", "tide-1", "--api-key-env", "KEY")
                result = await trio.to_thread.run_sync(lambda: doctor(*arguments, KEY="key-1"))
                nursery.cancel_scope.cancel()
        assert (result.exit_code, result.stderr) == (0, "")
        assert f"{url}/chat/completions tide-1: 2 chunks, 0 calls announced" in result.stdout
        assert 'repairs = ["recommended"]' in result.stdout
        assert upstream.requests[0].headers["authorization"] == "Bearer key-1"

    async def test_a_key_that_cannot_be_sent(self):
        """It is one line, and no request."""
        upstream = ScriptedUpstream()
        line = await ask(upstream, api_key="key\r\nx: 1")
        assert isinstance(line, str)
        assert "\n" not in line
        assert not upstream.requests

    async def test_names_in_pieces(self):
        """The tools of the request are known, so that a name in pieces is found."""
        deltas = [{"role": "assistant", **call("", call_id="call_a", name="get_")}, call("", name="weather")]
        script = [*map(chunk, deltas), chunk(call('{"city":"Bergen"}')), chunk(finish="tool_calls"), DONE]
        found = diagnose([await ask(ScriptedUpstream(script))])
        assert found.repairs == ("tool_call_name",)

    @pytest.mark.parametrize(
        ("upstream", "message"),
        [
            (
                ScriptedUpstream([b'{"error":{"message":"bad\\u001b key\\nkey-1"}}'], status=401),
                "answered with status 401: bad? key ***",
            ),
            (ScriptedUpstream([b""], status=500, headers={"content-length": "0"}), "answered with status 500: no body"),
            (
                ScriptedUpstream([b"{}"], headers={"content-type": "application/json"}),
                "answered with application/json; it must be text/event-stream",
            ),
            (ScriptedUpstream(["reset"]), "reset"),
        ],
    )
    async def test_a_refusal(self, upstream, message):
        """It is one line, with what the server said and without the key."""
        line = await ask(upstream, api_key="key-1")
        assert message in line
        assert "\n" not in line
        assert line.startswith(f"http://127.0.0.1:{upstream.port}/v1/chat/completions: ")

    async def test_a_server_that_does_not_end(self):
        """The wait is bounded, and the connection is let go."""
        upstream = ScriptedUpstream([TEXT_STREAM[0], "stall"])
        line = await ask(upstream, seconds=0.3)
        assert line.endswith(f"the answer was not complete within 0.3 s; {len(TEXT_STREAM[0])} bytes had come")

    async def test_an_endless_answer(self, monkeypatch):
        """Its length is bounded too."""
        monkeypatch.setattr("server.doctor_probe.MAX_BYTES", 100)
        assert (await ask(ScriptedUpstream())).endswith("answered with more than 100 bytes")
