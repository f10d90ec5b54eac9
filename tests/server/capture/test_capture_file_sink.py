"""The sink ``file``: whole lines, rolled, on a disk that may be full."""

import errno
import fcntl
import gzip
import os
import re
import resource
import stat
import threading
from contextlib import contextmanager

import pytest
import structlog
import trio
from capture_helpers import lines_in, segments

from server.capture.file_sink import FileSink, FileSinkOptions
from server.capture.sink import SinkError

LINES = [b'{"n":%d,"x":"%s"}' % (number, b"x" * 20) for number in range(40)]
SIZE = len(LINES[0]) + 1


@pytest.fixture
def folder(tmp_path):
    """Where the files go; not there yet."""
    return tmp_path / "captures" / "deeper"


@pytest.fixture
def log():
    """What is logged."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def make_sink(folder, **options) -> FileSink:
    """A sink without any rolling, but for what ``options`` say."""
    return FileSink(FileSinkOptions(**{"path": folder, "roll_seconds": 0} | options))


@contextmanager
def file_size_limit(size: int):
    """No file of this process may grow beyond so many bytes; a write over it is short, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def failing(monkeypatch, name: str, number: int = errno.EIO, *, short: int | None = None):
    """A function of ``os`` fails; ``write`` takes ``short`` bytes first."""
    real_write, calls = os.write, []

    def fake(*args, **kwargs):
        calls.append(args)
        if short is not None and len(calls) == 1:
            return real_write(args[0], bytes(args[1])[:short])
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fake)
        yield calls


@pytest.mark.parametrize("compress", [False, True])
async def test_lines_as_they_came(folder, compress):
    """What is written is read back in order, before the file is closed and after; the owner alone may read it."""
    sink = make_sink(folder, gzip=compress)
    await sink.write(LINES[:3])
    assert lines_in(folder) == LINES[:3]
    await sink.write(LINES[3:5])
    await sink.aclose()
    assert lines_in(folder) == LINES[:5]
    [path] = segments(folder)
    ending = r"jsonl\.gz" if compress else "jsonl"
    assert re.fullmatch(rf"payloads-\d{{8}}T\d{{6}}-001\.{ending}", path.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_short_writes(folder, monkeypatch):
    """A file system that takes a few bytes at a time gets all of them, once."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:7]))
    sink = make_sink(folder)
    await sink.write(LINES[:3])
    await sink.aclose()
    assert lines_in(folder) == LINES[:3]


async def test_nothing_written_leaves_no_file(folder):
    """A sink that is made and closed makes no file, and closing twice is no error."""
    sink = make_sink(folder)
    await sink.aclose()
    await sink.aclose()
    assert segments(folder) == []


async def test_a_closed_sink_writes_nothing(folder):
    """A batch after the end is refused."""
    sink = make_sink(folder)
    await sink.aclose()
    with pytest.raises(SinkError, match="closed"):
        await sink.write(LINES[:1])
    assert segments(folder) == []


class TestRolling:
    """By size, by age, at each start."""

    @pytest.mark.parametrize("compress", [False, True])
    async def test_by_size(self, folder, compress):
        """No file is over the size, whatever the batches, and no line is lost or doubled."""
        limit = 5 * SIZE
        sink = make_sink(folder, roll_bytes=limit, gzip=compress)
        await sink.write(LINES[:13])
        for line in LINES[13:]:
            await sink.write([line])
        await sink.aclose()
        assert lines_in(folder) == LINES
        sizes = [path.stat().st_size for path in segments(folder)]
        assert len(sizes) > 2
        assert max(sizes) <= limit

    async def test_a_line_over_the_size(self, folder):
        """It gets a file of its own."""
        sink = make_sink(folder, roll_bytes=SIZE)
        huge = b'{"x":"%s"}' % (b"x" * 500)
        await sink.write([LINES[0], huge, LINES[1]])
        await sink.aclose()
        assert [path.read_bytes().splitlines() for path in segments(folder)] == [[LINES[0]], [huge], [LINES[1]]]

    async def test_by_age(self, folder, mock_clock):
        """A file is followed by another once it is old and there is something to write; 0 is any age."""
        sink, ageless = make_sink(folder, roll_seconds=60), make_sink(folder / "ageless")
        for one in (sink, ageless):
            await one.write(LINES[:1])
        mock_clock.jump(59)
        await sink.write(LINES[1:2])
        assert len(segments(folder)) == 1
        mock_clock.jump(1)
        assert len(segments(folder)) == 1
        for one in (sink, ageless):
            await one.write(LINES[2:3])
        assert len(segments(folder)) == 2
        mock_clock.jump(59)
        await sink.write(LINES[3:4])
        for one in (sink, ageless):
            await one.aclose()
        assert [path.read_bytes().splitlines() for path in segments(folder)] == [LINES[:2], LINES[2:4]]
        assert len(segments(folder / "ageless")) == 1

    async def test_each_start(self, folder):
        """A start never appends to a file that was there, nor do two processes share one."""
        first, second = make_sink(folder), make_sink(folder)
        await first.write(LINES[:1])
        await second.write(LINES[1:2])
        await first.write(LINES[2:3])
        await first.aclose()
        await second.aclose()
        assert sorted(path.read_bytes() for path in segments(folder)) == sorted(
            [LINES[0] + b"\n" + LINES[2] + b"\n", LINES[1] + b"\n"]
        )

    async def test_somebody_deletes_the_file(self, folder):
        """What is written afterwards goes to a new file, not to nowhere; the folder may be gone as well."""
        sink = make_sink(folder)
        await sink.write(LINES[:1])
        segments(folder)[0].unlink()
        folder.rmdir()
        await sink.write(LINES[1:2])
        await sink.aclose()
        assert lines_in(folder) == LINES[1:2]


class TestFsync:
    """When the disk is asked to keep what it was given."""

    @pytest.mark.parametrize(("policy", "in_batches", "at_close"), [("never", 0, 0), ("batch", 3, 3), ("close", 1, 2)])
    async def test_policy(self, folder, monkeypatch, policy, in_batches, at_close):
        """Never; after each batch; once a file is finished. A new file's name is kept as its content is."""
        calls, real = [], os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: calls.append(file) or real(file))
        sink = make_sink(folder, fsync=policy)
        await sink.write(LINES[:1])
        await sink.write(LINES[1:2])
        assert len(calls) == in_batches
        await sink.aclose()
        assert len(calls) == at_close

    async def test_a_batch_that_is_not_on_the_disk_is_not_reported(self, folder, monkeypatch):
        """After a failed fsync the batch is lost and cut off, and the next one goes to another file."""
        sink = make_sink(folder, fsync="batch")
        await sink.write(LINES[:2])
        with failing(monkeypatch, "fsync"), pytest.raises(SinkError) as caught:
            await sink.write(LINES[2:4])
        assert caught.value.written == 0
        await sink.write(LINES[4:5])
        await sink.aclose()
        assert [path.read_bytes().splitlines() for path in segments(folder)] == [LINES[:2], LINES[4:5]]

    async def test_a_close_that_fails(self, folder, monkeypatch, log):
        """It is logged, and the next batch is written all the same."""
        sink = make_sink(folder, roll_bytes=SIZE)
        await sink.write(LINES[:1])
        with failing(monkeypatch, "fsync"), pytest.raises(SinkError):
            await sink.write(LINES[1:2])
        assert [entry["event"] for entry in log] == ["a captured file may not be whole"]
        await sink.write(LINES[2:3])
        await sink.aclose()
        assert lines_in(folder) == [LINES[0], LINES[2]]


