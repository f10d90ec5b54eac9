"""The official OpenAI client, which reads side events of the style ``chunk``.

Usage: ``python docs/examples/openai_sdk.py http://127.0.0.1:8080/v1``
"""

from __future__ import annotations

import sys

import openai

HEADERS = {"Callahead-Events": "tool_call_dispatch", "Callahead-Event-Style": "chunk"}
MODEL = "two-parallel-calls"


def plain_loop(client: openai.OpenAI) -> None:
    """``stream=True``: events are chunks without choices, with one key more."""
    chunks = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Go."}], stream=True, extra_headers=HEADERS
    )
    for number, chunk in enumerate(chunks, start=1):
        if extra := (chunk.model_extra or {}).get("tool_call_dispatch"):
            call = extra["tool_call"]
            print(f"chunk {number}: start {call['function']['name']} for {call['id']}")
        for choice in chunk.choices:
            if choice.finish_reason:
                print(f"chunk {number}: finish {choice.finish_reason}")


def stream_helper(client: openai.OpenAI) -> None:
    """``.stream()``: the same chunks, and at the end the message that they add up to."""
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "Go."}], extra_headers=HEADERS
    ) as events:
        for event in events:
            if event.type == "chunk" and (extra := (event.chunk.model_extra or {}).get("tool_call_dispatch")):
                call = extra["tool_call"]
                print(f"start {call['function']['name']} for {call['id']}")
        message = events.get_final_completion().choices[0].message
    print(f"the message has {len(message.tool_calls or [])} tool calls")


def main(base_url: str) -> None:
    """Both ways, one after the other."""
    with openai.OpenAI(base_url=base_url, api_key="unused") as client:
        plain_loop(client)
        stream_helper(client)


if __name__ == "__main__":
    main(sys.argv[1])
