"""Cases in which the upstream is at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import attrs
from cases import Case, Draft
from clients import Reads
from conversations import Conversation
from gateway import MAX_FRAME_BYTES
from scripts import UNASKED, Act, Script, Step, head, response, stream
from verdicts import CutOff, ErrorFrame, Expectation, Passed, Refused, Whole

__all__ = [
    "answers_early",
    "bad_chunks",
    "breaks_off",
    "clean_cut",
    "comments_for_ever",
    "error_frame",
    "error_status",
    "half_error",
    "half_head",
    "hangs_up",
    "long_frame",
    "no_answer",
    "no_http",
    "no_stream",
    "random_stream",
    "reads_nothing",
    "stalls",
    "stalls_before_the_first",
    "stalls_before_the_last",
    "trickles",
]

_ANY: Final = range(100)
_ONCE_OR_AGAIN: Final = range(1, 3)
"""A request on a kept connection that breaks before a byte of the answer has come is sent once more."""
_FOREVER: Final = 40
_ENDS: Final[Sequence[Sequence[Step]]] = ([], [Act.RESET])
"""How a connection ends: closed, or reset."""


def _case(
    draft: Draft,
    steps: Sequence[Step] | Script,
    *expected: Expectation,
    attempts: range = range(1, 2),
    content: str = "hi",
) -> Case:
    script = steps if isinstance(steps, Script) else Script([Act.READ_BODY, *steps])
    request = draft.request(content)
    return Case(draft.name, request, script, Reads(), expected, attempts=attempts, refusals=_ANY)


def hangs_up(draft: Draft) -> Case:
    """A connection that is closed or reset in place of an answer."""
    steps = [draft.rng.random() * 0.1, *draft.rng.choice(_ENDS)]
    return _case(draft, steps, Refused(502, "upstream_reset"), attempts=_ONCE_OR_AGAIN)


def half_head(draft: Draft) -> Case:
    """Some of a response's head, then the end."""
    whole = head(200, "content-type: text/event-stream", "transfer-encoding: chunked")
    steps = [whole[: draft.rng.randint(1, len(whole) - 1)], 0.05, *draft.rng.choice(_ENDS)]
    kinds = [Refused(502, "upstream_reset"), Refused(502, "upstream_protocol")]
    return _case(draft, steps, *kinds, attempts=_ONCE_OR_AGAIN if draft.client == "httpx2" else range(1, 2))


def no_answer(draft: Draft) -> Case:
    """Silence in place of an answer, or of its second half."""
    begun = [] if draft.rng.random() < 0.5 else [b"HTTP/1.1 200 OK\r\ncontent-ty"]
    return _case(draft, [*begun, Act.STALL], Refused(504, "upstream_first_chunk_timeout"))


def no_http(draft: Draft) -> Case:
    """Random bytes in place of HTTP."""
    noise = draft.rng.randbytes(draft.rng.randint(1, 300)) + b"\r\n\r\n"
    kinds = [Refused(502, "upstream_protocol"), Refused(502, "upstream_reset")]
    return _case(draft, [noise, 0.05], *kinds, attempts=_ONCE_OR_AGAIN if draft.client == "httpx2" else range(1, 2))


def no_stream(draft: Draft) -> Case:
    """Status 200 and no event stream."""
    kind, body = draft.rng.choice(
        [
            ("application/json", b'{"error":{"message":"model not loaded"}}'),
            ("text/html", b"<html>Bad gateway</html>"),
            ("application/json", b""),
            ("application/json", b'{"broken'),
            ("application/json", b"[" * 100_000),
            ("image/png", draft.rng.randbytes(500)),
        ]
    )
    if kind == "image/png" and body.lstrip().startswith((b"data", b":", b"id", b"event", b"retry", b"\xef\xbb\xbf")):
        body = b"\x89" + body
    return _case(draft, [response(200, kind, body)], Refused(502, "upstream_not_a_stream"))


def error_status(draft: Draft) -> Case:
    """An error that the upstream says itself."""
    status = draft.rng.choice([400, 401, 404, 422, 429, 500, 503, 529])
    body = json.dumps({"error": {"message": "x" * draft.rng.randint(0, 5000), "code": None}}).encode()
    unasked = draft.rng.choice([b"", b"", UNASKED])
    script = Script([Act.READ_BODY, response(status, "application/json", body) + unasked], keeps_for=0.5)
    return _case(draft, script, Passed(status, body))


def half_error(draft: Draft) -> Case:
    """An error that breaks off."""
    begun: list[Step] = [head(500, "content-type: application/json", "content-length: 9000") + b"{" * 4000, 0.05]
    outcomes = frozenset({"upstream_reset"})
    return _case(draft, [*begun, *draft.rng.choice(_ENDS)], CutOff([b"{" * 4000], outcomes))


def breaks_off(draft: Draft) -> Case:
    """A connection that is closed or reset in the middle of a stream, often in the middle of a frame."""
    whole = draft.talk()
    talk = draft.cut(whole)
    frames = [*talk.raws, *_half_frame(draft, whole, talk)]
    if is_reset := draft.rng.random() < 0.5:
        script = draft.partly(frames, draft.rng.choice([0.0, 0.05]), Act.RESET)
    else:
        script = draft.partly(frames)
    kinds = [draft.failed(talk, "upstream_reset", may_lose=is_reset)]
    if is_reset:  # it may overtake the response's head
        kinds.append(Refused(502, "upstream_reset"))
    return _case(draft, script, *kinds, attempts=_ONCE_OR_AGAIN if is_reset else range(1, 2))


def clean_cut(draft: Draft) -> Case:
    """A stream that ends as it should, but too early."""
    whole = draft.talk()
    talk = draft.cut(whole)
    frames = [*talk.raws, *_half_frame(draft, whole, talk)]
    script = draft.partly(frames, b"0\r\n\r\n")
    return _case(draft, attrs.evolve(script, keeps_for=0.5), *_cut(draft, talk))


def bad_chunks(draft: Draft) -> Case:
    """A stream whose framing goes wrong."""
    talk = draft.cut(draft.talk())
    noise = draft.rng.choice(
        [b"zz\r\n", b"-5\r\nabc\r\n", b"\xff" * 20 + b"\r\n", b"f" * 20 + b"\r\n", b"5;" + b"x" * 300_000]
    )
    kinds = [draft.failed(talk, "upstream_protocol")]
    if draft.client == "httpx2":  # it waits for more of what cannot get better
        kinds.append(draft.failed(talk, "upstream_reset"))
    return _case(draft, draft.partly(talk.raws, noise, 0.2), *kinds)


def stalls(draft: Draft) -> Case:
    """Silence in the middle of a stream, often in the middle of a frame."""
    whole = draft.talk()
    talk = draft.cut(whole)
    script = draft.partly([*talk.raws, *_half_frame(draft, whole, talk)], Act.STALL)
    return _case(draft, script, draft.failed(talk, "upstream_idle_timeout", 504))


def stalls_before_the_first(draft: Draft) -> Case:
    """Silence behind the response's head."""
    talk = attrs.evolve(draft.talk("text", 1), pieces=(), has_done=True)
    script = draft.partly([], Act.STALL)
    return _case(draft, script, draft.failed(talk, "upstream_first_chunk_timeout", 504))


def stalls_before_the_last(draft: Draft) -> Case:
    """Every choice has finished, and then neither ``[DONE]`` nor the end."""
    whole = draft.talk(has_done=True)
    talk = attrs.evolve(whole, pieces=whole.pieces[:-1])
    return _case(draft, draft.partly(talk.raws, Act.STALL), draft.failed(talk, "upstream_idle_timeout", 504))


def trickles(draft: Draft) -> Case:
    """A frame that comes byte by byte and never ends: bytes are no frames."""
    talk = draft.cut(draft.talk())
    bits: list[Step] = [step for _ in range(_FOREVER) for step in (b"1\r\nx\r\n", 0.1)]
    script = draft.partly([*talk.raws, b'data: {"'], *bits, Act.STALL)
    return _case(draft, script, draft.failed(talk, "upstream_idle_timeout", 504))


def comments_for_ever(draft: Draft) -> Case:
    """Comments and no chunk, or no chunk any more: each counts as a frame, but the stream has a limit too."""
    is_first = draft.rng.random() < 0.7
    talk = draft.talk("text", 3)
    talk = attrs.evolve(talk, pieces=(), has_done=True) if is_first else draft.cut(talk)
    comments = [b": wait\n\n"] * _FOREVER
    bits: list[Step] = [step for _ in comments for step in (b"8\r\n: wait\n\n\r\n", 0.3)]
    code = "upstream_first_chunk_timeout" if is_first else "upstream_total_timeout"
    expected: Expectation = Refused(504, code)
    if draft.streams:
        expected = ErrorFrame([*draft.frames(talk), *comments], code, may_lose=True)
    return _case(draft, draft.partly(talk.raws, *bits, Act.STALL), expected)


