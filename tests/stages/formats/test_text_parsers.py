"""What the parser stages do to chunks: they change what they must, and nothing else."""

from __future__ import annotations

import re

import pytest
from parsing import TOOLS, Client

from pipeline.chunks import encode_json
from pipeline.errors import PlanError, StreamCut
from pipeline.items import Chunk, End, Evidence, StreamError, Verbatim
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.registry import StageRegistry
from pipeline.runs import runs_in
from pipeline.sse import Frame
from pipeline.stage import RequestContext
from pipeline.testing import call_chunk, check_conformance, chunk, make_stage, run_stage, text_chunk, with_shapes
from stages.formats import call_ids
from stages.reasoning_parser import ReasoningParser
from stages.tool_call_parser import ToolCallParser

NOW = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
REQUEST = {"tools": TOOLS}
END = End(b"data: [DONE]\n\n")


@pytest.fixture(autouse=True)
def counted_ids(monkeypatch):
    """Made-up ids that two runs agree on."""
    monkeypatch.setattr(call_ids, "made_up_id", lambda style: f"made_up_{style}")


def tool_parser(name="hermes", request=REQUEST):
    return make_stage(ToolCallParser, options={"format": name}, request=request)


def thought_parser(name="qwen3", request=None):
    return make_stage(ReasoningParser, options={"format": name}, request=request)


def deltas(items):
    return [choice["delta"] for item in items if isinstance(item, Chunk) for choice in item.payload["choices"]]


@pytest.mark.parametrize("make", [tool_parser, thought_parser])
def test_a_chunk_without_markup_is_the_same_object(make):
    """Text that cannot be markup, and all that is no text, goes on as the upstream's bytes."""
    items = [
        chunk(role="assistant", content=""),
        text_chunk("a"),
        text_chunk(" b < c `d` [e]"),
        chunk({"choices": [], "usage": {"total_tokens": 3}}),
        Verbatim(Frame(b": hi\n\n", None, None)),
        chunk(content=None),
        chunk(content=[{"type": "text", "text": "<tool_call>"}]),
        chunk({"choices": [{"index": "0", "delta": {"content": NOW}}]}),
        chunk({"choices": [None, {"delta": None}, {"index": 0}]}),
        text_chunk("e", finish="stop"),
        text_chunk(NOW),
        END,
    ]
    given = run_stage(make(), items)
    assert all(new is old for new, old in zip(given, items, strict=True))


def test_all_but_the_text_stays():
    """An edited chunk keeps its other keys, at every level, in their order, and integers of any length."""
    whole = {
        "id": "c",
        "x": 2**70,
        "choices": [
            {"index": 1, "delta": {"content": "left"}},
            {
                "index": 0,
                "y": 1,
                "delta": {"role": "assistant", "content": f"a{NOW}b", "tool_calls": None, "z": {}},
                "logprobs": {"content": [{"token": "a"}]},
                "finish_reason": None,
            },
        ],
        "usage": {"total_tokens": 3},
    }
    (given,) = run_stage(tool_parser(), [chunk(whole)])
    call = {
        "index": 0,
        "id": "made_up_openai",
        "type": "function",
        "function": {"name": "now", "arguments": "{}"},
    }
    whole["choices"][1]["delta"] = {"role": "assistant", "content": "ab", "tool_calls": [call], "z": {}}
    assert encode_json(given.payload) == encode_json(whole)
    assert given.raw is None


def test_a_chunk_whose_text_is_taken_away_keeps_the_rest():
    """Markup leaves its frame with the log probabilities that came in it, and without an empty text."""
    markup = {"index": 0, "delta": {"content": "<tool_call>"}, "logprobs": {"content": [1]}, "finish_reason": None}
    (given,) = run_stage(tool_parser(), [chunk({"choices": [markup]}), END])[:1]
    assert given.payload == {"choices": [{**markup, "delta": {}}]}


def test_thought_and_answer_in_one_frame():
    """A frame that holds the end of a thought and the beginning of the answer has both keys, in that order."""
    (given,) = run_stage(thought_parser(), [text_chunk("<think>a</think>b")])
    assert list(deltas([given])[0].items()) == [("reasoning_content", "a"), ("content", "b")]


