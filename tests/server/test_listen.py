"""The socket that is listened on."""

from __future__ import annotations

import contextlib
import socket

import pytest

from server.errors import ConfigError
from server.run import listen


def test_a_client_may_connect_before_anything_is_served():
    """The line that says "listens on" is true: who connects at once waits, and is not refused."""
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        socket.create_connection(listener.getsockname(), timeout=5).close()


def test_a_port_that_is_taken():
    """The error names the key, the address and what the system said."""
    with contextlib.closing(listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"server\.port: cannot listen on 127\.0\.0\.1:{port}: Address already"):
            listen("127.0.0.1", port)
