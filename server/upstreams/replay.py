"""The upstream ``replay``: recorded streams in place of a server."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from pipeline.chunks import encode_json, parse_json
from pipeline.decode import item_of
from pipeline.items import Chunk
from server.errors import ClientError
from server.upstreams.recording import Recording, find_recordings, load_recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from server.upstreams.base import BodySource, Headers, UpstreamRequest

__all__ = ["Recording", "ReplayOptions", "ReplayResponse", "ReplayUpstream", "load_recording"]

Script: TypeAlias = "Sequence[tuple[float, bytes]]"
"""A body: each piece with the time from the start at which it comes, in seconds."""

_PIECE_BYTES: Final = 16 * 1024
_MOST_NAMED: Final = 3


@attrs.frozen
class ReplayOptions:
    """What is replayed, and how fast."""

    paths: tuple[str | Path, ...]
    """Files that end in ``.sse`` or ``.jsonl``, and folders of such files, which are taken by name."""
    tokens_per_second: float = 0
    """The pace: a chunk is a token. 0 = as fast as it is read."""


class ReplayUpstream:
    """An ``Upstream`` that answers from recordings, which are read when it is made.

    A streaming completion is answered with the recording whose name (the file's, without its suffix) is the
    request's model; else with one whose chunks name that model; else with any. Where several would do, they take
    turns in the order in which they were given.

    Raises:
        ConfigError: a recording cannot be read, or there is none.
    """

    def __init__(self, options: ReplayOptions) -> None:
        recordings = [load_recording(path) for path in find_recordings(options.paths)]
        scripts = [_script(recording, options.tokens_per_second) for recording in recordings]
        self._by_name = _turns(zip([recording.name for recording in recordings], scripts, strict=True))
        self._by_model = _turns(zip([recording.model for recording in recordings], scripts, strict=True))
        self._any = itertools.cycle(scripts)
        names = list(self._by_name)
        self.name = f"{len(names)} recordings" if len(names) > _MOST_NAMED else f"recordings {', '.join(names)}"

    async def open(self, request: UpstreamRequest) -> ReplayResponse:
        """See ``Upstream.open``. Never raises ``UpstreamError``."""
        await trio.lowlevel.checkpoint()
        where = f"{request.method} {request.target.partition('?')[0]}"
        if where == "GET /models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "callahead"} for name in self._by_name]
            return _json_response(200, {"object": "list", "data": models})
        if where != "POST /chat/completions":
            message = f"{where} cannot be replayed; POST /chat/completions and GET /models can"
            return _refusal(ClientError(404, "not_found", message))
        body = request.body if isinstance(request.body, bytes) else await _joined(request.body)
        if not _wants_stream(body):
            message = 'a recording can only be streamed: say "stream": true, or leave upstream.unary at "fold"'
            return _refusal(ClientError(400, "stream_required", message, param="stream"))
        model = request.model or ""
        turns = self._by_name.get(model) or self._by_model.get(model) or self._any
        return ReplayResponse(200, [(b"content-type", b"text/event-stream")], next(turns))

    async def probe(self) -> None:
        """See ``Upstream.probe``. A recording is always there."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """See ``Upstream.aclose``."""
        await trio.lowlevel.cancel_shielded_checkpoint()


class ReplayResponse:
    """An ``UpstreamResponse`` whose body is at hand.

    Args:
        status: HTTP's.
        headers: names in lower case.
        script: the body.
    """

    def __init__(self, status: int, headers: Headers, script: Script) -> None:
        self.status = status
        self.headers = headers
        self._script = script
        self._next = 0
        self._started = trio.current_time()

    async def receive(self) -> bytes:
        """See ``UpstreamResponse.receive``. A wait that is cancelled loses nothing."""
        if self._next == len(self._script):
            await trio.lowlevel.checkpoint()
            return b""
        offset, piece = self._script[self._next]
        if offset:
            await trio.sleep_until(self._started + offset)
        else:
            await trio.lowlevel.checkpoint()
        self._next += 1
        return piece

    async def aclose(self) -> None:
        """See ``UpstreamResponse.aclose``. There is nothing to let go of."""
        await trio.lowlevel.cancel_shielded_checkpoint()


def _script(recording: Recording, rate: float) -> Script:
    """The body frame by frame at ``rate`` chunks a second, the first at once; in large pieces where there is no rate.

    A frame that is no chunk comes together with the chunk before it.
    """
    if not rate:
        starts = range(0, len(recording.body), _PIECE_BYTES)
        return [(0.0, recording.body[start : start + _PIECE_BYTES]) for start in starts]
    script: list[tuple[float, bytes]] = []
    tokens = 0
    for frame in recording.frames:
        tokens += isinstance(item_of(frame), Chunk)
        script.append((max(tokens - 1, 0) / rate, frame.raw))
    return script


def _turns(named: Iterable[tuple[str | None, Script]]) -> dict[str, Iterator[Script]]:
    """For each name its scripts, over and over."""
    grouped: dict[str, list[Script]] = {}
    for name, script in named:
        if name is not None:
            grouped.setdefault(name, []).append(script)
    return {name: itertools.cycle(scripts) for name, scripts in grouped.items()}


async def _joined(source: BodySource) -> bytes:
    body = b""
    while piece := await source.receive():
        body += piece
    return body


def _wants_stream(body: bytes) -> bool:
    try:
        request = parse_json(body)
    except ValueError:
        return False
    return isinstance(request, dict) and request.get("stream") is True


def _refusal(error: ClientError) -> ReplayResponse:
    return _json_response(error.status, error.body())


def _json_response(status: int, value: Any) -> ReplayResponse:
    body = encode_json(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return ReplayResponse(status, headers, [(0.0, body)])
