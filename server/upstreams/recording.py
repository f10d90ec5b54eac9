"""Recorded streams: a response's body in a file.

``.sse`` holds the body as it was recorded. ``.jsonl`` holds the JSON of one chunk a line, where the framing was not
kept: each line becomes a frame, and ``data: [DONE]`` ends them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from pipeline.chunks import parse_json
from pipeline.decode import item_of
from pipeline.items import Chunk
from pipeline.sse import SseDecoder, sse_frame
from server.capture.reader import is_capture
from server.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.sse import Frame

__all__ = ["Recording", "find_recordings", "load_recording"]

_SUFFIXES: Final = (".sse", ".jsonl")


@attrs.frozen(eq=False)
class Recording:
    """One response."""

    name: str
    """The file's name without its suffix."""
    model: str | None
    """The model that the chunks name, or none where they name none."""
    body: bytes
    """An event stream."""
    frames: tuple[Frame, ...]
    """The body frame by frame; all ``raw`` joined are the body."""


def load_recording(path: str | Path) -> Recording:
    """Read a recording.

    Raises:
        ConfigError: there is no such file, its suffix is another one, it is a capture, whose requests are nobody's to
            see, or a line of a ``.jsonl`` is no JSON object.
    """
    path = Path(path)
    try:
        body = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"recording {path}: cannot be read: {error.strerror}") from error
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"recording {path}: its name must end in {' or '.join(_SUFFIXES)}")
    if is_capture(path):
        raise ConfigError(f"recording {path}: is a capture, which only callahead replay reads")
    if path.suffix == ".jsonl":
        body = b"".join(_framed(body, path))
    frames = tuple(_frames(body))
    models = (item.payload.get("model") for frame in frames if isinstance(item := item_of(frame), Chunk))
    model = next((model for model in models if isinstance(model, str) and model), None)
    return Recording(path.stem, model, body, frames)


def find_recordings(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """The files that paths stand for: a folder for its ``.sse`` and ``.jsonl`` files by name, a file for itself.

    Raises:
        ConfigError: a folder has none or cannot be read, or there is no path.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        try:
            found = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
        except OSError as error:
            raise ConfigError(f"recordings in {path}: cannot be read: {error.strerror}") from error
        if not found:
            raise ConfigError(f"recordings in {path}: the folder has no file that ends in {' or '.join(_SUFFIXES)}")
        files += found
    if not files:
        raise ConfigError("recordings: no file and no folder is named")
    return tuple(files)


def _framed(lines: bytes, path: Path) -> Iterator[bytes]:
    for number, line in enumerate(lines.split(b"\n"), start=1):
        data = line.strip().removeprefix(b"\xef\xbb\xbf")
        if not data or data == b"[DONE]":
            continue
        try:
            value = parse_json(data)
        except ValueError as error:
            raise ConfigError(f"recording {path}, line {number}: it must be a JSON object: {error}") from error
        if not isinstance(value, dict):
            raise ConfigError(
                f"recording {path}, line {number}: it must be a JSON object, not {data[:40].decode(errors='replace')}"
            )
        yield sse_frame(data)
    yield sse_frame(b"[DONE]")


def _frames(body: bytes) -> Iterator[Frame]:
    decoder = SseDecoder(max_frame_bytes=len(body) + 1)
    yield from decoder.feed(body)
    last = decoder.close()
    if last is not None:
        yield last
