"""The streams that commands are given as files: recordings, captures, and the requests that they answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from pipeline.chunks import parse_json
from server.capture.reader import is_capture, read_capture
from server.errors import ConfigError
from server.upstreams.recording import load_recording
from server.whole_completion import stream_of_completion

__all__ = ["RecordedStream", "read_request", "streams_of"]


@attrs.frozen
class RecordedStream:
    """One stream of a file, with the request that it answers."""

    title: str
    body: bytes
    request: Mapping[str, Any]
    model: str | None
    """The model that it names, or none."""


def streams_of(file: Path, request: Mapping[str, Any]) -> list[RecordedStream]:
    """A recording is one stream; a capture file is one for each of its records that has a response.

    Args:
        file: ends in ``.sse`` or ``.jsonl``.
        request: what the streams answer; empty for that of each record.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file.suffix == ".sse" or not is_capture(file):
        recording = load_recording(file)
        return [RecordedStream(str(file), recording.body, request, recording.model)]
    streams = []
    for record in read_capture(file):
        response, asked = record.get("response"), record.get("request")
        if isinstance(response, dict) and isinstance(response.get("choices"), list):
            title = f"{file} {record.get('request_id')}"
            body = stream_of_completion(response)
            asked = request or (asked if isinstance(asked, dict) else {})
            model = record.get("model")
            streams.append(RecordedStream(title, body, asked, model if isinstance(model, str) else None))
    return streams


def read_request(file: Path | None) -> Mapping[str, Any]:
    """The request's body that a file holds; empty where no file is named.

    Raises:
        ConfigError: the file cannot be read, or holds no JSON object.
    """
    if file is None:
        return {}
    try:
        request = parse_json(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise ConfigError(f"{file}: is JSON, but no object; it must be a request's body")
    return request
