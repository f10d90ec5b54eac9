"""What clients do: read at any pace, stop reading, leave at any point, send anything."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

import attrs
import h11
import trio
from verdicts import Seen

if TYPE_CHECKING:
    from cases import Request
    from ledger import Entry

__all__ = ["Churns", "Leaves", "Pipelines", "Reads", "SendsRaw", "Stops", "get"]

_LINGER_RST: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00"
_NAP: Final = 0.02
_PROBE_TIMEOUT: Final = 15


class _Exchange:
    """Requests and responses as bytes; h11 judges what comes."""

    def __init__(self) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._is_closed = False

    def feed(self, data: bytes) -> None:
        """What was received, ``b""`` at the connection's end."""
        self._is_closed = not data
        self.http.receive_data(data)

    def encode(self, request: Request, *, is_chunked: bool = False) -> tuple[bytes, bytes]:
        """The request's head and body."""
        length = [("transfer-encoding", "chunked")] if is_chunked else [("content-length", str(len(request.body)))]
        headers = [*request.headers, *(length if request.body else [])]
        sent = self.http.send(h11.Request(method=request.method, target=request.path, headers=headers))
        body = self.http.send(h11.Data(data=request.body)) if request.body else b""
        return sent or b"", (body or b"") + (self.http.send(h11.EndOfMessage()) or b"")

    def take(self, seen: Seen) -> bool:
        """Put what has arrived into a response; whether it is over."""
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError:
                seen.end = "eof" if self._is_closed else "not HTTP"
                return True
            match event:
                case h11.Response():
                    seen.status = event.status_code
                    seen.headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                case h11.Data():
                    seen.body += event.data
                case h11.EndOfMessage():
                    seen.end = "whole"
                    return True
                case h11.ConnectionClosed():
                    seen.end = "eof"
                    return True
                case h11.NEED_DATA:
                    return False


class _Line(_Exchange):
    """A connection to the gateway, closed at once at the end of its block."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.socket.close()

    async def receive(self, max_bytes: int) -> None:
        """Take what one read gives."""
        try:
            self.feed(await self.stream.receive_some(max_bytes))
        except trio.BrokenResourceError:
            self.feed(b"")


async def _connect(port: int, receive_buffer: int | None = None) -> _Line:
    sock = trio.socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        await sock.connect(("127.0.0.1", port))
        undo.pop_all()
    return _Line(trio.SocketStream(sock))


async def _send(stream: trio.SocketStream, data: bytes) -> None:
    """Send, even if nobody takes it: what the gateway says counts."""
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(data)


@attrs.frozen(eq=False)
class Reads:
    """Sends its request and reads its response to the end, once or several times on one connection."""

    max_bytes: int = 65536
    """Of one read."""
    pause: float = 0
    """Seconds before each read."""
    nap: tuple[int, float] | None = None
    """Behind so many bytes of the body, so many seconds of rest."""
    receive_buffer: int | None = None
    pieces: int = 1
    """What the request's body is sent in."""
    piece_pause: float = 0
    is_chunked: bool = False
    stray: bytes = b""
    """Sent behind the request."""

    async def run(self, port: int, entry: Entry) -> list[Seen]:
        """See ``Behaviour``."""
        with await _connect(port, self.receive_buffer) as line:
            answers = []
            for number in range(entry.case.requests):
                if number:
                    line.http.start_next_cycle()
                await self._send(line, entry.case.request)
                answers.append(await self._read(line))
                if answers[-1].end != "whole":
                    break
            return answers

    async def _send(self, line: _Line, request: Request) -> None:
        head, body = line.encode(request, is_chunked=self.is_chunked)
        if self.pieces == 1:
            await _send(line.stream, head + body + self.stray)
            return
        await _send(line.stream, head)
        size = math.ceil(len(body) / self.pieces)
        for at in range(0, len(body), size):
            await trio.sleep(self.piece_pause)
            await _send(line.stream, body[at : at + size])

    async def _read(self, line: _Line) -> Seen:
        seen, rested = Seen(), False
        while not line.take(seen):
            if self.pause:
                await trio.sleep(self.pause)
            if self.nap is not None and not rested and len(seen.body) >= self.nap[0]:
                rested = True
                await trio.sleep(self.nap[1])
            await line.receive(self.max_bytes)
        return seen


@attrs.frozen(eq=False)
class Stops:
    """Reads some of the response and then nothing more, until the gateway has let go of the upstream."""

    after: int

    async def run(self, port: int, entry: Entry) -> list[Seen]:
        """See ``Behaviour``."""
        seen = Seen()
        with await _connect(port, receive_buffer=4096) as line:
            await _send(line.stream, b"".join(line.encode(entry.case.request)))
            while not line.take(seen) and len(seen.body) < self.after:
                await line.receive(2048)
            await entry.quiet()
        if seen.end == "none":
            seen.end = "left"
        return [seen]


