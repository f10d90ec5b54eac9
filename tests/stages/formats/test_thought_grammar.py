"""Where thoughts begin and end, format by format, beyond the vectors (spec, parsers, 7)."""

from __future__ import annotations

import pytest
from parsing import TOOLS, Client

HERMES = '<tool_call>{"name":"now","arguments":{}}</tool_call>'
OFF = {"chat_template_kwargs": {"thinking": False}}

# For each case: format, text, thoughts, content, and what else the request says.
CASES = {
    "plain-second-thought": ("qwen3", "<think>a</think> \n<think> b</think>c", "ab", "c", {}),
    "plain-late-opener": ("qwen3", "It writes <think>a</think>.", "", "It writes <think>a</think>.", {}),
    "plain-blanks-before": ("qwen3", " \n<think>a</think>b", "a", "b", {}),
    "plain-blanks-and-text": ("qwen3", " \nb", "", " \nb", {}),
    "plain-stray-closer": ("qwen3", "a</think>b", "", "a</think>b", {}),
    "plain-empty-thought": ("qwen3", "<think>\n\n</think>\n\nb", "", "b", {}),
    "plain-opener-only": ("qwen3", "<think>", "", "", {}),
    "plain-quoted-opener-first": ("qwen3", "`<think>` a", "", "`<think>` a", {}),
    "plain-one-tick": ("qwen3", "<think>a `</think>b", "a `", "b", {}),
    "plain-even-ticks": ("qwen3", "<think>a `b`</think>`c", "a `b`", "`c", {}),
    "plain-ticks-on-another-line": ("qwen3", "<think>`a\n``</think>`b", "`a\n``", "`b", {}),
    "plain-quoted-closer-at-the-end": ("qwen3", "<think>a `</think>", "a `", "", {}),
    "open-blanks-first": ("deepseek_r1", "\n a</think>b", "a", "b", {}),
    "open-only-blanks": ("deepseek_r1", " \n", " \n", "", {}),
    "open-half-opener": ("deepseek_r1", "<thi", "<thi", "", {}),
    "open-off": ("deepseek_r1", "a</think>b", "", "a</think>b", OFF),
    "open-off-thinks-anyway": ("deepseek_r1", "<think>a</think>b", "a", "b", OFF),
    "open-odd-switches": ("deepseek_r1", "a</think>b", "a", "b", {"chat_template_kwargs": [False]}),
    "switch-on": ("deepseek_v3_1", "a</think>b", "a", "b", {"chat_template_kwargs": {"thinking": True}}),
    "switch-of-others": ("deepseek_v3_1", "a", "", "a", {"chat_template_kwargs": {"enable_thinking": True}}),
    "mistral-anywhere": ("mistral", "a [THINK]b[/THINK]\nc[THINK]d", "bd", "a c", {}),
    "mistral-quoted": ("mistral", "a `[THINK]` b", "", "a `[THINK]` b", {}),
    "mistral-half": ("mistral", "a [THIN", "", "a [THIN", {}),
    "kimi-stray": ("kimi", "a◁/think▷b", "", "a◁/think▷b", {}),
    "gemma-other-channel": ("gemma4", "<|channel>final\nb", "", "<|channel>final\nb", {}),
    "granite-other-words": ("granite", "Here is my thought: b", "", "Here is my thought: b", {}),
    "granite-mixed": ("granite", "Here's my thought process: a Here is my response: b", "a ", "b", {}),
    "harmony-cut-token": ("gpt_oss", "<|channel|>analysis<|message|>a<|e", "a<|e", "", {}),
}  # fmt: skip


@pytest.mark.parametrize("cut", [list, lambda text: [text]], ids=["single", "whole"])
@pytest.mark.parametrize("case", CASES)
def test_text(case, cut):
    """Thoughts are what stands between tags that count; all other text is the answer."""
    name, text, reasoning, content, request = CASES[case]
    client = Client(request, reasoning_parser=name).feed(*cut(text)).finish()
    assert (client.reasoning, client.content) == (reasoning, content)


WITH_CALLS = {
    "thought-ends-inside-a-marker": ("<think>a <tool_</think>call>b", "a <tool_", "call>b", 0),
    "thought-ends-behind-a-marker": (f"<think>a <tool_call></think>b {HERMES}", "a <tool_call>", "b ", 1),
    "thought-ends-inside-a-call": ('<think><tool_call>{"name":"now","arguments":{</think>b', "", "b", 0),
    "call-in-thought-and-answer": (f"<think>{HERMES}</think>{HERMES}", "", "", 2),
    "call-in-both-thoughts": (f"<think>{HERMES}</think><think>b {HERMES}c</think>", "b c", "", 2),
    "quoted-in-thought": (f"<think>`{HERMES}`</think>b", f"`{HERMES}`", "b", 0),
}


@pytest.mark.parametrize("cut", [list, lambda text: [text]], ids=["single", "whole"])
@pytest.mark.parametrize("case", WITH_CALLS)
def test_calls_in_thoughts(case, cut):
    """A thought's calls are lifted out of it; what it leaves half done stays where it is."""
    text, reasoning, content, count = WITH_CALLS[case]
    client = Client({"tools": TOOLS}, reasoning_parser="qwen3", tool_call_parser="hermes")
    client.feed(*cut(text)).finish()
    assert (client.reasoning, client.content) == (reasoning, content)
    assert len(client.dispatched) == count


def test_without_a_reasoning_parser_tags_are_text():
    """A tool parser alone leaves tags in the answer and finds calls between them."""
    client = Client({"tools": TOOLS}, tool_call_parser="hermes").feed(f"<think>a {HERMES}</think>").finish()
    assert client.content == "<think>a </think>"
    assert len(client.dispatched) == 1
