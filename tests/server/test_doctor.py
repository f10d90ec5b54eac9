"""``doctor``: names the repairs and formats that cure what recorded streams, or a live server, do wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from harness import DONE, TEXT_STREAM, call, chunk, data

from server.cli import main
from server.config import load_config
from server.diagnosis import diagnose
from server.findings import QUIRKS, Kind
from server.recorded_streams import RecordedStream, streams_of
from stages.repairs import RECOMMENDED, STAGE_OF_REPAIR

CASES = Path(__file__).parents[1] / "cases"
STREAMS = Path(__file__).parents[3] / "shared" / "streams"
BY_CHOICE = {"legacy_function_call", "reasoning_fields"}

# The table of providers, by the recordings that stand for its rows; all others need nothing.
NEEDED = {
    "google__codecompanion__gemini-tools-streaming": {"tool_call_index", "tool_call_id"},
    "gpustack__ruby-llm__tools-gpustack-qwen3-args": {"tool_call_index", "missing_role"},
    "gpustack__ruby-llm__thinking-gpustack-qwen3": {"missing_role"},
    "mistral__openinference__tool-call-no-index": {"tool_call_index"},
    "mistral__codecompanion__mistral-tools-streaming": {"missing_role"},
    "zai__req-llm__glm-4-5-flash-object-streaming-coder": {"tool_call_index"},
    "openai__req-llm__gpt-4-object-streaming": {"finish_reason"},
    "openai__req-llm__gpt-4-turbo-object-streaming": {"finish_reason"},
    "azure__dd-trace-py__azure-chat-completion-streamed": {"missing_role"},
    "databricks__chatlas__databricks-tool-variations-async-3": {"tool_call_arguments"},
    "cloudflare__chatlas__cloudflare-simple-request": {"missing_role"},
}
LEGACY = "openai__vercel-ai__legacy-function-call"
IN_TEXT = "gpustack__ruby-llm__tools-gpustack-qwen3-args"


def diagnosis_of(body, request=None):
    return diagnose([RecordedStream("stream", body, request or {}, None)])


def named(diagnosis, *kinds):
    return {each.cure for each in diagnosis.findings if each.kind in (kinds or (Kind.REPAIR, Kind.BY_CHOICE))}


def information(diagnosis):
    return {each.what for each in diagnosis.findings if each.kind is Kind.INFORMATION}


def content(*pieces):
    first, *others = pieces
    deltas = [{"role": "assistant", "content": first}, *({"content": each} for each in others)]
    return b"".join([*(chunk(each) for each in deltas), chunk(finish="stop"), DONE])


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """Each test has a folder of its own, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith(("CALLAHEAD_", "DYN_"))]:
        monkeypatch.delenv(name)


def doctor(*arguments, **environ):
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)], env=environ)


class TestRecordings:
    @pytest.mark.parametrize(
        "file",
        sorted(each for each in STREAMS.glob("*") if each.suffix in (".sse", ".jsonl")),
        ids=lambda each: each.stem,
    )
    def test_provider_table(self, file):
        """Each recording needs the repairs of its provider's row, and no others."""
        found = diagnose(streams_of(file, {}))
        assert set(found.repairs) == NEEDED.get(file.stem, set())
        assert ("legacy_function_call" in named(found, Kind.BY_CHOICE)) == (file.stem == LEGACY)
        assert dict(found.parsers) == ({"reasoning_parser": "basic"} if file.stem == IN_TEXT else {})
        assert all(stream.announced_cured >= stream.announced for stream in found.streams)

    @pytest.mark.skipif(not STREAMS.exists(), reason="needs the recordings")
    @pytest.mark.parametrize(
        ("provider", "repairs"), [("google", {"tool_call_index", "tool_call_id"}), ("xai", set()), ("ollama", set())]
    )
    def test_all_of_a_provider_together(self, provider, repairs):
        """The recordings of one server are one diagnosis."""
        files = [each for each in STREAMS.glob(f"{provider}__*") if each.suffix in (".sse", ".jsonl")]
        found = diagnose(stream for file in files for stream in streams_of(file, {}))
        assert set(found.repairs) == repairs
        assert len(found.streams) == len(files)


