"""One case: a request, what the upstream does with it, what the client does, and the outcomes that are allowed.

A case is made from its name alone, so that both sides of the gateway know it: ``FAULT.SEED.NUMBER`` is the model of its
request, and goes to the upstream in a header too, for scripts that begin before the body is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from conversations import Conversation, conversation
from scripts import Act, Script, body_steps, head
from verdicts import ErrorFrame, Expectation, Folded, Left, Refused, Whole

if TYPE_CHECKING:
    from ledger import Entry
    from verdicts import Seen

__all__ = ["CASE_HEADER", "Behaviour", "Case", "Draft", "Make", "Request"]

CASE_HEADER: Final = "x-soak-case"
_EVENTS: Final = "tool_call_dispatch, reasoning_dispatch"

Make = Callable[["Draft"], "Case"]
"""A fault: makes one of its cases."""


class Behaviour(Protocol):
    """What a client does."""

    async def run(self, port: int, entry: Entry) -> list[Seen]:
        """Send the entry's case's request to a port, and give what came; one for each time that it is sent."""
        ...


@attrs.frozen(eq=False)
class Request:
    """A request as the client sends it."""

    body: bytes
    headers: tuple[tuple[str, str], ...]
    method: str = "POST"
    path: str = "/v1/chat/completions"

    @property
    def is_folded(self) -> bool:
        """Whether the upstream is to be asked for a stream although the client does not want one."""
        if not self.path.endswith("/chat/completions"):
            return False
        return json.loads(self.body).get("stream") is not True

    def misfit(self, method: str, target: str, body: bytes | None) -> str | None:
        """What is wrong with the request as the upstream received it; no body: it broke off."""
        if body is None:
            return "the request's body broke off on its way to the upstream"
        if (method, target) != (self.method, self.path):
            return f"the upstream was asked for {method} {target}"
        if not self.is_folded:
            return None if body == self.body else f"the body is not what was sent: {body[:200]!r}"
        wanted = json.loads(self.body) | {"stream": True, "stream_options": {"include_usage": True}}
        return None if json.loads(body) == wanted else f"the folded request's body is {body[:200]!r}"


@attrs.frozen(eq=False)
class Case:
    """All of it."""

    name: str
    request: Request
    script: Script | None
    """None: the upstream must not be asked."""
    client: Behaviour
    expected: Sequence[Expectation]
    requests: int = 1
    """How often the request is sent."""
    attempts: range = range(1, 2)
    """How often it may reach the upstream, for each time."""
    logs: range = range(1, 2)
    """How many log lines it may have, for each time."""
    refusals: range = range(1)
    """How many calls may be refused."""
    checks_body: bool = True
    is_anonymous: bool = False
    """It may have a log line with an id that the gateway made."""


class Draft:
    """What the makers of cases have in common.

    Args:
        name: the case's.
        client: the gateway's upstream client, for what the two do differently.
    """

    def __init__(self, name: str, client: str) -> None:
        self.name = name
        self.client = client
        self.rng = Random(name)  # the same in every process: text is hashed with SHA-512
        self.streams = self.rng.random() < 0.8
        self.style: str | None = self.rng.choice(["named", "named", "chunk", None])

    def request(self, content: str = "hi", headers: Sequence[tuple[str, str]] = (), **more: Any) -> Request:
        """A request for a completion; its text has a dress of its own."""
        rng = self.rng
        value = {
            "model": self.name,
            "messages": [{"role": "user", "content": content}],
            **({"stream": True} if self.streams else rng.choice([{}, {"stream": False}, {"stream": None}])),
            "temperature": 0.5,
            "x_vendor": {"Grüße": [1, 10**20]},
            **more,
        }
        spaces: Any = rng.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
        body = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=spaces).encode()
        asked = [("callahead-events", _EVENTS)] if self.style else []
        if self.style == "chunk" or (self.style and rng.random() < 0.5):
            asked.append(("callahead-event-style", self.style))
        return Request(body, (*self.identity(), ("content-type", "application/json"), *asked, *headers))

    def identity(self) -> list[tuple[str, str]]:
        """The headers that every case's request has."""
        return [("host", "gateway"), ("x-request-id", self.name), (CASE_HEADER, self.name)]

    def talk(self, kind: str | None = None, tokens: int | None = None, **more: Any) -> Conversation:
        """A conversation of some kind and length."""
        rng = self.rng
        kind = kind or rng.choice(["text", "reasoning", "tools", "tools", "choices", "mixed"])
        return conversation(rng, kind, rng.randint(1, 40) if tokens is None else tokens, **more)

    def frames(self, talk: Conversation) -> list[bytes]:
        """What a client receives of it, in a stream."""
        return talk.received(self.style)

    def whole(self, talk: Conversation) -> Expectation:
        """All is right."""
        if not self.streams:
            return Folded(talk.completion)
        return Whole(self.frames(talk), self._is_loose(talk), _EVENTS if self.style else None)

    def refusals(self, talk: Conversation) -> range:
        """The calls that are refused in a whole stream."""
        number = talk.cut_calls if self.style and self.streams else 0
        return range(number, number + 1)

    def cut(self, talk: Conversation, *, least: int = 1) -> Conversation:
        """The beginning of it, before any choice has finished and with so many frames at least."""
        first_finish = next(at for at, piece in enumerate(talk.pieces) if piece.finishes)
        return attrs.evolve(
            talk, pieces=talk.pieces[: self.rng.randint(min(least, first_finish), first_finish)], has_done=True
        )

    def failed(self, talk: Conversation, code: str, status: int = 502, *, may_lose: bool = False) -> Expectation:
        """What had come and an error; a folded request has only the error."""
        if not self.streams:
            return Refused(status, code)
        return ErrorFrame(self.frames(talk), code, _has_crlf(talk), may_lose=may_lose)  # half a frame is dropped

    def left(self, talk: Conversation, outcomes: frozenset[str] = frozenset({"client_left", "ok"})) -> Expectation:
        """The client went in the middle of it."""
        return Left(self.frames(talk) if self.streams else None, outcomes)

    def partly(self, frames: Sequence[bytes], *last: bytes | float | Act, pause: float = 0.02) -> Script:
        """An event stream that is begun, and then something else."""
        opening = head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
        steps = body_steps(self.rng, list(frames), pause, ends=False)
        return Script([Act.READ_BODY, opening, *steps, *last])

    def _is_loose(self, talk: Conversation) -> bool:
        is_touched = self.style is not None or any(piece.is_dropped for piece in talk.pieces)
        return is_touched and _has_crlf(talk)


def _has_crlf(talk: Conversation) -> bool:
    return any(b"\r\n" in piece.raw for piece in talk.pieces)
