"""What counts as a call, format by format, beyond the vectors (spec, parsers, 2 to 6)."""
# ruff: noqa: RUF001 - DeepSeek's tokens are spelled with fullwidth bars

from __future__ import annotations

import pytest
from parsing import TOOLS, Client

NOW = '{"name":"now","arguments":{}}'
HERMES = f"<tool_call>{NOW}</tool_call>"
KIMI = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>"
NAMED = {"tool_choice": {"type": "function", "function": {"name": "lookup_tide"}}}
REQUIRED = {"tool_choice": "required"}
GUIDED = {"response_format": {"type": "json_schema", "json_schema": {}}}

# For each case: format, text, content, the calls' names and arguments; those that are left open end with "...".
WHOLE = {
    # J, members in any order
    "arguments-first": ("hermes", '<tool_call>{"arguments": {"a":1}, "name": "now"}</tool_call>', "", ['now{"a":1}']),
    "arguments-first-as-text": ("hermes", '<tool_call>{"arguments":"{\\"a\\":1}","name":"now"}', "", ['now{"a":1}']),
    "wrapped": ("hermes", '<tool_call>{"type":"function","function":{"name":"now","arguments":{"a":[{}]}},"id":"x"}</tool_call>', "", ['now{"a":[{}]}']),
    "wrapped-without-arguments": ("hermes", '<tool_call>{"type":"function","function":{"name":"now"}}</tool_call>', "", ["now{}"]),
    "function-is-the-name": ("hermes", '<tool_call>{"function": "now", "parameters": {"a":1}}</tool_call>', "", ['now{"a":1}']),
    "null-arguments": ("hermes", '<tool_call>{"name":"now","arguments":null}</tool_call>', "", ["now{}"]),
    "no-arguments": ("hermes", '<tool_call>{"name":"now","x":[{"}":1}]}</tool_call>', "", ["now{}"]),
    "members-behind": ("hermes", '<tool_call>{"name":"now","arguments":{},"x":{"y":"}"},"z":"<"}</tool_call>ok', "ok", ["now{}"]),
    "name-with-escape": ("hermes", '<tool_call>{"name":"\\u006eow","arguments":{}}</tool_call>', "", ["now{}"]),
    "blanks-before-the-text-object": ("hermes", '<tool_call>{"name":"now","arguments":" \\n{\\"a\\":1} "}</tool_call>', "", ['now{"a":1}']),
    # J, what is none
    "no-name": ("hermes", '<tool_call>{"arguments":{}}</tool_call>', None, []),
    "name-is-a-number": ("hermes", '<tool_call>{"name":5,"arguments":{}}</tool_call>', None, []),
    "name-with-a-blank": ("hermes", '<tool_call>{"name":"no w","arguments":{}}</tool_call>', None, []),
    "name-too-long": ("hermes", f'<tool_call>{{"name":"{"n" * 257}","arguments":{{}}}}</tool_call>', None, []),
    "empty-array": ("hermes", "<tool_call>[]</tool_call>", None, []),
    "array-arguments": ("hermes", '<tool_call>{"name":"now","arguments":[1]}</tool_call>', None, []),
    "text-arguments-without-object": ("hermes", '<tool_call>{"name":"now","arguments":"Bergen"}</tool_call>', None, []),
    "missing-comma": ("hermes", '<tool_call>{"name":"now" "arguments":{}}</tool_call>', None, []),
    "single-quotes": ("hermes", "<tool_call>{'name':'now','arguments':{}}</tool_call>", None, []),
    "junk-in-the-text-object": ("hermes", '<tool_call>{"name":"now","arguments":"{} junk"}</tool_call>', ' junk"}', ["now{}"][:1]),
    # text around
    "array-then-a-number": ("hermes", f"<tool_call>[{NOW}, 5]</tool_call> x", ", 5] x", ["now{}"]),
    "comma-and-prose": ("hermes", f"{NOW.join(['<tool_call>', ''])}, and so on", ", and so on", ["now{}"]),
    "objects-joined-by-commas": ("hermes", f"<tool_call>{NOW},\n{NOW}</tool_call>", "", ["now{}", "now{}"]),
    "end-tag-twice": ("hermes", f"{HERMES}</tool_call>", "</tool_call>", ["now{}"]),
    "end-tag-late": ("hermes", f"<tool_call>{NOW} thanks </tool_call>\n", " thanks ", ["now{}"]),
    "end-tag-without-call": ("hermes", "a </tool_call> b", None, []),
    "blanks-at-both-ends": ("hermes", f" \n{HERMES}\n ", "", ["now{}"]),
    "even-ticks": ("hermes", f"I use `f`{HERMES}", "I use `f`", ["now{}"]),
    "odd-ticks": ("hermes", f"I use `{HERMES}`", None, []),
    "ticks-on-another-line": ("hermes", f"a`\n`b`{HERMES}", "a`\n`b`", ["now{}"]),
    "line-break-behind-a-call": ("hermes", f"a`{HERMES[:0]}\n{HERMES}\n`{HERMES}`", f"a`\n\n`{HERMES}`", ["now{}"]),
    "marker-before-a-marker": ("hermes", f"<tool_call><tool_call>{NOW}</tool_call>", "<tool_call>", ["now{}"]),
    "marker-inside-open-arguments": ("hermes", f'<tool_call>{{"name":"now","arguments":{{"a":{HERMES}', "", ['now{"a":...', "now{}"]),
    # bare
    "bare-is-not-looked-for": ("hermes", NOW, None, []),
    "llama-separators": ("llama3_json", f"{NOW}; {NOW};", "", ["now{}", "now{}"]),
    "llama-code": ("llama3_json", "<|python_tag|>print(1)", None, []),
    "llama-undeclared": ("llama3_json", '{"name":"fly","parameters":{}}', None, []),
    "llama-undeclared-second": ("llama3_json", NOW + '; {"name":"fly","parameters":{}}', ' {"name":"fly","parameters":{}}', ["now{}"]),
    "llama-tag-undeclared": ("llama3_json", '<|python_tag|>{"name":"fly","parameters":{}}', "", ["fly{}"]),
    "llama-foreign-key": ("llama3_json", '{"name":"now","x":1,"parameters":{}}', None, []),
    "llama-type-and-id": ("llama3_json", '{"id":"1","type":"function","name":"now"}', "", ["now{}"]),
    "llama-text-behind": ("llama3_json", f"{NOW}\nDone.", "\nDone.", ["now{}"]),
    "llama-array": ("llama3_json", f"[{NOW}]", None, []),
    "xlam-array": ("xlam", f"[{NOW},{NOW}]", "", ["now{}", "now{}"]),
    "default-two-lines": ("default", f"a\n{NOW}\n{NOW}\nb\n[1]", "a\n\nb\n[1]", ["now{}", "now{}"]),
    "default-after-an-end-tag": ("default", f"<TOOLCALL>{NOW}</TOOLCALL>\n{NOW}", "", ["now{}", "now{}"]),
    "phi4-object": ("phi4", f"functools{NOW}", None, []),
    # N
    "kimi-call-end-at-once": ("kimi_k2", f"{KIMI}<|tool_call_end|>", "", ["now{}"]),
    "kimi-stray-bracket": ("kimi_k2", KIMI + "{}}<|tool_call_end|>ok", "ok", ["now{}"]),
    "kimi-singular-section": ("kimi_k2", f"<|tool_call_section_begin|>{KIMI}{{}}<|tool_call_end|><|tool_call_section_end|>", "", ["now{}"]),
    "kimi-end-inside-open-arguments": ("kimi_k2", KIMI + '{"a":<|tool_call_end|>ok', "ok", ['now{"a":...']),
    "kimi-prose": ("kimi_k2", "<|tool_calls_section_begin|> opens, <|tool_call_begin|>a b", None, []),
    "deepseek-other-fence": ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```\n{}\n```\n<｜tool▁call▁end｜>\n```x```", "\n```x```", ["now{}"]),
    "deepseek-prose": ("deepseek_v3_1", "<｜tool▁call▁begin｜>now {}", None, []),
    "mistral-id-form": ("mistral", "[TOOL_CALLS]now[CALL_ID]a1[ARGS]{}", "", ["now{}"]),
    "mistral-late-ids": ("mistral", f'[TOOL_CALLS] [{NOW[:-1]},"id":"a"}},{NOW}]', "", ["now{}", "now{}"]),
    "mistral-object": ("mistral", f"[TOOL_CALLS]{NOW}", "", ["now{}"]),
    "mistral-list-in-arguments": ("mistral", '[TOOL_CALLS]now{"a":[[1],"[TOOL_CALLS]"]}', "", ['now{"a":[[1],"[TOOL_CALLS]"]}']),
    "mistral-marker-in-arguments": ("mistral", '[TOOL_CALLS]now{"a":[TOOL_CALLS]now{}', "", ['now{"a":...', "now{}"]),
    "mistral-indexing": ("mistral", "[TOOL_CALLS]now[0]", None, []),
    # X
    "qwen-block-closes": ("qwen3_coder", "<tool_call><function=now><parameter=a>x</parameter></tool_call>ok", "ok", ['now{"a":"x"}']),
    "qwen-block-closes-at-once": ("qwen3_coder", "<tool_call><function=now></tool_call>ok", "ok", ["now{}"]),
    "qwen-prose": ("qwen3_coder", "<function=now> is a tag", None, []),
    "qwen-junk-key": ("qwen3_coder", "<function=now><parameter=a>x</parameter>\n<parameter=>1", "\n<parameter=>1", ['now{"a":"x"...']),
    "qwen-repeated-key": ("qwen3_coder", "<function=now><parameter=a>1</parameter><parameter=a>2</parameter></function>", "", ['now{"a":1,"a":2}']),
    "qwen-carriage-return": ("qwen3_coder", "<function=write_note><parameter=text>\r\r</parameter></function>", "", ['write_note{"text":"\\r\\r"}']),
    "qwen-only-a-line-break": ("qwen3_coder", "<function=write_note><parameter=text>\n</parameter></function>", "", ['write_note{"text":""}']),
    "minimax-other-quotes": ("minimax_m2", "<minimax:tool_call><invoke name='now'>", None, []),
    "minimax-invoke-outside": ("minimax_m2", '<invoke name="now"></invoke>', None, []),
    "minimax-invoke-behind-the-block": ("minimax_m2", '<minimax:tool_call><invoke name="now"></invoke></minimax:tool_call><invoke name="now"></invoke>', '<invoke name="now"></invoke>', ["now{}"]),
    "dsml-without-attribute": ("deepseek_v4", '<｜DSML｜tool_calls><｜DSML｜invoke name="lookup_tide"><｜DSML｜parameter name="days">3</｜DSML｜parameter></｜DSML｜invoke>', "", ['lookup_tide{"days":3}']),
    "glm-with-line-breaks": ("glm45", "<tool_call>lookup_tide\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", "", ['lookup_tide{"days":3}']),
    # P and G
    "python-expression": ("pythonic", '[lookup_tide(port="B", days=f(1)), now()]', "f(1)), now()]", ['lookup_tide{"port":"B","days":...']),
    "python-positional-behind": ("pythonic", '[lookup_tide(port="B", 3)]', ", 3)]", ['lookup_tide{"port":"B"...']),
    "python-comparison": ("pythonic", "[now(a==1)]", None, []),
    "python-trailing-commas": ("pythonic", "[ lookup_tide( port = 'B', ), now(), ] bye", " bye", ['lookup_tide{"port":"B"}', "now{}"]),
    "python-text-behind-a-call": ("pythonic", "[now(), then()]", ", then()]", ["now{}"]),
    "python-string-prefix": ("pythonic", "[now(a=r'x')]", "r'x')]", ['now{"a":...']),
    "python-set": ("pythonic", "[now(a={1})]", "1})]", ['now{"a":{...']),
    "olmo-prose-behind-a-call": ("olmo3", "<function_calls>\nnow()\nthanks</function_calls>", "\nthanks", ["now{}"]),
    "olmo-list": ("olmo3", "<function_calls>[now(), fly()]</function_calls>", "", ["now{}", "fly{}"]),
    "gemma-values": ("gemma4", "<|tool_call>call:now{a:Oslo East,b:-1.5,c:[1,{d:true}],e:null,f:042,}<tool_call|>", "", ['now{"a":"Oslo East","b":-1.5,"c":[1,{"d":true}],"e":null,"f":"042"}']),
    "gemma-quoted-key": ("gemma4", '<|tool_call>call:now{<|"|>a b<|"|>:<|"|>"\\<|"|>}<tool_call|> bye<tool_call|>', " bye<tool_call|>", ['now{"a b":"\\"\\\\"}']),
    "gemma-no-value": ("gemma4", "<|tool_call>call:now{a:,b:1}", ",b:1}", ['now{"a":...']),
    # C
    "harmony-start-in-prose": ("harmony", "<|channel|>final<|message|>Hi <|start|> there<|return|>", "Hi <|start|> there", []),
    "harmony-no-tokens": ("harmony", " to=you, friend <|end|>", None, []),
    "harmony-body-is-no-object": ("harmony", "<|channel|>commentary to=functions.now<|message|> oops<|call|>", " oops", []),
    "harmony-declared-recipient": ("harmony", "<|channel|>analysis to=now<|message|>{}}\n<|call|>\n", "", ["now{}"]),
    "harmony-text-behind-a-call": ("harmony", "<|channel|>commentary to=functions.now<|message|>{} so<|call|>", " so", ["now{}"]),
    "harmony-text-between": ("harmony", "<|channel|>final<|message|>a<|end|> b<|start|>assistant<|message|>c", "a bc", []),
    "harmony-to-assistant": ("harmony", "<|channel|>commentary to=assistant<|message|>{}", "{}", []),
}  # fmt: skip


