"""Cases in which the client is at fault, or just gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import attrs
from cases import Behaviour, Case, Draft, Request
from clients import Churns, Leaves, Reads, SendsRaw, Stops
from gateway import BODY_TIMEOUT, MAX_BODY_BYTES
from scripts import Act, Script, head, response, stream
from verdicts import CutOff, Expectation, Left, Nothing, Refused

__all__ = [
    "bad_request",
    "body_stalls",
    "body_too_large",
    "churn",
    "half_request",
    "leaves",
    "long_head",
    "noise",
    "other_protocol",
    "proxied_cut",
    "stops_reading",
]

_ANY: Final = range(100)
_MAYBE: Final = range(2)


def _unserved(
    draft: Draft, client: Behaviour, *expected: Expectation, request: Request | None = None, logs: range = range(1, 2)
) -> Case:
    """A case in which the upstream must not be asked."""
    return Case(draft.name, request or draft.request(), None, client, expected, attempts=range(1), logs=logs)


def leaves(draft: Draft) -> Case:
    """A client that goes away: before, during and behind its request, and at any byte of the response."""
    rng = draft.rng
    point = rng.choice(["connect", "head", "body", "request", "upstream", "upstream", "answer", "answer", "answer"])
    client = Leaves(point, rng.choice(["fin", "rst", "half"]), rng.random(), rng.randint(1, 12_000))
    if point in ("connect", "head", "body"):
        logs = _MAYBE if point == "body" else range(1)
        outcomes = frozenset({"client_left"}) if point == "body" else frozenset()
        kinds: list[Expectation] = [Left([], outcomes)]
        if client.way == "half":
            kinds.append(Nothing(outcomes=outcomes))
        return _unserved(draft, client, *kinds, logs=logs)
    talk = draft.talk(tokens=rng.randint(1, 150))
    outcomes = frozenset({"client_left", "ok"})
    kinds = [draft.left(talk, outcomes)]
    script = stream(rng, talk.raws, pause=0.05)
    if point != "answer" and rng.random() < 0.5:
        script = Script([Act.READ_BODY, Act.STALL])
    elif rng.random() < 0.5:
        cut = draft.cut(talk)
        script = draft.partly(cut.raws, Act.STALL, pause=0.05)
        kinds.append(draft.failed(cut, "upstream_idle_timeout", 504))  # it wanted more than there is
    if client.way == "half":
        kinds += [CutOff(draft.frames(talk), outcomes), Nothing(outcomes=outcomes)]
    return Case(
        draft.name,
        draft.request(),
        script,
        client,
        kinds,
        attempts=range(2),
        logs=_MAYBE,
        refusals=_ANY,
        checks_body=False,
    )


def half_request(draft: Draft) -> Case:
    """A request's head that never ends: the connection idles out."""
    whole = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: 5\r\n\r\n"
    data = whole[: draft.rng.randint(0, len(whole) - 2)]
    return _unserved(draft, SendsRaw(data, pieces=draft.rng.choice([1, 4]), pause=0.1), Nothing(), logs=range(1))


def stops_reading(draft: Draft) -> Case:
    """A client that takes nothing any more, of a flood that never ends."""
    draft.streams = True
    talk = draft.cut(draft.talk("text", 200, width=50), least=100)
    more = b"data: " + b"y" * 4000 + b"\n\n"
    flood = b"%x\r\n%b\r\n" % (len(more), more)
    expected = draft.left(attrs.evolve(talk), frozenset({"client_left"}))
    return Case(
        draft.name,
        draft.request(),
        draft.partly(talk.raws, flood, Act.FLOOD, pause=0),
        Stops(draft.rng.randint(0, 4000)),
        [expected],
        refusals=_ANY,
    )


def body_stalls(draft: Draft) -> Case:
    """A request's body that comes too slowly."""
    request = draft.request("x" * 5000)
    client = Reads(pieces=4, piece_pause=BODY_TIMEOUT * 0.7)
    return _unserved(draft, client, Refused(408, "body_timeout"), request=request)


def body_too_large(draft: Draft) -> Case:
    """A request's body over the limit, declared or in chunks."""
    request = draft.request("x" * (MAX_BODY_BYTES + draft.rng.randint(0, 500_000)))
    client = Reads(is_chunked=draft.rng.random() < 0.5, pieces=draft.rng.choice([1, 10]))
    return _unserved(draft, client, Refused(413, "body_too_large"), request=request)


