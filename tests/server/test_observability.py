"""Request ids, the log line of a request, and metrics."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import structlog
import trio
from harness import DONE, ScriptedUpstream, call, chunk, gateway_and_upstream

CALLS = [
    chunk(call("{}", call_id="c0", name="secretname")),
    chunk(call('{"a":', index=1, call_id="c1", name="g")),
    chunk({"content": "secretcontent"}),
    chunk({}, finish="tool_calls"),
    DONE,
]


@pytest.fixture
def log():
    """What is logged while a test runs."""
    with structlog.testing.capture_logs() as entries:
        yield entries


async def line_of(log, request_id: str) -> dict:
    """The request's own line; it is written when the request has ended, after its last byte."""
    with trio.fail_after(5):
        while True:
            for entry in log:
                if entry["event"] == "request" and entry["request_id"] == request_id:
                    return entry
            await trio.sleep(0.005)


async def test_one_line_a_request_with_outcome_and_counts_and_no_content(log):
    """The line tells what happened; neither message text nor tool names are in it."""
    async with gateway_and_upstream(ScriptedUpstream(CALLS)) as (gateway, _):
        response = await gateway.completion(events=True, headers={"x-request-id": "r1"})
        await response.read_all()
        line = await line_of(log, "r1")
    assert (line["endpoint"], line["outcome"], line["status"]) == ("chat_completions", "ok", 200)
    assert (line["chunks"], line["dispatched"], line["refusals"]) == (4, 1, {"cut_off": 1})
    assert line["model"] == "m"
    assert line["lead_seconds"] >= 0
    assert sum(entry["event"] == "request" for entry in log) == 1
    assert "secret" not in json.dumps(log, default=str)


async def test_a_refusal_is_logged_with_its_reason(log):
    """Each refused call has a line with the reason."""
    async with gateway_and_upstream(ScriptedUpstream(CALLS)) as (gateway, _):
        await (await gateway.completion(events=True)).read_all()
    [refusal] = [entry for entry in log if entry["event"] == "tool call not dispatched"]
    assert (refusal["reason"], refusal["choice_index"], refusal["call_index"]) == ("cut_off", 0, 1)


async def test_a_missing_index_names_its_repair(log):
    """The line of a call without an index says which repair would cure it."""
    fragment = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    async with gateway_and_upstream(ScriptedUpstream([chunk(fragment), chunk({}, finish="stop"), DONE])) as (
        gateway,
        _,
    ):
        await (await gateway.completion(events=True)).read_all()
    [refusal] = [entry for entry in log if entry["event"] == "tool call not dispatched"]
    assert (refusal["reason"], refusal["repair"]) == ("no_index", "tool_call_index")


@pytest.mark.parametrize(("given", "kept"), [("abc-1", True), ("a b", False), ("x" * 300, False), ("", False)])
async def test_a_request_id_is_accepted_or_made(given, kept):
    """A sane id of the client's is kept and echoed; any other is replaced; the upstream sees the same."""
    async with gateway_and_upstream() as (gateway, upstream):
        response = await gateway.completion(headers={"x-request-id": given} if given else {})
        await response.read_all()
    echoed = response.headers["x-request-id"]
    assert (echoed == given) is kept
    assert echoed.startswith("req_") is not kept
    assert upstream.requests[0].headers["x-request-id"] == echoed


async def metrics(gateway) -> dict[str, float]:
    """What /metrics says."""
    response = await gateway.request("GET", "/metrics")
    text = (await response.read_all()).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_metrics_count_requests_chunks_dispatches_refusals_and_leads(log):
    """One scrape has every figure of a request with a dispatch and a refusal."""
    async with gateway_and_upstream(ScriptedUpstream(CALLS)) as (gateway, _):
        await (await gateway.completion(events=True, headers={"x-request-id": "r2"})).read_all()
        await line_of(log, "r2")
        found = await metrics(gateway)
    assert found['callahead_requests_total{endpoint="chat_completions",outcome="ok"}'] == 1
    assert found["callahead_requests_in_flight"] == 0
    assert found["callahead_chunks_total"] == 4
    assert found['callahead_dispatches_total{event="tool_call_dispatch"}'] == 1
    assert found['callahead_dispatch_refusals_total{reason="cut_off"}'] == 1
    assert found["callahead_dispatch_lead_seconds_count"] == 1
    assert found["callahead_time_to_first_chunk_seconds_count"] == 1


async def test_metrics_count_what_upstreams_do_wrong(log):
    """Upstream errors are counted by kind, and the request's outcome is the same word."""
    async with gateway_and_upstream(ScriptedUpstream([chunk({"content": "x"}), "reset"])) as (gateway, _):
        await (await gateway.completion(headers={"x-request-id": "r3"})).read_all()
        await line_of(log, "r3")
        found = await metrics(gateway)
    assert found['callahead_upstream_errors_total{kind="upstream_reset"}'] == 1
    assert found['callahead_requests_total{endpoint="chat_completions",outcome="upstream_reset"}'] == 1


async def test_health_and_live():
    """/live says that the process is up, /health that the upstream can be reached."""
    async with gateway_and_upstream() as (gateway, _):
        live = await gateway.request("GET", "/live")
        assert (live.status, await live.json()) == (200, {"status": "live"})
        health = await gateway.request("GET", "/health")
        assert (health.status, (await health.json())["status"]) == (200, "healthy")
        gateway.gateway.draining = True
        health = await gateway.request("GET", "/health")
        assert (health.status, (await health.json())["status"]) == (503, "draining")


@pytest.mark.parametrize(
    "script",
    [
        [b'data: {"error":{"code":1},"choices":[{"index":0,"delta":{"content":"SECRET"}}]}\n\n'],
        [b'data: {"error":{"message":"it said SECRET"}}\n\n'],
        [b'event: error\ndata: "SECRET"\n\n'],
        [b'{"choices":[{"text":"SECRET"}]}'],
        [b'{"error":{"message":"SECRET"}}'],
        [b'data: {"choices":[{"index":"SECRET","delta":{"content":"x"}}]}\n\n'],
    ],
)
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_no_failure_brings_content_into_the_log(log, script, content_type):
    """Whatever of the upstream's words a client is told, the log has none of them."""
    upstream = ScriptedUpstream(script, headers={"content-type": content_type})
    async with gateway_and_upstream(upstream) as (gateway, _):
        for stream in (True, False):
            body = {"model": "M" * 1000, "stream": stream, "messages": []}
            response = await gateway.request(body=body, headers={"x-request-id": f"r{stream}"})
            await response.read_all()
            await line_of(log, f"r{stream}")
    assert "SECRET" not in json.dumps(log, default=str)
    assert "M" * 200 not in json.dumps(log, default=str)


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_traceback_shows_no_variables(style):
    """A stage that raises has the text that was said in its variables; they are in no log, whatever is installed."""
    code = f"""
import structlog
from server.logs import configure_logs
configure_logs("info", "{style}")
def feed(text):
    raise ValueError("wrong")
try:
    feed("secret" + "content")
except ValueError:
    structlog.get_logger("callahead").exception("stage failed", stage="x")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ValueError: wrong" in run.stderr
    assert "in feed" in run.stderr
    assert "secretcontent" not in run.stderr
