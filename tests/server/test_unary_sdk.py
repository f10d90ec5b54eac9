"""The official OpenAI client gets without a stream what it builds of one itself, over all recorded streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import trio
from harness import gateway_and_upstream

STREAMS = Path(__file__).parents[3] / "shared" / "streams"
MESSAGES: Any = [{"role": "user", "content": "hi"}]

NO_DELTA = "a choice without delta"
NO_CHOICES = "a chunk without choices"
NO_INDEX = "a call without index"
ODD_OBJECT = "chunks whose object is another than chat.completion.chunk"
PARTS = "content that is no text"
UNINDEXED = "elements of a list, annotations, without index"
UNREADABLE = {
    "azure__dd-trace-py__azure-chat-completion-streamed.sse": NO_DELTA,
    "copilot__codecompanion__copilot-streaming.jsonl": ODD_OBJECT,
    "copilot__codecompanion__copilot-tools-streaming.jsonl": ODD_OBJECT,
    "google__codecompanion__gemini-tools-streaming.jsonl": NO_INDEX,
    "gpustack__ruby-llm__tools-gpustack-qwen3-args.sse": NO_INDEX,
    "mistral__openinference__tool-call-no-index.sse": NO_INDEX,
    "mistral__ruby-llm__hybrid-reasoning.sse": PARTS,
    "openai__openai-dotnet__chatwithbasicaudiooutput.sse": NO_CHOICES,
    "openrouter__pydantic-ai__openrouter-web-search-annotations-stream.sse": UNINDEXED,
    "perplexity__langchaingo__testtool-integration.sse": ODD_OBJECT,
    "zai__req-llm__glm-4-5-flash-object-streaming-coder.sse": ODD_OBJECT,
}
"""What the helper `.stream()` raises an exception of its own for, and why. The response is read all the same."""

LABELS = "the helper joins labels that are said again"
NUMBERS = "the helper adds numbers up"
MIXED = "the helper makes one of two kinds of details, since both have index 0"
NO_ROLE = "a stream without a role; every response has one"
REWRITTEN = "a response with calls says tool_calls where the stream says stop (4.2.9)"
DIFFERENT = {
    "avian__fantasy__avian-kimi-multi-tool.sse": ("reasoning_details", LABELS),
    "cloudflare__chatlas__cloudflare-simple-request.sse": ("role", NO_ROLE),
    "groq__req-llm__openai-gpt-oss-20b-object-streaming.sse": ("channel", LABELS),
    "huggingface__chatlas__huggingface-images.sse": ("name", LABELS),
    "mistral__codecompanion__mistral-tools-streaming.jsonl": ("role", NO_ROLE),
    "openai__req-llm__gpt-4-object-streaming.sse": ("finish_reason", REWRITTEN),
    "openai__req-llm__gpt-4-turbo-object-streaming.sse": ("finish_reason", REWRITTEN),
    "openrouter__fantasy__glm-multi-tool.sse": ("reasoning_details", LABELS),
    "openrouter__req-llm__qwen-qwen3-235b-a22b-thinking-2507-object-streaming.sse": ("reasoning_details", LABELS),
    "openrouter__req-llm__z-ai-glm-4-5-air-object-streaming.sse": ("reasoning_details", LABELS),
    "openrouter__ruby-llm__reasoning-details-tool-call-1.sse": ("reasoning_details", LABELS),
    "together__huggingface-hub__stream-together-2.sse": ("token_id", NUMBERS),
    "vercel-gateway__fantasy__thinking-gemini-3-pro-preview-thinking-2.sse": ("reasoning_details", MIXED),
}
"""Where one key of the first choice differs, and why; all else is the same."""


def recordings() -> Iterator[tuple[str, bytes]]:
    """Name and body of each."""
    for path in sorted([*STREAMS.glob("*.sse"), *STREAMS.glob("*.jsonl")]):
        body = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = [b"data: %b\n\n" % line for line in body.splitlines() if line.strip()]
            body = b"".join([*lines, b"data: [DONE]\n\n"])
        yield path.name, body


def told(choice: Any) -> dict[str, Any]:
    """What a choice tells a program, in one form: nothing is absent, and a call has a type and no index."""
    message = choice.message.model_dump(exclude_none=True, exclude={"parsed"}, warnings=False)
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
        call.setdefault("type", "function")
        call["function"].pop("parsed_arguments", None)
    logprobs = choice.logprobs and choice.logprobs.model_dump(exclude_none=True)
    said = {"finish_reason": choice.finish_reason, "logprobs": logprobs, **message}
    return {key: value for key, value in said.items() if value}


def outcome(ask: Callable[[], Any]) -> Any:
    """The choices of a completion by index, or the message of an error that the API told."""
    try:
        completion = ask()
    except openai.LengthFinishReasonError as error:
        completion = error.completion
    except openai.APIStatusError as error:
        return error.body["message"]
    except openai.APIError as error:
        return error.message
    return {choice.index: told(choice) for choice in completion.choices}


def streamed(client: openai.OpenAI) -> Any:
    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


@pytest.mark.skipif(not STREAMS.is_dir(), reason="the recorded streams are not part of the repository")
async def test_a_response_says_what_the_stream_says():
    """Message, finish reason and errors are the same with and without a stream, except where listed above."""
    async with gateway_and_upstream() as (gateway, upstream):

        def ask_for_all() -> dict[str, tuple[Any, Any]]:
            found = {}
            url = f"http://127.0.0.1:{gateway.port}/v1"
            with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
                for name, body in recordings():
                    upstream.script = [body]
                    whole = outcome(lambda: client.chat.completions.create(model="m", messages=MESSAGES))
                    try:
                        found[name] = whole, outcome(lambda: streamed(client))
                    except Exception as error:  # noqa: BLE001 - the helper's own, of any kind
                        found[name] = whole, error
            return found

        with trio.fail_after(50):
            found = await trio.to_thread.run_sync(ask_for_all)
    for name, (whole, of_stream) in found.items():
        if name in UNREADABLE:
            assert isinstance(of_stream, Exception), name
            assert whole[0]["role"] == "assistant", name
            continue
        if name in DIFFERENT:
            key, _ = DIFFERENT[name]
            assert whole[0].pop(key) != of_stream[0].pop(key, None), name
        assert whole == of_stream, name
    assert set(UNREADABLE) | set(DIFFERENT) <= set(found)