def bad_request(draft: Draft) -> Case:
    """A request that cannot be served, in each way there is."""
    good = draft.request()
    identity = tuple(draft.identity())
    status, code, change = draft.rng.choice(_BAD_REQUESTS)
    if change.get("headers"):
        change = {**change, "headers": (*identity, *change["headers"])}
    elif draft.rng.random() < 0.5:
        change = {"headers": identity, **change}
    return _unserved(draft, Reads(), Refused(status, code), request=attrs.evolve(good, **change))


def noise(draft: Draft) -> Case:
    """Random bytes in place of HTTP, with line ends or without."""
    data = draft.rng.randbytes(draft.rng.randint(1, 40_000))
    if draft.rng.random() < 0.5:
        data = data[:200] + b"\r\n\r\n"
    client = SendsRaw(data, patience=draft.rng.choice([0, math.inf, math.inf]))
    return _unserved(draft, client, Nothing(frozenset({400, 431, 501})), logs=range(1))


def long_head(draft: Draft) -> Case:
    """Headers without measure."""
    lines = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(draft.rng.randint(70, 300)))
    client = SendsRaw(b"GET /live HTTP/1.1\r\nhost: gateway\r\n" + lines + b"\r\n")
    return _unserved(draft, client, Nothing(frozenset({400, 431})), logs=range(1))


def other_protocol(draft: Draft) -> Case:
    """TLS, WebSocket and HTTP/2, well and badly spoken. An HTTP/2 connection has no limit for its first request."""
    rng = draft.rng
    rest = rng.randbytes(rng.randint(0, 300))
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    upgrade = b"GET %b HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: %b\r\n"
    socket_headers = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    data, patience = rng.choice(
        [
            (hello + settings + rest, rng.random()),
            (hello + rest, rng.random()),
            (upgrade % (b"/live", b"h2c") + b"http2-settings: AAMAAABkAAQAAP__\r\n\r\n" + rest, rng.random()),
            (upgrade % (b"/v1/chat/completions", b"websocket") + socket_headers + rest, math.inf),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rest, math.inf),
        ]
    )
    return _unserved(draft, SendsRaw(data, patience=patience), Nothing(frozenset({101, 400, 404})), logs=range(1))


def churn(draft: Draft) -> Case:
    """Connections that come and go."""
    rng = draft.rng
    data = rng.choice([b"", b"", b"G", b"POST /v1/chat/completions HTTP/1.1\r\nho", rng.randbytes(5)])
    client = Churns(rng.randint(5, 30), data, rng.choice(["fin", "rst"]))
    return _unserved(draft, client, Nothing(), logs=range(1))


def proxied_cut(draft: Draft) -> Case:
    """A file that breaks off: half of it must not look whole."""
    body = draft.rng.randbytes(draft.rng.randint(2, 200_000))
    steps: list[Any] = [head(200, f"content-length: {len(body)}") + body[:-1], 0.05]
    script = Script([Act.READ_BODY, *steps, *draft.rng.choice([[Act.RESET], []])])
    request = attrs.evolve(draft.request(), body=b"", method="GET", path="/v1/files/1/content")
    expected: Sequence[Expectation] = [CutOff([body], frozenset({"upstream_reset"}))]
    return Case(draft.name, request, script, Reads(), expected)


_BAD_REQUESTS: Final[list[tuple[int, str, dict[str, Any]]]] = [
    (400, "invalid_json", {"body": b"{"}),
    (400, "invalid_json", {"body": b"\xff\xfe{}"}),
    (400, "invalid_json", {"body": b'{"messages": [], "x": "\xc3("}'}),
    (400, "invalid_json", {"body": b"[" * 100_000}),
    (400, "invalid_json", {"body": b"null"}),
    (400, "invalid_json", {"body": b"[]"}),
    (400, "missing_messages", {"body": b'{"stream": true}'}),
    (400, "missing_messages", {"body": b'{"stream": true, "messages": {}}'}),
    (400, "unknown_event_style", {"headers": [("callahead-event-style", "xml")]}),
    (404, "not_found", {"path": "/nothing/%00/here"}),
    (404, "not_found", {"path": "/", "method": "GET", "body": b""}),
    (405, "method_not_allowed", {"method": "GET", "body": b""}),
    (405, "method_not_allowed", {"method": "PUT"}),
]
