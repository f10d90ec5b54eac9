"""One system call on a socket of Trio's, without the task switch that Trio adds to each of its own.

A stream of chunks is a read and a write for each of them, so that would be two switches a chunk. Whoever calls has a
checkpoint of its own near by.
"""

from __future__ import annotations

import os
import socket
import sys

import trio

__all__ = ["read_now", "write_now"]


def read_now(sock: trio.socket.SocketType, max_bytes: int) -> bytes:
    """What has arrived, ``b""`` at the end.

    Raises:
        BlockingIOError: nothing has.
        OSError: the connection is broken, or closed.
    """
    if sys.platform == "win32":
        with _Borrowed(sock) as borrowed:
            return borrowed.recv(max_bytes)
    return os.read(sock.fileno(), max_bytes)


def write_now(sock: trio.socket.SocketType, data: bytes) -> int:
    """How many bytes of the data the system has taken.

    Raises:
        BlockingIOError: none, since there is no room.
        OSError: the connection is broken, or closed.
    """
    if sys.platform == "win32":
        with _Borrowed(sock) as borrowed:
            return borrowed.send(data)
    return os.write(sock.fileno(), data)


if sys.platform == "win32":  # whose sockets are no files

    class _Borrowed:
        """The same socket as one of Python's, for a moment."""

        def __init__(self, sock: trio.socket.SocketType) -> None:
            self._socket = socket.socket(fileno=sock.fileno())
            self._socket.settimeout(0)

        def __enter__(self) -> socket.socket:
            return self._socket

        def __exit__(self, *_: object) -> None:
            self._socket.detach()
