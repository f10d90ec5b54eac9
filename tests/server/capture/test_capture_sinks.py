"""The sink ``stderr``, and the one in the docs."""

import json
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from capture_helpers import make_capture, record

from server.capture.sink import NoSinkOptions, Sink, SinkError
from server.capture.stderr_sink import StderrSink

DOCS = Path(__file__).parents[3] / "docs" / "capture.md"


class TestStderr:
    """Records beside the log."""

    async def test_a_line_each(self, monkeypatch, tmp_path):
        """Each record is a line of its own on standard error, and there at once."""
        path = tmp_path / "stderr"
        with path.open("w") as file:
            monkeypatch.setattr(sys, "stderr", file)
            sink = StderrSink(NoSinkOptions())
            await sink.write([b'{"a":1}', b'{"a":2}'])
            assert path.read_bytes() == b'{"a":1}\n{"a":2}\n'
        await sink.aclose()

    async def test_nobody_reads(self, monkeypatch):
        """A pipe without a reader is a failure like any other."""

        def write(_: bytes) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        monkeypatch.setattr(sys, "stderr", SimpleNamespace(buffer=SimpleNamespace(write=write)))
        with pytest.raises(BrokenPipeError):
            await StderrSink(NoSinkOptions()).write([b"{}"])


class TestSqlite:
    """The example of the docs is a sink that works."""

    @pytest.fixture
    def module(self):
        """The example's names."""
        [code] = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
        names: dict = {"__name__": "sqlite_sink"}
        exec(compile(code, str(DOCS), "exec"), names)
        return names

    async def test_records_become_rows(self, module, tmp_path):
        """Each record is a row, once, when capture has been flushed."""
        options = module["SqliteOptions"](path=tmp_path / "c.sqlite3")
        it = make_capture({"sqlite": options}, sink=module["SqliteSink"])
        async with trio.open_nursery() as nursery:
            await nursery.start(it.capture.run)
            for number in range(20):
                it.capture.offer(record(number))
            await it.capture.flush(trio.current_time() + 5)
        database = sqlite3.connect(options.path)
        rows = database.execute("SELECT request_id, model, record FROM records ORDER BY rowid").fetchall()
        database.close()
        assert [row[0] for row in rows] == [f"r{number}" for number in range(20)]
        assert json.loads(rows[0][2])["payload_complete"] is True
        assert it.written("sqlite") == 20

    async def test_a_table_that_is_gone(self, module, tmp_path):
        """The database's own error becomes the sink's."""
        sink = module["SqliteSink"](module["SqliteOptions"](path=tmp_path / "c.sqlite3"))
        database = sqlite3.connect(tmp_path / "c.sqlite3")
        database.execute("DROP TABLE records")
        database.close()
        with pytest.raises(SinkError, match="no such table"):
            await sink.write([b'{"request_id":"r"}'])
        await sink.aclose()


async def test_a_sink_must_say_how_it_writes():
    """A subclass without ``write`` is a bug that says so; closing is optional."""
    sink = Sink(NoSinkOptions())
    with pytest.raises(NotImplementedError):
        await sink.write([b"{}"])
    await sink.aclose()
