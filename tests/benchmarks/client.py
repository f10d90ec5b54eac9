"""A load client that is never the limit: one epoll loop, frames counted and stamps read with a regular expression.

    client.py PORT STREAMS CONCURRENT MODEL [EVENTS]

Prints one JSON object: frames, side events, seconds, errors, latencies in microseconds, first frames in milliseconds.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from typing import Any

_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
"""Without any a parser of tool calls has nothing to do."""
_STAMP = re.compile(rb'"t":"(\d{19})"')
_END = b"0\r\n\r\n"


class Stream:
    """One completion."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.started = time.monotonic()
        self.tail = b""
        self.seen = False
        self.done = False


class Load:
    """Keeps so many streams open until so many have ended."""

    def __init__(self, port: int, streams: int, concurrent: int, model: str, events: str) -> None:
        self.port = port
        self.left = streams
        request = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}], "tools": _TOOLS}
        body = json.dumps(request).encode()
        asked = f"callahead-events: {events}\r\n" if events else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{asked}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body
        self.selector = selectors.DefaultSelector()
        self.concurrent = concurrent
        self.frames = self.events = self.errors = self.bytes = 0
        self.latencies: list[int] = []
        self.first_frames: list[float] = []

    def run(self) -> dict[str, Any]:
        """Run to the end."""
        started = time.monotonic()
        for _ in range(min(self.concurrent, self.left)):
            self.open()
        while self.selector.get_map():
            for key, _ in self.selector.select(20):
                self.read(key.data)
        seconds = time.monotonic() - started
        latencies = sorted(self.latencies)
        return {
            "frames": self.frames,
            "events": self.events,
            "errors": self.errors,
            "bytes": self.bytes,
            "seconds": seconds,
            "latency_p50_us": latencies[len(latencies) // 2] / 1000 if latencies else None,
            "latency_p99_us": latencies[int(len(latencies) * 0.99)] / 1000 if latencies else None,
            "first_frame_ms": sorted(self.first_frames)[len(self.first_frames) // 2] * 1000
            if self.first_frames
            else None,
        }

    def open(self, sock: socket.socket | None = None) -> None:
        """Begin a stream, on the connection of the last one if there is one."""
        self.left -= 1
        if sock is None:
            sock = socket.create_connection(("127.0.0.1", self.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
        stream = Stream(sock)
        sock.send(self.request)
        self.selector.register(sock, selectors.EVENT_READ, stream)

    def read(self, stream: Stream) -> None:
        """Take what there is."""
        try:
            data = stream.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = time.monotonic_ns()
        if not data:
            self.errors += 1
            self.close(stream)
            return
        self.bytes += len(data)
        data = stream.tail + data
        cut = data.rfind(b"\n\n") + 2
        whole, stream.tail = (data[:cut], data[cut:]) if cut > 1 else (b"", data)
        frames = whole.count(b"data: ")
        if frames and not stream.seen:
            stream.seen = True
            self.first_frames.append(time.monotonic() - stream.started)
        self.frames += frames
        self.events += whole.count(b"event: ")
        for stamp in _STAMP.findall(whole):
            self.latencies.append(now - int(stamp))
        stream.done = stream.done or b"data: [DONE]" in whole
        if stream.tail.endswith(_END):
            self.selector.unregister(stream.sock)
            if not stream.done:
                self.errors += 1
            if self.left > 0:
                self.open(stream.sock)
            else:
                stream.sock.close()

    def close(self, stream: Stream) -> None:
        """The connection is gone."""
        self.selector.unregister(stream.sock)
        stream.sock.close()
        if self.left > 0:
            self.open()


if __name__ == "__main__":
    load = Load(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], *sys.argv[5:] or [""])
    print(json.dumps(load.run()))
