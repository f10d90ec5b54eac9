"""One turn of an agent that starts each tool the moment its call is complete. Standard library only.

Usage: ``python3 docs/examples/harness.py http://127.0.0.1:8080/v1``
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

STARTED = time.monotonic()


def search_flights(**query: Any) -> str:
    """A stand-in for a tool that takes a while."""
    time.sleep(2)
    return f"2 flights from {query['origin']} to {query['destination']}"


def write_file(path: str, content: str, **_: Any) -> str:
    """A stand-in for a quick one."""
    return f"{len(content)} characters written to {path}"


TOOLS: dict[str, Callable[..., str]] = {"search_flights": search_flights, "write_file": write_file}


class StreamFailed(Exception):
    """The stream carried an error frame or broke off: there is no turn, and nobody needs the results."""


class Turn:
    """What one streamed response has said so far; with ``n`` left at 1 there is one choice."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._running: dict[int, Future[str]] = {}
        self.text = ""
        self.calls: dict[int, dict[str, str]] = {}
        self.finish_reason: str | None = None

    def read(self, frames: Iterator[tuple[str, str]]) -> None:
        """Take the frames until ``[DONE]``, starting tools on the way."""
        for event, data in frames:
            if event == "tool_call_dispatch":
                self._start(json.loads(data)["tool_call"])
            elif event == "error":
                raise StreamFailed(data)
            elif data == "[DONE]":
                break
            elif not event:
                self._add(json.loads(data))
        if self.finish_reason is None:
            raise StreamFailed("the stream ended without a finish reason")

    def _start(self, call: dict[str, Any]) -> None:
        """Run a complete call in the background. The call's index is its key: ids may be missing or repeated."""
        function = call["function"]
        say(f"{function['name']} starts, its result is for {call['id']}")
        self._running[call["index"]] = self._pool.submit(run_tool, function["name"], function.get("arguments", ""))

    def _add(self, chunk: dict[str, Any]) -> None:
        """Assemble the ordinary stream, as without Callahead."""
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise StreamFailed(json.dumps(chunk))
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            for fragment in delta.get("tool_calls") or []:
                call = self.calls.setdefault(fragment.get("index", 0), {"id": "", "name": "", "arguments": ""})
                function = fragment.get("function") or {}
                call["id"] = call["id"] or fragment.get("id") or ""
                call["name"] = call["name"] or function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def results(self) -> list[dict[str, str]]:
        """The messages for the next request, one a call, in the order of the calls."""
        say(f"finish: {self.finish_reason}; {len(self._running)} of {len(self.calls)} calls were announced")
        if self.finish_reason in ("tool_calls", "stop"):  # else the others may be cut off: leave them out
            for index in sorted(self.calls.keys() - self._running.keys()):
                call = self.calls[index]
                self._running[index] = self._pool.submit(run_tool, call["name"], call["arguments"])
        return [
            {"role": "tool", "tool_call_id": call["id"], "content": self._running[index].result()}
            for index, call in sorted(self.calls.items())
            if index in self._running
        ]


def run_tool(name: str, arguments: str) -> str:
    """The tool's answer; whatever goes wrong is an answer too, so that the model can try again."""
    try:
        given = json.loads(arguments or "{}")
        answer = TOOLS[name](**given)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        answer = f"{name} failed: {error!r}"
    say(f"{name} is done: {answer}")
    return answer


def frames_of(response: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """Event name and data of each frame, read line by line as they arrive; comments have neither."""
    event, data = "", []
    for line in response:
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            event = value
        elif field == "data":
            data.append(value)
        elif not field and not value:  # a blank line ends the frame
            if data:
                yield event, "\n".join(data)
            event, data = "", []


def say(what: str) -> None:
    """Print what happens, and when."""
    print(f"{time.monotonic() - STARTED:6.2f} s  {what}", flush=True)


def main(base_url: str) -> None:
    """Ask for one turn, and print the messages that answer it."""
    body = {"model": "two-parallel-calls", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    headers = {"Content-Type": "application/json", "Callahead-Events": "tool_call_dispatch"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response, ThreadPoolExecutor() as pool:
        say(f"events in force: {response.headers.get('Callahead-Events', 'none')}")
        turn = Turn(pool)
        try:
            turn.read(frames_of(response))
        except (StreamFailed, OSError, http.client.HTTPException) as error:
            pool.shutdown(wait=False, cancel_futures=True)
            sys.exit(f"the turn failed: {error}")
        for message in turn.results():
            print(json.dumps(message))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except urllib.error.HTTPError as error:
        sys.exit(f"status {error.code}: {error.read().decode()}")
