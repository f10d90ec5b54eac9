"""What is held is bounded, and the cost is linear in the text."""

from __future__ import annotations

import time

import pytest
from parsing import TOOLS, Client

from pipeline.testing import make_stage, text_chunk
from stages.formats.cursor import MAX_HELD
from stages.tool_call_parser import ToolCallParser

LONG = {
    "text": ("hermes", "a", "a < b"),
    "quoted": ("hermes", "a", "`<tool_call>` "),
    "arguments": ("hermes", '<tool_call>{"name":"now","arguments":{"a":"', 'x\\n "y'),
    "arguments-first": ("hermes", '<tool_call>{"arguments":{"a":[', "12345,"),
    "blanks": ("hermes", "", "    "),
    "string-value": ("qwen3_coder", "<function=write_note><parameter=text>", "a\n</para b"),
    "waiting-value": ("qwen3_coder", "<function=lookup_tide><parameter=days>", "12345 "),
    "look-ahead": ("qwen3_coder", "<function=write_note><parameter=text>", "</parameter> "),
    "literal": ("pythonic", "[now(a=[", "12345,"),
    "markers": ("kimi_k2", "a", "<|tool_calls_section_begin|>\n"),
}


@pytest.mark.parametrize("name", LONG)
def test_cost_is_linear(name):
    """Eight times as much text, in pieces or in one, does not take many more times as long."""
    form, beginning, more = LONG[name]

    def seconds(pieces):
        stage = make_stage(ToolCallParser, options={"format": form}, request={"tools": TOOLS})
        chunks = [text_chunk(piece) for piece in pieces]
        start = time.process_time()
        for chunk in chunks:
            stage.feed(chunk)
        return time.process_time() - start

    for pieces in (lambda count: [beginning or " ", *[more] * count], lambda count: [beginning + more * count]):
        short = min(seconds(pieces(1500)) for _ in range(3))
        assert seconds(pieces(12000)) < 40 * short + 0.05


@pytest.mark.parametrize(
    ("form", "beginning", "more"),
    [
        ("hermes", '<tool_call>{"arguments":{"a":"', "x" * 4096),
        ("hermes", '<tool_call>{"x":"', "x" * 4096),
        ("hermes", "<tool_call>", " " * 4096),
        ("hermes", " ", " " * 4096),
        ("gemma4", '<|tool_call>call:now{<|"|>', "x" * 4096),
    ],
)
def test_what_is_held_too_long_is_text(form, beginning, more):
    """Past the limit the marker was text, and no character of what was held is lost."""
    client = Client({"tools": TOOLS}, tool_call_parser=form).feed(beginning)
    client.feed(*[more] * (MAX_HELD // 4096 + 2))
    assert client.content.startswith(beginning)
    client.finish()
    assert client.content == beginning + more * (MAX_HELD // 4096 + 2)


def test_a_waiting_value_too_long_goes_out_as_it_is():
    """A value that is no string need not be held for ever: past the limit it is passed on, and checked later."""
    client = Client({"tools": TOOLS}, tool_call_parser="qwen3_coder")
    client.feed("<function=plan_route><parameter=limits>", '{"a":"', *["x" * 4096] * (MAX_HELD // 4096 + 2))
    assert len(client.arguments[0]) > MAX_HELD
    client.feed('"}', "</parameter></function>").finish()
    assert len(client.dispatched) == 1
