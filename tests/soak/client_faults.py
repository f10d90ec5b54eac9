"""Cases in which the client is at fault, or just gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import attrs
from cases import Behaviour, Case, Draft, Request
from clients import Churns, Leaves, Reads, SendsRaw, Stops
from gateway import BODY_TIMEOUT, MAX_BODY_BYTES
from scripts import Act, Script, head, stream
from verdicts import Anything, CutOff, Expectation, Left, Nothing, Refused

__all__ = [
    "bad_request",
    "body_stalls",
    "body_too_large",
    "churn",
    "half_request",
    "leaves",
    "long_head",
    "mangled",
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
    way = rng.choice(["fin", "rst", "half"])
    client = Leaves(point, way, rng.random())
    if point in ("connect", "head", "body"):
        outcomes = frozenset({"client_left"}) if point == "body" else frozenset()
        logs = _MAYBE if outcomes else range(1)
        return _unserved(draft, client, Left([], outcomes), Nothing(outcomes=outcomes), logs=logs)
    outcomes = frozenset({"client_left", "ok"})
    talk = draft.talk(tokens=rng.randint(1, 150))
    script = stream(rng, talk.raws, pause=0.05)
    available = sum(map(len, talk.raws))
    if point != "answer" and rng.random() < 0.5:
        script = Script([Act.READ_BODY, Act.STALL])
    elif rng.random() < 0.5 and draft.streams:
        cut = draft.cut(talk)
        available = sum(map(len, draft.frames(cut)))
        script = draft.partly(cut.raws, Act.STALL, pause=0.05)
    kinds = [draft.left(talk, outcomes)]
    if way == "half":
        kinds += [CutOff(draft.frames(talk), outcomes), Nothing(outcomes=outcomes)]
    return Case(
        draft.name,
        draft.request(),
        script,
        attrs.evolve(client, after=rng.randint(1, available)),
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
    parts = draft.rng.choice([[data], [data[:10], data[10:20], data[20:]]])
    return _unserved(draft, SendsRaw(parts, pause=0.2), Nothing(), logs=range(1))


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
    client = SendsRaw([data], patience=draft.rng.choice([0, math.inf, math.inf]))
    return _unserved(draft, client, Nothing(frozenset({400, 431, 501})), logs=range(1))


def long_head(draft: Draft) -> Case:
    """Headers without measure."""
    lines = b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(draft.rng.randint(70, 300)))
    client = SendsRaw([b"GET /live HTTP/1.1\r\nhost: gateway\r\n" + lines + b"\r\n"])
    return _unserved(draft, client, Nothing(frozenset({400, 431})), logs=range(1))


def mangled(draft: Draft) -> Case:
    """A request with bytes changed, in its first lines or in the framing of its body."""
    rng = draft.rng
    request = draft.request()
    start = bytearray(b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n")
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers).encode()
    half = len(request.body) // 2
    body = bytearray(b"%x\r\n%b\r\n" % (half, request.body[:half]))
    body += b"%x\r\n%b\r\n0\r\n\r\n" % (len(request.body) - half, request.body[half:])
    if rng.random() < 0.4:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(start) - 2)
            if start[at] not in b"\r\n":
                start[at] = rng.randint(0x20, 0xFF)
    else:
        for _ in range(rng.randint(1, 4)):
            at = rng.choice([0, 1, 2, half + 5, half + 6, half + 7, len(body) - 5, rng.randrange(len(body))])
            body[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    parts = [bytes(start) + lines + b"\r\n", bytes(body)]
    if rng.random() < 0.5:
        parts = [b"".join(parts)]
    outcomes = {"ok", "client_left", "invalid_json", "missing_messages", "not_found", "method_not_allowed"}
    outcomes |= {"body_timeout", "upstream_status", "upstream_reset", "upstream_protocol", "invalid_header"}
    return Case(
        draft.name,
        request,
        stream(rng, draft.talk("text", 3).raws),
        SendsRaw(parts, pause=0.05, patience=3),
        [Anything(frozenset(outcomes))],
        attempts=range(3),
        logs=_MAYBE,
        refusals=_ANY,
        checks_body=False,
    )


def other_protocol(draft: Draft) -> Case:
    """TLS, WebSocket and HTTP/2, well and badly spoken: refused at once, or ignored where it is an offer."""
    rng = draft.rng
    rest = rng.randbytes(rng.choice([0, 1, 30, 300]))
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    upgrade = b"GET %b HTTP/1.1\r\nhost: gateway\r\nconnection: upgrade\r\nupgrade: %b\r\n"
    socket_headers = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    length = rng.choice([b"", b"content-length: 3\r\n"])
    path = rng.choice([b"/live", b"/v1/chat/completions", b"/%FF"])
    http2, websocket = Refused(505, "http_version_not_supported"), Refused(404, "not_found")
    options: list[tuple[list[bytes], Expectation]] = [
        ([hello + settings, rest], http2),
        ([hello, rest], http2),
        ([hello + settings + _http2_head(b":method", b"GET", b":path", b"/\xff", b":scheme", b"http")], http2),
        ([upgrade % (path, b"websocket") + socket_headers + length + b"\r\n", rest], websocket),
        ([upgrade % (path, b"h2c") + b"http2-settings: AAMAAABkAAQAAP__\r\n\r\n", rest], _SERVED),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rest], Nothing()),
    ]
    parts, expected = rng.choice(options)
    if rng.random() < 0.5:
        parts = [b"".join(parts)]
    patience = 5 if isinstance(expected, Refused) else 1
    case = _unserved(draft, SendsRaw(parts, pause=0.1, patience=patience), expected, logs=range(1))
    return attrs.evolve(case, is_anonymous=expected is _SERVED)


def _http2_head(*fields: bytes) -> bytes:
    """A HEADERS frame on stream 1 that does not end it: each field a literal, never indexed (RFC 7541, 6.2.3)."""
    block = b"".join(b"%b%c%b" % (b"" if at % 2 else b"\x10", len(text), text) for at, text in enumerate(fields))
    return _http2_frame(1, block, flags=4)


def _http2_frame(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, 1]) + payload


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


_SERVED: Final = Nothing(frozenset({200, 404, 405}))
_STREAMING: Final = b'{"stream": true, "messages": []}'
_BAD_REQUESTS: Final[list[tuple[int, str, dict[str, Any]]]] = [
    (400, "invalid_json", {"body": b"{"}),
    (400, "invalid_json", {"body": b"\xff\xfe{}"}),
    (400, "invalid_json", {"body": b'{"messages": [], "x": "\xc3("}'}),
    (400, "invalid_json", {"body": b"[" * 100_000}),
    (400, "invalid_json", {"body": b"null"}),
    (400, "invalid_json", {"body": b"[]"}),
    (400, "missing_messages", {"body": b'{"stream": true}'}),
    (400, "missing_messages", {"body": b'{"stream": true, "messages": {}}'}),
    (400, "unknown_event_style", {"body": _STREAMING, "headers": [("callahead-event-style", "xml")]}),
    (404, "not_found", {"path": "/nothing/%00/here"}),
    (404, "not_found", {"path": "/", "method": "GET", "body": b""}),
    (405, "method_not_allowed", {"method": "GET", "body": b""}),
    (405, "method_not_allowed", {"method": "PUT"}),
]
