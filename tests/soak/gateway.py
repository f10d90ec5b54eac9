"""The gateway under test: a process of its own, with limits that are short enough to be reached all the time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

__all__ = [
    "BODY_TIMEOUT",
    "DRAIN_TIMEOUT",
    "FIRST_CHUNK_TIMEOUT",
    "IDLE_TIMEOUT",
    "KEEP_ALIVE_TIMEOUT",
    "MAX_BODY_BYTES",
    "MAX_FRAME_BYTES",
    "TOTAL_TIMEOUT",
    "WRITE_TIMEOUT",
    "Gateway",
    "running_gateway",
]

KEEP_ALIVE_TIMEOUT: Final = 2
WRITE_TIMEOUT: Final = 2
BODY_TIMEOUT: Final = 1.5
MAX_BODY_BYTES: Final = 1024 * 1024
DRAIN_TIMEOUT: Final = 10
FIRST_CHUNK_TIMEOUT: Final = 2
IDLE_TIMEOUT: Final = 1
TOTAL_TIMEOUT: Final = 8
MAX_FRAME_BYTES: Final = 256 * 1024

_ROOT: Final = Path(__file__).parents[2]
_START_TIMEOUT: Final = 30
_CONFIG: Final = f"""\
[server]
port = 0
workers = %d
drain_timeout = {DRAIN_TIMEOUT}
keep_alive_timeout = {KEEP_ALIVE_TIMEOUT}
write_timeout = {WRITE_TIMEOUT}
max_body_bytes = {MAX_BODY_BYTES}
body_timeout = {BODY_TIMEOUT}

[upstream]
url = "http://127.0.0.1:%d/v1"
client = "%s"
first_chunk_timeout = {FIRST_CHUNK_TIMEOUT}
idle_timeout = {IDLE_TIMEOUT}
total_timeout = {TOTAL_TIMEOUT}
keep_alive_timeout = 1

[pipeline]
max_frame_bytes = {MAX_FRAME_BYTES}
"""


@attrs.define(eq=False)
class Gateway:
    """A gateway that listens."""

    process: trio.Process
    port: int
    is_stopping: bool = False

    def pids(self) -> list[int]:
        """The process and its workers; none once it has ended."""
        if self.process.returncode is not None:
            return []
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    async def drain(self, seconds: float) -> int | None:
        """Send SIGTERM and wait for the exit code; none where it does not come in time."""
        self.is_stopping = True
        self.process.send_signal(signal.SIGTERM)
        with trio.move_on_after(seconds):
            return await self.process.wait()
        return None


@asynccontextmanager
async def running_gateway(folder: Path, upstream_port: int, client: str, workers: int) -> AsyncIterator[Gateway]:
    """Run ``python -m server serve`` until the block is left; it logs to ``gateway.log`` in the folder."""
    config = folder / "gateway.toml"
    config.write_text(_CONFIG % (workers, upstream_port, client))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CALLAHEAD_", "DYN_"))}
    with (folder / "gateway.log").open("ab") as log:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "server", "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=_ROOT,
            env=environment,
        )
    try:
        assert process.stdout is not None
        with trio.fail_after(_START_TIMEOUT):
            greeting = await process.stdout.receive_some()
        listens = re.search(rb"listens on http://127\.0\.0\.1:(\d+)/", greeting)
        if listens is None:
            raise SystemExit(f"the gateway did not start; see {folder / 'gateway.log'}")
        port = int(listens[1])
        with trio.fail_after(_START_TIMEOUT):
            await _accepts(port)
        yield Gateway(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()


async def _accepts(port: int) -> None:
    """Wait until connections are accepted."""
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.05)
        else:
            await stream.aclose()
            return
