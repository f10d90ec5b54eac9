"""Which request headers a record may hold: those that are listed, and none that lets somebody in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from server.upstreams.base import Headers

__all__ = ["checked_header_names", "is_secret_header", "picked_headers"]

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")  # a token (RFC 9110, section 5.1)
_SECRET: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})


def is_secret_header(name: str) -> bool:
    """Whether a header is never captured, listed or not: credentials, cookies, and keys of any API."""
    name = name.lower()
    return name in _SECRET or "api-key" in name


def checked_header_names(names: Iterable[str]) -> frozenset[str]:
    """The allow-list in lower case.

    Raises:
        ValueError: a name is none, or that of a secret. One line that starts with the name's place, ``[0]: ...``.
    """
    checked = set()
    for place, name in enumerate(names):
        if not _NAME.match(name):
            raise ValueError(f"[{place}]: is {name!r}; it must be the name of a header, such as user-agent")
        if is_secret_header(name):
            raise ValueError(f'[{place}]: is "{name}"; credentials, cookies and API keys are never captured')
        checked.add(name.lower())
    return frozenset(checked)


def picked_headers(headers: Headers, allowed: Collection[str]) -> dict[str, str]:
    """The listed headers by their names in lower case; the values of repeated ones are joined with ``, ``."""
    picked: dict[str, str] = {}
    for raw_name, raw_value in headers if allowed else ():
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in allowed and value and not is_secret_header(name):
            picked[name] = f"{picked[name]}, {value}" if name in picked else value
    return picked
