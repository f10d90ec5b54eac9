"""What ``callahead serve`` prints when it is ready: where it listens, and for a newcomer a command to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.config import Config

__all__ = ["welcome"]

_REQUEST = '{"model": "two-parallel-calls", "stream": true, "messages": [{"role": "user", "content": "Go."}]}'


def welcome(config: Config, upstream: str, host: str, port: int) -> str:
    """The text for standard output.

    Args:
        config: the configuration.
        upstream: the upstream's name.
        host: the address that is listened on.
        port: its port.
    """
    shown = f"[{host}]" if ":" in host else host
    lines = [f"callahead listens on http://{shown}:{port}/v1 and serves {upstream}"]
    if config.upstream.url is None and not config.replay.path:
        reachable = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # noqa: S104 - read, not bound
        lines += [
            "",
            "Try it: the tool_call_dispatch events arrive while the model is still talking.",
            "",
            f"  curl -N http://{reachable}:{port}/v1/chat/completions \\",
            "    -H 'Content-Type: application/json' \\",
            "    -H 'Callahead-Events: tool_call_dispatch, reasoning_dispatch' \\",
            f"    -d '{_REQUEST}'",
            "",
        ]
    return "\n".join(lines) + "\n"
