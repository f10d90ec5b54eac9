"""Seeded conversations: the frames that an upstream sends, and what a client must receive for them.

What is right is known by construction, while the frames are made: nothing of the gateway's code is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, TypeAlias

import attrs
from answers import Choice, choice_of

__all__ = ["Conversation", "Event", "Piece", "conversation", "event_frame"]

Event: TypeAlias = tuple[str, dict[str, Any]]
"""A side event: its name and its payload."""

_DONE: Final = b"[DONE]"
_FOREIGN: Final = (
    b": ping",
    b"event: ping\ndata: {}",
    b"data: not JSON",
    b"retry: 3000",
    b":",
    b"id: 7\nevent: x\ndata:",
)


@attrs.frozen(eq=False)
class Piece:
    """One frame as the upstream sends it, and the events that it brings about."""

    raw: bytes
    events: tuple[Event, ...] = ()
    is_dropped: bool = False
    """An empty chunk, which no client receives."""
    finishes: bool = False
    """A choice finishes in it."""


@attrs.frozen(eq=False)
class Conversation:
    """A whole answer of a model."""

    pieces: tuple[Piece, ...]
    envelope: dict[str, Any]
    completion: dict[str, Any]
    """What a request that does not stream is answered with."""
    cut_calls: int = 0
    """Calls that stay open and are refused for it."""
    has_done: bool = True

    @property
    def raws(self) -> list[bytes]:
        """The frames that the upstream sends."""
        return [piece.raw for piece in self.pieces]

    def received(self, style: str | None) -> list[bytes]:
        """The frames that a client receives, with the events in a style, or with none."""
        frames: list[bytes] = []
        for piece in self.pieces:
            if style is not None:
                frames += [event_frame(event, style, self.envelope) for event in piece.events]
            if not piece.is_dropped:
                frames.append(piece.raw)
        return frames if self.has_done else [*frames, b"data: [DONE]\n\n"]


def event_frame(event: Event, style: str, envelope: dict[str, Any]) -> bytes:
    """A side event on the wire."""
    name, payload = event
    if style == "named":
        return b"event: %b\ndata: %b\n\n" % (name.encode(), _compact(payload))
    return b"data: %b\n\n" % _compact({**envelope, "choices": [], name: payload})


def conversation(
    rng: Random,
    kind: str,
    tokens: int,
    *,
    width: int = 1,
    foreign: bytes | None = None,
    has_done: bool | None = None,
) -> Conversation:
    """Make one.

    Args:
        rng: every decision comes from it.
        kind: ``text``, ``reasoning``, ``tools``, ``choices`` or ``mixed``.
        tokens: about how many chunks a choice has.
        width: how often each word of a text is said.
        foreign: a frame, without its blank line, that is no chunk and stands somewhere among them.
        has_done: whether ``[DONE]`` is sent.
    """
    number = rng.randint(2, 4) if kind in ("choices", "mixed") else 1
    choices = [choice_of(rng, index, kind, tokens, width) for index in range(number)]
    envelope = {
        "id": f"chatcmpl-{rng.getrandbits(48):012x}",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000 + rng.randrange(10_000),
        "model": rng.choice(["demo-7b", "org/Modèle-Ü", "m"]),
    }
    vendor: dict[str, Any] = {"system_fingerprint": "fp_1"} if rng.random() < 0.5 else {}
    if rng.random() < 0.3:
        vendor["x_vendor"] = {"region": "north", "ok": True}
    write = _Writer(rng, envelope, vendor, line_end=rng.choice(["\n", "\n", "\r\n", "\r"]))
    pieces = list(write.chunks(choices))
    completion = {
        **{key: envelope[key] for key in ("id", "created", "model")},
        "object": "chat.completion",
        "choices": [choice.message for choice in choices],
        **vendor,
    }
    if rng.random() < 0.5:
        usage = {"prompt_tokens": 11, "completion_tokens": tokens, "total_tokens": tokens + 11}
        pieces.append(write.chunk([], usage=usage))
        completion["usage"] = usage
    for each in [foreign] if foreign is not None else rng.sample(_FOREIGN, rng.randrange(3)):
        pieces.insert(rng.randrange(1, len(pieces)), Piece(write.lines(each)))
    if rng.random() < 0.05:
        pieces[0] = attrs.evolve(pieces[0], raw=b"\xef\xbb\xbf" + pieces[0].raw)
    if has_done is None:
        has_done = rng.random() < 0.9
    if has_done:
        pieces.append(Piece(write.lines(b"data: " + _DONE)))
    return Conversation(tuple(pieces), envelope, completion, sum(choice.cut_calls for choice in choices), has_done)


class _Writer:
    """Writes chunks in one way of the many that servers have."""

    def __init__(self, rng: Random, envelope: dict[str, Any], vendor: dict[str, Any], line_end: str) -> None:
        self._rng = rng
        self._envelope = envelope
        self._vendor = vendor
        self._line_end = line_end.encode()
        self._nulls = {"logprobs": None} if rng.random() < 0.5 else {}
        self._has_ids = rng.random() < 0.1
        self._reverse = rng.random() < 0.2
        options: dict[str, Any] = {"ensure_ascii": rng.random() < 0.5}
        options |= rng.choice([{}, {"separators": (",", ":")}, {"separators": (",", ":")}, {"indent": 1}])
        self._dump: Callable[[Any], str] = json.JSONEncoder(**options).encode

    def chunks(self, choices: list[Choice]) -> Iterable[Piece]:
        """The moves of all choices, each in its own order, now and then two in one chunk; empty chunks in between."""
        rng, queues = self._rng, [list(choice.moves) for choice in choices]
        while any(queues):
            chosen = rng.sample([queue for queue in queues if queue], 1)
            others = [queue for queue in queues if queue and queue is not chosen[0]]
            if others and rng.random() < 0.15:
                chosen.append(rng.choice(others))
            moves = [queue.pop(0) for queue in chosen]
            events = [event for move in moves for event in move.call_events]
            events += [event for move in moves for event in move.reasoning_events]
            yield self.chunk(
                [
                    {"index": move.choice, "delta": move.delta, **self._nulls, "finish_reason": move.finish_reason}
                    for move in moves
                ],
                events=tuple(events),
                finishes=any(move.finish_reason for move in moves),
            )
            if rng.random() < 0.02 and "x_vendor" not in self._vendor:
                empty = {"index": moves[0].choice, "delta": rng.choice([{}, {"content": ""}]), "finish_reason": None}
                yield self.chunk([empty], is_dropped=True)

    def chunk(
        self,
        choices: list[Any],
        *,
        events: tuple[Event, ...] = (),
        is_dropped: bool = False,
        finishes: bool = False,
        **more: Any,
    ) -> Piece:
        """One chunk."""
        payload = {**self._envelope, **self._vendor, "choices": choices, **more}
        if self._reverse:
            payload = dict(reversed(payload.items()))
        lines = [b"data: " + line.encode() for line in self._dump(payload).split("\n")]
        if self._has_ids:
            lines.insert(0, b"id: %d" % self._rng.randrange(1000))
        return Piece(self.lines(b"\n".join(lines)), events, is_dropped, finishes)

    def lines(self, text: bytes) -> bytes:
        """A frame of these lines."""
        return (text + b"\n\n").replace(b"\n", self._line_end)


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
