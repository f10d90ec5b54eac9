"""What a config can say: one class a section, one attribute a key, each with its default.

Timeouts are seconds, as plain numbers; 0 = no limit, where an attribute does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

from pipeline.plan import DEFAULT_STAGES
from pipeline.sse import MAX_FRAME_BYTES
from pipeline.stage import EventStyle
from server.config_values import Rule
from server.errors import ConfigError

__all__ = [
    "EventPolicy",
    "EventSettings",
    "LogSettings",
    "PipelineSettings",
    "ReplaySettings",
    "ServerSettings",
    "UpstreamSettings",
]


def _has_host(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in schemes and bool(parts.hostname) and port != 0 and " " not in url


def _is_base_url(url: str) -> bool:
    return _has_host(url, ("http", "https")) and "?" not in url and "#" not in url


def _without_slash(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/")


Seconds: TypeAlias = Annotated[
    float, Rule("it must be a number of seconds, 0 or more (0 = no limit)", lambda found: found >= 0)
]
Duration: TypeAlias = Annotated[float, Rule("it must be a number of seconds, 0 or more", lambda found: found >= 0)]
Rate: TypeAlias = Annotated[float, Rule("it must be a number, 0 or more", lambda found: found >= 0)]
Interval: TypeAlias = Annotated[
    float,
    Rule("it must be 0 (none) or a number of seconds, 10 or more", lambda found: found == 0 or found >= 10),  # noqa: PLR2004 - the rule names it
]
ByteLimit: TypeAlias = Annotated[int, Rule("it must be a number of bytes, 1 or more", lambda found: found >= 1)]
Count: TypeAlias = Annotated[int, Rule("it must be an integer, 0 or more (0 = no limit)", lambda found: found >= 0)]
Workers: TypeAlias = Annotated[
    int,
    Rule("it must be an integer from 1 to 256", lambda found: 1 <= found <= 256),  # noqa: PLR2004 - the rule names it
]
Port: TypeAlias = Annotated[
    int, Rule("it must be an integer from 0 to 65535 (0 = any free port)", lambda found: 0 <= found <= 65535)  # noqa: PLR2004 - TCP's range
]
Host: TypeAlias = Annotated[str, Rule("it must be a host name or address", lambda found: " " not in found)]
BaseUrl: TypeAlias = Annotated[
    str,
    Rule("it must be an http:// or https:// URL without query, such as http://127.0.0.1:8000/v1", _is_base_url),
]
ProxyUrl: TypeAlias = Annotated[
    str,
    Rule(
        "it must be a proxy's URL, such as http://127.0.0.1:3128",
        lambda found: _has_host(found, ("http", "https", "socks5", "socks5h")),
    ),
]
EventPolicy: TypeAlias = Literal["never", "request", "always"]
"""Who receives a side event: nobody, who asks for it in the request, everybody."""


@attrs.frozen
class ServerSettings:
    """``[server]``: the clients' side."""

    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: Port = 8080
    """The port to listen on; 0 = any free one."""
    workers: Workers = 1
    """Processes that share the port."""
    max_streams: Count = 0
    """Completions at a time in each process; beyond it the answer is 503 with ``Retry-After``."""
    drain_timeout: Duration = 30.0
    """How long streams may go on once the process was told to stop; 0 = not at all."""
    keep_alive_timeout: Duration = 75.0
    """How long a client's connection may idle between two requests."""
    write_timeout: Seconds = 30.0
    """A client that takes nothing for so long is cut off."""
    max_body_bytes: ByteLimit = 32 * 1024 * 1024
    """The longest request body."""
    body_timeout: Seconds = 60.0
    """How long a request body may take to arrive."""
    keepalive_interval: Interval = 0.0
    """Seconds of silence after which a stream carries a comment; 0 = never, else 10 or more."""


@attrs.frozen
class UpstreamSettings:
    """``[upstream]``: the inference server. Limits on waiting hold for replayed streams as well."""

    url: BaseUrl | None = attrs.field(default=None, converter=_without_slash)
    """The base URL, which usually ends in ``/v1``; kept without a slash at its end."""
    client: Literal["http", "httpx2"] = "http"
    """The implementation: ``http`` is the fast one, ``httpx2`` knows proxies and HTTP/2."""
    connect_timeout: Seconds = 10.0
    """From the start of the connection to the end of its TLS handshake."""
    first_chunk_timeout: Seconds = 0.0
    """From the request to the first chunk."""
    idle_timeout: Seconds = 0.0
    """The longest silence between two frames."""
    total_timeout: Seconds = 0.0
    """From the request to the end of the stream."""
    unary: Literal["fold", "forward"] = "fold"
    """How a request without ``"stream": true`` is answered: ``fold`` asks the upstream to stream and folds the answer,
    ``forward`` sends the request on as it is."""
    api_key_env: str | None = None
    """The environment variable that holds the key for the upstream."""
    max_connections: Count = 0
    """Connections at a time; 0 = no limit."""
    keep_alive_timeout: Duration = 15.0
    """How long a connection is kept for the next request."""
    ca_file: Path | None = None
    """PEM certificates to trust instead of the system's. Relative to the config file that names it."""
    proxy: ProxyUrl | None = None
    """The proxy's URL; only for the client ``httpx2``."""
    http2: bool = True
    """Whether HTTP/2 is spoken where the upstream offers it; only for the client ``httpx2``."""

    def api_key(self, environ: Mapping[str, str]) -> str | None:
        """The upstream's key, or none where clients bring their own.

        Raises:
            ConfigError: ``api_key_env`` names a variable that is not set.
        """
        if self.api_key_env is None:
            return None
        if key := environ.get(self.api_key_env):
            return key
        raise ConfigError(f"upstream.api_key_env: names the environment variable {self.api_key_env}, which is not set")


@attrs.frozen
class ReplaySettings:
    """``[replay]``: recorded streams in place of an upstream."""

    path: tuple[Path, ...] = ()
    """Files and folders, as one string or a list. Relative to the config file that names them."""
    tokens_per_second: Rate = 0.0
    """The pace; 0 = the upstream's default."""


@attrs.frozen
class EventSettings:
    """``[events]``: who receives side events, and how they look."""

    tool_call_dispatch: EventPolicy = "request"
    reasoning_dispatch: EventPolicy = "request"
    style: EventStyle = EventStyle.NAMED
    """The style of a client that names none."""

    @property
    def policies(self) -> dict[str, EventPolicy]:
        """For each event who receives it."""
        return {"tool_call_dispatch": self.tool_call_dispatch, "reasoning_dispatch": self.reasoning_dispatch}


@attrs.frozen
class PipelineSettings:
    """``[pipeline]``: what is done to a stream."""

    stages: tuple[str, ...] = DEFAULT_STAGES
    """Names in running order."""
    repairs: tuple[str, ...] = ()
    """Repairs that run before the stages, as one string or a list: their names, or ``recommended``."""
    reasoning_parser: str | None = None
    """The format of the model's thoughts, where its server leaves them in the text."""
    tool_call_parser: str | None = None
    """The format of the model's calls, where its server leaves them in the text."""
    join: bool = False
    """Whether runs of neighbouring pure stages share one task: less CPU, nothing else differs."""
    max_frame_bytes: ByteLimit = MAX_FRAME_BYTES
    """The longest frame that is taken from an upstream."""


@attrs.frozen
class LogSettings:
    """``[log]``: lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