def test_arguments_go_out_as_they_come():
    """Opener, arguments and finish reason each leave in the frame that brought them."""
    pieces = ['<tool_call>{"name": "no', 'w", "arguments": {', '"a":', " 1}", "}", "</tool_call>"]
    stage = tool_parser()
    given = deltas(run_stage(stage, [*map(text_chunk, pieces), chunk(finish="stop")]))
    fragments = [delta.get("tool_calls") for delta in given]
    opener = {"index": 0, "id": "made_up_openai", "type": "function", "function": {"name": "now", "arguments": "{"}}
    more = [[{"index": 0, "function": {"arguments": text}}] for text in ('"a":', " 1}")]
    assert fragments == [None, [opener], *more, None, None, None]
    assert not any("content" in delta for delta in given)


@pytest.mark.parametrize(
    ("reason", "sent"), [("stop", "tool_calls"), ("length", "length"), ("tool_calls", "tool_calls")]
)
def test_the_finish_reason_in_the_frame_of_the_last_text(reason, sent):
    """What is held goes out in the frame of the finish, whose reason says that there were calls."""
    (given,) = run_stage(tool_parser(), [text_chunk(f"{NOW} a <tool", finish=reason)])
    assert given.payload["choices"][0]["finish_reason"] == sent
    assert deltas([given])[0]["content"] == " a <tool"