@pytest.mark.parametrize("cut", [list, lambda text: [text]], ids=["single", "whole"])
@pytest.mark.parametrize("case", WHOLE)
def test_text(case, cut):
    """Calls are found where the grammar says so, and all other text stays, in its order."""
    name, text, content, calls = WHOLE[case]
    client = Client({"tools": TOOLS}, tool_call_parser=name).feed(*cut(text)).finish()
    assert client.content == (text if content is None else content)
    found = [f"{call['name']}{call['arguments']}" for call in client.calls.values()]
    whole = [index for index, call in enumerate(calls) if not call.endswith("...")]
    assert found == [call.removesuffix("...") for call in calls]
    assert [call["index"] for call in client.dispatched] == whole
    assert client.finish_reason == ("tool_calls" if whole else "stop")


CUT = {
    "half-end-tag": ("hermes", f"<tool_call>{NOW}\n</tool_c", "\n</tool_c", ["now{}"]),
    "half-member": ("hermes", f'<tool_call>{NOW[:-1]}, "id": "ab', "", ["now{}"]),
    "list-begins": ("mistral", '[TOOL_CALLS]now{"a":[', "", ['now{"a":[...']),
    "between-parameters": ("qwen3_coder", "<function=now><parameter=a>x</parameter>\n", "", ['now{"a":"x"...']),
    "inside-a-parameter-tag": ("qwen3_coder", "<function=now><parameter=a>x</parameter>\n<para", "\n<para", ['now{"a":"x"...']),
    "inside-a-waiting-value": ("qwen3_coder", "<function=lookup_tide><parameter=days>\n3", "", ['lookup_tide{"days":3...']),
    "inside-a-value-end-tag": ("glm47", "<tool_call>now<arg_key>a</arg_key><arg_value>3</arg", "", ['now{"a":3</arg...']),
    "inside-a-string-value": ("qwen3_coder", "<function=write_note><parameter=text>\nx\n</par", "", ['write_note{"text":"x\\n</par...']),
    "python-behind-a-comma": ("pythonic", "[now(a=[1,", "", ['now{"a":[1,...']),
    "python-inside-a-number": ("pythonic", "[now(a=12", "", ['now{"a":12...']),
    "python-inside-a-keyword": ("pythonic", "[now(a=1, b", "", ['now{"a":1, b...']),
    "python-inside-an-escape": ("pythonic", "[now(a='x\\u00", "", ['now{"a":"x\\\\u00...']),
    "gemma-inside-a-key": ("gemma4", "<|tool_call>call:now{a:1,b", "", ['now{"a":1,b...']),
    "gemma-inside-a-string": ("gemma4", '<|tool_call>call:now{a:<|"|>x<|', "", ['now{"a":"x<|...']),
    "text-object": ("hermes", '<tool_call>{"name":"now","arguments":"{\\"a\\":', "", ['now{"a":...']),
    "harmony-header": ("harmony", "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>fin", "a", []),
    "harmony-empty-body": ("harmony", "<|channel|>commentary to=functions.now<|message|>", "", []),
    "named-key": ("hermes", '{"na', '{"na', []),
}  # fmt: skip