class TestFull:
    """A disk, a quota or a limit that is reached."""

    @pytest.mark.parametrize("fsync", ["never", "batch", "close"])
    async def test_whole_lines_are_kept_and_reported(self, folder, fsync):
        """Of a batch that fits in part the whole lines stay and count as written; the torn one is cut off."""
        sink = make_sink(folder, fsync=fsync)
        await sink.write(LINES[:2])
        with file_size_limit(5 * SIZE + 7):
            with pytest.raises(SinkError, match=re.escape(str(segments(folder)[0]))) as caught:
                await sink.write(LINES[2:12])
            assert caught.value.written == 3
            assert lines_in(folder) == LINES[:5]
        await sink.write(LINES[12:14])
        await sink.aclose()
        assert lines_in(folder) == LINES[:5] + LINES[12:14]

    async def test_compressed_batches_are_whole_or_gone(self, folder):
        """A torn member is cut off, and none of its lines counts as written."""
        noise = [os.urandom(400).hex().encode() for _ in range(8)]
        sink = make_sink(folder, gzip=True)
        await sink.write(noise[:1])
        with file_size_limit(1200), pytest.raises(SinkError) as caught:
            await sink.write(noise[1:6])
        assert caught.value.written == 0
        await sink.write(noise[6:])
        await sink.aclose()
        assert lines_in(folder) == noise[:1] + noise[6:]

    async def test_a_batch_of_several_files(self, folder):
        """Lines that went to a file before the one that failed count as written."""
        sink = make_sink(folder, roll_bytes=3 * SIZE)
        with file_size_limit(2 * SIZE), pytest.raises(SinkError) as caught:
            await sink.write(LINES[:10])
        assert caught.value.written == 2
        await sink.aclose()
        assert lines_in(folder) == LINES[:2]

    async def test_no_file_can_be_made(self, folder, monkeypatch):
        """Where not even a file can be made the batch is lost for that reason, and nothing is left behind."""
        sink = make_sink(folder)
        with failing(monkeypatch, "open", errno.ENOSPC), pytest.raises(SinkError) as caught:
            await sink.write(LINES[:2])
        assert (caught.value.written, caught.value.reason) == (0, "disk_full")
        assert segments(folder) == []
        await sink.write(LINES[2:3])
        await sink.aclose()
        assert lines_in(folder) == LINES[2:3]

    async def test_what_cannot_be_cut_off(self, folder, monkeypatch):
        """Where the torn line stays it is the last of its file, and every other line stays readable."""
        sink = make_sink(folder)
        with (
            failing(monkeypatch, "ftruncate"),
            failing(monkeypatch, "write", short=2 * SIZE + 9),
            pytest.raises(SinkError) as caught,
        ):
            await sink.write(LINES[:5])
        assert caught.value.written == 2
        await sink.write(LINES[5:6])
        await sink.aclose()
        first, second = [path.read_bytes() for path in segments(folder)]
        assert first == b"\n".join(LINES[:2]) + b"\n" + LINES[2][:9]
        assert second == LINES[5] + b"\n"

    async def test_a_real_disk(self, tmp_path):
        """On a full disk nothing torn is left and nothing is doubled; once there is room it goes on."""
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
        mounted = await trio.run_process(mount, capture_stderr=True, check=False)
        if mounted.returncode:
            pytest.skip("a tmpfs cannot be mounted here")
        try:
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 16 * 1024)
            sink = make_sink(disk / "captures")
            sent = [b'{"n":%d,"x":"%s"}' % (number, b"x" * 1500) for number in range(60)]
            safe, failures = [], []
            for start in range(0, 50, 5):
                batch = sent[start : start + 5]
                try:
                    await sink.write(batch)
                    written = len(batch)
                except SinkError as error:
                    written = error.written
                    failures.append(error.reason)
                safe += batch[:written]
            assert len(failures) >= 3
            assert set(failures) == {"disk_full"}
            assert lines_in(disk / "captures") == safe
            ballast.unlink()
            await sink.write(sent[50:55])
            await sink.aclose()
            assert lines_in(disk / "captures") == safe + sent[50:55]
        finally:
            with trio.CancelScope(deadline=trio.current_time() + 10, shield=True):
                await trio.run_process(["umount", "--lazy", str(disk)])


