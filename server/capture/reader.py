"""Captured records, read back from the files of the sink ``file``."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from pipeline.chunks import parse_json
from server.errors import ConfigError

__all__ = ["is_capture", "read_capture"]

_FAMILY: Final = "callahead.capture."
_GZIP: Final = b"\x1f\x8b"
_TORN: Final = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a compressed file whose end is missing or broken raises."""


def is_capture(path: str | Path) -> bool:
    """Whether a file's first line is a captured record, compressed or not. False where it cannot be read."""
    try:
        return next(read_capture(path), None) is not None
    except ConfigError:
        return False


def read_capture(path: str | Path) -> Iterator[dict[str, Any]]:
    """Each record of a file in order, compressed or not.

    A last line that was torn, as a killed process leaves it, is passed over; so is the torn end of a compressed file.

    Raises:
        ConfigError: the file cannot be read, or a line of it is no captured record.
    """
    path = Path(path)
    try:
        with path.open("rb") as plain:
            is_compressed = plain.peek(len(_GZIP)).startswith(_GZIP)
            lines = gzip.GzipFile(fileobj=plain) if is_compressed else plain
            yield from _records(lines, path)
    except OSError as error:
        raise ConfigError(f"capture {path}: cannot be read: {error.strerror or error}") from error


def _records(lines: IO[bytes] | gzip.GzipFile, path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        try:
            line = lines.readline()
        except _TORN:
            return
        if not line:
            return
        number += 1
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            if not line.endswith(b"\n"):
                return
            raise ConfigError(f"capture {path}, line {number}: is not JSON: {error}") from error
        if not (isinstance(record, dict) and str(record.get("schema")).startswith(_FAMILY)):
            raise ConfigError(f'capture {path}, line {number}: is no record with the schema "{_FAMILY}v1"')
        yield record
