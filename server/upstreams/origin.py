"""Where an upstream is, read from its base URL."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

import attrs

from server.errors import ConfigError

__all__ = ["Origin"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PRINTABLE: Final = re.compile(r"[!-~]+")


@attrs.frozen
class Origin:
    """The parts of a base URL."""

    url: str
    """The URL without credentials and without a slash at its end."""
    tls: bool
    host: str
    """The host's name or address, an IPv6 address without brackets."""
    port: int
    authority: str
    """The value of the ``host`` header: no default port, an IPv6 address in brackets."""
    prefix: str
    """The path that all targets are below: ``/v1``, or ``""``."""
    credentials: bytes | None = attrs.field(repr=False)
    """The value of an ``authorization`` header, where the URL holds a user's name."""

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Read a base URL: ``http`` or ``https``, a host, a port, a path; no query.

        Raises:
            ConfigError: it is something else.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _unusable(url, str(error)) from None
        if not _PRINTABLE.fullmatch(url):
            raise _unusable(url, "it must be printable ASCII (a host in another script is written xn--...)")
        if parts.scheme not in _DEFAULT_PORTS or not host:
            raise _unusable(url, "it must begin with http:// or https:// and a host")
        if port == 0:
            raise _unusable(url, "its port must be from 1 to 65535")
        if "?" in url or "#" in url:
            raise _unusable(url, "it must have no query and no fragment")
        authority = f"[{host}]" if ":" in host else host
        if port not in (None, _DEFAULT_PORTS[parts.scheme]):
            authority = f"{authority}:{port}"
        prefix = parts.path.rstrip("/")
        return cls(
            url=f"{parts.scheme}://{authority}{prefix}",
            tls=parts.scheme == "https",
            host=host,
            port=port or _DEFAULT_PORTS[parts.scheme],
            authority=authority,
            prefix=prefix,
            credentials=_credentials(parts),
        )


def _credentials(parts: SplitResult) -> bytes | None:
    """RFC 7617: the name and the password of the URL, joined and encoded."""
    if parts.username is None:
        return None
    joined = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
    return b"Basic " + b64encode(joined)


def _unusable(url: str, reason: str) -> ConfigError:
    shown = re.sub(r"//[^/]*@", "//...@", url)
    return ConfigError(f"upstream.url: {shown!r} cannot be used: {reason}")
