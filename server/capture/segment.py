"""One file of captured records: whole lines only, whatever fails. All of it blocks."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final, Literal, TypeAlias

__all__ = ["AppendFailed", "Fsync", "Segment", "mend_segments"]

Fsync: TypeAlias = Literal["never", "batch", "close"]
"""When the kernel is told to bring a segment to the disk: not at all, after each batch, once it is finished."""

_BLOCK: Final = 64 * 1024


class AppendFailed(Exception):  # noqa: N818 - it says what happened to an append; the error is its cause
    """An append that failed; the segment must be closed.

    Attributes:
        error: what the operating system said.
        kept: how many of its bytes are in the segment all the same.
    """

    def __init__(self, error: OSError, kept: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.kept = kept


class Segment:
    """A file that was made for this process and is only ever appended to.

    It is locked (``flock``) while it is open, which tells others that its last line is not finished rather than torn.

    Args:
        folder: where it stands.
        suffix: the end of its name, ``.jsonl`` or ``.jsonl.gz``.
        opened: the time in its name, ``payloads-YYYYmmddTHHMMSS-N``; N tells apart those of one second.
        fsync: when it is brought to the disk.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path, suffix: str, opened: datetime, fsync: Fsync) -> None:
        self._fsync = fsync
        self.size = 0
        for number in count(1):
            self.path = folder / f"payloads-{opened:%Y%m%dT%H%M%S}-{number:03}{suffix}"
            try:
                self._file = os.open(
                    self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
                )
            except FileExistsError:
                continue
            break
        _lock(self._file)
        if fsync != "never":
            try:
                _sync_folder(folder)
            except OSError:
                self.close()
                raise

    def append(self, data: bytes, whole: Callable[[bytes], int]) -> None:
        """Write all of some data, or as much of it as is of use to a reader.

        Args:
            data: what to write.
            whole: how much of a piece from the start of ``data`` is worth keeping.

        Raises:
            AppendFailed: not all was written; what was torn has been cut off again.
        """
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
            if self._fsync == "batch":
                os.fsync(self._file)
        except OSError as error:
            # After a failed fsync nobody knows which pages were lost, so none of them is vouched for.
            kept = whole(data[:written]) if written < len(data) else 0
            raise AppendFailed(error, self._cut(kept)) from error
        self.size += written

    @property
    def is_gone(self) -> bool:
        """Whether somebody has deleted the file."""
        return os.fstat(self._file).st_nlink == 0

    def close(self) -> None:
        """Bring it to the disk as far as it was asked for, and close it; an empty one is removed.

        Raises:
            OSError: the disk did not take it.
        """
        try:
            if self.size == 0:
                self.path.unlink(missing_ok=True)
            elif self._fsync == "close":
                os.fsync(self._file)
        finally:
            os.close(self._file)

    def _cut(self, kept: int) -> int:
        """Cut the file off behind what is kept of the last append; how much that is."""
        try:
            os.ftruncate(self._file, self.size + kept)
            if self._fsync == "batch":
                os.fsync(self._file)
        except OSError:
            # What is torn stays the last of its file, where readers pass over it.
            kept = 0 if self._fsync == "batch" else kept
        self.size += kept
        return kept


def mend_segments(folder: Path) -> dict[Path, int]:
    """Cut off the torn last line of each plain segment that a killed process left behind.

    Compressed ones stay as they are: each batch in them is a member of its own, so a torn one hides no other.

    Returns:
        For each mended segment how many bytes were cut off.
    """
    mended = {}
    for path in sorted(folder.glob("payloads-*.jsonl")):
        with contextlib.suppress(OSError):  # not ours, not there any more: none of this stops a start
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if torn := _torn(file):
                    os.ftruncate(file, os.fstat(file).st_size - torn)
                    mended[path] = torn
            finally:
                os.close(file)
    return mended


def _torn(file: int) -> int:
    """The bytes behind the last line end; 0 where somebody is still writing."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b"\n" or not _lock(file):
        return 0
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        line_end = os.pread(file, end - start, start).rfind(b"\n")
        if line_end >= 0:
            return size - (start + line_end + 1)
        end = start
    return size


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another, or the file system has no locks
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Make a new file's name as durable as its content."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
