"""What must come of recorded and invented streams: a plain model of the default order, and the comparison."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from typing import Any

from notation import SIDE_EVENTS

ENVELOPE = {"id", "object", "created", "model", "system_fingerprint", "service_tier", "choices"}


# --- the model ----------------------------------------------------------------------------------------------------


def default_order(frames, request):
    """The ordinary frames that a client must receive: name, and the data itself or an edited chunk as JSON value."""
    out: list[Any] = []
    roles: set[Any] = set()
    for name, data in frames:
        try:
            payload = json.loads(data) if name in (None, "", "message") else None
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            out.append((name, data))
            if data == b"[DONE]":
                break
            continue
        before = json.dumps(payload)
        if request.get("parallel_tool_calls") is False:
            filter_parallel(payload)
        dedup_roles(payload, roles)
        if not is_empty(payload):
            out.append((name, data if json.dumps(payload) == before else payload))
    return out


def choices_of(payload):
    choices = payload.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def filter_parallel(payload):
    for choice in choices_of(payload):
        delta = choice.get("delta")
        if isinstance(delta, dict) and isinstance(delta.get("tool_calls"), list):
            calls = delta["tool_calls"]
            kept = [call for call in calls if not isinstance(call, dict) or call.get("index", 0) == 0]
            if len(kept) != len(calls):
                delta["tool_calls"] = kept
                if not kept:
                    del delta["tool_calls"]


def dedup_roles(payload, roles):
    for choice in choices_of(payload):
        delta = choice.get("delta")
        if isinstance(delta, dict) and delta.get("role") is not None:
            key = choice.get("index", 0) if isinstance(choice.get("index", 0), (int, str)) else 0
            if key in roles:
                del delta["role"]
            roles.add(key)


def is_empty(payload):
    choices = payload.get("choices")
    return (
        isinstance(choices, list)
        and all(value is None for key, value in payload.items() if key not in ENVELOPE)
        and all(isinstance(choice, dict) and is_empty_choice(choice) for choice in choices)
    )


def is_empty_choice(choice):
    delta = choice.get("delta")
    if any(value is not None for key, value in choice.items() if key not in {"index", "delta"}):
        return False
    if not isinstance(delta, dict):
        return delta is None
    return all(value is None or (key == "content" and value in ("", [])) for key, value in delta.items())


# --- cases --------------------------------------------------------------------------------------------------------


def writes_of(case):
    """The upstream's writes, each as bytes, its content coding undone."""
    upstream = case["upstream"]
    writes = [
        base64.b64decode(frame["base64"]) if isinstance(frame, dict) else frame.encode("utf-8", "surrogatepass")
        for frame in upstream.get("body_frames", [])
    ]
    headers = {key.lower(): value for key, value in upstream.get("headers", {}).items()}
    undo = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(headers.get("content-encoding", ""))
    return writes if undo is None else [undo(b"".join(writes))]


def is_error(name, data):
    """Whether a client that reads this frame learns of an error."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    return name == "error" or (
        isinstance(value, dict) and (value.get("error") is not None or value.get("object") == "error")
    )


def check(sent, got, request, expect):
    """Compare the frames that arrived with those of the upstream and with what is expected of them.

    Args:
        sent: the upstream's frames, name and data.
        got: those of the client.
        request: the request's body.
        expect: ``dispatch`` and ``reasoning``, the payloads; ``done``, whether there is one ``[DONE]``; ``error``,
            whether there is an error frame. Each is optional.
    """
    for key, event in (("dispatch", "tool_call_dispatch"), ("reasoning", "reasoning_dispatch")):
        if key in expect:
            assert [json.loads(data) for name, data in got if name == event] == expect[key]
    ordinary = [frame for frame in got if frame[0] not in SIDE_EVENTS]
    want = default_order(sent, request)
    own_errors = sum(is_error(*frame) for frame in sent)
    errors = sum(is_error(*frame) for frame in ordinary)
    done = sum(data == b"[DONE]" for _, data in ordinary)
    if "done" in expect:
        assert done == bool(expect["done"])
    if "error" in expect:
        assert errors == (max(1, own_errors) if expect["error"] else 0)
    if errors and not own_errors:
        assert is_error(*ordinary[-1]), "nothing follows an error of ours"
        ordinary.pop()
    if done and (None, b"[DONE]") not in want:
        assert ordinary.pop() == (None, b"[DONE]")
    assert_same_frames(ordinary, want)


def assert_same_frames(got, want):
    """Compare frames that arrived with what ``default_order`` says."""
    assert [name for name, _ in got] == [name for name, _ in want]
    for (_, have), (_, value) in zip(got, want, strict=True):
        assert have == value if isinstance(value, bytes) else repr(json.loads(have)) == repr(value)  # NaN is not NaN