def test_an_open_call_rewrites_no_finish_reason():
    """A call that is never whole does not make the turn a tool turn."""
    (given,) = run_stage(tool_parser(), [text_chunk('<tool_call>{"name":"now","arguments":{"a"', finish="stop")])
    assert given.payload["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "last",
    [
        END,
        StreamError(StreamCut("cut")),
        StreamError(StreamCut("cut"), b"data: {}\n\n"),
        chunk({"error": {"message": "m"}}),
        chunk({"object": "error", "message": "m"}),
        None,
    ],
)
def test_what_is_held_goes_in_front_of_the_end(last):
    """Without a finish reason held text comes in a chunk of its own, and no call is closed."""
    items = [text_chunk("a <tool_"), text_chunk("b\n<function=now><parameter=a>1</parameter> ", choice=1)]
    given = run_stage(tool_parser("qwen3_coder"), [*items, *([last] if last else [])])
    envelope = {key: items[0].payload[key] for key in ("id", "object", "created", "model")}
    text = {"index": 0, "delta": {"content": "<tool_"}, "finish_reason": None}
    value = {"index": 1, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1"}}]}, "finish_reason": None}
    assert [held.payload for held in given[2:4]] == [{**envelope, "choices": [each]} for each in (text, value)]
    assert not any(evidence.complete for item in given[:4] for evidence in item.evidence)
    assert given[4:] == ([last] if last else [])


@pytest.mark.parametrize(
    ("parser", "items"),
    [
        (thought_parser(), [call_chunk(0, "c", "f", "{"), *(call_chunk(0, arguments=text) for text in "abc")]),
        (tool_parser(), [call_chunk(0, "c", "f", "{"), *(call_chunk(0, arguments=text) for text in "abc")]),
        (thought_parser(), [text_chunk("Well,"), *(text_chunk(text) for text in "abc")]),
        (tool_parser(), [text_chunk("Well,"), *(text_chunk(text) for text in "abc")]),
    ],
)
def test_what_is_none_of_its_business_is_taken_as_a_run(parser, items):
    """Calls that the upstream makes itself, and plain text, cost one look a run, and chunks alone no editing."""
    first, *others = with_shapes(items)
    assert parser.first_to_wake([first]) is None
    (run,) = runs_in(others)
    out: list = []
    assert (parser.feed_run(run, out), out) == (3, others)
    assert all(parser.first_to_wake([text_chunk("d")]) is None for _ in range(2))


@pytest.mark.parametrize("shaped", [False, True])
def test_what_is_held_has_the_latest_envelope(shaped):
    """The chunk that is made up for it has the envelope of the last chunk, whichever choice that was of."""
    items = [text_chunk("<thi", choice=1), *(text_chunk(text) for text in ("Hello", " there", " you"))]
    if not shaped:
        for number, item in enumerate(items):
            item.payload["created"] = number
    *_, held = run_stage(thought_parser("basic"), with_shapes(items) if shaped else items)
    assert held.payload["created"] == items[-1].payload["created"]
    assert held.payload["choices"] == [{"index": 1, "delta": {"content": "<thi"}, "finish_reason": None}]


def test_after_an_end_everything_passes():
    """What an upstream sends after its own error frame is passed on as it is."""
    items = [chunk({"error": "e"}), text_chunk(NOW), END]
    assert run_stage(tool_parser(), items) == items


def test_choices_share_nothing():
    """Each choice has its own text and its own calls, however the frames alternate."""
    pieces = [NOW[i : i + 3] for i in range(0, len(NOW), 3)]
    items = [text_chunk(piece, choice=index) for piece in pieces for index in (0, 1)]
    given = run_stage(tool_parser(), items)
    for index in (0, 1):
        calls = [
            call
            for item in given
            for choice in item.payload["choices"]
            if choice["index"] == index
            for call in choice["delta"].get("tool_calls", ())
        ]
        assert {call["index"] for call in calls} == {0}
        assert "".join(call["function"]["arguments"] for call in calls) == "{}"


def test_an_upstream_that_makes_calls_itself_is_left_alone():
    """The first structured call ends the search in its choice: what is held is released in front of what comes."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    items = [text_chunk("a <tool_"), chunk(content="b", tool_calls=[call]), text_chunk(NOW), text_chunk(NOW, choice=1)]
    given = run_stage(tool_parser(), items)
    assert deltas(given)[0] == {"content": "a "}
    assert deltas(given)[1] == {"content": "<tool_b", "tool_calls": [call]}
    assert given[2] is items[2]
    assert "tool_calls" in deltas(given)[3]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_an_upstream_that_splits_thoughts_itself_is_left_alone(key):
    """A thought of the upstream's own ends the search for tags in its choice."""
    items = [chunk(**{key: "Hm."}), text_chunk("<think>a</think>b")]
    assert run_stage(thought_parser("deepseek_r1"), items) == items


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_calls_are_found_in_the_upstreams_own_thoughts(key):
    """A call of a declared tool is lifted out of a thought, under either name; in both at once it stays."""
    (given,) = run_stage(tool_parser(), [chunk(**{key: f"a {NOW} b"})])
    assert deltas([given])[0][key] == "a  b"
    assert len(deltas([given])[0]["tool_calls"]) == 1
    both = chunk(reasoning=NOW, reasoning_content=NOW)
    assert run_stage(tool_parser(), [both]) == [both]


def test_evidence_of_calls():
    """A call's first chunk says that it has begun, the chunk that closes it that it is whole."""
    pieces = ['<tool_call>{"name":"now","arguments":{', "}", '}<tool_call>{"name":"now","arguments":{}}', "x"]
    given = run_stage(tool_parser(), [*map(text_chunk, pieces)])
    assert [item.evidence for item in given] == [
        (Evidence(0, 0, complete=False),),
        (Evidence(0, 0, complete=True),),
        (Evidence(0, 1, complete=False), Evidence(0, 1, complete=True)),
        (),
    ]


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("hermes", NOW + NOW, r"call_[0-9a-f]{24}"),
        ("mistral", "[TOOL_CALLS]now{}[TOOL_CALLS]now{}", r"[0-9A-Za-z]{9}"),
        ("mistral", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}" * 2, r"[0-9A-Za-z]{9}"),
        ("kimi_k2", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}" * 2, r"functions\.now:[01]"),
        ("kimi_k2", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}" * 2, r"now|call_[0-9a-f]{24}"),
    ],
)
def test_ids_are_unique_and_of_the_models_form(name, text, pattern, monkeypatch):
    """No two calls share an id, also where the model repeats its own, and each looks as its model expects it."""
    monkeypatch.undo()
    client = Client(REQUEST, tool_call_parser=name).feed(text).finish()
    ids = [call["id"] for call in client.calls.values()]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(pattern, each) for each in ids)


