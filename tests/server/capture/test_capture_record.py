"""What a record holds, and the line that it becomes."""

import json

import attrs
import orjson
import pytest
from capture_helpers import RESPONSE, record
from hypothesis import given
from hypothesis import strategies as st

from server.capture.headers import checked_header_names, picked_headers
from server.capture.record import CapturedDispatch, RecordEncoder
from server.capture.redact import Redaction

LIMIT = 8 * 1024 * 1024
HEADERS = [
    (b"user-agent", b"sdk/1"),
    (b"x-tag", b"a"),
    (b"x-tag", b""),
    (b"x-tag", b"b"),
    (b"x-latin", b"caf\xe9"),
    (b"authorization", b"Bearer secret"),
    (b"cookie", b"secret"),
    (b"x-api-key", b"secret"),
    (b"x-other", b"1"),
]


def encoded(one, **options) -> dict:
    """The record as a reader finds it."""
    line = RecordEncoder("http://up/v1", **{"max_record_bytes": LIMIT} | options).encode(one).line
    assert b"\n" not in line
    return orjson.loads(line)


def test_all_that_a_record_tells():
    """Envelope, payload, dispatches and timings, under the names of the schema."""
    found = encoded(
        record(
            7,
            dispatches=[CapturedDispatch(0, 1, 0.5, 1.25), CapturedDispatch(0, 2, 0.75)],
            first_chunk=0.1234567,
            last_chunk=1.9,
        )
    )
    assert found == {
        "schema": "callahead.capture.v1",
        "arrival_unix_ms": 1790000000123,
        "request_id": "r7",
        "endpoint": "chat_completions",
        "model": "demo-7b",
        "upstream": "http://up/v1",
        "request": {"model": "demo-7b", "messages": []},
        "response": RESPONSE,
        "payload_complete": True,
        "dispatches": [
            {"choice_index": 0, "call_index": 1, "at_seconds": 0.5, "lead_seconds": 1.25},
            {"choice_index": 0, "call_index": 2, "at_seconds": 0.75, "lead_seconds": None},
        ],
        "timings": {"first_chunk_seconds": 0.123457, "last_chunk_seconds": 1.9, "total_seconds": 2.0},
    }


@pytest.mark.parametrize(
    ("response", "reason", "complete", "said"),
    [
        (RESPONSE, None, True, None),
        (RESPONSE, "aggregation_failed:kaput", False, "aggregation_failed:kaput"),
        (None, "response_stream_dropped", False, "response_stream_dropped"),
        (None, None, False, "unspecified"),
        (None, "", False, "unspecified"),
        ({}, None, True, None),
    ],
)
def test_complete_exactly_with_a_response_and_no_reason(response, reason, complete, said):
    """Absent keys are left out; neither response nor reason is ``unspecified``."""
    found = encoded(record(response=response, drop_reason=reason))
    assert found["payload_complete"] is complete
    assert found.get("payload_drop_reason") == said
    assert found.get("response") == response
    assert "headers" not in found


class TestPayload:
    """JSON as the value it is, byte for byte, and readable whatever it was."""

    def test_bytes_are_kept(self):
        """Spacing, escapes, doubled keys and long integers stay as the client wrote them."""
        request = b'{ "a":1, "a" :2,"n":123456789012345678901234567890,"e":1.50,"s":"\\u0041"}'
        assert b'"request":' + request in RecordEncoder("u", LIMIT).encode(record(request=request)).line

    def test_line_ends_between_tokens(self):
        """A request that was sent over several lines stays one line, and the same value."""
        request = json.dumps({"a": ["x\ny", {"b": None}]}, indent=2).replace("\n", "\r\n").encode()
        assert encoded(record(request=request))["request"] == {"a": ["x\ny", {"b": None}]}

    @pytest.mark.parametrize(
        "request_body",
        [b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"a":1e999}', b"not json", b'{"a":"\xff"}', b"[" * 2000 + b"]" * 2000],
        ids=["nan", "surrogate", "infinite", "no json", "no utf-8", "deep"],
    )
    def test_what_not_every_reader_takes_is_text(self, request_body):
        """It stands in the record as text, and the record can be read by anybody."""
        assert encoded(record(request=request_body))["request"] == request_body.decode(errors="replace")

    def test_odd_responses(self):
        """A response that orjson cannot write as it is is text too; the record stays whole."""
        found = encoded(record(response={"a": "\ud800"}, model="m\ud800", drop_reason="x\udfff"))
        assert (found["response"], found["model"], found["payload_drop_reason"]) == ('{"a":"\\ud800"}', "m?", "x?")

    def test_without_a_body(self):
        """An empty body is no request."""
        assert "request" not in encoded(record(request=b""))

    @given(
        st.binary(max_size=60),
        st.text(max_size=20),
        st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=5),
    )
    def test_always_one_readable_line(self, request_body, text, value):
        """No bytes, text or value makes a record that cannot be read, with redaction or without."""
        for redaction in (Redaction(), Redaction(["$..a", "$.request", "$.response.v[*]"])):
            one = record(request=request_body, model=text, drop_reason=text, response={"v": value})
            assert encoded(one, redaction=redaction)["request_id"] == "r0"