@attrs.frozen(eq=False)
class Leaves:
    """Goes away at some point, in some way."""

    point: str
    """``connect``, ``head``, ``body``, ``request``, ``upstream`` (the upstream has the request), ``answer``."""
    way: str
    """``fin``, ``rst`` or ``half`` (sends no more, but listens)."""
    share: float
    """How much of the head or of the body is sent, from 0 to 1."""
    after: int = 0
    """For ``answer``: the bytes of it that are read, framing and all."""

    async def run(self, port: int, entry: Entry) -> list[Seen]:
        """See ``Behaviour``."""
        seen = Seen(end="left")
        with await _connect(port) as line:
            await _send(line.stream, self._part(*line.encode(entry.case.request)))
            if self.point == "upstream":
                await entry.begun()
            if self.point == "answer":
                await self._read_some(line, seen)
            if self.way == "rst":
                line.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
            elif self.way == "half":
                with contextlib.suppress(trio.BrokenResourceError):
                    await line.stream.send_eof()
                    while not line.take(seen):
                        await line.receive(65536)
        return [seen]

    def _part(self, head: bytes, body: bytes) -> bytes:
        match self.point:
            case "connect":
                return b""
            case "head":
                return head[: int((len(head) - 1) * self.share)]
            case "body":
                return head + body[: int((len(body) - 1) * self.share)]
            case _:
                return head + body

    async def _read_some(self, line: _Line, seen: Seen) -> None:
        read = 0
        while read < self.after:
            data = b""
            with contextlib.suppress(trio.BrokenResourceError):
                data = await line.stream.receive_some(min(2048, self.after - read))
            read += len(data)
            line.feed(data)
            if line.take(seen) or not data:
                return


@attrs.frozen(eq=False)
class SendsRaw:
    """Sends bytes that no decent client sends, and waits until the gateway closes or answers."""

    parts: Sequence[bytes]
    pause: float = 0.0
    """Seconds between them."""
    patience: float = math.inf
    """Seconds that it waits for."""

    async def run(self, port: int, entry: Entry) -> list[Seen]:  # noqa: ARG002 - a behaviour's signature
        """See ``Behaviour``."""
        with await _connect(port) as line:
            for number, part in enumerate(self.parts):
                await trio.sleep(self.pause if number else 0)
                await _send(line.stream, part)
            received = b""
            with trio.move_on_after(self.patience) as waiting, contextlib.suppress(trio.BrokenResourceError):
                while data := await line.stream.receive_some(65536):
                    received += data
                    if (seen := _answer_of(received)).end == "whole":
                        return [seen]
            if waiting.cancelled_caught:
                return [Seen(end="left")]
            return [_answer_of(received, is_closed=True)]


@attrs.frozen(eq=False)
class Pipelines:
    """Sends all its requests at once, and reads the responses in turn."""

    async def run(self, port: int, entry: Entry) -> list[Seen]:
        """See ``Behaviour``."""
        answers = []
        with await _connect(port) as line:
            rest = b""
            lines = [_Line(line.stream) for _ in range(entry.case.requests)]
            await _send(line.stream, b"".join(b"".join(each.encode(entry.case.request)) for each in lines))
            for each in lines:
                seen = Seen()
                if rest:
                    each.feed(rest)
                while not each.take(seen):
                    await each.receive(65536)
                answers.append(seen)
                rest = each.http.trailing_data[0]
        return answers


@attrs.frozen(eq=False)
class Churns:
    """Connects and goes, again and again, now and then with a few bytes."""

    times: int
    data: bytes
    way: str

    async def run(self, port: int, entry: Entry) -> list[Seen]:  # noqa: ARG002 - a behaviour's signature
        """See ``Behaviour``."""
        for _ in range(self.times):
            with await _connect(port) as line:
                if self.data:
                    await _send(line.stream, self.data)
                if self.way == "rst":
                    line.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
            await trio.sleep(_NAP)
        return [Seen(end="left")]


async def get(port: int, path: str) -> bytes:
    """The body of a probe's answer. Checkpoints, bounded."""
    with trio.fail_after(_PROBE_TIMEOUT):
        with await _connect(port) as line:
            await line.stream.send_all(f"GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n".encode())
            received = b""
            while data := await line.stream.receive_some(65536):
                received += data
    return bytes(_answer_of(received, is_closed=True).body)


def _answer_of(data: bytes, *, is_closed: bool = False) -> Seen:
    """The response in what was received; a pretended request asked for it."""
    exchange, seen = _Exchange(), Seen()
    exchange.http.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    exchange.http.send(h11.EndOfMessage())
    if data:
        exchange.feed(data)
    if not exchange.take(seen) and is_closed:
        exchange.feed(b"")
        exchange.take(seen)
    return seen
