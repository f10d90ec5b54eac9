"""A gateway on a real socket between a scripted upstream and a plain client, all in one Trio run."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from pipeline.registry import StageRegistry
from pipeline.sse import Frame, SseDecoder
from server.app import Gateway
from server.config import Config, load_config
from server.run import listen, run_gateway
from server.upstreams.base import Upstream
from server.upstreams.choose import make_upstream

CONFIG_FILE: Path | None = None
"""A config that tests lay under their settings."""

Step = bytes | trio.Event | Callable[[], Any] | str
"""One step of a script: bytes to send, an event to wait for, a function to call, ``reset``, ``stall`` or ``close``."""


def chunk(delta: dict[str, Any] | None = None, *, finish: str | None = None, **more: Any) -> bytes:
    """One frame with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return data(
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **more,
        }
    )


def data(value: Any) -> bytes:
    """One frame with a JSON value."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def call(arguments: str, *, index: int = 0, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """A delta with one fragment."""
    fragment: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if call_id:
        fragment |= {"id": call_id, "type": "function"}
    if name:
        fragment["function"]["name"] = name
    return {"tool_calls": [fragment]}


DONE = b"data: [DONE]\n\n"
TEXT_STREAM: Sequence[Step] = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hello"}),
    chunk({}, finish="stop"),
    DONE,
]


@attrs.define(eq=False)
class SeenRequest:
    """What the upstream received."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@attrs.define(eq=False)
