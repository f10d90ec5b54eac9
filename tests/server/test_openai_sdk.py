"""The official OpenAI client, unchanged, through a gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import openai
import pytest
import trio
from harness import DONE, ScriptedUpstream, call, chunk, gateway_and_upstream

T = TypeVar("T")
MESSAGES: Any = [{"role": "user", "content": "hi"}]
SCRIPT = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Think."}),
    chunk({"content": "On it."}),
    chunk(call("", call_id="c0", name="f")),
    chunk(call('{"a":')),
    chunk(call("1}")),
    chunk(call('{"b":2}', index=1, call_id="c1", name="g")),
    chunk({}, finish="tool_calls"),
    DONE,
]


async def with_client(use: Callable[[openai.OpenAI], T], script: Any = SCRIPT) -> T:
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):

        def run() -> T:
            with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="k", max_retries=0) as client:
                return use(client)

        with trio.fail_after(20):
            return await trio.to_thread.run_sync(run)


@pytest.mark.parametrize("headers", [{}, {"Callahead-Events": "tool_call_dispatch", "Callahead-Event-Style": "chunk"}])
async def test_a_plain_loop_works(headers):
    """`stream=True`: text and calls add up, whether events were asked for in the style `chunk` or not at all."""

    def use(client: openai.OpenAI) -> tuple[str, list[str], list[Any]]:
        text, arguments, early = "", ["", ""], []
        finished = False
        for each in client.chat.completions.create(model="m", messages=MESSAGES, stream=True, extra_headers=headers):
            if event := (each.model_extra or {}).get("tool_call_dispatch"):
                early.append((event["tool_call"]["id"], finished))
            for choice in each.choices:
                text += choice.delta.content or ""
                finished = finished or choice.finish_reason is not None
                for fragment in choice.delta.tool_calls or []:
                    arguments[fragment.index] += fragment.function.arguments or ""
        return text, arguments, early

    text, arguments, early = await with_client(use)
    assert (text, arguments) == ("On it.", ['{"a":1}', '{"b":2}'])
    assert early == ([("c0", False), ("c1", False)] if headers else [])


@pytest.mark.parametrize("headers", [{}, {"Callahead-Events": "tool_call_dispatch", "Callahead-Event-Style": "chunk"}])
async def test_the_stream_helper_works(headers):
    """`.stream()` accumulates the same message with and without events in the style `chunk`."""

    def use(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(model="m", messages=MESSAGES, extra_headers=headers) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion().choices[0]

    choice = await with_client(use)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "On it."
    assert [each.function.arguments for each in choice.message.tool_calls] == ['{"a":1}', '{"b":2}']


async def test_a_cut_stream_raises():
    """An upstream that breaks off is an `APIError` to the client, not a short answer."""

    def use(client: openai.OpenAI) -> str:
        chunks = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(chunks)
        return caught.value.message

    assert "connection" in await with_client(use, [*SCRIPT[:3], "reset"])


async def test_a_refused_request_has_its_type():
    """Our own 400 is a `BadRequestError` with the message in OpenAI's shape."""

    def use(client: openai.OpenAI) -> str:
        headers = {"Callahead-Event-Style": "x"}
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=MESSAGES, stream=True, extra_headers=headers)
        return str(caught.value.code)

    assert await with_client(use) == "unknown_event_style"
