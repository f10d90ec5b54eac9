"""One client's connection: Hypercorn's, without its defects (traps, H2)."""

from __future__ import annotations

from typing import Any

import structlog
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from server.http1 import OnlyHttp1
from server.write_limit import Outgoing, WriteLimit

__all__ = ["ClientConnection"]

_log = structlog.get_logger("callahead")


class ClientConnection(TCPServer):
    """Serves one connection; whatever goes wrong in it ends it alone.

    Hypercorn's writes cannot be cancelled and have no limit: a client that stopped reading held its request, and the
    process at its end.

    Its idle timer outlived a client that had left: the connection's task waited for it, and kept the socket's
    descriptor as long, so that a client that closes a kept connection cost one for ``keep_alive_timeout``.

    And an error that nobody foresaw, in one connection, left the nursery of all connections and ended the server.

    Args:
        limit: for how long a client may take nothing.
        arguments: Hypercorn's.
    """

    def __init__(self, limit: WriteLimit, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._outgoing = Outgoing(self.stream.socket, limit)
        self._client_has_left = False

    async def run(self) -> None:  # noqa: ASYNC910 - where it fails, its connection is at its end
        """Serve the connection. Checkpoints."""
        try:
            await self._serve()
        except BaseExceptionGroup as group:
            cancelled, errors = group.split(trio.Cancelled)
            if errors is not None:
                _note_failure(errors)
            if cancelled is not None:
                raise cancelled from None
        except Exception as error:  # noqa: BLE001 - one connection's bug is one connection's end
            _note_failure(error)
        finally:
            self._outgoing.close()

    async def _serve(self) -> None:
        """As Hypercorn does, but without TLS and in one protocol."""
        sock = self.stream.socket
        try:
            client = parse_socket_addr(sock.family, sock.getpeername())
            server = parse_socket_addr(sock.family, sock.getsockname())
            async with TaskGroup() as tasks:
                self._task_group = tasks
                state = ConnectionState(self.state)
                self.protocol = OnlyHttp1(  # type: ignore[assignment]  # where Hypercorn has one that chooses one
                    self.app,
                    self.config,
                    self.context,
                    tasks,
                    state,
                    ssl=False,
                    client=client,
                    server=server,
                    send=self.protocol_send,
                )
                await self.idle_task.restart(tasks, self._idle_timeout)
                await self._read_data()
        except OSError:
            await trio.lowlevel.checkpoint()  # it was gone before it was looked at

    async def protocol_send(self, event: Event) -> None:
        """Send, or note that the connection is idle; but no timer is started once the client has left."""
        if isinstance(event, RawData):
            try:
                await self._outgoing.send_all(event.data)
            except (OSError, trio.ClosedResourceError):
                await self.protocol.handle(Closed())
        elif self._client_has_left and isinstance(event, Updated):
            await trio.lowlevel.checkpoint()
        else:
            await super().protocol_send(event)

    async def _read_data(self) -> None:
        await super()._read_data()
        self._client_has_left = True
        await self.idle_task.stop()


def _note_failure(error: BaseException) -> None:
    _log.error("connection failed", exc_info=error)
