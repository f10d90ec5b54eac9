"""Bytes to and from an upstream over TCP, and what a connection needs of any such stream."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Protocol

import trio

from server.errors import UpstreamError, UpstreamErrorKind
from server.sockets import read_now

__all__ = ["ByteStream", "TcpStream", "connect_tcp"]


class ByteStream(Protocol):
    """Bytes in both directions. One task at a time may send, and one may receive."""

    async def send_all(self, data: bytes, /) -> None:
        """Send everything. Checkpoints.

        If it is cancelled or fails nothing more can be sent, but what the peer sends can still be received.

        Raises:
            trio.BrokenResourceError: the connection broke.
        """
        ...

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """What one read gives, ``b""`` at the end. Checkpoints; cancellation loses nothing.

        Raises:
            trio.BrokenResourceError: the connection broke.
        """
        ...

    def receive_nowait(self, max_bytes: int, /) -> bytes:
        """What has arrived already, ``b""`` at the end.

        Raises:
            trio.WouldBlock: nothing has.
            trio.BrokenResourceError: the connection broke.
        """
        ...

    def close(self) -> None:
        """Close at once, without a word to the peer beyond what the system sends. Idempotent."""
        ...


class TcpStream:
    """A ``ByteStream`` that is a socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self.send_all = stream.send_all

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """See ``ByteStream``. It waits first: a read that finds nothing, as nearly every one would, costs a call."""
        while True:
            if self._socket.fileno() < 0:
                raise trio.ClosedResourceError("this socket was closed here")
            await trio.lowlevel.wait_readable(self._socket)
            with contextlib.suppress(trio.WouldBlock):
                return self.receive_nowait(max_bytes)

    def receive_nowait(self, max_bytes: int, /) -> bytes:
        """See ``ByteStream``."""
        try:
            return read_now(self._socket, max_bytes)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            raise trio.BrokenResourceError(f"socket connection broken: {error}") from error

    def close(self) -> None:
        """See ``ByteStream``."""
        self._socket.close()


async def connect_tcp(host: str, port: int) -> TcpStream:
    """Connect by name or address, trying several addresses as RFC 8305 has it. Checkpoints, cancellable.

    Raises:
        UpstreamError: the name is not found, or no address answers; the message says which and why.
    """
    try:
        return TcpStream(await trio.open_tcp_stream(host, port))
    except (OSError, UnicodeError) as error:
        raise UpstreamError(
            UpstreamErrorKind.CONNECT, f"no connection to {_address(host, port)}: {_reason(error)}"
        ) from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    """Each different reason of the addresses that were tried, without the addresses."""
    causes = error.__cause__
    each = causes.exceptions if isinstance(causes, ExceptionGroup) else (error,)
    return ", ".join(dict.fromkeys(_words(cause) for cause in each))


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno is not None:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
