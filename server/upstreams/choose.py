"""From the config to the upstream that it names. Each implementation is imported only where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.upstreams.base import Upstream

if TYPE_CHECKING:
    from server.config import Config

__all__ = ["make_upstream"]


def make_upstream(config: Config) -> Upstream:
    """The upstream of a config: a server, recordings, or the bundled recordings where it names neither.

    Raises:
        ConfigError: a recording cannot be read, or the ``httpx2`` package is missing.
    """
    upstream = config.upstream
    if upstream.url is None:
        from server.recordings import BUNDLED_TOKENS_PER_SECOND, bundled_recordings  # noqa: PLC0415 - only where it is used
        from server.upstreams.replay import ReplayOptions, ReplayUpstream  # noqa: PLC0415 - only where it is used

        if config.replay.path:
            return ReplayUpstream(ReplayOptions(tuple(config.replay.path), config.replay.tokens_per_second))
        paths = tuple(str(path) for path in bundled_recordings())
        return ReplayUpstream(ReplayOptions(paths, config.replay.tokens_per_second or BUNDLED_TOKENS_PER_SECOND))
    if upstream.client == "httpx2":
        from server.upstreams.httpx2 import Httpx2Options, Httpx2Upstream  # noqa: PLC0415 - only where it is used

        return Httpx2Upstream(
            Httpx2Options(
                url=upstream.url,
                connect_timeout=upstream.connect_timeout,
                max_connections=upstream.max_connections,
                keep_alive_timeout=upstream.keep_alive_timeout,
                ca_file=upstream.ca_file,
                proxy=upstream.proxy,
                http2=upstream.http2,
            )
        )
    from server.upstreams.http import HttpUpstream, HttpUpstreamOptions  # noqa: PLC0415 - only where it is used

    return HttpUpstream(
        HttpUpstreamOptions(
            url=upstream.url,
            connect_timeout=upstream.connect_timeout,
            max_connections=upstream.max_connections,
            keep_alive_timeout=upstream.keep_alive_timeout,
            ca_file=upstream.ca_file,
        )
    )
