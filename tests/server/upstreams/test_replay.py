import itertools
import json
from pathlib import Path

import pytest
import trio

from pipeline.decode import ItemDecoder
from pipeline.items import Chunk, End
from server.errors import ConfigError
from server.upstreams.base import UpstreamRequest
from server.upstreams.replay import ReplayOptions, ReplayUpstream, load_recording

STREAMS = Path(__file__).parents[4] / "shared" / "streams"


def frame(text, model="m"):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return f"data: {json.dumps({'model': model, 'choices': [choice]})}\n\n".encode()


DONE = b"data: [DONE]\n\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.sse").write_bytes(frame("b", model="shared") + DONE)
    (tmp_path / "a.jsonl").write_text('{"model": "shared", "choices": []}\n')
    (tmp_path / "c.sse").write_bytes(frame("c", model="a") + DONE)
    (tmp_path / "d.sse").write_bytes(b": no chunk\n\n")
    (tmp_path / "notes.txt").write_text("no recording")
    (tmp_path / "z.sse").mkdir()
    return tmp_path


def completion(model="m", **more):
    body = {"model": model, "messages": [], "stream": True, **more}
    return UpstreamRequest("POST", "/chat/completions", [], json.dumps(body).encode(), model)


async def read_pieces(response):
    pieces = []
    while piece := await response.receive():
        pieces.append(piece)
    return pieces


async def read_all(response):
    return b"".join(await read_pieces(response))


class TestChoice:
    @pytest.mark.parametrize(
        ("model", "names"),
        [
            ("b", "bbb"),
            ("a", "aaa"),
            ("shared", "aba"),
            ("gpt-4o", "abcda"),
            (None, "abcda"),
        ],
        ids=["name", "name before model", "model", "neither", "no model"],
    )
    async def test_by_model_name(self, folder, model, names):
        """The file's name comes first, then the model in the chunks, then any; several take turns."""
        upstream = ReplayUpstream(ReplayOptions((folder,)))
        bodies = [await read_all(await upstream.open(completion(model))) for _ in names]
        assert bodies == [load_recording(next(folder.glob(f"{name}.*"))).body for name in names]

    async def test_turns_are_counted_for_each_name(self, folder):
        """What others ask for does not change whose turn it is."""
        upstream = ReplayUpstream(ReplayOptions((folder,)))
        bodies = [await read_all(await upstream.open(completion(model))) for model in ("shared", "b", "x", "shared")]
        assert bodies[3] == (folder / "b.sse").read_bytes()

    async def test_files_keep_the_order_in_which_they_are_given(self, folder):
        """Only the files of a folder are sorted."""
        upstream = ReplayUpstream(ReplayOptions((str(folder / "c.sse"), str(folder / "b.sse"))))
        assert await read_all(await upstream.open(completion())) == (folder / "c.sse").read_bytes()
        assert upstream.name == "recordings c, b"


class TestStream:
    async def test_answer(self, folder):
        """A recording is answered as an event stream, byte for byte, and then ends for good."""
        response = await ReplayUpstream(ReplayOptions((folder,))).open(completion("b"))
        assert (response.status, response.headers) == (200, [(b"content-type", b"text/event-stream")])
        assert await read_all(response) == (folder / "b.sse").read_bytes()
        assert await response.receive() == b""
        await response.aclose()
        await response.aclose()

    async def test_large_pieces_without_a_pace(self, tmp_path):
        """As fast as it goes means pieces of many frames."""
        body = b"".join(frame("x" * 100) for _ in range(1000))
        (tmp_path / "long.sse").write_bytes(body)
        pieces = await read_pieces(await ReplayUpstream(ReplayOptions((tmp_path,))).open(completion()))
        assert b"".join(pieces) == body
        assert {len(piece) for piece in pieces[:-1]} == {16 * 1024}

    async def test_pace(self, tmp_path, autojump_clock):  # noqa: ARG002 - it is the clock
        """Each chunk comes at its time, a frame at a time; what is no chunk comes with the chunk before it."""
        frames = [b": hello\n\n", frame("1"), b": ping\n\n", frame("2"), frame("3"), DONE]
        (tmp_path / "a.sse").write_bytes(b"".join(frames))
        response = await ReplayUpstream(ReplayOptions((tmp_path,), tokens_per_second=4)).open(completion())
        start = trio.current_time()
        came = [(await response.receive(), trio.current_time() - start) for _ in frames]
        assert came == list(zip(frames, [0, 0, 0, 0.25, 0.5, 0.5], strict=True))
        assert await response.receive() == b""

    async def test_pace_does_not_drift(self, tmp_path, autojump_clock):  # noqa: ARG002 - it is the clock
        """Whoever reads late finds what was due, and the rest at its time."""
        (tmp_path / "a.sse").write_bytes(b"".join(frame(str(number)) for number in range(10)))
        response = await ReplayUpstream(ReplayOptions((tmp_path,), tokens_per_second=10)).open(completion())
        start = trio.current_time()
        await trio.sleep(0.55)
        times = []
        while await response.receive():
            times.append(round(trio.current_time() - start, 3))
        assert times == [0.55] * 6 + [0.6, 0.7, 0.8, 0.9]

    async def test_cancelled_wait_loses_nothing(self, tmp_path, autojump_clock):  # noqa: ARG002 - it is the clock
        """A read that was given up for a while goes on where it was."""
        (tmp_path / "a.sse").write_bytes(frame("1") + frame("2"))
        response = await ReplayUpstream(ReplayOptions((tmp_path,), tokens_per_second=1)).open(completion())
        pieces = [await response.receive()]
        with trio.move_on_after(0.5):
            await response.receive()
        assert pieces + await read_pieces(response) == [frame("1"), frame("2")]

    async def test_streams_do_not_disturb_each_other(self, folder):
        """The same recording can be read twice at a time."""
        upstream = ReplayUpstream(ReplayOptions((folder,), tokens_per_second=1e6))
        first, second = [await upstream.open(completion("b")) for _ in range(2)]
        for expected in (frame("b", model="shared"), DONE, b""):
            assert [await first.receive(), await second.receive()] == [expected] * 2


