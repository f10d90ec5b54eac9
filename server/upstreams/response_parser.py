"""One HTTP/1.1 response from bytes in any cut (RFC 9112). Without I/O; httptools does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httptools

from server.errors import UpstreamError, UpstreamErrorKind

if TYPE_CHECKING:
    from server.upstreams.base import Headers

__all__ = ["MAX_HEAD_BYTES", "ResponseParser"]

MAX_HEAD_BYTES: Final = 64 * 1024
"""The most that is read without a byte of body in it: the head, the trailers, the framing of chunks."""

_BODILESS: Final = frozenset({204, 304})
_LONGEST_SHOWN: Final = 40


class ResponseParser:
    """Feed it what was read until ``done`` or ``failure``.

    Informational responses (1xx) are passed over. A fault is kept in ``failure``, not raised, so that the body before
    it can be given out first.

    Args:
        bodiless: the request was a ``HEAD``.
    """

    def __init__(self, *, bodiless: bool = False) -> None:
        self.status = 0
        """The status, once the head is whole."""
        self.headers: Headers = []
        """All header lines, names in lower case."""
        self.has_begun = False
        """Whether any byte has come."""
        self.head_done = False
        """Whether status and headers are there."""
        self.done = False
        """Whether the response is whole."""
        self.failure: UpstreamError | None = None
        """What is wrong with it."""
        self.bodiless = bodiless
        """Whether the response has no body whatever its headers say."""
        self._body: list[bytes] = []
        self._barren_bytes = 0
        self._ends_with_connection = False
        self._keep_alive = False
        self._has_leftover = False
        self._parser = httptools.HttpResponseParser(self)

    def has_news(self) -> bool:
        """Whether ``take_body`` can be called without reading more."""
        return bool(self._body) or self.done or self.failure is not None

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent on the connection: whole, to be kept, and nothing came after it."""
        return self.done and self._keep_alive and not self._has_leftover

    def feed(self, data: bytes) -> None:
        """What was read; ``b""`` for the end of the connection."""
        if not data:
            self._end_of_connection()
            return
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._stop(data, error)
        if self._body or self.done:
            self._barren_bytes = 0
            return
        self._barren_bytes += len(data)
        if self._barren_bytes > MAX_HEAD_BYTES:
            what = "trailers or chunk framing without data" if self.head_done else "status line and headers"
            self._fail(UpstreamErrorKind.PROTOCOL, f"the upstream sent more than {MAX_HEAD_BYTES} bytes of {what}")

    def take_body(self) -> bytes:
        """All of the body that has come since the last call; ``b""`` at the end.

        Raises:
            UpstreamError: the response is broken, and all that came before the fault has been given out.
        """
        if self._body:
            body = b"".join(self._body)
            self._body.clear()
            return body
        if self.failure is not None:
            raise self.failure
        return b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools, for trailers too, which are dropped."""
        if not self.head_done:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by httptools, also for 1xx, and for a second response, which nobody asked for."""
        if self.head_done:
            return
        status = self._parser.get_status_code()
        if status < 200:  # noqa: PLR2004 - HTTP's class of informational responses
            self.headers.clear()
            return
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and [coding.strip().lower() for coding in codings] != [b"chunked"]:
            shown = b", ".join(codings).decode("latin-1")
            self._fail(
                UpstreamErrorKind.PROTOCOL, f"the upstream's transfer-encoding is {shown!r}; only 'chunked' is known"
            )
            return
        self.status = status
        self.head_done = True
        self._keep_alive = self._parser.should_keep_alive()
        self.bodiless = self.bodiless or status in _BODILESS
        self.done = self.bodiless
        self._ends_with_connection = not codings and all(name != b"content-length" for name, _ in self.headers)

    def on_message_begin(self) -> None:
        """Called by httptools: the first byte of a message, which must not be a second one."""
        self._has_leftover = self.done

    def on_body(self, body: bytes) -> None:
        """Called by httptools."""
        if self.done:
            self._has_leftover = True
        elif self.head_done:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Called by httptools, also for 1xx."""
        self.done = self.head_done

    def _stop(self, data: bytes, error: Exception) -> None:
        """Httptools refuses what came. After the response's end that only costs the connection."""
        if self.done:
            self._has_leftover = True
        elif isinstance(error, httptools.HttpParserUpgrade):
            self._fail(UpstreamErrorKind.PROTOCOL, "the upstream switched to another protocol, unasked (status 101)")
        elif self.head_done:
            self._fail(UpstreamErrorKind.PROTOCOL, f"the upstream's response body is not HTTP/1.1: {error}")
        else:
            logged = f"the upstream's answer is not HTTP/1.1: {error}"
            self._fail(UpstreamErrorKind.PROTOCOL, f"{logged}; it came with {data[:_LONGEST_SHOWN]!r}", logged)

    def _end_of_connection(self) -> None:
        self._keep_alive = False
        if self.head_done and self._ends_with_connection:
            self.done = True
        elif not self.done:
            where = "in the middle of its response" if self.has_begun else "without an answer"
            self._fail(UpstreamErrorKind.RESET, f"the upstream closed the connection {where}")

    def _fail(self, kind: UpstreamErrorKind, message: str, logged: str | None = None) -> None:
        if self.failure is None:
            self.failure = UpstreamError(kind, message, logged=logged)
