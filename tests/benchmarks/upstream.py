"""A scripted inference server that is never the limit: one epoll loop, bodies made once.

The request's model says what is streamed: ``KIND:FRAMES:PER_WRITE:RATE``. KIND is ``text``, ``tools`` or
``arguments``; PER_WRITE frames share an HTTP chunk; RATE is frames a second, 0 = as fast as they go. Paced frames
carry the time of their sending (``"t":"NANOSECONDS"``, the system's monotonic clock).
"""

from __future__ import annotations

import functools
import heapq
import json
import selectors
import socket
import sys
import time
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
STAMP = b'"t":"0000000000000000000"'


def frame(delta: dict[str, Any], finish: str | None = None, *, stamped: bool = False) -> bytes:
    """One frame of about the size that servers send."""
    value: dict[str, Any] = {
        "id": "chatcmpl-7f2a9c1e5b3d4f60",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "demo-7b",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    text = json.dumps(value, separators=(",", ":")).encode()
    if stamped:
        text = text[:-1] + b"," + STAMP + b"}"
    return b"data: %b\n\n" % text


def deltas(kind: str, count: int) -> list[dict[str, Any]]:
    """What the frames of a stream say."""
    if kind == "text":
        return [{"content": f" word{n % 97}"} for n in range(count)]
    per_call = count if kind == "arguments" else 40
    said: list[dict[str, Any]] = []
    for n in range(count):
        call, at = divmod(n, per_call)
        text = '{"a":"' if at == 0 else '"}' if at in (per_call - 1, count - 1 - call * per_call) else "abcd"
        fragment: dict[str, Any] = {"index": call, "function": {"arguments": text}}
        if at == 0:
            fragment |= {"id": f"call_{call}", "type": "function"}
            fragment["function"]["name"] = "write_file"
        said.append({"tool_calls": [fragment]})
    return said


@functools.lru_cache(maxsize=32)
def body_of(kind: str, count: int, per_write: int) -> bytes:
    """A whole body in chunked coding."""
    finish = "stop" if kind == "text" else "tool_calls"
    frames = [frame({"role": "assistant", "content": ""}), *map(frame, deltas(kind, count)), frame({}, finish)]
    frames.append(b"data: [DONE]\n\n")
    groups = [b"".join(frames[at : at + per_write]) for at in range(0, len(frames), per_write)]
    return b"".join(b"%x\r\n%b\r\n" % (len(group), group) for group in groups) + LAST


class Connection:
    """One client of the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.out = memoryview(b"")
        self.paced: list[bytes] = []
        self.interval = 0.0


class Server:
    """The loop."""

    def __init__(self, port: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Connection]] = []
        self.listener = socket.create_server(("127.0.0.1", port), backlog=8192)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.serial = 0

    def run(self) -> None:
        """Serve for ever."""
        while True:
            wait = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
            for key, _ in self.selector.select(wait):
                if key.data is None:
                    self.accept()
                else:
                    self.serve(key.data)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                due, _, connection = heapq.heappop(self.timers)
                self.tick(due, connection)

    def accept(self) -> None:
        """Take all connections that wait."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def serve(self, connection: Connection) -> None:
        """Read a request, or go on writing."""
        try:
            if connection.out:
                self.write(connection)
                return
            data = connection.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return
        connection.received += data
        head, sep, rest = bytes(connection.received).partition(b"\r\n\r\n")
        if not sep:
            return
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        if len(rest) < length:
            return
        connection.received.clear()
        self.answer(connection, json.loads(rest)["model"])

    def answer(self, connection: Connection, model: str) -> None:
        """Begin the stream that the model names."""
        kind, count, per_write, rate = model.split(":")
        if float(rate) == 0:
            connection.out = memoryview(HEAD + body_of(kind, int(count), int(per_write)))
            self.write(connection)
            return
        finish = "stop" if kind == "text" else "tool_calls"
        frames = [frame(delta, stamped=True) for delta in deltas(kind, int(count))]
        connection.paced = [*frames, frame({}, finish, stamped=True), b"data: [DONE]\n\n"][::-1]
        connection.interval = 1 / float(rate)
        connection.sock.send(HEAD)
        self.serial += 1
        phase = (self.serial % 97) / 97 * connection.interval
        heapq.heappush(self.timers, (time.monotonic() + phase, self.serial, connection))

    def tick(self, due: float, connection: Connection) -> None:
        """Send the next frame of a paced stream."""
        data = connection.paced.pop()
        if STAMP in data:
            data = data.replace(STAMP, b'"t":"%019d"' % time.monotonic_ns())
        try:
            connection.sock.send(b"%x\r\n%b\r\n" % (len(data), data) + (b"" if connection.paced else LAST))
        except OSError:
            self.drop(connection)
            return
        if connection.paced:
            self.serial += 1
            heapq.heappush(self.timers, (due + connection.interval, self.serial, connection))

    def write(self, connection: Connection) -> None:
        """Write as much as goes."""
        try:
            while connection.out:
                connection.out = connection.out[connection.sock.send(connection.out) :]
        except BlockingIOError:
            self.selector.modify(connection.sock, selectors.EVENT_WRITE, connection)
            return
        except OSError:
            self.drop(connection)
            return
        self.selector.modify(connection.sock, selectors.EVENT_READ, connection)

    def drop(self, connection: Connection) -> None:
        """The client has left."""
        if connection.sock.fileno() >= 0:
            self.selector.unregister(connection.sock)
            connection.sock.close()


if __name__ == "__main__":
    Server(int(sys.argv[1])).run()
