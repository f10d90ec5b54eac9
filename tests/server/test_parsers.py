"""Calls and thoughts in raw text, from the upstream's socket to the client's."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import attrs
import openai
import pytest
import trio
from harness import DONE, RunningGateway, ScriptedUpstream, Step, chunk, gateway_and_upstream

from server.capture.reader import read_capture

TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "tide", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}},
    }
]
MESSAGES: Any = [{"role": "user", "content": "hi"}]
PORTS = [{"port": "Bergen"}, {"port": 'Ålesund "☂"'}]


@attrs.frozen
class Case:
    """What a model writes: a thought, an answer and two calls of ``tide``, for the two ``PORTS``."""

    tool_call_parser: str
    reasoning_parser: str
    first: str
    """Up to the place where the first call is closed."""
    rest: str
    content: str

    @property
    def parsers(self) -> dict[str, str]:
        """The keys of ``[pipeline]``."""
        return {"tool_call_parser": self.tool_call_parser, "reasoning_parser": self.reasoning_parser}

    def stream(self, cut: str) -> list[bytes]:
        """All of it, in one chunk or one code point a chunk."""
        text = self.first + self.rest
        pieces = [text] if cut == "whole" else list(text)
        opener = chunk({"role": "assistant", "content": ""})
        return [opener, *(chunk({"content": piece}) for piece in pieces), chunk({}, finish="stop"), DONE]


CASES = {
    "hermes": Case(
        "hermes",
        "qwen3",
        '<think>Hm.</think>One.<tool_call>\n{"name": "tide", "arguments": {"port": "Bergen"}}',
        '\n</tool_call>\n<tool_call>\n{"name": "tide", "arguments": {"port": "Ålesund \\"☂\\""}}\n</tool_call>',
        "One.",
    ),
    "qwen3_coder": Case(
        "qwen3_coder",
        "qwen3_thinking",
        "Hm.</think>One.\n<tool_call>\n<function=tide>\n<parameter=port>\nBergen\n</parameter>\n</function>",
        "\n</tool_call>\n<tool_call>\n<function=tide>\n<parameter=port>\n"
        'Ålesund "☂"\n</parameter>\n</function>\n</tool_call>',
        "One.\n",
    ),
    "mistral": Case(
        "mistral",
        "mistral",
        '[THINK]Hm.[/THINK]One.[TOOL_CALLS][{"name": "tide", "arguments": {"port": "Bergen"}',
        '}, {"name": "tide", "arguments": {"port": "Ålesund \\"☂\\""}}]',
        "One.",
    ),
    "harmony": Case(
        "harmony",
        "gpt_oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>One.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.tide <|constrain|>json<|message|>{"port": "Bergen"}',
        "<|call|><|start|>assistant<|channel|>commentary to=functions.tide <|constrain|>json<|message|>"
        '{"port": "Ålesund \\"☂\\""}<|call|>',
        "One.",
    ),
}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
each_cut = pytest.mark.parametrize("cut", ["whole", "characters"])


async def with_openai(gateway: RunningGateway, use: Any) -> Any:
    """Use the official client, unchanged, against a gateway."""

    def run() -> Any:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="k", max_retries=0) as client:
            create = functools.partial(client.chat.completions.create, model="m", messages=MESSAGES, tools=TOOLS)
            return use(client, create)

    with trio.fail_after(20):
        return await trio.to_thread.run_sync(run)


def check_message(case: Case, message: dict[str, Any], finish: str | None) -> None:
    """The message is what the model meant, and the ids of its calls are ids."""
    assert finish == "tool_calls"
    assert message["content"] == case.content
    assert message["reasoning_content"] == "Hm."
    calls = message["tool_calls"]
    assert [each["function"]["name"] for each in calls] == ["tide", "tide"]
    assert [json.loads(each["function"]["arguments"]) for each in calls] == PORTS
    assert len({each["id"] for each in calls}) == 2
    assert all(len(each["id"]) == 9 if case.tool_call_parser == "mistral" else each["id"] for each in calls)


@each_cut
@each_case
async def test_a_plain_loop_gets_calls(case, cut):
    """`stream=True`: text, thoughts and calls add up, however the text is cut."""

    def use(_: openai.OpenAI, create: Any) -> tuple[dict[str, Any], str]:
        message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
        finish = None
        for each in create(stream=True):
            choice = each.choices[0]
            finish = choice.finish_reason or finish
            message["content"] += choice.delta.content or ""
            message["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
            for fragment in choice.delta.tool_calls or []:
                if fragment.id:
                    assert fragment.index == len(message["tool_calls"])
                    function = {"name": fragment.function.name, "arguments": ""}
                    message["tool_calls"].append({"id": fragment.id, "function": function})
                message["tool_calls"][fragment.index]["function"]["arguments"] += fragment.function.arguments
        return message, finish

    async with gateway_and_upstream(ScriptedUpstream(case.stream(cut)), pipeline=case.parsers) as (gateway, _):
        check_message(case, *await with_openai(gateway, use))


@each_cut
@each_case
async def test_the_stream_helper_gets_calls(case, cut):
    """`.stream()` accumulates the same message, and raises at no chunk."""

    def use(client: openai.OpenAI, _: Any) -> tuple[dict[str, Any], str]:
        with client.chat.completions.stream(model="m", messages=MESSAGES, tools=TOOLS) as stream:
            for _event in stream:
                pass
            choice = stream.get_final_completion().choices[0]
        return choice.message.model_dump(), choice.finish_reason

    async with gateway_and_upstream(ScriptedUpstream(case.stream(cut)), pipeline=case.parsers) as (gateway, _):
        check_message(case, *await with_openai(gateway, use))


@each_case
async def test_a_request_that_does_not_stream_gets_calls(case):
    """The official client's ordinary completion has the calls, folded from the stream."""

    def use(_: openai.OpenAI, create: Any) -> tuple[dict[str, Any], str]:
        choice = create().choices[0]
        return choice.message.model_dump(), choice.finish_reason

    async with gateway_and_upstream(ScriptedUpstream(case.stream("characters")), pipeline=case.parsers) as (gateway, _):
        check_message(case, *await with_openai(gateway, use))


