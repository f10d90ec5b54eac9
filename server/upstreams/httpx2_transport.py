"""What the httpx2 upstream connects with: TLS and the proxy. Imported only where the package is."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import httpx2

from server.errors import ConfigError
from server.upstreams.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server.upstreams.origin import Origin

__all__ = ["transport_factory"]


def transport_factory(
    origin: Origin, ca_file: str | Path | None, proxy: str | None, *, http2: bool
) -> Callable[[], httpx2.AsyncHTTPTransport]:
    """A function that makes a transport for the upstream; it does no I/O and never raises.

    Args:
        origin: the upstream's.
        ca_file: PEM certificates to trust instead of the system's.
        proxy: the proxy's URL, or none to ask the environment.
        http2: whether HTTP/2 is offered in the TLS handshake.

    Raises:
        ConfigError: a file or URL cannot be used, or a package is not installed.
    """
    context = client_context(ca_file)
    chosen = _proxy(proxy or _proxy_of_environment(origin), ca_file)
    limits = httpx2.Limits(keepalive_expiry=None)

    def make_transport() -> httpx2.AsyncHTTPTransport:
        return httpx2.AsyncHTTPTransport(verify=context, http2=http2, limits=limits, proxy=chosen)

    return make_transport


def _proxy_of_environment(origin: Origin) -> str | None:
    """What ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``ALL_PROXY`` say, or the system on macOS and Windows."""
    proxies = getproxies()
    proxy = proxies.get("https" if origin.tls else "http") or proxies.get("all")
    if not proxy or proxy_bypass(origin.authority):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxy(url: str | None, ca_file: str | Path | None) -> httpx2.Proxy | None:
    if url is None:
        return None
    try:
        proxy = httpx2.Proxy(url)
    except (httpx2.InvalidURL, ValueError):
        scheme = url.partition(":")[0]
        raise ConfigError(
            f"upstream.proxy (or the environment's) begins with {scheme!r}; it must be http, https or socks5"
        ) from None
    if proxy.url.scheme == "https":
        # A context of its own: httpx2 sets what it offers in the context, right before each handshake.
        proxy.ssl_context = client_context(ca_file)
    if proxy.url.scheme.startswith("socks5") and importlib.util.find_spec("socksio") is None:
        raise ConfigError(
            f"the proxy {proxy.url} needs the package socksio, which is not installed: pip install 'httpx2[socks]'"
        )
    return proxy