def test_idle_where_there_is_nothing_to_find():
    """Without tools the tool parser is left out of a request, but for harmony, whose tokens must not leak."""
    none = RequestContext(request={"tools": TOOLS, "tool_choice": "none"})
    for context, idle in ((RequestContext(), True), (none, True), (RequestContext(request=REQUEST), False)):
        assert ToolCallParser.is_idle(ToolCallParser.Options(), context) is idle
        assert not ToolCallParser.is_idle(ToolCallParser.Options(format="harmony"), context)
        assert not ReasoningParser.is_idle(ReasoningParser.Options(), context)


def test_formats_of_special_tokens_ask_for_them():
    """Servers leave special tokens out of the text unless the request says otherwise."""
    wanted = {"skip_special_tokens": False}
    assert ToolCallParser.request_defaults(ToolCallParser.Options(format="mistral")) == wanted
    assert ReasoningParser.request_defaults(ReasoningParser.Options(format="gpt_oss")) == wanted
    assert ToolCallParser.request_defaults(ToolCallParser.Options(format="hermes")) == {}


class Registry(StageRegistry):
    """Knows the parsers, whether they are installed or not."""

    def find(self, name):
        """The stage of that name."""
        own = {"reasoning_parser": ReasoningParser, "tool_call_parser": ToolCallParser}
        return own.get(name) or super().find(name)


def test_the_parsers_stand_before_the_default_stages():
    """Thoughts first, then calls, then the rest; any other order is refused with a reason."""
    make_plan(["reasoning_parser", "tool_call_parser", *DEFAULT_STAGES], {}, Registry())
    for order in (["tool_call_parser", "reasoning_parser"], ["tool_call_dispatch", "tool_call_parser"]):
        with pytest.raises(PlanError, match="must stand before"):
            make_plan([*order, "sse_encoder"], {}, Registry())


@pytest.mark.parametrize(
    ("stage", "given", "said"),
    [
        ("tool_call_parser", "hermess", 'there is no tool-call format "hermess"; did you mean "hermes"?'),
        ("reasoning_parser", "quen3", 'there is no reasoning format "quen3"; did you mean "qwen3"?'),
        ("tool_call_parser", 5, "is 5, of type int; it must be of type str"),
    ],
)
def test_an_unknown_format_is_one_clear_line(stage, given, said):
    """The error names the key, what was found, and the nearest right name."""
    with pytest.raises(PlanError) as error:
        make_plan([stage, *DEFAULT_STAGES], {stage: {"format": given}}, Registry())
    assert said in str(error.value)
    assert str(error.value).startswith(f"stages.{stage}")
    assert "\n" not in str(error.value)


TEXTS = {
    "hermes": f"Sure. <think>a</think>{NOW}\n b {NOW}",
    "qwen3_coder": "<function=lookup_tide><parameter=days>\n3\n</parameter></function></tool_call> ok",
    "harmony": "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.now<|message|>{}<|call|>",
    "pythonic": "[lookup_tide(port='B'), now()] ok",
}


@pytest.mark.parametrize("name", TEXTS)
async def test_the_tool_parser_keeps_the_promises_of_a_stage(name):
    """Bursts do not matter, frames stay in place, odd payloads are survived, and every ending is clean."""
    text = TEXTS[name]
    items = [text_chunk(text[i : i + 3]) for i in range(0, len(text), 3)]
    items += [
        call_chunk(0, "c", "f", "{}", choice=1),
        chunk(finish="stop"),
        text_chunk("a", choice=1, finish="stop"),
        END,
    ]
    await check_conformance(lambda: tool_parser(name), items)


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1", "mistral", "gpt_oss"])
async def test_the_reasoning_parser_keeps_the_promises_of_a_stage(name):
    """Bursts do not matter, frames stay in place, odd payloads are survived, and every ending is clean."""
    text = "<think>a</think>b [THINK]c[/THINK] d"
    items = [text_chunk(text[i : i + 3]) for i in range(0, len(text), 3)]
    await check_conformance(lambda: thought_parser(name), [*items, chunk(finish="stop"), END])
