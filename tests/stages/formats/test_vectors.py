"""Every vector of raw text comes out as it should, however it is cut (spec, parsers, 10)."""

from __future__ import annotations

import json

import pytest
from parsing import Client, cases, random_cut

CUTS = {
    "whole": lambda text: [text],
    "single": list,
    "random": lambda text: random_cut(text, text),
}


def same_value(text, value):
    try:
        return json.loads(text) == value
    except ValueError:
        return False


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", cases())
def test_outcome(name, cut):
    """Text, thoughts, calls, ids, dispatch and finish reason are the vector's."""
    case = cases()[name]
    client = Client.of(case).feed(*CUTS[cut](case["text"])).finish(case["finish_reason"])
    expected = case["expect"]
    assert (client.content or None) == expected["content"]
    assert (client.reasoning or None) == expected["reasoning_content"]
    assert client.finish_reason == expected["finish_reason"]
    calls = [client.calls[index] for index in sorted(client.calls)]
    assert [call["name"] for call in calls] == [call["name"] for call in expected["tool_calls"]]
    assert len({call["id"] for call in calls}) == len(calls)
    for call, wanted in zip(calls, expected["tool_calls"], strict=True):
        assert call["id"] == wanted.get("id", call["id"])
        assert call["arguments"] == wanted.get("arguments", call["arguments"])
        if "arguments_json" in wanted:
            assert same_value(call["arguments"], wanted["arguments_json"])
    whole = [index for index, call in enumerate(expected["tool_calls"]) if call.get("complete", True)]
    assert [call["index"] for call in client.dispatched] == whole
    assert [call["function"]["arguments"] for call in client.dispatched] == [client.arguments[i] for i in whole]


@pytest.mark.parametrize("name", cases())
def test_in_time(name):
    """Nothing is held longer than it must be, and nothing that has gone out is taken back."""
    case = cases()[name]
    client, final = Client.of(case), Client.of(case).feed(case["text"]).finish(case["finish_reason"])
    dispatched = [place for place in case.get("expect_dispatch_before") or [] if place is not None]
    released = {each["after"]: each for each in case.get("expect_released") or []}
    for place, character in enumerate(case["text"], 1):
        client.feed(character)
        assert final.content.startswith(client.content)
        assert final.reasoning.startswith(client.reasoning)
        assert all(map(str.startswith, final.arguments, client.arguments))
        assert len(client.dispatched) >= sum(each <= place for each in dispatched), f"held back at {place}"
        if place in released:
            out = released[place]
            assert len(client.content) >= (out["content"] or 0)
            assert len(client.reasoning) >= (out["reasoning_content"] or 0)
            for index, length in enumerate(out["arguments"]):
                assert length is None or len(client.arguments[index]) >= length


WITHOUT_CALLS = [
    name
    for name, case in cases().items()
    if set(case["format"]) == {"tool_call_parser"} and not case["expect"]["tool_calls"]
]


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_without_calls_no_text_is_lost(name):
    """Where a tool parser alone finds no call, the answer is the model's text to the character."""
    case = cases()[name]
    client = Client.of(case).feed(*case["text"]).finish(case["finish_reason"])
    assert client.content == case["text"]
