"""Content codings undone (RFC 9110, section 8.4.1), without delay and in bounded pieces.

``gzip`` and ``deflate`` are always known, ``br`` and ``zstd`` where the packages ``brotli`` (1.2 or newer) and
``zstandard`` are installed.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from server.errors import UpstreamError, UpstreamErrorKind

if TYPE_CHECKING:
    from server.upstreams.base import Headers

__all__ = ["MAX_CODINGS", "PIECE_BYTES", "ContentDecoder", "content_decoder", "undone_headers"]

PIECE_BYTES: Final = 64 * 1024
"""About the most that one step gives, so that a small input that stands for a huge output costs no memory."""
MAX_CODINGS: Final = 5
"""The most codings that are undone on top of each other; curl's limit."""

_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""The most that RFC 9659 allows in HTTP."""
_ZSTD_STEP_BYTES: Final = 128
"""zstandard cannot limit its output. A block of 128 KiB takes 4 bytes or more, so that so many stand for 4 MiB."""

_Input: TypeAlias = bytes | memoryview


class _Decoder(Protocol):
    """One coding. All methods may raise ``UpstreamError``."""

    def push(self, data: bytes, /) -> None:
        """More input, once ``pull`` has given all that it could."""
        ...

    def pull(self) -> bytes:
        """The next piece of the output, or ``b""`` if that takes more input."""
        ...

    def finish(self) -> None:
        """The input has ended."""
        ...


class ContentDecoder:
    """The codings of one response, the outermost first.

    Push what was read, then pull until nothing comes: every byte that the input stands for is given out at once.
    """

    def __init__(self, decoders: Sequence[_Decoder]) -> None:
        self._decoders = decoders

    def push(self, data: bytes) -> None:
        """More input, once ``pull`` has given all that it could."""
        self._decoders[0].push(data)

    def pull(self) -> bytes:
        """The next piece, of about ``PIECE_BYTES`` at most; ``b""`` if that takes more input.

        Raises:
            UpstreamError: the input makes no sense.
        """
        return self._pull(len(self._decoders) - 1)

    def finish(self) -> None:
        """The input has ended.

        Raises:
            UpstreamError: too early. No input at all is an empty body, and no error.
        """
        for decoder in self._decoders:
            decoder.finish()

    def _pull(self, index: int) -> bytes:
        decoder = self._decoders[index]
        while not (piece := decoder.pull()):
            if not index or not (more := self._pull(index - 1)):
                return b""
            decoder.push(more)
        return piece


def content_decoder(headers: Headers) -> ContentDecoder | None:
    """What undoes the codings that ``headers`` name; none if there are none, or one of them is unknown here."""
    value = b",".join(value for name, value in headers if name == b"content-encoding").lower()
    names = [name for each in value.split(b",") if (name := each.strip()) not in (b"", b"identity")]
    if not names or len(names) > MAX_CODINGS or not _DECODERS.keys() >= set(names):
        return None
    return ContentDecoder([_DECODERS[name]() for name in reversed(names)])


def undone_headers(decoder: ContentDecoder | None) -> tuple[bytes, ...]:
    """The headers that no longer hold once a decoder has undone the codings; none where there is no decoder."""
    return () if decoder is None else (b"content-encoding", b"content-length")


class _Members:
    """A decoder of streams that end by themselves, any number of them in a row (RFC 1952, section 2.2).

    Args:
        coding: its name.
        begin: makes a decompressor for a stream with this first byte.
        step: feeds a decompressor; returns some output and the rest of the input.
        failure: what the decompressor raises.
    """

    def __init__(
        self,
        coding: str,
        begin: Callable[[int], Any],
        step: Callable[[Any, _Input], tuple[bytes, _Input]],
        failure: type[Exception],
    ) -> None:
        self._coding = coding
        self._begin = begin
        self._step = step
        self._failure = failure
        self._stream: Any = None
        self._input: _Input = b""

    def push(self, data: bytes, /) -> None:
        self._input = data

    def pull(self) -> bytes:
        while self._stream is not None or self._input:
            if self._stream is None:
                self._stream = self._begin(self._input[0])
            try:
                piece, self._input = self._step(self._stream, self._input)
            except self._failure as error:
                raise _broken(self._coding, error) from error
            if self._stream.eof:
                self._stream = None
            if piece or not self._input:
                return piece
        return b""

    def finish(self) -> None:
        if self._stream is not None:
            raise _broken(self._coding, "it ends too early")


def _gzip() -> _Decoder:
    return _Members("gzip", lambda _: zlib.decompressobj(16 + zlib.MAX_WBITS), _inflate, zlib.error)


def _deflate() -> _Decoder:
    """RFC 1950 as RFC 9110 has it, or bare RFC 1951 as some servers have it.

    A bare stream that began like the zlib header (low bits 1000) would be a stored block whose padding is not zero,
    which nobody writes.
    """

    def begin(first: int) -> Any:
        is_wrapped = first & 0x0F == zlib.DEFLATED
        return zlib.decompressobj(zlib.MAX_WBITS if is_wrapped else -zlib.MAX_WBITS)

    return _Members("deflate", begin, _inflate, zlib.error)


def _inflate(stream: Any, data: _Input) -> tuple[bytes, _Input]:
    piece = stream.decompress(data, PIECE_BYTES)
    return piece, stream.unused_data if stream.eof else stream.unconsumed_tail


class _Zstandard:
    def __init__(self, zstandard: Any) -> None:
        context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        members = _Members(
            "zstd", lambda _: context.decompressobj(write_size=PIECE_BYTES), _zstd_step, zstandard.ZstdError
        )
        self._pull_step = members.pull
        self._output = memoryview(b"")
        self.push = members.push
        self.finish = members.finish

    def pull(self) -> bytes:
        if not self._output:
            self._output = memoryview(self._pull_step())
        piece = bytes(self._output[:PIECE_BYTES])
        self._output = self._output[PIECE_BYTES:]
        return piece


def _zstd_step(stream: Any, data: _Input) -> tuple[bytes, _Input]:
    view = memoryview(data)
    step = view[:_ZSTD_STEP_BYTES]
    return stream.decompress(step), view[len(step) - len(stream.unused_data) :]


class _Brotli:
    def __init__(self, brotli: Any) -> None:
        self._stream = brotli.Decompressor()
        self._failure = brotli.error
        self._input = b""
        self._began = False
        self._has_more = False

    def push(self, data: bytes, /) -> None:
        self._input = data
        self._began = True

    def pull(self) -> bytes:
        while True:
            data = b""
            if self._stream.can_accept_more_data() and not self._has_more:
                data, self._input = self._input, b""
                if not data:
                    return b""
            try:
                piece: bytes = self._stream.process(data, output_buffer_limit=PIECE_BYTES)
            except self._failure as error:
                raise _broken("br", error) from error
            self._has_more = len(piece) >= PIECE_BYTES
            if piece:
                return piece

    def finish(self) -> None:
        if self._began and not self._stream.is_finished():
            raise _broken("br", "it ends too early")


def _broken(coding: str, reason: object) -> UpstreamError:
    return UpstreamError(UpstreamErrorKind.PROTOCOL, f"the upstream's response is no valid {coding} data: {reason}")


def _decoders() -> dict[bytes, Callable[[], _Decoder]]:
    decoders: dict[bytes, Callable[[], _Decoder]] = {b"gzip": _gzip, b"x-gzip": _gzip, b"deflate": _deflate}
    brotli = _optional("brotli")
    if hasattr(brotli, "Decompressor") and hasattr(brotli.Decompressor, "can_accept_more_data"):
        decoders[b"br"] = lambda: _Brotli(brotli)
    zstandard = _optional("zstandard")
    if zstandard is not None:
        decoders[b"zstd"] = lambda: _Zstandard(zstandard)
    return decoders


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_DECODERS: Final = _decoders()
