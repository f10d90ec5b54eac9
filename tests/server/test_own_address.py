"""A gateway whose upstream is the gateway itself does not start."""

from __future__ import annotations

import pytest

from server.config import load_config
from server.errors import ConfigError
from server.run import is_own_address, serve


def test_serving_itself_is_refused():
    """The one line names the key, the address and what to do, before anything listens."""
    config = load_config(None, {}, {"upstream": "http://localhost:8080/v1"})
    with pytest.raises(ConfigError) as refused:
        serve(config)
    assert str(refused.value) == (
        "upstream.url: leads to 127.0.0.1:8080, where Callahead itself listens; change server.port"
    )


@pytest.mark.parametrize(
    ("url", "host", "port", "is_own"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1", 8080, True),
        ("http://localhost:8080/v1", "0.0.0.0", 8080, True),
        ("http://127.0.0.1:8080", "::", 8080, True),
        ("http://[::1]:8080/v1", "::1", 8080, True),
        ("http://gateway/v1", "gateway", 80, True),
        ("https://gateway/v1", "gateway", 443, True),
        ("http://127.0.0.1:8000/v1", "127.0.0.1", 8080, False),
        ("http://127.0.0.1:8080/v1", "127.0.0.1", 0, False),
        ("http://10.0.0.1:8080/v1", "0.0.0.0", 8080, False),
        ("http://127.0.0.1:8080/v1", "10.0.0.1", 8080, False),
        ("http://127.0.0.1:8080/v1", "::1", 8080, False),
    ],
)
def test_own_addresses(url, host, port, is_own):
    """Host and port must both be the gateway's; another machine's port 8080 is another server."""
    assert is_own_address(url, host, port) is is_own
