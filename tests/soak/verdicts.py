"""What a client has seen, and the outcomes that a case allows."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Protocol

import attrs

__all__ = [
    "Anything",
    "CutOff",
    "ErrorFrame",
    "Expectation",
    "Folded",
    "Left",
    "Nothing",
    "Passed",
    "Refused",
    "Seen",
    "Whole",
]


@attrs.define(eq=False)
class Seen:
    """One response as far as it came."""

    status: int | None = None
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytearray = attrs.field(factory=bytearray)
    end: str = "none"
    """``whole``, ``eof`` (closed or reset too early), ``not HTTP``, ``left`` (the client went), ``none`` (not waited for)."""

    @property
    def code(self) -> str | None:
        """The code of the error that it says, in its body or in its last frame."""
        found = re.search(rb'\{"error":\{"message":.*"code":"(\w+)"\}\}\s*\Z', bytes(self.body[-4000:]))
        return found[1].decode() if found else None

    def __str__(self) -> str:
        return f"{self.status}, {self.end}, {len(self.body)} bytes, ending in {bytes(self.body[-160:])!r}"


class Expectation(Protocol):
    """One outcome that is allowed."""

    @property
    def label(self) -> str:
        """For the table."""
        ...

    @property
    def outcomes(self) -> frozenset[str]:
        """What the request's log line may then say."""
        ...

    def misfit(self, seen: Seen) -> str | None:
        """Why the outcome is not this one, none where it is."""
        ...


@attrs.frozen
class Whole:
    """A stream from its first byte to its end, nothing more and nothing less."""

    frames: list[bytes]
    is_loose: bool = False
    """Line ends may differ; see ``_canonical``."""
    events: str | None = None
    """What ``Callahead-Events`` must say."""
    outcomes: frozenset[str] = frozenset({"ok"})
    label: ClassVar[str] = "whole"

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if (seen.status, seen.end) != (200, "whole"):
            return f"no whole response: {seen}"
        if seen.headers.get("callahead-events") != self.events:
            return f"the events in force are {seen.headers.get('callahead-events')}, not {self.events}"
        return _difference(b"".join(self.frames), bytes(seen.body), is_loose=self.is_loose)


@attrs.frozen
class ErrorFrame:
    """What had come, one error frame, the end."""

    frames: list[bytes]
    code: str
    is_loose: bool = False
    may_lose: bool = False
    """A reset may overtake what was sent before it."""

    @property
    def label(self) -> str:
        """See ``Expectation``."""
        return f"error frame {self.code.removeprefix('upstream_')}"

    @property
    def outcomes(self) -> frozenset[str]:
        """See ``Expectation``."""
        return frozenset({self.code})

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if (seen.status, seen.end) != (200, "whole"):
            return f"no whole response: {seen}"
        before, mark, after = bytes(seen.body).rpartition(b'data: {"error":{"message":')
        if not mark or not after.endswith(b"\n\n") or after.count(b"\n") != 2:
            return f"no error frame at the end: {seen}"
        if seen.code != self.code:
            return f"the error is {seen.code}, not {self.code}"
        expected = b"".join(self.frames)
        if self.may_lose:
            return _beginning(self.frames, attrs.evolve(seen, body=bytearray(before)))
        return _difference(expected, before, is_loose=self.is_loose)


@attrs.frozen
class Refused:
    """An error in place of a response."""

    status: int
    code: str
    said: int | None = None
    """The code in the body, where the upstream's own stands there."""

    @property
    def label(self) -> str:
        """See ``Expectation``."""
        return f"{self.status} {self.code.removeprefix('upstream_')}"

    @property
    def outcomes(self) -> frozenset[str]:
        """See ``Expectation``."""
        return frozenset({self.code})

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if (seen.status, seen.end) != (self.status, "whole"):
            return f"no whole {self.status}: {seen}"
        try:
            error = json.loads(seen.body)["error"]
        except (ValueError, LookupError, TypeError):
            return f"no error object: {seen}"
        if not set(error) >= {"message", "type", "param", "code"} or error["code"] != (self.said or self.code):
            return f"the error is {error}, not {self.code}"
        return None