class TestOtherRequests:
    async def test_models(self, folder):
        """The recordings are the models, in OpenAI's shape."""
        response = await ReplayUpstream(ReplayOptions((folder,))).open(UpstreamRequest("GET", "/models?limit=1", []))
        body = await read_all(response)
        assert response.status == 200
        assert dict(response.headers) == {
            b"content-type": b"application/json",
            b"content-length": str(len(body)).encode(),
        }
        models = json.loads(body)
        assert models["object"] == "list"
        assert [model["id"] for model in models["data"]] == ["a", "b", "c", "d"]
        assert all(model["object"] == "model" for model in models["data"])

    @pytest.mark.parametrize("body", [b'{"messages": []}', b'{"stream": false}', b"[]", b"no JSON"])
    async def test_completion_that_is_no_stream(self, folder, body):
        """Where such requests are forwarded, the answer is a 400 that says what would help."""
        request = UpstreamRequest("POST", "/chat/completions", [], body, "m")
        response = await ReplayUpstream(ReplayOptions((folder,))).open(request)
        error = json.loads(await read_all(response))["error"]
        assert (response.status, error["type"], error["param"]) == (400, "invalid_request_error", "stream")
        assert '"stream": true' in error["message"]

    @pytest.mark.parametrize(("method", "target"), [("GET", "/chat/completions"), ("POST", "/embeddings?a=b")])
    async def test_anything_else(self, folder, method, target):
        """What was not recorded is not found, in OpenAI's shape."""
        response = await ReplayUpstream(ReplayOptions((folder,))).open(UpstreamRequest(method, target, []))
        error = json.loads(await read_all(response))["error"]
        assert response.status == 404
        assert f"{method} {target.partition('?')[0]}" in error["message"]

    async def test_body_that_is_still_arriving(self, folder):
        """A request is read to its end, however it comes."""

        class Pieces:
            def __init__(self):
                self._pieces = [b'{"stre', b'am": true}', b""]

            async def receive(self):
                await trio.lowlevel.checkpoint()
                return self._pieces.pop(0)

        request = UpstreamRequest("POST", "/chat/completions", [], Pieces(), "b")
        response = await ReplayUpstream(ReplayOptions((folder,))).open(request)
        assert await read_all(response) == (folder / "b.sse").read_bytes()

    async def test_probe(self, folder):
        """Recordings can always be reached."""
        upstream = ReplayUpstream(ReplayOptions((folder,)))
        assert await upstream.probe() is None
        await upstream.aclose()


class TestFiles:
    def test_lines_become_frames(self, tmp_path):
        """Each line of a ``.jsonl`` is framed as it is, blank ones left out, and ``[DONE]`` added."""
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"model": "",  "n": 1}\r\n\n {"model":"m"}')
        recording = load_recording(path)
        assert recording.body == b'data: {"model": "",  "n": 1}\n\ndata: {"model":"m"}\n\ndata: [DONE]\n\n'
        assert (recording.name, recording.model, len(recording.frames)) == ("a", "m", 3)

    def test_body_is_kept(self, tmp_path):
        """An ``.sse`` is what was recorded, even where it was cut in a frame; the frames joined are the body."""
        path = tmp_path / "x.y.sse"
        path.write_bytes(b"\xef\xbb\xbf: hi\r\n\r\n" + frame("1", model=None) + b'data: {"mod')
        recording = load_recording(str(path))
        assert recording.body == path.read_bytes()
        assert b"".join(each.raw for each in recording.frames) == recording.body
        assert (recording.name, recording.model) == ("x.y", None)

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("a.jsonl", b'{"a":1}\n{"b":\n', "a.jsonl, line 2: it must be a JSON object"),
            ("a.jsonl", b'\n"\xc3\xa9"\n', "a.jsonl, line 2: it must be a JSON object, not"),
            ("a.jsonl", b"\xff\n", "a.jsonl, line 1"),
            ("a.jsonl", b'{"schema":"callahead.capture.v1","request":{}}\n', "a.jsonl: is a capture, which only"),
            ("a.txt", b"", "a.txt: its name must end in .sse or .jsonl"),
            (None, b"", "a.sse: cannot be read: No such file"),
        ],
    )
    def test_unusable_file(self, tmp_path, name, content, says):
        """The error names the file, the line and what is right, in one line."""
        if name is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            ReplayUpstream(ReplayOptions((tmp_path / (name or "a.sse"),)))
        assert says in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_empty_folder(self, tmp_path):
        """A folder without recordings is named."""
        with pytest.raises(ConfigError, match=f"{tmp_path}: the folder has no file"):
            ReplayUpstream(ReplayOptions((tmp_path,)))

    def test_no_path(self):
        """There must be something to replay."""
        with pytest.raises(ConfigError, match="no file and no folder"):
            ReplayUpstream(ReplayOptions(()))

    @pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not here")
    def test_recorded_streams(self):
        """Each recorded stream of a real provider can be replayed; the frames are the body."""
        for path in itertools.chain(STREAMS.glob("*.sse"), STREAMS.glob("*.jsonl")):
            recording = load_recording(path)
            assert b"".join(each.raw for each in recording.frames) == recording.body
            items = ItemDecoder().feed(recording.body)
            assert any(isinstance(item, Chunk) for item in items), path
            if path.suffix == ".jsonl":
                assert isinstance(items[-1], End)
