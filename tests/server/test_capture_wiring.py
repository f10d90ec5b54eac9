"""Captured requests, from the wire to the file (spec, dispatch, 5.8)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable

import pytest
import trio
from click.testing import CliRunner
from harness import DONE, ScriptedUpstream, call, chunk, gateway_and_upstream

from pipeline import Chunk, Item, Stage
from server.capture.reader import read_capture
from server.cli import main

SCRIPT = [
    chunk({"role": "assistant", "content": "Hi"}),
    chunk(call("{}", call_id="c0", name="f")),
    chunk({}, finish="tool_calls"),
    DONE,
]


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    """A config that captures into a folder."""
    path = tmp_path / "gateway.toml"
    path.write_text(
        '[capture]\nsinks = ["file"]\nheaders = ["x-tenant"]\nredact = ["$.messages[*].content"]\n'
        f'[capture.file]\npath = "{tmp_path / "captured"}"\n'
    )
    monkeypatch.setattr("harness.CONFIG_FILE", path)
    return path


def records_in(folder) -> list[dict]:
    return [record for path in sorted(folder.iterdir()) for record in read_capture(path)]


async def captured(folder, count: int) -> list[dict]:
    with trio.fail_after(5):
        while not folder.exists() or len(records_in(folder)) < count:  # noqa: ASYNC110 - a file, written elsewhere
            await trio.sleep(0.01)
    return records_in(folder)


async def test_a_streamed_request_is_recorded_whole(config_file, tmp_path):
    """The record has the request as sent, the folded response, the dispatch with its lead, and the timings."""
    async with gateway_and_upstream(ScriptedUpstream(SCRIPT)) as (gateway, _):
        headers = {"x-request-id": "r1", "X-Tenant": "t", "authorization": "Bearer secret"}
        await (await gateway.completion(events=True, headers=headers)).read_all()
        [record] = await captured(tmp_path / "captured", 1)
    assert record["request_id"] == "r1"
    assert record["request"]["messages"] == [{"role": "user", "content": "[redacted]"}]
    assert record["response"]["choices"][0]["message"]["content"] == "Hi"
    assert record["response"]["choices"][0]["message"]["tool_calls"][0]["id"] == "c0"
    assert record["payload_complete"] is True
    assert "payload_drop_reason" not in record
    assert [each["call_index"] for each in record["dispatches"]] == [0]
    assert "secret" not in json.dumps(record)
    assert "x-tenant" in json.dumps(record)


@pytest.mark.parametrize(
    ("script", "reason", "text"),
    [
        ([SCRIPT[0], "reset"], "aggregation_failed:upstream_reset", "Hi"),
        ([SCRIPT[0]], "aggregation_failed:upstream_cut", "Hi"),
        (["reset"], "aggregation_failed:upstream_reset", None),
        ([DONE], "empty_response_stream", None),
    ],
)
async def test_what_went_wrong_is_the_drop_reason(config_file, tmp_path, script, reason, text):
    """A failed stream keeps what came before the failure, and says why it is not whole."""
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        await (await gateway.completion()).read_all()
        [record] = await captured(tmp_path / "captured", 1)
    assert record["payload_drop_reason"].startswith(reason)
    assert record["payload_complete"] is False
    found = record.get("response")
    assert (found["choices"][0]["message"]["content"] if found else None) == text


class Breaks(Stage):
    """Raises at the finish."""

    def feed(self, item: Item) -> Iterable[Item]:
        """Pass on, or raise."""
        if isinstance(item, Chunk) and item.payload["choices"][0]["finish_reason"]:
            raise ValueError
        return (item,)


async def test_a_stage_that_fails_behind_the_capture(config_file, tmp_path):
    """The response is recorded, but not as complete: the client has got an error."""
    stages = ["payload_capture", f"{__name__}:Breaks", "sse_encoder"]
    script = [SCRIPT[0], chunk({}, finish="stop")]
    async with gateway_and_upstream(ScriptedUpstream(script), stages=stages) as (gateway, _):
        frames = await (await gateway.completion()).frames()
        assert json.loads(frames[-1].data)["error"]["code"] == "stage_failed"
        [record] = await captured(tmp_path / "captured", 1)
    assert record["payload_complete"] is False
    assert record["payload_drop_reason"].startswith("aggregation_failed:stage_failed")
    assert record["response"]["choices"][0]["message"]["content"] == "Hi"


async def test_a_client_that_leaves_is_recorded(config_file, tmp_path):
    """`response_stream_dropped`, settled although everything around it was being cancelled."""
    async with gateway_and_upstream(ScriptedUpstream([SCRIPT[0], "stall"])) as (gateway, _):
        stream = await gateway.connect()
        await (await gateway.completion(stream=stream)).frame()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        await trio.aclose_forcefully(stream)
        [record] = await captured(tmp_path / "captured", 1)
    assert record["payload_drop_reason"] == "response_stream_dropped"
    assert "response" not in record


async def test_a_request_that_does_not_stream_is_recorded_too(config_file, tmp_path):
    """The folded answer is the record's response."""
    async with gateway_and_upstream(ScriptedUpstream(SCRIPT)) as (gateway, _):
        answer = await (await gateway.request(body={"model": "m", "messages": []})).json()
        [record] = await captured(tmp_path / "captured", 1)
    assert record["response"] == answer


async def test_records_that_wait_at_sigterm_are_written(config_file, tmp_path):
    """Every request that ended before the stop is in the file afterwards."""
    async with gateway_and_upstream(ScriptedUpstream(SCRIPT)) as (gateway, _):
        for _ in range(20):
            await (await gateway.completion(headers={"connection": "close"})).read_all()
        gateway.stop.set()
        with trio.fail_after(10):
            await gateway.ended.wait()
    assert len(records_in(tmp_path / "captured")) == 20


def test_check_and_replay_know_capture(config_file, tmp_path):
    """`check` shows the sinks, and names what is wrong; `replay` plays captured responses."""
    result = CliRunner().invoke(main, ["check", str(config_file)])
    assert result.exit_code == 0
    assert "payload_capture" in result.output
    assert "capture to file" in result.output
    bad = tmp_path / "bad.toml"
    bad.write_text('[capture]\nsinks = ["fil"]\n')
    result = CliRunner().invoke(main, ["check", str(bad)])
    assert result.exit_code == 1
    assert 'did you mean "file"' in result.output
    record = {
        "schema": "callahead.capture.v1",
        "request_id": "r9",
        "request": {"messages": []},
        "response": {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
        },
    }
    file = tmp_path / "payloads.jsonl"
    file.write_text(json.dumps(record) + "\n")
    result = CliRunner().invoke(main, ["replay", str(file)])
    assert result.exit_code == 0
    assert '"content":"Hello"' in result.output
    assert result.output.endswith("data: [DONE]\n\n")
