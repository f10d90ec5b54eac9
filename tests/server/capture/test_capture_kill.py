"""``kill -9`` while records are written, and what is left."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from server.capture.reader import read_capture

ROOT = Path(__file__).parents[3]

WRITER = """
import os
import signal
import sys
from pathlib import Path

import trio
from capture_helpers import record
from server.capture.file_sink import FileSink, FileSinkOptions
from server.capture.record import RecordEncoder

folder, form, fsync, killer = Path(sys.argv[1]), *sys.argv[2:]
filler = b'"' + os.urandom(20_000).hex().encode() + b'"'
real_write, writes = os.write, 0

def write(file, data):
    global writes
    writes += 1
    if killer == "itself" and writes > 30:
        real_write(file, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return real_write(file, data)

os.write = write

async def main():
    sink = FileSink(FileSinkOptions(path=folder, gzip=form == "gzip", fsync=fsync, roll_bytes=1_000_000))
    encoder = RecordEncoder("u", 10**9)
    number = 0
    while True:
        batch = range(number, number + 5)
        await sink.write([encoder.encode(record(each, request=filler)).line for each in batch])
        number += 5
        print(number, flush=True)

trio.run(main)
"""


@pytest.mark.parametrize("killer", ["itself", "another"])
@pytest.mark.parametrize(("form", "fsync"), [("plain", "batch"), ("gzip", "never")])
def test_what_was_reported_written_is_there_once(tmp_path, form, fsync, killer):
    """After a kill in the middle of a write, or whenever, each record that was reported is readable, and there once."""
    command = [sys.executable, "-c", WRITER, str(tmp_path), form, fsync, killer]
    path = f"{ROOT}:{Path(__file__).parent}"
    reported = 0
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": path}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            reported = int(line)
            if killer == "another" and reported == 150:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert reported >= 150
    found = Counter(each["request_id"] for file in tmp_path.iterdir() for each in read_capture(file))
    assert {f"r{number}" for number in range(reported)} <= found.keys()
    assert max(found.values()) == 1
    assert len(list(tmp_path.iterdir())) > 2
    if killer == "itself":
        assert len(found) < reported + 5


STOPPED = """
import os
import signal
import sys
import threading
from pathlib import Path

import structlog
import trio
from capture_helpers import make_capture, record
from server.capture.file_sink import FileSink, FileSinkOptions

released, real_write = threading.Event(), os.write

def write(file, data):
    released.wait(30)
    return real_write(file, data)

os.write = write
structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stderr))

async def main():
    it = make_capture({"a": FileSinkOptions(path=Path(sys.argv[1]))}, sink=FileSink, queue_records=100)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(it.capture.run)
            for number in range(1000):
                it.capture.offer(record(number))
                await trio.lowlevel.checkpoint()
            print("full", flush=True)
            await anext(signals)
            released.set()
            await it.capture.flush(trio.current_time() + 10)
    print(int(it.written()), int(it.lost("queue_full")), int(it.lost("shutdown")), flush=True)

trio.run(main)
"""


def test_sigterm_with_a_full_queue(tmp_path):
    """A process that is told to stop writes all that waits, and what it counts as written is what is there."""
    path = f"{ROOT}:{Path(__file__).parent}"
    command = [sys.executable, "-c", STOPPED, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": path}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"full\n"
        process.send_signal(signal.SIGTERM)
        written, refused, left = map(int, process.stdout.readline().split())
    assert process.returncode == 0
    found = [each["request_id"] for file in tmp_path.iterdir() for each in read_capture(file)]
    assert len(found) == len(set(found)) == written
    assert (written + refused, left) == (1000, 0)
    assert 100 <= written < 1000
