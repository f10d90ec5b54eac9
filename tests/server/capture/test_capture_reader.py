"""Captured records, read back."""

import gzip

import pytest
from capture_helpers import RESPONSE, record

from server.capture.reader import is_capture, read_capture
from server.capture.record import RecordEncoder
from server.errors import ConfigError

LINES = [RecordEncoder("u", 10**6).encode(record(number)).line + b"\n" for number in range(4)]
TORN = LINES[3][:50]


def ids(path) -> list[str]:
    """The request ids of a file's records."""
    return [each["request_id"] for each in read_capture(path)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"".join(LINES), 4),
        (b"".join(LINES[:3]) + TORN, 3),
        (b"".join(LINES[:3]) + LINES[3][:-1], 4),
        (LINES[0] + b"\n  \n" + LINES[1], 2),
        (TORN, 0),
        (b"", 0),
        (gzip.compress(LINES[0] + LINES[1]) + gzip.compress(LINES[2]), 3),
        (gzip.compress(LINES[0] + LINES[1]) + gzip.compress(LINES[2])[:30], 2),
        (gzip.compress(LINES[0] + LINES[1]) + gzip.compress(LINES[2])[:5], 2),
        (gzip.compress(LINES[0]) + b"\0" * 50, 1),
        (gzip.compress(LINES[0]) + b"\xff" * 50, 1),
        (gzip.compress(LINES[0])[:11], 0),
    ],
)
def test_reading(tmp_path, data, found):
    """Plain or compressed, each whole record is read, and a torn end is passed over."""
    path = tmp_path / "any.name"
    path.write_bytes(data)
    assert ids(path) == [f"r{number}" for number in range(found)]
    assert is_capture(path) is (found > 0)


def test_what_a_record_gives(tmp_path):
    """The response is there as it was captured."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(LINES[0])
    [found] = read_capture(str(path))
    assert found["response"] == RESPONSE


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (LINES[0] + b"torn\n" + LINES[1], "line 2: is not JSON: "),
        (LINES[0] + b'{"id":"c1"}\n', 'line 2: is no record with the schema "callahead.capture.v1"'),
        (b"[1]\n", 'line 1: is no record with the schema "callahead.capture.v1"'),
    ],
)
def test_what_is_no_capture(tmp_path, data, message):
    """One line that names the file, the line and what is wrong."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        ids(path)
    assert str(caught.value).startswith(f"capture {path}, {message}")


def test_no_file(tmp_path):
    """A file that is not there, or a folder, is one line; asking whether it is a capture is no error."""
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ConfigError, match=r"^capture .*: cannot be read: "):
            ids(path)
        assert not is_capture(path)


def test_a_recording_is_no_capture(tmp_path):
    """A ``.jsonl`` of chunks is told from one of records."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"object":"chat.completion.chunk","choices":[]}\n')
    assert not is_capture(path)
