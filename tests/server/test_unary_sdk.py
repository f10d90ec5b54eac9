"""The official OpenAI client gets without a stream what it builds of one itself, over all recorded streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
import trio
from harness import ScriptedUpstream, gateway_and_upstream

STREAMS = Path(__file__).parents[3] / "shared" / "streams"
MESSAGES: Any = [{"role": "user", "content": "hi"}]


def bodies():
    """Name and body of each recording."""
    for path in sorted([*STREAMS.glob("*.sse"), *STREAMS.glob("*.jsonl")]):
        body = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = [b"data: %b\n\n" % line for line in body.splitlines() if line.strip()]
            body = b"".join([*lines, b"data: [DONE]\n\n"])
        yield path.name, body


def told(choice):
    """What a choice tells a program, in one form: an empty content is none, and a call has no index."""
    message = choice.message.model_dump(exclude_none=True, warnings=False)
    message.pop("parsed", None)
    message = {key: value for key, value in message.items() if value not in ("", [])}
    for call in message.get("tool_calls", ()):
        call.pop("index", None)
        if "function" in call: call["function"].pop("parsed_arguments", None)
    logprobs = choice.logprobs and choice.logprobs.model_dump(exclude_none=True)
    return {"finish_reason": choice.finish_reason, "logprobs": logprobs or None, **message}


def outcome_of(ask):
    """The choices of a completion, and its usage; or the error."""
    try:
        completion = ask()
    except Exception as error:
        return type(error).__name__ +":"+ str(error)
    usage = completion.usage and completion.usage.model_dump(exclude_none=True)
    return {"usage": usage, **{choice.index: told(choice) for choice in completion.choices}}


async def test_x():
    async with gateway_and_upstream() as (gateway, upstream):

        def run():
            with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="k", max_retries=0) as client:
                def streamed():
                    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
                        for _ in stream: pass
                        return stream.get_final_completion()
                for name, body in bodies():
                    upstream.script = [body]
                    a = outcome_of(streamed)
                    b = outcome_of(lambda: client.chat.completions.create(model="m", messages=MESSAGES))
                    if a != b:
                        print("----", name)
                        if isinstance(a, dict) and isinstance(b, dict):
                            for k in a.keys() | b.keys():
                                x, y = a.get(k), b.get(k)
                                if x != y:
                                    if isinstance(x, dict) and isinstance(y, dict):
                                        for j in x.keys() | y.keys():
                                            if x.get(j) != y.get(j): print(k, j, "\n     S", str(x.get(j))[:300], "\n     U", str(y.get(j))[:300])
                                    else: print(k, "\n     S", str(x)[:300], "\n     U", str(y)[:300])
                        else: print("     S", str(a)[:300], "\n     U", str(b)[:300])
        with trio.fail_after(50):
            await trio.to_thread.run_sync(run)
    assert 0