class TestSize:
    """A record over the limit keeps its envelope and says so."""

    def test_at_the_limit(self):
        """A line of exactly the limit is whole; one byte less is too little."""
        whole = RecordEncoder("u", LIMIT).encode(record())
        assert not whole.is_cut
        assert RecordEncoder("u", len(whole.line)).encode(record()) == whole
        assert RecordEncoder("u", len(whole.line) - 1).encode(record()).is_cut

    def test_what_is_left(self):
        """Request and response are gone, everything else is there, and the reason names both sizes."""
        one = record(request=b'"' + b"x" * 5000 + b'"', drop_reason="aggregation_failed:x", headers=[(b"a", b"1")])
        actual = len(RecordEncoder("u", LIMIT, {"a"}).encode(one).line)
        cut = RecordEncoder("u", 1000, {"a"}).encode(one)
        found = orjson.loads(cut.line)
        assert cut.is_cut
        assert len(cut.line) < 1000
        assert not found.keys() & {"request", "response"}
        assert found["payload_complete"] is False
        assert found["payload_drop_reason"] == f"record_too_large:max_bytes=1000:actual_bytes={actual}"
        assert (found["headers"], found["timings"]) == ({"a": "1"}, {"total_seconds": 2.0})

    def test_a_huge_name(self):
        """The envelope is small also where the model's name is what was too large."""
        assert len(encoded(record(model="m" * 100_000), max_record_bytes=1000)["model"]) == 256


class TestHeaders:
    """Listed ones only, and never a secret."""

    def test_none_by_default(self):
        """Without a list there are none."""
        assert "headers" not in encoded(record(headers=HEADERS))

    def test_listed(self):
        """Names in lower case, values as they were, repeated ones joined, empty ones left out."""
        allowed = checked_header_names(["X-Tag", "x-latin", "x-absent"])
        assert encoded(record(headers=HEADERS), headers=allowed)["headers"] == {"x-tag": "a, b", "x-latin": "café"}

    def test_secrets_even_when_listed(self):
        """A secret is not in the record, whoever listed it."""
        everything = {name.decode() for name, _ in HEADERS}
        found = picked_headers(HEADERS, everything)
        assert found.keys() == {"user-agent", "x-tag", "x-latin", "x-other"}

    @pytest.mark.parametrize(
        "name", ["Authorization", "proxy-authorization", "COOKIE", "Set-Cookie", "api-key", "X-Goog-Api-Key"]
    )
    def test_secrets_are_refused(self, name):
        """Listing a secret is an error that names it."""
        with pytest.raises(
            ValueError, match=rf'^\[1\]: is "{name}"; credentials, cookies and API keys are never captured$'
        ):
            checked_header_names(["user-agent", name])

    @pytest.mark.parametrize("name", ["", "a b", "a:", "é", "x\n"])
    def test_no_name(self, name):
        """What can be no header's name is an error."""
        with pytest.raises(ValueError, match=r"^\[0\]: is .*; it must be the name of a header"):
            checked_header_names([name])


def test_a_record_is_only_read():
    """Encoding with redaction leaves the response alone, which others may hold."""
    response = {"choices": [{"message": {"content": "x"}}]}
    one = record(response=response)
    encoded(one, redaction=Redaction(["$..content"]))
    assert attrs.asdict(one)["response"] == {"choices": [{"message": {"content": "x"}}]}