@each_case
async def test_a_call_is_announced_while_the_model_writes_on(case):
    """The event arrives while the upstream waits at the first call's end, before any end marker."""
    announced = trio.Event()
    script: Sequence[Step] = [
        *(chunk({"content": piece}) for piece in case.first),
        announced,
        chunk({"content": case.rest}),
        chunk({}, finish="stop"),
        DONE,
    ]
    async with gateway_and_upstream(ScriptedUpstream(script), pipeline=case.parsers) as (gateway, _):
        response = await gateway.completion(events=True, tools=TOOLS)
        with trio.fail_after(5):
            frame = await response.frame()
            names = [frame.event]
            while frame.event != "tool_call_dispatch":
                frame = await response.frame()
                names.append(frame.event)
            announced.set()
            rest = [each for each in await response.frames() if each.event == "tool_call_dispatch"]
    calls = [json.loads(each.data)["tool_call"] for each in (frame, *rest)]
    assert [each["index"] for each in calls] == [0, 1]
    assert [json.loads(each["function"]["arguments"]) for each in calls] == PORTS
    assert names.count("reasoning_dispatch") == 1


@each_case
async def test_a_record_has_the_calls(case, tmp_path, monkeypatch):
    """What is captured is what the client was sent: a message with thoughts and calls, not the markup."""
    path = tmp_path / "gateway.toml"
    path.write_text(f'[capture]\nsinks = ["file"]\n[capture.file]\npath = "{tmp_path / "captured"}"\n')
    monkeypatch.setattr("harness.CONFIG_FILE", path)
    async with gateway_and_upstream(ScriptedUpstream(case.stream("characters")), pipeline=case.parsers) as (gateway, _):
        await (await gateway.completion(events=True, tools=TOOLS)).read_all()
        records: list[dict[str, Any]] = []
        with trio.fail_after(5):
            while not records:
                await trio.sleep(0.01)
                records = [record for file in tmp_path.glob("captured/*") for record in read_capture(file)]
    [record] = records
    [choice] = record["response"]["choices"]
    check_message(case, choice["message"], choice["finish_reason"])
    assert [each["call_index"] for each in record["dispatches"]] == [0, 1]


