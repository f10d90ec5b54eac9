"""One process: listening socket, signals, Hypercorn (traps, H2, H4 to H6, H13)."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import structlog
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import run as hypercorn_run
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.trio.tcp_server import TCPServer

from pipeline.registry import StageRegistry
from server.app import Gateway
from server.client_connection import ClientConnection
from server.errors import ConfigError
from server.logs import configure_logs, hypercorn_logger
from server.upstreams.choose import make_upstream
from server.welcome import welcome
from server.workers import Supervisor
from server.write_limit import WriteLimit

if TYPE_CHECKING:
    from hypercorn.typing import AppWrapper, Framework

    from server.config import Config
    from server.settings import ServerSettings

__all__ = ["is_own_address", "listen", "make_gateway", "run_gateway", "run_until_signal", "serve", "serve_on"]

_log = structlog.get_logger("callahead")

_BACKLOG = 1024
"""Connections that wait to be accepted."""
_LAST_RECORDS = 5.0
"""Seconds that captured records get to be written once the last request has ended."""
_LAST_FRAMES = 2.0
"""Seconds that streams get after the drain time to send their error frame."""


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; the second signal ends it at once. Blocks.

    Raises:
        ConfigError: the configuration cannot be used, or the address cannot be listened on.
    """
    url, host, port = config.upstream.url, config.server.host, config.server.port
    if url is not None and is_own_address(url, host, port):
        raise ConfigError(f"upstream.url: leads to {host}:{port}, where Callahead itself listens; change server.port")
    configure_logs(config.log.level, config.log.format)
    gateway = make_gateway(config)  # also where workers make their own: what is wrong is said once, here
    listener = listen(host, port)
    host, port = listener.getsockname()[:2]
    sys.stdout.write(welcome(config, gateway.upstream.name, host, port))
    sys.stdout.flush()
    if config.server.workers > 1:
        Supervisor(config, listener).run()
    else:
        _run(gateway, listener)


def serve_on(config: Config, listener: socket.socket) -> None:
    """Be one of several workers on a socket that is listened on. Blocks."""
    configure_logs(config.log.level, config.log.format)
    _run(make_gateway(config), listener)


def make_gateway(config: Config) -> Gateway:
    """The app of a config.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    return Gateway(config, config.plans(StageRegistry()), make_upstream(config))


def _run(gateway: Gateway, listener: socket.socket) -> None:
    tune_garbage_collection()
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(run_until_signal, gateway, listener)


async def run_until_signal(gateway: Gateway, listener: socket.socket) -> None:
    """``run_gateway`` with SIGTERM and SIGINT as its triggers.

    A worker takes any number of them for one: a terminal and systemd signal the whole group, and the supervisor each
    worker besides. It is the supervisor that knows of a second one.
    """
    stop = trio.Event()
    parent = multiprocessing.parent_process()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for number in signals:
                    if stop.is_set() and parent is not None:
                        continue
                    if stop.is_set():
                        _log.warning("stopping at once", signal=signal.Signals(number).name)
                        nursery.cancel_scope.cancel()
                        return
                    _log.info("draining", signal=signal.Signals(number).name)
                    stop.set()

            async def watch_parent(sentinel: int) -> None:
                await trio.lowlevel.wait_readable(sentinel)
                _log.warning("draining", reason="the parent process is gone")
                stop.set()

            nursery.start_soon(watch)
            if parent is not None:
                nursery.start_soon(watch_parent, parent.sentinel)
            await run_gateway(gateway, listener, stop)
            nursery.cancel_scope.cancel()


async def run_gateway(  # noqa: ASYNC128 - Hypercorn calls it
    gateway: Gateway,
    listener: socket.socket,
    stop: trio.Event,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on a socket until ``stop`` is set, and then until every request has ended or the drain time is over.

    While draining, ``/health`` says so and no connection is accepted. Streams that outlast the drain time end with an
    error frame. Process-wide services run in this nursery, not in Quart's: one that crashes ends the process (H13).

    Args:
        gateway: the app.
        listener: of ``listen``, which is used up.
        stop: set it to drain.
        task_status: started, with the URLs, once connections are accepted.
    """
    hypercorn_run.TCPServer = _connection  # type: ignore[assignment,attr-defined]  # Hypercorn has no setting for it
    config = _hypercorn_config(gateway.settings.server, listener)
    drain_timeout = gateway.settings.server.drain_timeout
    async with trio.open_nursery() as nursery:

        async def stopped() -> None:
            await stop.wait()
            gateway.draining = True
            nursery.start_soon(stop_streams)

        async def stop_streams() -> None:
            await trio.sleep(drain_timeout)
            gateway.stop_streams()

        nursery.start_soon(config.write_limit.run)
        await nursery.start(gateway.capture.run)
        try:
            await hypercorn_serve(
                cast("Framework", gateway),
                config,
                shutdown_trigger=stopped,
                task_status=task_status,
            )
        finally:
            await gateway.upstream.aclose()  # safe in a cancelled scope
        await gateway.capture.flush(trio.current_time() + _LAST_RECORDS)
        nursery.cancel_scope.cancel()


class _Config(HypercornConfig):
    """Hypercorn's, with what it knows nothing of."""

    write_limit: WriteLimit


def _connection(app: AppWrapper, config: HypercornConfig, *more: Any) -> TCPServer:
    """A gateway's connection; Hypercorn's own where it serves something else in this process."""
    if isinstance(config, _Config):
        return ClientConnection(config.write_limit, app, config, *more)
    return TCPServer(app, config, *more)


def _hypercorn_config(server: ServerSettings, listener: socket.socket) -> _Config:
    config = _Config()
    config.write_limit = WriteLimit(server.write_timeout)
    # Hypercorn makes a socket object of its own from the number, so this one must let go of it.
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = server.drain_timeout + _LAST_FRAMES
    config.keep_alive_timeout = server.keep_alive_timeout
    config.keep_alive_max_requests = sys.maxsize
    config.read_timeout = None  # it would cut long responses (H6); bodies are bounded by server.body_timeout
    config.accesslog = None
    config.errorlog = hypercorn_logger()
    config.include_server_header = False
    config.backlog = _BACKLOG
    return config


def tune_garbage_collection() -> None:
    """Look for cycles less often, and never among what was there at the start.

    Every chunk is a handful of containers that die by reference counting within milliseconds. At Python's default
    threshold of 700 new containers the collector ran every few dozen chunks and cost a third of the CPU per chunk.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def is_own_address(url: str, host: str, port: int) -> bool:
    """Whether an upstream's URL leads back to the gateway that listens there: requests would go round for ever.

    Nothing is resolved: what is noticed is a port that was given twice, as llama.cpp has the same one by default.
    """
    parts = urlsplit(url)
    names = {host}
    if host in {"127.0.0.1", "localhost", "0.0.0.0", "::"}:  # noqa: S104 - it is compared, not bound
        names |= {"127.0.0.1", "localhost"}
    return parts.hostname in names and (parts.port or {"https": 443}.get(parts.scheme, 80)) == port


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket that is listened on: who connects from now on waits until it is served.

    Args:
        host: a name or address; the first address that it resolves to is used, IPv4 before IPv6.
        port: 0 = any free one.

    Raises:
        ConfigError: the address cannot be resolved or bound.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} cannot be used: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"server.port: cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener
