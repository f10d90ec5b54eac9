"""What is captured of one request, and the line of JSON that it becomes.

The line's schema is ``callahead.capture.v1``; within a version keys are only ever added. ``docs/capture.md`` describes
each key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from pipeline.chunks import encode_json, parse_json
from server.capture.headers import picked_headers
from server.capture.redact import REDACTED, Redaction
from server.upstreams.base import Headers

__all__ = ["SCHEMA", "CaptureRecord", "CapturedDispatch", "EncodedRecord", "RecordEncoder"]

SCHEMA: Final = "callahead.capture.v1"

_NO_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
_LONGEST_NAME: Final = 256


@attrs.define
class CapturedDispatch:
    """One tool call that was dispatched."""

    choice_index: int
    call_index: int
    at: float
    """Seconds from the request's arrival."""
    lead: float | None = None
    """Seconds from the dispatch to the finish of its choice; none where the choice did not finish."""


@attrs.frozen(eq=False)
class CaptureRecord:
    """One request and what became of it. It holds references only; nothing is encoded before its turn comes."""

    request_id: str
    endpoint: str
    model: str | None
    arrived: float
    """When the request arrived, in seconds since the epoch."""
    request: bytes
    """The body as the client sent it."""
    response: Mapping[str, Any] | None = None
    """The folded response, as far as there is one."""
    drop_reason: str | None = None
    """Why the response is missing or not whole (spec, dispatch, 5.2)."""
    dispatches: Sequence[CapturedDispatch] = ()
    first_chunk: float | None = None
    """Seconds from the arrival to the upstream's first chunk."""
    last_chunk: float | None = None
    """Seconds from the arrival to the upstream's last chunk."""
    total: float = 0.0
    """Seconds from the arrival to the end of the request."""
    headers: Headers = attrs.field(factory=list)
    """The request's headers, all of them; the encoder picks."""


@attrs.frozen
class EncodedRecord:
    """A record as it goes to the sinks."""

    line: bytes
    """One JSON object in UTF-8, without a line end inside or behind it."""
    is_cut: bool
    """Whether request and response were left out, since the record was too large."""


class RecordEncoder:
    """Turns records into lines; keeps nothing of them, so any thread may use it.

    Args:
        upstream: the upstream's name, as each record tells it.
        max_record_bytes: a longer line is written without request and response, and says so.
        headers: the names of the headers to keep, in lower case.
        redaction: what to replace in requests, responses and headers.
    """

    def __init__(
        self,
        upstream: str,
        max_record_bytes: int,
        headers: Collection[str] = (),
        redaction: Redaction | None = None,
    ) -> None:
        self._upstream = _valid(upstream)
        self._max_record_bytes = max_record_bytes
        self._headers = headers
        self._redaction = redaction or Redaction()

    def encode(self, record: CaptureRecord) -> EncodedRecord:
        """The record's line. It is complete exactly when there is a response and no reason to doubt it."""
        reason = record.drop_reason or ("unspecified" if record.response is None else None)
        contents = self._redacted(record) if self._redaction else self._contents(record)
        line = self._line(record, contents, reason)
        if len(line) <= self._max_record_bytes:
            return EncodedRecord(line, is_cut=False)
        reason = f"record_too_large:max_bytes={self._max_record_bytes}:actual_bytes={len(line)}"
        record = attrs.evolve(record, model=record.model and record.model[:_LONGEST_NAME])
        return EncodedRecord(self._line(record, {"headers": contents.get("headers")}, reason), is_cut=True)

    def _contents(self, record: CaptureRecord) -> dict[str, Any]:
        return {
            "request": _embedded(record.request),
            "response": record.response,
            "headers": picked_headers(record.headers, self._headers),
        }

    def _redacted(self, record: CaptureRecord) -> dict[str, Any]:
        """Contents of which nothing is shared with the record, redacted."""
        contents: dict[str, Any] = {
            "request": _copy(record.request),
            "headers": picked_headers(record.headers, self._headers),
        }
        if record.response is not None:
            contents["response"] = _copy(encode_json(record.response))
        self._redaction.apply(contents)
        for key in contents.keys() & {"request", "response"}:
            contents[key] = _embedded(encode_json(contents[key]))
        return contents

    def _line(self, record: CaptureRecord, contents: Mapping[str, Any], reason: str | None) -> bytes:
        timings = {
            "first_chunk_seconds": record.first_chunk,
            "last_chunk_seconds": record.last_chunk,
            "total_seconds": record.total,
        }
        parts = {
            "schema": SCHEMA,
            "arrival_unix_ms": int(record.arrived * 1000),
            "request_id": _valid(record.request_id),
            "endpoint": record.endpoint,
            "model": None if record.model is None else _valid(record.model),
            "upstream": self._upstream,
            "headers": contents.get("headers") or None,
            "request": contents.get("request"),
            "response": contents.get("response"),
            "payload_complete": contents.get("response") is not None and reason is None,
            "payload_drop_reason": None if reason is None else _valid(reason),
            "dispatches": [_dispatch(each) for each in record.dispatches],
            "timings": {key: round(value, 6) for key, value in timings.items() if value is not None},
        }
        said = {key: value for key, value in parts.items() if value is not None}
        try:
            return orjson.dumps(said)
        except TypeError:  # what encode_json knows to write: not every reader of JSON takes it
            return orjson.dumps({**said, "response": _embedded(encode_json(said["response"]))})


def _dispatch(dispatch: CapturedDispatch) -> dict[str, Any]:
    return {
        "choice_index": dispatch.choice_index,
        "call_index": dispatch.call_index,
        "at_seconds": round(dispatch.at, 6),
        "lead_seconds": None if dispatch.lead is None else round(dispatch.lead, 6),
    }


def _copy(data: bytes) -> Any:
    """A value of its own; what cannot be read cannot be redacted, and must not get out."""
    try:
        return parse_json(data)
    except ValueError:
        return REDACTED


def _embedded(data: bytes) -> orjson.Fragment | str | None:
    """JSON to stand in a record as the value that it is, byte for byte but for line ends between its tokens.

    What not every reader of JSON takes (``NaN``, half a surrogate pair, a thousand levels of nesting) stands there as
    text, so that the record stays readable.
    """
    if not data:
        return None
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode(errors="replace")
    return orjson.Fragment(data.translate(_NO_LINE_ENDS) if b"\n" in data or b"\r" in data else data)


def _valid(text: str) -> str:
    """The text without halves of surrogate pairs, which UTF-8 does not have."""
    return text.encode(errors="replace").decode()
