"""A streaming request that was answered with a whole completion: the stream that it should have been."""

from __future__ import annotations

from typing import Any

import trio

from pipeline.chunks import encode_json
from pipeline.sse import sse_frame
from server.upstreams.base import Headers

__all__ = ["CannedResponse", "stream_of_completion"]


def stream_of_completion(completion: dict[str, Any]) -> bytes:
    """An event stream that folds back into the completion: what each choice says, then how it finished, then the end.

    Unknown keys stay where they were; ``message`` becomes ``delta``, and tool calls get their place as their index.
    """
    said: list[Any] = []
    finished: list[Any] = []
    for place, choice in enumerate(completion["choices"]):
        if not isinstance(choice, dict):
            continue
        index = choice.get("index", place)
        kept = {key: value for key, value in choice.items() if key not in ("index", "message", "finish_reason")}
        said.append({"index": index, "delta": _delta(choice.get("message")), **kept, "finish_reason": None})
        finished.append({"index": index, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"})
    envelope = {**completion, "object": "chat.completion.chunk"}
    usage = envelope.pop("usage", None)
    last = {**envelope, "choices": finished}
    if usage is not None:
        last["usage"] = usage
    frames = [{**envelope, "choices": said}, last]
    return b"".join(sse_frame(encode_json(frame)) for frame in frames) + sse_frame(b"[DONE]")


def _delta(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        return {}
    delta = {key: value for key, value in message.items() if value is not None}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [
            {**call, "index": place} if isinstance(call, dict) else call for place, call in enumerate(calls)
        ]
    return delta


class CannedResponse:
    """Bytes at hand in the shape of an ``UpstreamResponse``."""

    status = 200

    def __init__(self, body: bytes, headers: Headers) -> None:
        self.headers = headers
        self._body = body

    async def receive(self) -> bytes:
        """All of it, then ``b""``. Checkpoints."""
        await trio.lowlevel.checkpoint()
        body, self._body = self._body, b""
        return body

    async def aclose(self) -> None:
        """Nothing to close."""
