"""TLS over a stream: the context that checks certificates, the handshake, the records."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from server.errors import ConfigError, UpstreamError, UpstreamErrorKind

if TYPE_CHECKING:
    from server.upstreams.streams import ByteStream

__all__ = ["TlsStream", "client_context"]

_PIECE_BYTES: Final = 64 * 1024
"""How much is encrypted before it is sent."""
_RECORD_BYTES: Final = 16 * 1024
"""RFC 8446, section 5.1."""


def client_context(ca_file: str | Path | None = None) -> ssl.SSLContext:
    """Certificates and host names are checked, against the system's trust store or against ``ca_file`` alone.

    Args:
        ca_file: PEM certificates to trust instead of the system's.

    Raises:
        ConfigError: the file cannot be read or holds no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"upstream.ca_file: no PEM certificates in {str(ca_file)!r}: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    # A handshake in the middle of a request would need reads in order to write.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class TlsStream:
    """A ``ByteStream`` inside another.

    ``trio.SSLStream`` is not enough here: after a send that was cancelled it refuses to receive, it cannot receive
    without waiting, and it gives one record a call, where this one gives all records that one read brought. Nothing is
    sent on receiving: the answer to a key update goes out before the next data does, which RFC 8446, section 4.6.3,
    allows. There is no closing alert in either direction: HTTP's own framing tells whether a message is whole.

    Args:
        stream: what carries the records; owned from here on.
        context: see ``client_context``.
        host: the name or address that the certificate must be for.
    """

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, host: str) -> None:
        self._stream = stream
        self._host = host
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._records = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._failure: ssl.SSLError | None = None
        self._ended = False

    async def do_handshake(self) -> None:
        """Shake hands and check the certificate; before anything else. Checkpoints.

        Raises:
            UpstreamError: the certificate is not trusted, is for another host, or the server speaks no TLS.
        """
        try:
            while not self._shake_hands():
                await self._flush()
                self._put(await self._stream.receive_some(_PIECE_BYTES))
            await self._flush()
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or _words(error)
            raise UpstreamError(UpstreamErrorKind.TLS, f"no TLS connection to {self._host}: {reason}") from error
        except trio.BrokenResourceError as error:
            raise UpstreamError(UpstreamErrorKind.TLS, f"no TLS connection to {self._host}: {error}") from error

    async def send_all(self, data: bytes, /) -> None:
        """See ``ByteStream``."""
        rest = memoryview(data)
        while True:
            try:
                self._records.write(rest[:_PIECE_BYTES])
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(_words(error)) from error
            await self._flush()
            rest = rest[_PIECE_BYTES:]
            if not rest:
                return

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """See ``ByteStream``; ``max_bytes`` counts encrypted bytes."""
        try:
            data = self._decrypted()
        except trio.WouldBlock:
            return await self._receive_records(max_bytes)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return data

    def receive_nowait(self, max_bytes: int, /) -> bytes:
        """See ``ByteStream``. Session tickets, which servers send unasked, are taken in on the way."""
        try:
            return self._decrypted()
        except trio.WouldBlock:
            self._put(self._stream.receive_nowait(max_bytes))
            return self._decrypted()

    def close(self) -> None:
        """See ``ByteStream``."""
        self._stream.close()

    def _shake_hands(self) -> bool:
        try:
            self._records.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _flush(self) -> None:
        await self._stream.send_all(self._outgoing.read())

    async def _receive_records(self, max_bytes: int) -> bytes:
        while True:
            self._put(await self._stream.receive_some(max_bytes))
            with suppress(trio.WouldBlock):
                return self._decrypted()

    def _put(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _decrypted(self) -> bytes:
        """What the whole records at hand hold; ``b""`` at the end."""
        pieces: list[bytes] = []
        try:
            while not self._ended and self._failure is None:
                piece = self._records.read(_RECORD_BYTES)
                pieces.append(piece)
                self._ended = not piece
        except ssl.SSLWantReadError:
            if not pieces:
                raise trio.WouldBlock from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._ended = True
        except ssl.SSLError as error:
            self._failure = error
        if not pieces and self._failure is not None:
            raise trio.BrokenResourceError(_words(self._failure)) from self._failure
        return b"".join(pieces)


def _words(error: ssl.SSLError) -> str:
    """``wrong version number`` for ``[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)``."""
    return (error.reason or str(error)).lower().replace("_", " ")
