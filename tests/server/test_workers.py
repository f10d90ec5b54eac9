"""Several workers on one port: one dies and is replaced, all drain, metrics add up (through real processes)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from harness import DONE, RunningGateway, ScriptedUpstream, chunk, gateway_and_upstream

BOUND = 15.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def serving(upstream_port: int, workers: int = 2, **env: str) -> Iterator[tuple[subprocess.Popen, int]]:
    """A gateway with workers, as a user runs it."""
    port = free_port()
    argv = [sys.executable, "-m", "server", "serve", "--port", str(port), "--workers", str(workers)]
    argv += ["--upstream", f"http://127.0.0.1:{upstream_port}/v1"]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **env})
    try:
        yield child, port
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(BOUND)
            except subprocess.TimeoutExpired:
                child.kill()
        child.wait()
        child.stderr.close()


def workers_of(child: subprocess.Popen) -> set[int]:
    """The process ids of the workers."""
    path = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    pids = {int(pid) for pid in path.read_text().split()}
    return {pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def until(condition, seconds: float = BOUND):
    """The value of a condition once it holds."""
    with trio.fail_after(seconds):
        while True:
            with contextlib.suppress(OSError):
                if value := condition():
                    return value
            await trio.sleep(0.02)


def served_by(pid: int, port: int) -> int:
    """How many connections of clients a worker has."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    established = {line[9] for line in lines if line[3] == "01" and line[1].endswith(f":{port:04X}")}
    found = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(fd.readlink()).removeprefix("socket:[").rstrip("]") in established
    return found


