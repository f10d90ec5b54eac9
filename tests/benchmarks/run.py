"""Benchmarks of a running gateway beside the yardstick: one command, a table, and a JSON file.

    python tests/benchmarks/run.py [--rounds 5] [--scene NAME ...] [--json FILE]

Everything runs on this machine: a scripted upstream, a load client, the gateway and the yardstick in turn, round by
round. Quote the medians and the ratios; absolute figures are the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EVENTS = "tool_call_dispatch,reasoning_dispatch"

SCENES: dict[str, dict[str, Any]] = {
    "text, unpaced": {"model": "text:2000:1:0", "streams": 128, "concurrent": 64},
    "tools, unpaced": {"model": "tools:2000:1:0", "streams": 128, "concurrent": 64},
    "text, unpaced, 8 a chunk": {"model": "text:2000:8:0", "streams": 128, "concurrent": 64},
    "text, paced": {"model": "text:250:1:50", "streams": 200, "concurrent": 200},
    "tools, paced": {"model": "tools:250:1:50", "streams": 200, "concurrent": 200},
    "10 MB of arguments": {"model": "arguments:2500000:64:0", "streams": 1, "concurrent": 1},
    "100 kB of arguments": {"model": "arguments:25000:64:0", "streams": 40, "concurrent": 1},
    "1,000 open, paced": {"model": "text:50:1:5", "streams": 1000, "concurrent": 1000},
    "5,000 open, idle": {"model": "text:1:1:0.2", "streams": 5000, "concurrent": 5000},
}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def process(*argv: str, port: int, env: dict[str, str] | None = None) -> Iterator[int]:
    """Run a program until it listens; yields its process id."""
    child = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{argv} did not start") from None
                time.sleep(0.05)
        yield child.pid
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int) -> int:
    """Resident memory of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def measure(scene: dict[str, Any], port: int, pid: int | None, events: str) -> dict[str, Any]:
    """One run of the load client against a port."""
    before = cpu_seconds(pid) if pid else 0.0
    idle = memory_kib(pid) if pid else 0
    argv = [sys.executable, str(HERE / "client.py"), str(port), str(scene["streams"]), str(scene["concurrent"])]
    client = subprocess.Popen([*argv, scene["model"], events], stdout=subprocess.PIPE)
    peak = idle
    while client.poll() is None:
        if pid:
            peak = max(peak, memory_kib(pid))
        time.sleep(0.05)
    assert client.stdout is not None
    figures = json.loads(client.stdout.read())
    client.stdout.close()
    frames = max(1, figures["frames"])
    figures["frames_a_second"] = frames / figures["seconds"]
    if pid:
        figures["cpu_us_a_frame"] = (cpu_seconds(pid) - before) * 1e6 / frames
        figures["memory_idle_mib"] = idle / 1024
        figures["memory_a_stream_kib"] = (peak - idle) / scene["concurrent"]
    return figures


def contenders(upstream_port: int, folder: Path) -> dict[str, tuple[list[str], int, str, dict[str, str]]]:
    """What is measured: a command, its port, the events that are asked for, its environment."""
    url = f"http://127.0.0.1:{upstream_port}/v1"
    ports = [free_port() for _ in range(6)]
    capture = folder / "capture.toml"
    capture.write_text('[capture]\nsinks = ["file"]\n')
    parsers = ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    gateway = [sys.executable, "-m", "server", "serve", "--upstream", url, "--port"]
    quiet = {"CALLAHEAD_LOG_LEVEL": "warning"}
    yardstick = [sys.executable, str(HERE / "yardstick.py"), url, str(ports[0])]
    return {
        "yardstick": (yardstick, ports[0], "", {}),
        "callahead": ([*gateway, str(ports[1])], ports[1], EVENTS, quiet),
        "callahead, events off": ([*gateway, str(ports[2])], ports[2], "", quiet),
        "callahead, joined": (
            [*gateway, str(ports[3])],
            ports[3],
            EVENTS,
            {**quiet, "CALLAHEAD_PIPELINE_JOIN": "true"},
        ),
        "callahead, captured": ([*gateway, str(ports[4]), "--config", str(capture)], ports[4], EVENTS, quiet),
        "callahead, parsers": ([*gateway, str(ports[5]), *parsers], ports[5], EVENTS, quiet),
    }


def run(rounds: int, names: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """All scenes, all contenders, interleaved; the median of each figure."""
    upstream_port = free_port()
    results: dict[str, dict[str, dict[str, Any]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        process(sys.executable, str(HERE / "upstream.py"), str(upstream_port), port=upstream_port),
    ):
        for name in names:
            scene = SCENES[name]
            samples: dict[str, list[dict[str, Any]]] = {}
            for _ in range(rounds):
                samples.setdefault("ceiling", []).append(measure(scene, upstream_port, None, ""))
                for who, (argv, port, events, env) in contenders(upstream_port, Path(folder)).items():
                    with process(*argv, port=port, env=env) as pid:
                        measure({**scene, "streams": 2, "concurrent": 2, "model": "text:20:1:0"}, port, pid, events)
                        samples.setdefault(who, []).append(measure(scene, port, pid, events))
            results[name] = {who: medians(each) for who, each in samples.items()}
            show(name, results[name])
    return results


def medians(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure over the rounds; errors are added up."""
    keys = [key for key, value in samples[0].items() if value is not None]
    found = {key: statistics.median(sample[key] for sample in samples if sample.get(key) is not None) for key in keys}
    return found | {"errors": sum(sample["errors"] for sample in samples)}


_COLUMNS = {
    "frames_a_second": "frames/s",
    "cpu_us_a_frame": "CPU us/frame",
    "latency_p50_us": "p50 us",
    "latency_p99_us": "p99 us",
    "first_frame_ms": "first ms",
    "memory_idle_mib": "idle MiB",
    "memory_a_stream_kib": "KiB/stream",
    "errors": "errors",
}


def show(name: str, figures: dict[str, dict[str, Any]]) -> None:
    """Print one scene's table, each figure with its ratio to the yardstick."""
    print(f"\n{name}\n{'':24}" + "".join(f"{title:>20}" for title in _COLUMNS.values()), flush=True)
    base = figures.get("yardstick", {})
    for who, found in figures.items():
        cells = []
        for key in _COLUMNS:
            value = found.get(key)
            ratio = f" ({value / base[key]:.2f})" if value and base.get(key) and who != "ceiling" else ""
            cells.append(f"{'-' if value is None else f'{value:,.1f}'}{ratio}")
        print(f"{who:24}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def main() -> None:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scene", action="append", choices=list(SCENES), help="only this one; repeatable")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    args = parser.parse_args()
    results = run(args.rounds, args.scene or list(SCENES))
    about = {"python": platform.python_version(), "cores": os.cpu_count(), "rounds": args.rounds}
    args.json.write_text(json.dumps({"about": about, "scenes": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