@attrs.frozen
class Passed:
    """The upstream's response as it is."""

    status: int
    body: bytes

    @property
    def label(self) -> str:
        """See ``Expectation``."""
        return f"{self.status} passed on"

    @property
    def outcomes(self) -> frozenset[str]:
        """See ``Expectation``."""
        return frozenset({"ok" if self.status < 400 else "upstream_status"})

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if (seen.status, seen.end) != (self.status, "whole"):
            return f"no whole {self.status}: {seen}"
        return _difference(self.body, bytes(seen.body))


@attrs.frozen
class Folded:
    """One completion."""

    completion: dict[str, Any]
    label: ClassVar[str] = "folded"
    outcomes: ClassVar[frozenset[str]] = frozenset({"ok"})

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if (seen.status, seen.end) != (200, "whole"):
            return f"no whole response: {seen}"
        found = json.loads(seen.body)
        return None if found == self.completion else f"folded to {found}, not {self.completion}"


@attrs.frozen
class Left:
    """The client went; what it had is the beginning of what was right."""

    frames: list[bytes] | None
    """None: a completion, of which nobody knows the bytes."""
    outcomes: frozenset[str] = frozenset({"client_left", "ok"})
    label: ClassVar[str] = "left"

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if seen.end == "whole" and seen.status != 200:
            return f"an answer: {seen}"
        if self.frames is None:
            return None
        return _beginning(self.frames, seen)


@attrs.frozen
class CutOff:
    """A response that was begun and is broken off, so that it does not look whole."""

    frames: list[bytes]
    outcomes: frozenset[str]
    label: ClassVar[str] = "cut off"

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        if seen.status is None or seen.end != "eof":
            return f"not cut off: {seen}"
        return _beginning(self.frames, seen)


@attrs.frozen
class Nothing:
    """A connection that is closed, at most with a word of the server's own (no application was asked)."""

    statuses: frozenset[int] = frozenset({400})
    outcomes: frozenset[str] = frozenset()
    label: ClassVar[str] = "closed"

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        is_closed = seen.end in ("whole", "eof", "left")
        is_fitting = is_closed and (seen.status is None or seen.status in self.statuses)
        return None if is_fitting else f"not closed: {seen}"


@attrs.frozen
class Anything:
    """Whatever comes of nonsense, as long as nobody calls it a bug of the gateway."""

    outcomes: frozenset[str]
    label: ClassVar[str] = "something"

    def misfit(self, seen: Seen) -> str | None:
        """See ``Expectation``."""
        return f"an internal error: {seen}" if seen.status == 500 else None


def _beginning(frames: list[bytes], seen: Seen) -> str | None:
    """Why a body is not the beginning of some frames."""
    whole, part = _canonical(b"".join(frames)), _canonical(bytes(seen.body))
    return None if whole.startswith(part.rstrip(b"\r\n")) else f"no beginning of what was sent: {seen}"


def _canonical(body: bytes) -> bytes:
    """The body without the one freedom that there is, in streams whose lines end in CR and LF.

    Where a read ends between the last two bytes of a frame, the LF belongs to the next frame: it follows behind that
    one's events, and goes with it where it is dropped.
    """
    return re.sub(rb"\n{3,}", b"\n\n", re.sub(rb"\r\n+", b"\r", body))


def _difference(expected: bytes, found: bytes, *, is_loose: bool = False) -> str | None:
    if is_loose:
        expected, found = _canonical(expected), _canonical(found)
    if expected == found:
        return None
    at = next(
        (at for at, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    around = slice(max(0, at - 60), at + 200)
    return f"differs at byte {at} of {len(expected)}: {found[around]!r}, not {expected[around]!r}"
