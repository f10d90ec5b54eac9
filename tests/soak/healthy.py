"""Cases in which nothing is wrong, though much is unusual: every one must come out exactly right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from cases import Case, Draft
from clients import Pipelines, Reads
from conversations import Conversation
from gateway import IDLE_TIMEOUT, MAX_BODY_BYTES, MAX_FRAME_BYTES
from scripts import UNASKED, Act, Script, Step, body_steps, head, response, stream
from verdicts import Expectation, Passed

__all__ = [
    "big_body",
    "completion",
    "flood",
    "long_frame",
    "nap",
    "odd_frame",
    "pipelined",
    "proxied",
    "rest",
    "silence",
    "slow_reader",
    "slow_tokens",
    "stray_bytes",
]

_NEVER_JSON: Final = (
    b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"},"finish_reason":null}]}',
    b"data: \xc3\x28",
    b": \xed\xa0\x80 half a surrogate",
    b"event: \xff\xff\ndata: x",
    b"\xfe\xff: y",
)
_STREAM_HEAD: Final = head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
_BEHIND_THE_LAST: Final[Sequence[tuple[Any, bool, bool]]] = (
    (b"data: late\n\n", True, True),
    (Act.STALL, False, False),
    (b"0\r\n\r\n" + UNASKED, False, False),
    (b"0\r\n\r\nHTTP/1.1 2", False, False),
)
"""What follows ``[DONE]``, whether it is part of the body, and whether the body ends."""
_SLOWEST: Final = 32_000
"""Bytes a second. A system with a small buffer takes some 6 KB at a time: well within ``WRITE_TIMEOUT``, and all of it
within half of ``TOTAL_TIMEOUT``."""


def _case(draft: Draft, talk: Conversation, script: Script | None = None, client: Reads | None = None) -> Case:
    return Case(
        draft.name,
        draft.request(),
        script or stream(draft.rng, talk.raws),
        client or Reads(),
        [draft.whole(talk)],
        refusals=draft.refusals(talk),
    )


def completion(draft: Draft) -> Case:
    """Text, reasoning, parallel calls, several choices; streamed and not; one or more on a connection."""
    case = _case(draft, draft.talk())
    times = draft.rng.choice([1, 1, 1, 2, 3])
    if times == 1:
        return case
    refusals = range(case.refusals.start * times, case.refusals.start * times + 1)
    return attrs.evolve(case, requests=times, refusals=refusals)


def rest(draft: Draft) -> Case:
    """A short completion that leaves no connection behind: thrown where there is no load."""
    draft.streams = True
    talk = draft.talk("text", 3)
    opening = _STREAM_HEAD.replace(b"transfer", b"connection: close\r\ntransfer")
    script = Script([Act.READ_BODY, opening, *body_steps(draft.rng, talk.raws, 0)])
    case = _case(draft, talk, script)
    return attrs.evolve(case, request=draft.request(headers=[("connection", "close")]))


def slow_tokens(draft: Draft) -> Case:
    """A model that takes its time: silences of up to half of what is allowed, two of which may meet."""
    rng = draft.rng
    talk = draft.talk(tokens=rng.randint(2, 12))
    pauses = {at: rng.random() * IDLE_TIMEOUT / 4 for at in rng.sample(range(len(talk.raws)), min(len(talk.raws), 8))}
    steps: list[Step] = []
    for at, raw in enumerate(talk.raws):
        steps += [pauses.get(at, 0.0), *body_steps(rng, [raw], 0, ends=False)]
    return _case(draft, talk, Script([Act.READ_BODY, _STREAM_HEAD, *steps, b"0\r\n\r\n"]))


def flood(draft: Draft) -> Case:
    """Megabytes as fast as they go."""
    talk = draft.talk("text", draft.rng.randint(200, 2000), width=draft.rng.randint(1, 150))
    return _case(draft, talk, stream(draft.rng, talk.raws, pause=0))


def long_frame(draft: Draft) -> Case:
    """A frame that is just short enough."""
    size = MAX_FRAME_BYTES - draft.rng.randint(100, 5000)
    foreign = draft.rng.choice([b'data: "%b"', b": %b", b"event: x\ndata: %b"]) % (b"x" * size)
    return _case(draft, draft.talk(foreign=foreign))


def odd_frame(draft: Draft) -> Case:
    """Bad UTF-8 and random bytes in a frame: none of the gateway's business."""
    foreign = draft.rng.choice([*_NEVER_JSON, None, None])
    if foreign is None:
        noise = draft.rng.randbytes(draft.rng.randint(1, 2000))
        foreign = b"\xf7" + noise.translate(None, b"\r\n")
    return _case(draft, draft.talk(foreign=foreign))