@pytest.mark.parametrize("parsers", [{}, {"tool_call_parser": "hermes"}], ids=["no-parser", "no-tools"])
async def test_without_parser_or_tools_the_bytes_are_untouched(parsers):
    """Markup is text, byte for byte, where no parser is named or the request has no tools."""
    script = CASES["hermes"].stream("characters")[1:]
    tools = {} if parsers else {"tools": TOOLS}
    async with gateway_and_upstream(ScriptedUpstream(script), pipeline=parsers) as (gateway, _):
        assert await (await gateway.completion(**tools)).read_all() == b"".join(script)


@each_case
async def test_frames_without_markup_are_untouched(case):
    """With both parsers on, an answer without markup reaches the client as the very bytes of the upstream."""
    first = {"qwen3_coder": "Hm.</think>"}.get(case.tool_call_parser, "So")
    plain = [chunk({"content": piece}) for piece in (" it", " is", " 5 °C", ".\n\n", "`", "end")]
    script = [chunk({"content": first}), chunk({"content": "!"}), *plain, chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script), pipeline=case.parsers) as (gateway, _):
        assert (await (await gateway.completion(tools=TOOLS)).read_all()).endswith(b"".join(script[2:]))


async def test_the_model_decides_which_parser_runs(tmp_path, monkeypatch):
    """`[models]` goes by the name in the request: the same text is a call for one model, and text for another."""
    path = tmp_path / "gateway.toml"
    path.write_text('[models]\n"Qwen/Qwen3-[0-9]*" = { tool_call_parser = "hermes", reasoning_parser = "qwen3" }\n')
    monkeypatch.setattr("harness.CONFIG_FILE", path)
    case = CASES["hermes"]
    async with gateway_and_upstream(ScriptedUpstream(case.stream("whole"))) as (gateway, _):
        found = {}
        for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3-Coder", "m", 5):
            response = await gateway.request(body={"model": model, "messages": MESSAGES, "tools": TOOLS})
            [found[model]] = (await response.json())["choices"]
    check_message(case, found["Qwen/Qwen3-8B"]["message"], found["Qwen/Qwen3-8B"]["finish_reason"])
    for model in ("Qwen/Qwen3-Coder", "m", 5):
        assert found[model]["message"]["content"] == case.first + case.rest
        assert found[model]["finish_reason"] == "stop"


@pytest.mark.parametrize("finish", ["length", "reset"])
async def test_a_call_that_is_cut_off_stays_open(finish):
    """Half a call is neither mended nor announced, and the finish or the failure is the client's to see."""
    text = '<tool_call>\n{"name": "tide", "arguments": {"port": "Ber'
    end: list[Step] = ["reset"] if finish == "reset" else [chunk({}, finish=finish), DONE]
    script: list[Step] = [chunk({"content": text}), *end]
    async with gateway_and_upstream(ScriptedUpstream(script), pipeline=CASES["hermes"].parsers) as (gateway, _):
        frames = await (await gateway.completion(events=True, tools=TOOLS)).frames()
    assert [each.event for each in frames if each.event] == []
    payloads = [json.loads(each.data) for each in frames if each.data != b"[DONE]"]
    assert payloads[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] == '{"port": "Ber'
    if finish == "reset":
        assert payloads[-1]["error"]["code"] == "upstream_reset"
    else:
        assert payloads[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("given", "sent"), [({}, False), ({"skip_special_tokens": True}, True), ({"tool_choice": "none"}, None)]
)
async def test_the_server_is_asked_to_leave_special_tokens_in(given, sent):
    """Where the markers of a format are special tokens the request says so, if the client does not say anything."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    async with gateway_and_upstream(pipeline={"tool_call_parser": "mistral"}) as (gateway, upstream):
        await (await gateway.completion(tools=tools, **given)).read_all()
    assert json.loads(upstream.requests[0].body).get("skip_special_tokens") == sent


async def test_a_request_that_needs_nothing_keeps_its_bytes():
    """Visible markers need no field: the body goes on as it came."""
    body = b'{ "messages": [],  "stream": true, "tools": [{"type":"function","function":{"name":"f"}}] }'
    async with gateway_and_upstream(pipeline={"tool_call_parser": "hermes"}) as (gateway, upstream):
        await (await gateway.request(body=body)).read_all()
    assert upstream.requests[0].body == body