def cases():
    found = [json.loads(path.read_text("utf-8")) for path in sorted(CASES.glob("*.json"))]
    return [each for each in found if each.get("repair") in STAGE_OF_REPAIR]


# The quirk is looked for, but what comes is another one, which stays refused.
NOT_CURED = {"empty-object-then-text-that-is-no-object"}


class TestCases:
    @pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
    def test_the_repair_is_named(self, case):
        """The stage of a case's repair is named, and not where the case is a counter-example."""
        body = "".join(case["upstream"]["body_frames"]).encode()
        found = named(diagnosis_of(body, case["request"]))
        is_cured = not case["expect_repaired"]["passthrough"] and case["name"] not in NOT_CURED
        assert (STAGE_OF_REPAIR[case["repair"]] in found) == is_cured

    def test_every_quirk_has_words(self):
        """Whatever a repair reports can be said."""
        assert set(QUIRKS) == set(STAGE_OF_REPAIR)


class TestConfig:
    def test_recommended(self):
        """Where the preset is enough, the config names it."""
        delta = {"role": "assistant", **call("{}", name="scan")}
        found = diagnosis_of(b"".join([chunk(delta), chunk(finish="tool_calls"), DONE]))
        assert found.config == ["[pipeline]", 'repairs = ["recommended"]']
        assert set(found.repairs) <= set(RECOMMENDED)
        assert [(each.announced, each.announced_cured) for each in found.streams] == [(0, 1)]

    def test_beyond_the_preset(self):
        """A stage outside the preset is named where its quirk was seen, beside the preset only if that is needed too."""
        first = {"role": "assistant", **call('{"n":1} ok', call_id="call_a", name="scan")}
        trailing = b"".join([chunk(first), chunk(finish="tool_calls"), DONE])
        stopping = trailing.replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"')
        assert diagnosis_of(trailing).config[1] == 'repairs = ["trim_tool_call_arguments"]'
        assert diagnosis_of(stopping).config[1] == 'repairs = ["recommended", "trim_tool_call_arguments"]'

    def test_a_genuine_empty_object(self):
        """A parameterless call is no quirk."""
        delta = {"role": "assistant", **call("{}", call_id="call_a", name="scan")}
        found = diagnosis_of(b"".join([chunk(delta), chunk(finish="tool_calls"), DONE]))
        assert (found.is_well, found.findings) == (True, ())

    def test_by_choice(self):
        """What is right for some clients only is said, but not put into the config."""
        found = diagnosis_of(b"".join([chunk({"role": "assistant", "reasoning": "Hm."}), chunk(finish="stop"), DONE]))
        assert named(found, Kind.BY_CHOICE) == {"reasoning_fields"}
        assert (found.is_well, found.config) == (True, [])

    def test_counts(self):
        """A finding counts the streams, calls and frames in which it was seen."""
        pair = [{"id": "", "function": {"name": "wind", "arguments": f'{{"at":{at}}}'}} for at in (1, 2)]
        body = b"".join([chunk({"role": "assistant", "tool_calls": pair}), chunk(finish="tool_calls"), DONE])
        streams = [RecordedStream(str(number), body, {}, None) for number in range(2)]
        rows = {each.cure: each for each in diagnose(streams).findings}
        assert attrs.astuple(rows["tool_call_index"])[3:6] == (2, 4, 2)
        assert attrs.astuple(rows["tool_call_id"])[3:6] == (2, 4, 2)

    @pytest.mark.parametrize("name", ["stream.sse", "markup.sse"])
    def test_the_lines_are_a_config(self, name):
        """The last lines of the output can be loaded, and their plan announces the call."""
        delta = {"role": "assistant", **call("{}", name="scan")}
        Path("stream.sse").write_bytes(b"".join([chunk(delta), chunk(finish="stop"), DONE]))
        Path("markup.sse").write_bytes(
            content("<think>Hm.</think>", '<tool_call>{"name":"a","arguments":{}}</tool_call>')
        )
        output = doctor(name).stdout
        Path("found.toml").write_text(output[output.index("[pipeline]") :])
        Path("request.json").write_text(json.dumps({"tools": [{"function": {"name": "a"}}]}))
        load_config(Path("found.toml"), {}, {})
        replayed = CliRunner().invoke(main, ["replay", "--config", "found.toml", "--request", "request.json", name])
        assert "event: tool_call_dispatch" in replayed.stdout


KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)
ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"


class TestMarkup:
    @pytest.mark.parametrize(
        ("text", "parsers"),
        [
            ('<tool_call>\n{"name": "a", "arguments": {"n": 1}}\n</tool_call>', {"tool_call_parser": "hermes"}),
            (
                "<tool_call>\n<function=a>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
                {"tool_call_parser": "qwen3_coder"},
            ),
            (
                "<tool_call>a\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
                {"tool_call_parser": "glm47"},
            ),
            ('[TOOL_CALLS][{"name": "a", "arguments": {}}]', {"tool_call_parser": "mistral"}),
            ('<|python_tag|>{"name": "a", "parameters": {}}', {"tool_call_parser": "llama3_json"}),
            (
                KIMI,
                {"tool_call_parser": "kimi_k2"},
            ),
            (
                f"{ANALYSIS}<|channel|>commentary to=functions.a<|message|>{{}}<|call|>",
                {"tool_call_parser": "harmony"},
            ),
            (
                f"{ANALYSIS}<|channel|>final<|message|>Hi.",
                {"reasoning_parser": "harmony"},
            ),
            ("<think>Hm.</think>Hi.", {"reasoning_parser": "basic"}),
            ("Hm.</think>Hi.", {"reasoning_parser": "deepseek_r1"}),
            ("[THINK]Hm.[/THINK]Hi.", {"reasoning_parser": "mistral"}),
            (
                '<think>Hm.</think><tool_call>{"name": "a", "arguments": {}}</tool_call>',
                {"reasoning_parser": "basic", "tool_call_parser": "hermes"},
            ),
            ("Use a <b>tag</b> or [a list]: {}.", {}),
            ('{"answer": 42}', {}),
            ("Models write `<think>` and `<tool_call>` around it.", {}),
        ],
    )
    @pytest.mark.parametrize("size", [1, 1000])
    def test_formats(self, text, parsers, size):
        """The format that reads a text is named, whatever the cut."""
        found = diagnosis_of(content(*(text[at : at + size] for at in range(0, len(text), size))))
        assert dict(found.parsers) == parsers
        [stream] = found.streams
        assert stream.announced_cured == ("tool_call_parser" in parsers)

    def test_equals_are_said(self):
        """Other formats that read the same are named beside the first."""
        found = diagnosis_of(content('<tool_call>{"name": "a", "arguments": {}}</tool_call>'))
        [row] = [each for each in found.findings if each.kind is Kind.PARSER]
        assert '"granite"' in row.note

    def test_several_streams(self):
        """One format is named for all streams: the one that finds the most."""
        bodies = [
            content('<tool_call>{"name": "a", "arguments": {}}</tool_call>'),
            content('<|tool_call|>[{"name": "a", "arguments": {}}]'),
        ]
        found = diagnose([RecordedStream("s", body, {}, None) for body in bodies])
        assert dict(found.parsers) == {"tool_call_parser": "granite"}

    def test_a_server_that_reads_them_itself(self):
        """Where calls come as such, no parser is named."""
        delta = {"role": "assistant", **call("{}", call_id="call_a", name="scan")}
        assert diagnosis_of(b"".join([chunk(delta), chunk(finish="tool_calls"), DONE])).is_well