class TestMending:
    """What a killed process left behind."""

    @pytest.mark.parametrize(
        ("left", "kept"),
        [
            (LINES[0] + b"\n" + LINES[1][:9], LINES[0] + b"\n"),
            (LINES[0][:9], b""),
            (LINES[0] + b"\n" + b"x" * 200_000, LINES[0] + b"\n"),
            (LINES[0] + b"\n", LINES[0] + b"\n"),
            (b"", b""),
        ],
        ids=["torn", "nothing whole", "long", "whole", "empty"],
    )
    def test_a_torn_line_is_cut_off(self, folder, log, left, kept):
        """The next start leaves whole lines only, and says what it cut."""
        folder.mkdir(parents=True)
        path = folder / "payloads-20260101T000000-001.jsonl"
        path.write_bytes(left)
        make_sink(folder)
        assert path.read_bytes() == kept
        assert [entry["bytes"] for entry in log] == ([len(left) - len(kept)] if left != kept else [])

    def test_others_are_left_alone(self, folder):
        """A file that somebody writes to, one of another name and a compressed one stay as they are."""
        folder.mkdir(parents=True)
        in_use = folder / "payloads-20260101T000000-001.jsonl"
        others = [in_use, folder / "notes.jsonl", folder / "payloads-20260101T000000-002.jsonl.gz"]
        for path in others:
            path.write_bytes(b"torn")
        with in_use.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            make_sink(folder)
        assert [path.read_bytes() for path in others] == [b"torn"] * 3

    async def test_a_file_is_held_while_it_is_written(self, folder):
        """A second process that starts meanwhile takes the first one's line for unfinished, not for torn."""
        sink = make_sink(folder)
        await sink.write(LINES[:1])
        [path] = segments(folder)
        with path.open("ab") as file:
            file.write(b"half a li")
        make_sink(folder)
        assert path.read_bytes().endswith(b"half a li")
        await sink.aclose()
        make_sink(folder)
        assert path.read_bytes() == LINES[0] + b"\n"

    def test_a_folder_that_cannot_be_written_to(self, tmp_path, monkeypatch):
        """It is an error at the start, not at the first record."""
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(PermissionError):
            make_sink(tmp_path)


async def test_a_cancelled_write_is_over_before_the_file_is_closed(folder, monkeypatch):
    """A disk that hangs holds nobody: the write is left to its thread, and no file is closed under it."""
    release, in_write, real = threading.Event(), threading.Event(), os.write

    def hang(*args):
        in_write.set()
        release.wait(10)
        return real(*args)

    sink = make_sink(folder)
    monkeypatch.setattr(os, "write", hang)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sink.write, LINES[:2])
            await trio.to_thread.run_sync(in_write.wait)
            nursery.cancel_scope.cancel()
    with trio.move_on_after(0.05) as scope:
        await sink.aclose()
    assert scope.cancelled_caught
    release.set()
    with trio.fail_after(5):
        await sink.aclose()
    assert lines_in(folder) == LINES[:2]


async def test_a_compressed_batch_is_a_member_of_its_own(folder):
    """Each batch can be read without those behind it, so a torn tail hides nothing else."""
    sink = make_sink(folder, gzip=True)
    await sink.write(LINES[:2])
    [path] = segments(folder)
    first = path.read_bytes()
    await sink.write(LINES[2:4])
    await sink.aclose()
    assert path.read_bytes().startswith(first)
    assert gzip.decompress(first).splitlines() == LINES[:2]
    assert gzip.decompress(path.read_bytes()[len(first) :]).splitlines() == LINES[2:4]