@pytest.mark.parametrize("case", CUT)
def test_cut_off(case):
    """A call that is cut off by length is never made whole, and what is no part of one is text."""
    name, text, content, calls = CUT[case]
    request = {"tools": TOOLS, **(NAMED if case.startswith("named") else {})}
    client = Client(request, tool_call_parser=name).feed(*text).finish("length")
    assert client.content == content
    assert [f"{call['name']}{call['arguments']}" for call in client.calls.values()] == [
        call.removesuffix("...") for call in calls
    ]
    assert [call["index"] for call in client.dispatched] == [
        index for index, call in enumerate(calls) if not call.endswith("...")
    ]
    assert client.finish_reason == "length"


ASKED = {
    "named-wrapped": ("hermes", '{"name":"lookup_tide","arguments":{"port":"B"}}', NAMED, "", ['lookup_tide{"port":"B"}']),
    "named-with-a-name-member": ("hermes", '{"name":"lookup_tide"}', NAMED, "", ['lookup_tide{"name":"lookup_tide"}']),
    "named-other-name": ("hermes", '{"name":"now","arguments":{}}', NAMED, "", ['lookup_tide{"name":"now","arguments":{}}']),
    "named-empty": ("hermes", " {} ok", NAMED, " ok", ["lookup_tide{}"]),
    "named-array": ("kimi_k2", f"[{NOW}]", NAMED, "", ["now{}"]),
    "named-native": ("hermes", HERMES, NAMED, "", ["now{}"]),
    "named-prose": ("hermes", "{ is a brace", NAMED, None, []),
    "named-later-object": ("default", 'a\n{"port":"B"}', NAMED, None, []),
    "required-in-harmony": ("harmony", f" [{NOW}]", REQUIRED, "", ["now{}"]),
    "required-native-in-harmony": ("harmony", " to=functions.now<|message|>{}", REQUIRED, "", ["now{}"]),
    "named-in-harmony": ("harmony", '{"port":"B"}', NAMED, "", ['lookup_tide{"port":"B"}']),
    "required-blanks-in-harmony": ("harmony", " \n", REQUIRED, None, []),
    "required-undeclared": ("hermes", '[{"name":"fly","parameters":{}}]', REQUIRED, None, []),
    "required-answer": ("hermes", '{"port":"B"}', REQUIRED, None, []),
    "required-own-list": ("pythonic", "[now()]", REQUIRED, "", ["now{}"]),
    "required-bare-in-pythonic": ("pythonic", f"[{NOW}]", REQUIRED, "", ["now{}"]),
    "guided-llama": ("llama3_json", NOW, GUIDED, None, []),
    "guided-llama-tag": ("llama3_json", f"<|python_tag|>{NOW}", GUIDED, "", ["now{}"]),
    "guided-by-vllm": ("xlam", NOW, {"guided_json": {}}, None, []),
    "guided-by-dynamo": ("xlam", NOW, {"nvext": {"guided_json": {}}}, None, []),
    "choice-none": ("hermes", HERMES, {"tool_choice": "none"}, None, []),
    "tools-empty": ("hermes", HERMES, {"tools": []}, None, []),
    "tools-null": ("hermes", HERMES, {"tools": None}, None, []),
    "harmony-choice-none": ("harmony", "<|channel|>analysis to=functions.now<|message|>{}<|call|>", {"tool_choice": "none"}, "", []),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_request(case):
    """The request decides what counts as a call."""
    name, text, request, content, calls = ASKED[case]
    client = Client({"tools": TOOLS, **request}, tool_call_parser=name).feed(*text).finish()
    assert client.content == (text if content is None else content)
    assert [f"{call['name']}{call['arguments']}" for call in client.calls.values()] == calls
    assert len(client.dispatched) == len(calls)
