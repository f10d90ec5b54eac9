"""The upstream: an inference server that does what the case of each request says."""

from __future__ import annotations

import contextlib
import math
import socket
from typing import TYPE_CHECKING, Final

import trio
from cases import CASE_HEADER
from scripts import Act, Step, response

if TYPE_CHECKING:
    from ledger import Entry, Ledger

__all__ = ["Upstream"]

_LINGER_RST: Final = b"\x01\x00\x00\x00\x00\x00\x00\x00"
_MAX_FLOOD: Final = 256 * 1024 * 1024
_MODELS: Final = response(200, "application/json", b'{"object":"list","data":[]}')


class Upstream:
    """Serves on a real socket.

    Args:
        ledger: the cases that run, which are told of their requests.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.port = 0
        self.connections = 0
        """Open ones."""
        self.strangers: list[str] = []
        """Requests that no case has sent."""
        self._ledger = ledger

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept connections until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=512)
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._handle, listeners)

    async def _handle(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            connection, keeps_for = _Connection(stream), math.inf
            while (keeps_for := await self._serve_request(connection, keeps_for)) >= 0:
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.connections -= 1
            await trio.aclose_forcefully(stream)

    async def _serve_request(self, connection: _Connection, keeps_for: float) -> float:
        """One request and its script; gives the seconds for which another one is waited for, less than 0 for none."""
        with trio.move_on_after(keeps_for):
            await connection.read_head()
        if not connection.method:
            return -1
        name = connection.headers.get(CASE_HEADER, "")
        entry = self._ledger.find(name)
        if entry is None:
            if connection.target != "/v1/models":
                self.strangers.append(f"{connection.method} {connection.target} {name}")
            await connection.do(_MODELS)
            return math.inf
        entry.begin()
        try:
            keeps_for = await self._play(connection, entry)
        finally:
            entry.end()
        if keeps_for >= 0 and entry.case.script is not None and entry.case.script.drops_next:
            with trio.move_on_after(keeps_for):
                await connection.peek()
            return -1
        return keeps_for

    async def _play(self, connection: _Connection, entry: Entry) -> float:
        case, script = entry.case, entry.case.script
        if script is None:
            entry.faults.append("the upstream was asked although the request cannot be served")
            return -1
        steps = list(script.steps)
        if Act.READ_BODY in steps:
            at = steps.index(Act.READ_BODY)
            for step in steps[:at]:
                await connection.do(step)
            body = await connection.read_body()
            if case.checks_body and (misfit := case.request.misfit(connection.method, connection.target, body)):
                entry.faults.append(misfit)
            steps = steps[at + 1 :]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.watch, nursery.cancel_scope)
                await self._play_steps(connection, steps)
                nursery.cancel_scope.cancel()
            if connection.is_gone:
                return -1
        else:
            await self._play_steps(connection, steps)
        if script.keeps_for is None or steps[-1] is Act.RESET:
            return -1
        return script.keeps_for

    async def _play_steps(self, connection: _Connection, steps: list[Step]) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            for step, before in zip(steps, [b"", *steps], strict=False):
                if step is Act.FLOOD:
                    assert isinstance(before, bytes)
                    for _ in range(_MAX_FLOOD // len(before)):
                        await connection.do(before)
                await connection.do(step)


class _Connection:
    """Reads requests and does steps."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.method = ""
        self.target = ""
        self.headers: dict[str, str] = {}
        self.is_gone = False
        """The gateway has closed it in the middle of a script."""
        self._stream = stream
        self._buffer = bytearray()

    async def read_head(self) -> None:
        """The next request's head; without a method at the connection's end."""
        self.method = ""
        while b"\r\n\r\n" not in self._buffer:
            if not await self._read():
                return
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        request_line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.method, self.target, _ = request_line.split(" ", 2)
        self._buffer[:] = rest

    async def peek(self) -> None:
        """Wait until something has come; it is not read."""
        if not self._buffer:
            await trio.lowlevel.wait_readable(self._stream.socket)

    async def read_body(self) -> bytes | None:
        """The request's body; none where the gateway goes away in the middle of it."""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            return await self._read_chunks()
        return await self._take(int(self.headers.get("content-length", "0")))

    async def watch(self, scope: trio.CancelScope) -> None:
        """Cancel a scope at once when the gateway closes the connection."""
        with contextlib.suppress(trio.BrokenResourceError):
            while await self._read():
                pass
        self.is_gone = True
        scope.cancel()

    async def do(self, step: Step) -> None:
        """One step of a script."""
        match step:
            case bytes():
                await self._stream.send_all(step)
            case Act.RESET:
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
            case Act.STALL:
                await trio.sleep_forever()
            case float() | int():
                await trio.sleep(step)

    async def _read(self) -> bool:
        data = await self._stream.receive_some(65536)
        self._buffer += data
        return bool(data)

    async def _take(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not await self._read():
                return None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _read_chunks(self) -> bytes | None:
        body = b""
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                if not await self._read():
                    return None
            size = int(self._buffer[:end], 16)
            del self._buffer[: end + 2]
            piece = await self._take(size + 2)
            if piece is None:
                return None
            if not size:
                return body
            body += piece[:-2]
