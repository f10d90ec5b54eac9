"""The sink ``file``: JSON lines in a folder, rolled by size and age."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

import attrs
import structlog
import trio

from server.capture.segment import AppendFailed, Fsync, Segment, mend_segments
from server.capture.sink import Sink, SinkError
from server.settings import ByteLimit, Seconds

__all__ = ["FileSink", "FileSinkOptions"]

_log = structlog.get_logger("callahead")
_GZIP_LEVEL: Final = 6


@attrs.frozen
class FileSinkOptions:
    """``[capture.file]``."""

    path: Path = Path("captures")
    """The folder; made if it is not there. Relative to the config file that names it."""
    gzip: bool = False
    """Whether the files are compressed, each batch as a gzip member of its own."""
    roll_bytes: ByteLimit = 256 * 1024 * 1024
    """The size that a file does not exceed, if no single record does."""
    roll_seconds: Seconds = 3600.0
    """The age at which a file is followed by another, once there is something to write; 0 = any."""
    fsync: Fsync = "close"
    """When the disk must have what was written: ``never``, after each ``batch``, or at a file's ``close``."""


class FileSink(Sink):
    """Writes records to JSON-lines files, rolled by size and age.

    Each process start begins a new file, ``payloads-YYYYmmddTHHMMSS-N.jsonl`` (time in UTC; with ``.gz`` where it is
    compressed), readable by its owner only. A batch that fails is lost but for its whole lines that reached the file;
    the next one is tried on a new file, so a disk that was full is used again once it has room.

    Args:
        options: as ``[capture.file]`` gives them.

    Raises:
        OSError: the folder cannot be made, or not be written to.
    """

    Options: ClassVar[type[FileSinkOptions]] = FileSinkOptions

    def __init__(self, options: FileSinkOptions) -> None:
        super().__init__(options)
        self._options = options
        self._segment: Segment | None = None
        self._opened = 0.0
        self._limiter = trio.CapacityLimiter(1)
        self._lock = threading.Lock()  # a write that was cancelled may still be running in its thread
        self._closed = False
        _make_folder(options.path)
        if not os.access(options.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(options.path))
        for path, torn in mend_segments(options.path).items():
            _log.warning("a torn line was cut off a captured file", file=str(path), bytes=torn)

    async def write(self, lines: Sequence[bytes]) -> None:
        """Append the lines, from a thread. Checkpoints; a cancellation leaves the thread to finish by itself.

        Raises:
            SinkError: not all of them were written.
        """
        now = trio.current_time()
        await trio.to_thread.run_sync(self._write, lines, now, abandon_on_cancel=True, limiter=self._limiter)

    async def aclose(self) -> None:
        """Close the file, from a thread. Checkpoints; a cancellation leaves the thread to finish by itself."""
        await trio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    def _write(self, lines: Sequence[bytes], now: float) -> None:
        with self._lock:
            written = 0
            for run in _runs(lines, self._options.roll_bytes):
                try:
                    self._append(run, now)
                except AppendFailed as failed:
                    path = self._end_segment()
                    if not self._options.gzip:
                        written += _line_count(run, failed.kept)
                    raise SinkError.from_os(failed.error, str(path), written=written) from failed
                except OSError as error:
                    raise SinkError.from_os(error, str(self._options.path), written=written) from error
                written += len(run)

    def _append(self, run: Sequence[bytes], now: float) -> None:
        data = b"\n".join(run) + b"\n"
        if self._options.gzip:
            data = gzip.compress(data, _GZIP_LEVEL)
        self._segment_for(len(data), now).append(data, _no_part if self._options.gzip else _whole_lines)

    def _segment_for(self, size: int, now: float) -> Segment:
        """The open segment, or a new one where that is too full, too old, deleted or not there."""
        options = self._options
        if (segment := self._segment) is not None and (
            segment.size + size > options.roll_bytes
            or (options.roll_seconds and now - self._opened >= options.roll_seconds)
            or segment.is_gone
        ):
            self._end_segment()
        if self._segment is None:
            if self._closed:
                raise OSError("the sink is closed")
            _make_folder(options.path)
            suffix = ".jsonl.gz" if options.gzip else ".jsonl"
            self._segment = Segment(options.path, suffix, datetime.now(UTC), options.fsync)
            self._opened = now
        return self._segment

    def _end_segment(self) -> Path | None:
        segment, self._segment = self._segment, None
        if segment is None:
            return None
        try:
            segment.close()
        except OSError as error:
            _log.error("a captured file may not be whole", file=str(segment.path), error=error.strerror)
        return segment.path

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._end_segment()


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _runs(lines: Sequence[bytes], limit: int) -> Iterator[Sequence[bytes]]:
    """The lines in runs that fit a file each, one line at least."""
    start = size = 0
    for place, line in enumerate(lines):
        size += len(line) + 1
        if size > limit and place > start:
            yield lines[start:place]
            start, size = place, len(line) + 1
    yield lines[start:]


def _whole_lines(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _no_part(data: bytes) -> int:  # noqa: ARG001 - a torn member is of no use, whatever is in it
    return 0


def _line_count(lines: Sequence[bytes], size: int) -> int:
    """How many whole lines so many bytes are."""
    count = 0
    while size > 0:
        size -= len(lines[count]) + 1
        count += 1
    return count