TEXT = b"".join(TEXT_STREAM)


class TestInformation:
    @pytest.mark.parametrize(
        ("body", "what"),
        [
            (TEXT.removesuffix(DONE), "no [DONE]"),
            (chunk({"role": "assistant", "content": "Hi"}), "the end before the finish_reason"),
            (chunk({"role": "assistant", "content": "Hi"}) + DONE, "[DONE], but no finish_reason"),
            (data({"error": {"message": "no"}}), "error frames"),
            (b": processing\n\n" + TEXT, "comments"),
            (TEXT.replace(b"\n", b"\r\n"), "lines that end in CR"),
            (b"event: ping\ndata: {}\n\n" + TEXT, "events with names of their own"),
            (b"data: Hello\n\n" + TEXT, "data that is no JSON object"),
            (b'error: {"message":"no"}\n\n', "a field error: instead of an event"),
            (b"", "no chunk at all"),
            (b"\xff\x00garbage", "no chunk at all"),
            (chunk({"role": "assistant"}) + chunk({"role": "assistant", "content": "a"}), "the role more than once"),
            (TEXT.replace(b"Hello", b""), "chunks that hold nothing"),
        ],
    )
    def test_what_no_repair_is_for(self, body, what):
        """It is said, and asks for nothing."""
        found = diagnosis_of(body)
        assert what in information(found)
        assert found.is_well

    def test_a_right_stream(self):
        """There is nothing to say."""
        body = TEXT.replace(b'"content":""', b'"content":"Hi"')
        assert diagnosis_of(body).findings == ()

    def test_refusals_that_stay(self):
        """A call that no repair saves is said, with the reason."""
        delta = {"role": "assistant", **call('{"n":', call_id="call_a", name="scan")}
        found = diagnosis_of(b"".join([chunk(delta), chunk(finish="tool_calls"), DONE]))
        assert information(found) == {"calls that cannot be announced: cut_off"}

    def test_tools_that_were_not_called(self):
        """A stream that answers a request with tools and calls none proves little, and that is said."""
        found = diagnosis_of(TEXT, {"tools": [{"type": "function", "function": {"name": "a"}}]})
        assert "tools, but no call" in information(found)


SHAPES = [
    None,
    True,
    -1,
    0.5,
    "",
    "x",
    [],
    [None, "x", {}],
    {},
    {"index": 0},
    {"function": {"name": 1, "arguments": {}}},
]


class TestAnyShape:
    @pytest.mark.parametrize("shape", SHAPES, ids=repr)
    def test_odd_values(self, shape):
        """Any JSON value may stand anywhere, in the stream and in the request."""
        deltas = [
            {key: shape} for key in ("content", "role", "tool_calls", "function_call", "reasoning", "reasoning_content")
        ]
        entries = [{"tool_calls": [{key: shape}]} for key in ("index", "id", "function", "type")]
        payloads = [{"choices": [{"index": 0, "delta": each}]} for each in (*deltas, *entries, shape)]
        payloads += [{"choices": shape}, {"choices": [shape]}, {"choices": [{"index": shape, "delta": {}}]}]
        payloads += [{"choices": [{"index": 0, "delta": {}, "finish_reason": shape}]}, {"error": shape}]
        diagnosis_of(b"".join(map(data, payloads)) + DONE, {"tools": shape, "chat_template_kwargs": shape})

    @pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
    def test_cut_anywhere(self, path):
        """A recording that breaks off is looked at as far as it goes; no stage fails."""
        case = json.loads(path.read_text("utf-8"))
        body = "".join(map(str, case["upstream"].get("body_frames", ()))).encode(errors="surrogatepass")
        for part in (body, body[: len(body) // 2], body[len(body) // 2 :]):
            found = diagnosis_of(part[:20_000], case["request"])
            assert not any("failed" in each for each in information(found))
