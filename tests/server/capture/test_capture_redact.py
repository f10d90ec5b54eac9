"""Redaction by JSON path."""

import copy
import time

import orjson
import pytest
from capture_helpers import record

from server.capture.record import RecordEncoder
from server.capture.redact import REDACTED, Redaction

ROOT = {
    "request": {
        "model": "m",
        "messages": [
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        ],
        "odd key": {"a.b": 1},
    },
    "response": {"choices": [{"message": {"content": "three", "tool_calls": [{"function": {"arguments": "{}"}}]}}]},
    "headers": {"user-agent": "sdk"},
}


def changes(path: str) -> dict[str, object]:
    """What a path changes: for each place that was redacted what stood there."""
    root = copy.deepcopy(ROOT)
    Redaction([path]).apply(root)
    found: dict[str, object] = {}

    def compare(before, after, place) -> None:
        if after == REDACTED:
            found[place] = before
        elif isinstance(before, (dict, list)):
            assert len(before) == len(after)
            for key in before if isinstance(before, dict) else range(len(before)):
                compare(before[key], after[key], f"{place}/{key}")
        else:
            assert before == after

    compare(ROOT, root, "")
    return found


@pytest.mark.parametrize(
    ("path", "places"),
    [
        (
            "$.messages[*].content",
            ["/request/messages/0/content", "/request/messages/1/content", "/request/messages/2/content"],
        ),
        ("$.request.messages[0].content", ["/request/messages/0/content"]),
        ("$.messages[0]", ["/request/messages/0"]),
        ("$.messages[9].content", []),
        ("$.messages.content", []),
        ("$.model[0]", []),
        ("$.nothing.here", []),
        ("$.response.choices[*].message.content", ["/response/choices/0/message/content"]),
        ("$['response']['choices'][0].message.content", ["/response/choices/0/message/content"]),
        ("$.response", ["/response"]),
        ("$.headers.user-agent", ["/headers/user-agent"]),
        ('$["odd key"]["a.b"]', ["/request/odd key/a.b"]),
        ("$['odd key'].*", ["/request/odd key/a.b"]),
        ("$.messages[1]..text", ["/request/messages/1/content/0/text"]),
        ("..text", ["/request/messages/1/content/0/text"]),
        (
            "$..arguments",
            [
                "/request/messages/2/tool_calls/0/function/arguments",
                "/response/choices/0/message/tool_calls/0/function/arguments",
            ],
        ),
        ("$..tool_calls[0]", ["/request/messages/2/tool_calls/0", "/response/choices/0/message/tool_calls/0"]),
        ("$..function..name", ["/request/messages/2/tool_calls/0/function/name"]),
        ("$..['a.b']", ["/request/odd key/a.b"]),
        ("$.*", ["/request", "/response", "/headers"]),
        ("$[*].model", ["/request/model"]),
    ],
)
def test_a_path_selects(path, places):
    """It replaces what it selects, of whatever type, and nothing else."""
    assert sorted(changes(path)) == sorted(places)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("", 1),
        ("$", 2),
        ("messages", 1),
        ("$.", 2),
        ("$..", 2),
        ("$.a[", 4),
        ("$.a[-1]", 4),
        ("$.a[?(@.b)]", 4),
        ("$.a b", 4),
        ("$...a", 2),
        ("$.a..", 4),
        ("$.a['b]", 4),
        ("$.a[0:2]", 4),
        ("$.a.[b]", 4),
    ],
)
def test_a_path_that_cannot_be_read(path, where):
    """One line that quotes the path, says where it goes wrong and shows what is right."""
    with pytest.raises(ValueError, match=r"it must be a path such as") as caught:
        Redaction(["$.a", path])
    assert str(caught.value).startswith(f'[1]: "{path}" cannot be read at character {where};')


def test_several_paths():
    """Each is applied; one below a value that is gone already does nothing."""
    root = copy.deepcopy(ROOT)
    Redaction(["$.messages", "$.messages[0].content", "$.model"]).apply(root)
    assert (root["request"]["messages"], root["request"]["model"]) == (REDACTED, REDACTED)
    assert not Redaction()


def test_in_a_record():
    """Request, response and headers of a record are redacted; the rest of it stays."""
    one = record(
        request=b'{"messages":[{"content":"secret"}],"n":1}',
        response={"choices": [{"message": {"content": "secret"}}]},
        headers=[(b"x-tag", b"secret")],
    )
    redaction = Redaction(["$..content", "$.headers.*"])
    line = RecordEncoder("u", 10_000, {"x-tag"}, redaction).encode(one).line
    assert b"secret" not in line
    assert orjson.loads(line)["request"] == {"messages": [{"content": REDACTED}], "n": 1}
    assert orjson.loads(line)["payload_complete"] is True


@pytest.mark.parametrize(
    "request_body", [b'{"content":"secret"', b"[" * 100_000 + b'"secret"' + b"]" * 100_000, b'{"a":"secret","n":NaN}']
)
def test_nothing_gets_out_of_what_cannot_be_read(request_body):
    """A request that cannot be parsed is withheld as a whole where there is something to redact."""
    line = RecordEncoder("u", 10**6, (), Redaction(["$.a", "$.content"])).encode(record(request=request_body)).line
    assert b"secret" not in line


def test_deep_and_repeated_descents_end_soon():
    """Neither depth nor a path of many descents costs more than the size of the value."""
    value = inner = {}
    for _ in range(5000):
        inner["a"] = inner = {}
    started = time.perf_counter()
    Redaction(["$..*..*..*..zz"]).apply({"request": value})
    assert time.perf_counter() - started < 1