def long_frame(draft: Draft) -> Case:
    """A frame over the limit, with an end or without one."""
    talk = draft.cut(draft.talk())
    piece = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    rest: list[Step] = [piece, Act.FLOOD] if draft.rng.random() < 0.3 else [piece] * (MAX_FRAME_BYTES // 0x8000 + 1)
    script = draft.partly([*talk.raws, b"data: "], *rest, b"2\r\n\n\n\r\n", Act.STALL)
    return _case(draft, script, draft.failed(talk, "frame_too_long"))


def random_stream(draft: Draft) -> Case:
    """An event stream of random bytes."""
    noise = b"~" + draft.rng.randbytes(draft.rng.randint(1, 100_000)).replace(b"data", b"DATA")  # never JSON
    expected: Expectation = Refused(502, "upstream_not_a_stream")
    if draft.streams:
        expected = ErrorFrame([noise], "upstream_cut", may_lose=True)
    return _case(draft, draft.partly([noise], b"0\r\n\r\n"), expected)


def error_frame(draft: Draft) -> Case:
    """The upstream says itself that it fails; what it says is passed on."""
    talk = draft.cut(draft.talk())
    form = draft.rng.choice(
        [
            b'data: {"error": {"message": "out of memory", "code": 503}}\n\n',
            b'event: error\ndata: {"error":{"message":"out of memory","code":503}}\n\n',
            b'data: {"object":"error","message":"out of memory","code":503}\n\n',
            b'data: {"error":{"message":"m","code":503},"choices":[{"index":0,"delta":{},"finish_reason":null}]}\n\n',
        ]
    )
    more = draft.rng.choice([[], [b": bye\n\n"], [b"data: [DONE]\n\n"]])
    script = draft.partly([*talk.raws, form, *more], b"0\r\n\r\n")
    expected: Expectation = Refused(503, "upstream_reported", said=503)
    if draft.streams:
        whole = draft.whole(talk)
        assert isinstance(whole, Whole)
        expected = attrs.evolve(whole, frames=[*whole.frames, form, *more], outcomes=frozenset({"upstream_reported"}))
    return _case(draft, script, expected)


def answers_early(draft: Draft) -> Case:
    """An answer that comes before the request has been read."""
    rng = draft.rng
    content = "x" * rng.randint(200_000, 800_000)
    talk = draft.talk("text", 10)
    if rng.random() < 0.5:
        whole = stream(rng, talk.raws, codings=["chunked", "length"])
        steps = [step for step in whole.steps if step is not Act.READ_BODY]
        case = _case(draft, Script([*steps, 0.1, Act.READ_BODY]), draft.whole(talk), content=content)
        return attrs.evolve(case, checks_body=False, refusals=draft.refusals(talk))
    body = b'{"error":{"message":"too large"}}'
    kinds: list[Expectation] = [Passed(413, body)]
    answer: list[Step] = [response(413, "application/json", body)]
    if rng.random() < 0.5:
        script = Script([*answer, 0.2, Act.READ_BODY])
    else:  # the system resets the connection, since there is something that nobody reads
        script = Script([*answer, rng.choice([0.0, 0.2])])
        kinds += [Refused(502, "upstream_reset"), CutOff([body], frozenset({"upstream_reset"}))]
    case = _case(draft, script, *kinds, content=content, attempts=_ONCE_OR_AGAIN)
    return attrs.evolve(case, checks_body=False)


def reads_nothing(draft: Draft) -> Case:
    """An upstream that does not read the request, and breaks off."""
    case = _case(
        draft,
        Script([0.2, Act.RESET]),
        Refused(502, "upstream_reset"),
        attempts=_ONCE_OR_AGAIN,
        content="x" * draft.rng.randint(10, 900_000),
    )
    return attrs.evolve(case, checks_body=False)


def _half_frame(draft: Draft, whole: Conversation, talk: Conversation) -> list[bytes]:
    """Perhaps the beginning of the next chunk, cut inside its JSON."""
    raw = whole.raws[len(talk.pieces)]
    if b'"choices"' not in raw or draft.rng.random() < 0.4:
        return []
    return [raw[: draft.rng.randint(raw.index(b"{") + 1, raw.rindex(b"}"))]]


def _cut(draft: Draft, talk: Conversation) -> list[Expectation]:
    """A cut before any chunk is, for a request that does not stream, no stream at all."""
    kinds = [draft.failed(talk, "upstream_cut")]
    if not draft.streams:
        kinds.append(Refused(502, "upstream_not_a_stream"))
    return kinds