def silence(draft: Draft) -> Case:
    """``[DONE]``, then more frames, or a body that never ends, or bytes that nobody asked for."""
    rng = draft.rng
    talk = draft.talk(has_done=True)
    extra, is_in_body, ends = rng.choice(_BEHIND_THE_LAST)
    steps = body_steps(rng, [*talk.raws, *([extra] if is_in_body else [])], 0.01, ends=ends)
    if not is_in_body:
        steps.append(extra)
    keeps_for = rng.choice([None, 0.5])
    return _case(draft, talk, Script([Act.READ_BODY, _STREAM_HEAD, *steps], keeps_for=keeps_for))


def slow_reader(draft: Draft) -> Case:
    """A client that reads little at a time: the gateway waits for it.

    The upstream writes all at once: of many small segments that nobody takes Linux drops some, and sends them again
    after seconds.
    """
    rng = draft.rng
    talk = draft.talk("text", rng.randint(20, 60), width=100)  # a small buffer may take 200 ms for each 2 KB
    max_bytes = rng.randint(500, 4000)
    pause = rng.random() * min(max_bytes, 2000) / _SLOWEST  # its buffer holds no more
    client = Reads(max_bytes=max_bytes, pause=pause, receive_buffer=4096)
    body = b"".join(b"%x\r\n%b\r\n" % (len(raw), raw) for raw in talk.raws)
    return _case(draft, talk, Script([Act.READ_BODY, _STREAM_HEAD + body + b"0\r\n\r\n"]), client)


def nap(draft: Draft) -> Case:
    """A client that rests for longer than the upstream may be silent, in the middle of megabytes."""
    draft.streams = True
    talk = draft.talk("text", 1200, width=600)
    script = Script([Act.READ_BODY, _STREAM_HEAD, *body_steps(draft.rng, talk.raws, 0)])
    rest = (draft.rng.randint(1, 1_000_000), IDLE_TIMEOUT + 0.3)
    return _case(draft, talk, script, Reads(nap=rest, receive_buffer=8192))


def big_body(draft: Draft) -> Case:
    """A request of some hundred kilobytes, whole or in chunks, at once or bit by bit."""
    rng = draft.rng
    talk = draft.talk()
    client = Reads(pieces=rng.choice([1, 5, 20]), piece_pause=rng.random() * 0.03, is_chunked=rng.random() < 0.5)
    request = draft.request("x" * rng.randint(50_000, MAX_BODY_BYTES * 9 // 10))
    return attrs.evolve(_case(draft, talk, client=client), request=request)


def pipelined(draft: Draft) -> Case:
    """Requests that do not wait for the responses before them."""
    talk = draft.talk()
    case = attrs.evolve(_case(draft, talk), client=Pipelines(), requests=draft.rng.randint(2, 3))
    number = case.refusals.start * case.requests
    return attrs.evolve(case, refusals=range(number, number + 1))


def stray_bytes(draft: Draft) -> Case:
    """A line end that nobody asked for behind the request."""
    return _case(draft, draft.talk(), client=Reads(stray=b"\r\n"))


def proxied(draft: Draft) -> Case:
    """Another endpoint: any bytes, both ways."""
    rng = draft.rng
    sent, received = rng.randbytes(rng.randint(0, 100_000)), rng.randbytes(rng.randint(0, 300_000))
    request = attrs.evolve(draft.request(), body=sent, path="/v1/embeddings?a=%20b&c=//")
    unasked = rng.choice([b"", b"", UNASKED])
    script = Script([Act.READ_BODY, response(200, "application/octet-stream", received) + unasked], keeps_for=1)
    expected: list[Expectation] = [Passed(200, received)]
    return Case(draft.name, request, script, Reads(), expected)
