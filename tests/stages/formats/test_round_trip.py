"""Calls that are written in a format are read from it, whatever they hold and however the text is cut."""
# ruff: noqa: RUF001 - DeepSeek's tokens are spelled with fullwidth bars

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import Client, random_cut

NAMES = st.sampled_from(["now", "lookup_tide", "get-it.v2", "a_b:c", "n" * 64])
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda key: key not in ("None", "True"))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["</tool_call>", "[TOOL_CALLS]x{", "<|call|>", '{"name":"a"}', "`", "\\u00"]
)
VALUES = st.recursive(
    LEAVES | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(KEYS, VALUES, max_size=3)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3)
STYLES = st.sampled_from([{}, {"separators": (",", ":")}, {"separators": ("\n, ", "\t: ")}, {"ensure_ascii": False}])


def objects(calls, style, key="arguments"):
    return [json.dumps({"name": name, key: arguments}, **style) for name, arguments in calls]


def kimi(calls, style):
    inner = [
        f"<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{json.dumps(given, **style)}<|tool_call_end|>"
        for i, (name, given) in enumerate(calls)
    ]
    return f"<|tool_calls_section_begin|>{''.join(inner)}<|tool_calls_section_end|>"


def deepseek(calls, style, head="{}<｜tool▁sep｜>", foot=""):
    inner = [
        f"<｜tool▁call▁begin｜>{head.format(name)}{json.dumps(given, **style)}{foot}<｜tool▁call▁end｜>"
        for name, given in calls
    ]
    return f"<｜tool▁calls▁begin｜>{''.join(inner)}<｜tool▁calls▁end｜>"


def harmony(calls, style):
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(given, **style)}<|call|>"
        for name, given in calls
    )


def mistral(calls, style):
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given, **style)}" for name, given in calls)


def array(calls, style):
    return f"[{', '.join(objects(calls, style))}]"


VERBATIM = {
    "hermes": lambda calls, style: "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in objects(calls, style)),
    "granite": lambda calls, style: f"<|tool_call|>{array(calls, style)}",
    "jamba": lambda calls, style: f"<tool_calls>{array(calls, style)}</tool_calls>",
    "nemotron_deci": lambda calls, style: f"<TOOLCALL>{array(calls, style)}</TOOLCALL>",
    "phi4": lambda calls, style: f"functools{array(calls, style)}",
    "xlam": lambda calls, style: f"<tool_call>{array(calls, style)}</tool_call>",
    "default": lambda calls, style: f"<TOOLCALL>{array(calls, style)}</TOOLCALL>",
    "llama3_json": lambda calls, style: f"<|python_tag|>{'; '.join(objects(calls, style, 'parameters'))}",
    "mistral": mistral,
    "kimi_k2": kimi,
    "deepseek_v3_1": deepseek,
    "deepseek_v3": lambda calls, style: deepseek(calls, style, "function<｜tool▁sep｜>{}\n```json\n", "\n```"),
    "functionary": lambda calls, style: "".join(
        f"<function={name}>{json.dumps(given, **style)}</function>" for name, given in calls
    ),
    "harmony": harmony,
}


def parsed(name, text, tools, seed):
    declared = [
        {"type": "function", "function": {"name": each, "parameters": schema}} for each, schema in tools.items()
    ]
    client = Client({"tools": declared}, tool_call_parser=name)
    client.feed(*random_cut(text, seed)).finish()
    assert len(client.dispatched) == len(client.calls)
    assert client.finish_reason == "tool_calls"
    calls = [(call["name"], call["arguments"]) for _, call in sorted(client.calls.items())]
    return client.content, calls


@given(st.sampled_from(sorted(VERBATIM)), CALLS, STYLES, st.integers())
@settings(max_examples=300)
def test_formats_with_json(name, calls, style, seed):
    """The arguments are the model's own text, byte for byte."""
    text = "Sure.\n" + VERBATIM[name](calls, style)
    content, found = parsed(name, text if name != "harmony" else text.removeprefix("Sure.\n"), {"other": {}}, seed)
    assert content == ("" if name == "harmony" else "Sure.\n")
    assert found == [(name, json.dumps(given, **style)) for name, given in calls]


# --- built arguments --------------------------------------------------------------------------------------------


def python(value):
    """Python's own spelling, with names for keywords only where they are names."""
    return repr(value)


def gemma(value):
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(gemma, value)) + "]"
    return json.dumps(value)


def keywords(calls):
    return [f"{name}({', '.join(f'{key}={python(each)}' for key, each in given.items())})" for name, given in calls]


LITERAL = {
    "pythonic": lambda calls: f"<|python_start|>[{', '.join(keywords(calls))}]<|python_end|>",
    "olmo3": lambda calls: "<function_calls>\n" + "\n".join(keywords(calls)) + "\n</function_calls>",
    "gemma4": lambda calls: "".join(f"<|tool_call>call:{name}{gemma(given)}<tool_call|>" for name, given in calls),
}
NO_TOKEN = VALUES.filter(lambda value: '<|"' not in json.dumps(value, ensure_ascii=False))


@given(
    st.sampled_from(sorted(LITERAL)),
    st.lists(st.tuples(NAMES, st.dictionaries(KEYS, NO_TOKEN, max_size=3)), min_size=1, max_size=3),
    st.integers(),
)
@settings(max_examples=200)
def test_formats_with_literals(name, calls, seed):
    """The arguments have the values of the literals."""
    content, found = parsed(name, LITERAL[name](calls), {"other": {}}, seed)
    assert content == ""
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls


TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def qwen(name, given):
    inner = "".join(f"<parameter={key}>\n{each}\n</parameter>\n" for key, each in given)
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def glm(name, given):
    inner = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{each}</arg_value>\n" for key, each in given)
    return f"<tool_call>{name}\n{inner}</tool_call>"


def invoke(tag, block):
    def written(name, given):
        inner = "".join(f'<{tag}parameter name="{key}">{each}</{tag}parameter>\n' for key, each in given)
        return f'<{block}>\n<{tag}invoke name="{name}">\n{inner}</{tag}invoke>\n</{block}>'

    return written


TAGGED = {
    "qwen3_coder": qwen,
    "glm47": glm,
    "minimax_m2": invoke("", "minimax:tool_call"),
    "deepseek_v4": invoke("｜DSML｜", "｜DSML｜tool_calls"),
}
# A line break at the end of a text is told from one of the format's own, a carriage return before it is not.
RAW = TEXTS.filter(lambda text: not text.endswith("\r"))
TYPED = st.dictionaries(KEYS, LEAVES | RAW | st.lists(VALUES, max_size=3) | ARGUMENTS, max_size=3)


@given(st.sampled_from(sorted(TAGGED)), NAMES, TYPED, st.integers())
@settings(max_examples=300)
def test_formats_with_tags(name, tool, given, seed):
    """The arguments have the values that the text says, read by the types that the tool declares."""
    schema = {"properties": {key: {"type": TYPES[type(each)]} for key, each in given.items()}}
    text = TAGGED[name](
        tool, [(key, each if isinstance(each, str) else json.dumps(each)) for key, each in given.items()]
    )
    content, found = parsed(name, text, {tool: schema if given else {}}, seed)
    assert content == ""
    assert [(each, json.loads(arguments)) for each, arguments in found] == [(tool, given)]
