"""Several worker processes on one port: started fresh, replaced when they die, drained together.

All workers accept from one listening socket, so a connection that no worker has taken yet survives the death of any
of them. Nothing in a request needs another worker.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Final

import structlog

from server.errors import ConfigError

if TYPE_CHECKING:
    from types import FrameType

    from server.config import Config

__all__ = ["Supervisor"]

_log = structlog.get_logger("callahead")

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that makes prometheus_client keep its values in files that all workers' scrapes add up."""

_MIN_LIFE: Final = 1.0
"""Seconds below which a worker's life counts as a failed start."""
_MAX_FAILED_STARTS: Final = 5
_LAST_SECONDS: Final = 5.0
"""How long after the drain time a worker may still be there before it is killed."""


class Supervisor:
    """The parent process: it only watches.

    Args:
        config: the checked configuration; workers get it as it is, whatever has become of the file since.
        listener: the bound socket.
    """

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        self._workers: dict[SpawnProcess, float] = {}
        self._context = multiprocessing.get_context("spawn")
        self._signals = 0
        self._wake_read, self._wake_write = os.pipe()
        self._failed_starts = 0

    def run(self) -> None:
        """Keep the workers running until SIGTERM or SIGINT, then let them drain; a second signal ends them at once.

        Raises:
            ConfigError: workers die as soon as they start.
        """
        folder = os.environ.setdefault(METRICS_FOLDER, tempfile.mkdtemp(prefix="callahead-metrics-"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            while not self._signals:
                while len(self._workers) < self._config.server.workers:
                    self._start()
                self._wait(None)
            self._stop()
        finally:
            for worker in self._workers:
                worker.kill()
            shutil.rmtree(folder, ignore_errors=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's signature
        self._signals += 1
        os.write(self._wake_write, b"!")

    def _start(self) -> None:
        worker = self._context.Process(target=_run_worker, args=(self._config, self._listener))
        worker.start()
        self._workers[worker] = time.monotonic()

    def _wait(self, timeout: float | None) -> None:
        """Wait for a signal or a death; clear away who died."""
        ready = wait([self._wake_read, *(worker.sentinel for worker in self._workers)], timeout)
        if self._wake_read in ready:
            os.read(self._wake_read, 100)
        for worker, born in list(self._workers.items()):
            if worker.exitcode is None:
                continue
            del self._workers[worker]
            self._forget_metrics(worker.pid)
            if self._signals:
                continue
            _log.warning("worker died", pid=worker.pid, exitcode=worker.exitcode)
            is_failed_start = time.monotonic() - born < _MIN_LIFE
            self._failed_starts = self._failed_starts + 1 if is_failed_start else 0
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise ConfigError(f"server.workers: {_MAX_FAILED_STARTS} workers in a row died as soon as they started")

    def _stop(self) -> None:
        self._listener.close()  # else connections would be accepted that nobody serves
        for worker in self._workers:
            worker.terminate()
        deadline = time.monotonic() + self._config.server.drain_timeout + _LAST_SECONDS
        while self._workers and self._signals == 1 and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())

    @staticmethod
    def _forget_metrics(pid: int | None) -> None:
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - after the variable is set

        if pid is not None:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]


def _run_worker(config: Config, listener: socket.socket) -> None:
    """The main function of a worker process."""
    from server.run import serve_on  # noqa: PLC0415 - a fresh process, with the metrics' variable set

    serve_on(config, listener)