class ScriptedUpstream:
    """An inference server that does as it is told, on a real socket."""

    script: Sequence[Step] = TEXT_STREAM
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=lambda: {"content-type": "text/event-stream"})
    before_headers: Sequence[Step] = ()
    port: int = 0
    requests: list[SeenRequest] = attrs.field(factory=list)
    connections: int = 0
    open_connections: int = 0
    sent: int = 0
    got_request: trio.Event = attrs.field(factory=trio.Event)
    connection_gone: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept connections until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._handle, listeners)

    async def _handle(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            await self._serve_connection(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open_connections -= 1
            self.connection_gone.set()
            await trio.aclose_forcefully(stream)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        buffer = bytearray()
        while True:
            while b"\r\n\r\n" not in buffer:
                more = await stream.receive_some(65536)
                if not more:
                    return
                buffer += more
            head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
            request_line, *lines = head.decode("latin-1").split("\r\n")
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length", "0"))
            body = bytearray(rest)
            while len(body) < length:
                more = await stream.receive_some(65536)
                if not more:
                    return
                body += more
            method, target, _ = request_line.split(" ", 2)
            self.requests.append(SeenRequest(method, target, headers, bytes(body[:length])))
            buffer = bytearray(body[length:])
            self.got_request.set()
            goes_on = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, stream, nursery.cancel_scope, buffer)
                with contextlib.suppress(trio.BrokenResourceError):
                    goes_on = await self._answer(stream)
                nursery.cancel_scope.cancel()
            if not goes_on:
                return

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope, buffer: bytearray) -> None:
        """Notice at once that the gateway has closed the connection."""
        try:
            while more := await stream.receive_some(65536):
                buffer += more
        except trio.BrokenResourceError:
            pass
        self.connection_gone.set()
        scope.cancel()

    async def _answer(self, stream: trio.SocketStream) -> bool:
        for step in self.before_headers:
            if not await self._do(stream, step, raw=True):
                return False
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{k}: {v}" for k, v in self.headers.items())]
        chunked = "content-length" not in self.headers
        if chunked:
            lines.append("transfer-encoding: chunked")
        await stream.send_all("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for step in self.script:
            if not await self._do(stream, step, raw=not chunked):
                return False
        if chunked:
            await stream.send_all(b"0\r\n\r\n")
        return True

    async def _do(self, stream: trio.SocketStream, step: Step, *, raw: bool) -> bool:
        if isinstance(step, bytes):
            await stream.send_all(step if raw else b"%x\r\n%b\r\n" % (len(step), step))
            self.sent += len(step)
        elif isinstance(step, trio.Event):
            await step.wait()
        elif callable(step):
            result = step()
            if result is not None:
                await result
        elif step == "reset":
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        elif step == "stall":
            await trio.sleep_forever()
        elif step == "close":
            return False
        return True


@attrs.define(eq=False)
class Response:
    """What a client has of an answer so far."""

    status: int
    headers: dict[str, str]
    stream: trio.abc.Stream
    buffer: bytearray
    ended: bool = False
    decoder: SseDecoder = attrs.field(factory=SseDecoder)
    pending: list[Frame] = attrs.field(factory=list)

    async def read(self) -> bytes:
        """The next piece of the body; ``b""`` at its end. ``EOFError`` where the connection ends before it."""
        if self.ended:
            return b""
        if "content-length" in self.headers:
            return await self._read_counted()
        while (found := self.buffer.find(b"\r\n")) < 0:
            await self._more()
        size = int(self.buffer[:found], 16)
        while len(self.buffer) < found + 2 + size + 2:
            await self._more()
        piece = bytes(self.buffer[found + 2 : found + 2 + size])
        del self.buffer[: found + 2 + size + 2]
        self.ended = size == 0
        return piece

    async def _read_counted(self) -> bytes:
        length = int(self.headers["content-length"])
        while len(self.buffer) < length:
            await self._more()
        piece = bytes(self.buffer[:length])
        del self.buffer[:length]
        self.ended = True
        return piece

    async def _more(self) -> None:
        more = await self.stream.receive_some(65536)
        if not more:
            raise EOFError
        self.buffer += more

    async def read_all(self) -> bytes:
        """The rest of the body."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def json(self) -> Any:
        """The body as JSON."""
        return json.loads(await self.read_all())

    async def frame(self) -> Frame | None:
        """The next frame, none at the end."""
        while not self.pending:
            piece = await self.read()
            if not piece:
                return None
            self.pending += self.decoder.feed(piece)
        return self.pending.pop(0)

    async def frames(self) -> list[Frame]:
        """All frames that are left."""
        frames = []
        while (frame := await self.frame()) is not None:
            frames.append(frame)
        return frames


@attrs.define(eq=False)
class RunningGateway:
    """A gateway that listens."""

    port: int
    gateway: Gateway
    stop: trio.Event
    clients: list[trio.SocketStream] = attrs.field(factory=list)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def connect(self, receive_buffer: int | None = None) -> trio.SocketStream:
        """A connection to it."""
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect(("127.0.0.1", self.port))
        except OSError:
            sock.close()
            raise
        self.clients.append(trio.SocketStream(sock))
        return self.clients[-1]

    async def request(
        self,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        body: Any = None,
        headers: dict[str, str] | None = None,
        stream: trio.abc.Stream | None = None,
    ) -> Response:
        """Send a request on a new connection, or on ``stream``, and read the head of the answer."""
        stream = stream or await self.connect()
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: gateway"]
        if payload or method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(f"content-length: {len(payload)}")
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        await stream.send_all("\r\n".join([*lines, "", ""]).encode("latin-1") + payload)
        return await read_head(stream)

    async def completion(self, *, events: bool = False, stream: trio.abc.Stream | None = None, **more: Any) -> Response:
        """A streaming completion."""
        headers = more.pop("headers", {})
        if events:
            headers = {"Callahead-Events": "tool_call_dispatch, reasoning_dispatch", **headers}
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], **more}
        return await self.request(body=body, headers=headers, stream=stream)


async def read_head(stream: trio.abc.Stream) -> Response:
    """Status and headers of an answer."""
    buffer = bytearray()
    while b"\r\n\r\n" not in buffer:
        more = await stream.receive_some(65536)
        if not more:
            raise EOFError
        buffer += more
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    return Response(int(status_line.split(" ")[1]), headers, stream, bytearray(rest))


def make_config(**sections: dict[str, Any]) -> Config:
    """A config from keyword arguments, as a file would have it."""
    settings = {
        f"CALLAHEAD_{section.upper()}_{key.upper()}": str(value)
        for section, keys in sections.items()
        for key, value in keys.items()
    }
    return load_config(CONFIG_FILE, settings, {})


async def _run(  # noqa: ASYNC128 - Hypercorn calls it
    running: RunningGateway, listener: socket.socket, task_status: trio.TaskStatus[list[str]]
) -> None:
    await run_gateway(running.gateway, listener, running.stop, task_status)
    running.ended.set()


@asynccontextmanager
async def running_gateway(
    config: Config, upstream: Upstream | None = None, stages: Sequence[str] | None = None
) -> AsyncIterator[RunningGateway]:
    """Run a gateway on a free port until the block is left."""
    if stages is not None:
        config = attrs.evolve(config, pipeline=attrs.evolve(config.pipeline, stages=tuple(stages)))
    gateway = Gateway(config, config.plans(StageRegistry()), upstream or make_upstream(config))
    listener = listen("127.0.0.1", 0)
    running = RunningGateway(listener.getsockname()[1], gateway, trio.Event())
    async with trio.open_nursery() as nursery:
        await nursery.start(_run, running, listener)
        try:
            yield running
        finally:
            for client in running.clients:
                client.socket.close()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def gateway_and_upstream(
    scripted: ScriptedUpstream | None = None, stages: Sequence[str] | None = None, **sections: dict[str, Any]
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    """A gateway in front of a scripted upstream."""
    scripted = scripted or ScriptedUpstream()
    async with trio.open_nursery() as nursery:
        await nursery.start(scripted.serve)
        upstream = {"url": f"http://127.0.0.1:{scripted.port}/v1", **sections.pop("upstream", {})}
        async with running_gateway(make_config(upstream=upstream, **sections), stages=stages) as running:
            yield running, scripted
        nursery.cancel_scope.cancel()