def answers(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


async def test_a_killed_worker_takes_only_its_own_streams_and_is_back_within_two_seconds():
    """Its clients see a broken body, the others' streams go on to their end, and there are two workers again."""
    go = trio.Event()
    upstream = ScriptedUpstream([chunk({"content": "a"}), go, chunk({}, finish="stop"), DONE])
    async with trio.open_nursery() as nursery:
        await nursery.start(upstream.serve)
        with serving(upstream.port) as (child, port):
            await until(lambda: answers(port))
            await until(lambda: len(workers_of(child)) == 2)
            client = RunningGateway(port, None, trio.Event())
            victim, survivor = sorted(workers_of(child))
            responses = []
            with trio.fail_after(BOUND):
                while len(responses) < 12 or not (served_by(victim, port) and served_by(survivor, port)):
                    response = await client.completion()
                    await response.frame()
                    responses.append(response)
            os.kill(victim, signal.SIGKILL)
            killed = time.monotonic()
            await until(lambda: len(workers_of(child) - {victim}) == 2, 2.0)
            assert time.monotonic() - killed < 2
            assert survivor in workers_of(child)
            go.set()
            whole = broken = 0
            for response in responses:
                try:
                    with trio.fail_after(5):
                        frames = await response.frames()
                    assert frames[-1].raw == DONE
                    whole += 1
                except (EOFError, trio.BrokenResourceError):
                    broken += 1
            assert whole + broken == len(responses)
            assert whole
            assert broken
            for _ in range(6):
                assert (await (await client.completion()).frames())[-1].raw == DONE
            for stream in client.clients:
                stream.socket.close()
        nursery.cancel_scope.cancel()


async def test_metrics_of_all_workers_are_in_one_scrape_and_sigterm_drains():
    """Whichever worker answers, the counts are those of all; a stream under way at SIGTERM is finished."""
    go = trio.Event()
    go.set()
    wait = lambda: go.wait()  # noqa: E731, PLW0108 - the event of the moment
    upstream = ScriptedUpstream([chunk({"content": "a"}), wait, chunk({}, finish="stop"), DONE])
    async with trio.open_nursery() as nursery:
        await nursery.start(upstream.serve)
        with serving(upstream.port) as (child, port):
            await until(lambda: answers(port))
            client = RunningGateway(port, None, trio.Event())
            for _ in range(12):
                await (await client.completion()).read_all()

            def completions() -> int:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    text = answer.read().decode()
                found = re.search(r"callahead_requests_total\{.*chat_completions.*\} (\d+)", text)
                return int(found[1]) if found else 0

            counts = set()
            for _ in range(6):
                counts.add(await trio.to_thread.run_sync(completions))
            assert max(counts) == 12
            go = trio.Event()
            response = await client.completion()
            await response.frame()
            child.send_signal(signal.SIGTERM)
            await trio.sleep(0.3)
            assert child.poll() is None
            go.set()
            assert (await response.frames())[-1].raw == DONE
            for stream in client.clients:
                stream.socket.close()
            await until(lambda: child.poll() is not None)
            assert child.returncode == 0
        nursery.cancel_scope.cancel()


async def test_a_signal_to_the_whole_group_drains_too():
    """Ctrl-C and systemd signal the workers as well as their parent: streams are finished all the same."""
    go = trio.Event()
    upstream = ScriptedUpstream([chunk({"content": "a"}), go, chunk({}, finish="stop"), DONE])
    async with trio.open_nursery() as nursery:
        await nursery.start(upstream.serve)
        with serving(upstream.port) as (child, port):
            await until(lambda: answers(port))
            client = RunningGateway(port, None, trio.Event())
            response = await client.completion()
            await response.frame()
            for pid in workers_of(child):
                os.kill(pid, signal.SIGINT)
            child.send_signal(signal.SIGINT)
            await until(lambda: refuses(port))
            await trio.sleep(0.3)
            go.set()
            assert (await response.frames())[-1].raw == DONE
            for stream in client.clients:
                stream.socket.close()
            await until(lambda: child.poll() is not None)
            assert child.returncode == 0
        nursery.cancel_scope.cancel()


async def test_beyond_max_streams_the_answer_is_503():
    """One stream more than allowed is told to try again; when one has ended, there is room."""
    upstream = ScriptedUpstream([chunk({"content": "a"}), "stall"])
    async with gateway_and_upstream(upstream, server={"max_streams": 2}) as (gateway, upstream):
        streams = [await gateway.connect() for _ in range(2)]
        for stream in streams:
            await (await gateway.completion(stream=stream)).frame()
        refused = await gateway.completion()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await refused.json())["error"]["code"] == "too_many_streams"
        await trio.aclose_forcefully(streams[0])
        upstream.script = [chunk({}, finish="stop"), DONE]
        with trio.fail_after(5):
            response = await gateway.completion()
            while response.status == 503:
                response = await gateway.completion()
        assert json.loads((await response.frame()).data)["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("workers", ["0", "-1", "1000"])
def test_a_wrong_number_of_workers_is_one_clear_line(workers):
    """The line names the key or the flag."""
    argv = [sys.executable, "-m", "server", "serve", "--workers", workers]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 1
    assert "workers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_workers_that_drain_accept_nothing_and_outlive_no_parent():
    """While a stream is finished new connections are refused at once; without their parent the workers end."""
    upstream = ScriptedUpstream([chunk({"content": "a"}), "stall"])
    async with trio.open_nursery() as nursery:
        await nursery.start(upstream.serve)
        with serving(upstream.port, CALLAHEAD_SERVER_DRAIN_TIMEOUT="3") as (child, port):
            await until(lambda: answers(port))
            client = RunningGateway(port, None, trio.Event())
            response = await client.completion()
            await response.frame()
            child.send_signal(signal.SIGTERM)
            await until(lambda: refuses(port), 2.0)
            assert child.poll() is None
            await until(lambda: child.poll() is not None)
        with serving(upstream.port, CALLAHEAD_SERVER_DRAIN_TIMEOUT="0") as (child, port):
            await until(lambda: answers(port))
            await until(lambda: len(workers_of(child)) == 2)
            orphans = workers_of(child)
            child.kill()
            await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans))
        for stream in client.clients:
            stream.socket.close()
        nursery.cancel_scope.cancel()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False
