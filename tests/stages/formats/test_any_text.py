"""Whatever a model writes, nothing crashes, nothing is lost or made up, and the cut makes no difference."""
# ruff: noqa: RUF001 - DeepSeek's tokens are spelled with fullwidth bars

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import TOOLS, Client, cases

from stages.formats.declarations import FORMATS
from stages.formats.format import CallFormat, ReasoningFormat

CALLS = {each.names[0]: each for each in FORMATS if isinstance(each, CallFormat)}
THOUGHTS = {each.names[0]: each for each in FORMATS if isinstance(each, ReasoningFormat)}
GRAMMAR = [
    *("now", "lookup_tide", "fly", '"name"', '"arguments"', '"function"', ':{"a":', '{"name":"now","arguments":{}}'),
    *("{", "}", "[", "]", "(", ")", ",", ":", ";", "=", '"', "'", "\\", "`", " ", "\n", "\r\n", "5", "null", "<", ">"),
]
WORDS = [f"w{number}w" for number in range(20)]
REQUESTS = [
    {},
    {},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "lookup_tide"}}},
]


def texts_of(found, kind):
    """The texts of a format's vectors."""
    return [case["text"] for case in cases().values() if case["format"].get(kind) in found.names]


def pieces_of(text):
    """A vector's text in its tokens."""
    return re.findall(r"</?[^<>\s]{1,40}>|\[/?[A-Z_]+\]|\w+|\s+|.", text)


@st.composite
def model_texts(draw, samples):
    """Texts of vectors, joined, with tokens taken out, doubled, moved and put in, and each word once."""
    tokens = [
        token for text in draw(st.lists(st.sampled_from(samples), min_size=1, max_size=2)) for token in pieces_of(text)
    ]
    pool = st.sampled_from(sorted({token for text in samples for token in pieces_of(text)} | set(GRAMMAR)))
    words = list(WORDS)
    for _ in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, len(tokens)))
        match draw(st.integers(0, 4)):
            case 0:
                del tokens[place : place + draw(st.integers(1, 5))]
            case 1:
                tokens[place:place] = tokens[place : place + 4]
            case 2:
                tokens.insert(place, draw(pool))
            case 3:
                tokens.insert(place, words.pop())
            case 4:
                del tokens[place:]
    return "".join(tokens) or "a"


def cut_at(text, places):
    places = sorted({place % len(text) for place in places} - {0})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def check(client, text, cut, reason):
    """Feed a text whole, by code points and cut, with what must hold each time; the client that got it whole."""
    whole = client().feed(text).finish(reason)
    assert client().feed(*cut).finish(reason).state() == whole.state()
    single = client()
    for character in text:
        single.feed(character)
        for key, seen in single.texts.items():
            assert whole.texts[key].startswith(seen)
        assert all(map(str.startswith, whole.arguments, single.arguments))
    assert single.finish(reason).state() == whole.state()
    return whole


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
@settings(max_examples=25)
def test_calls(name, data):
    """Text that is no markup of a call survives, arguments are the text's own, and cuts change nothing."""
    text = data.draw(model_texts(texts_of(CALLS[name], "tool_call_parser")))
    cut = cut_at(text, data.draw(st.lists(st.integers(0, 1000), max_size=8)))
    reason = data.draw(st.sampled_from(["stop", "length"]))
    request = {"tools": TOOLS, **data.draw(st.sampled_from(REQUESTS))}
    client = check(lambda: Client(request, tool_call_parser=name), text, cut, reason)
    if not client.calls and name != "harmony":
        assert client.content == text
    if reason != "stop":
        assert client.finish_reason == reason
    seen = client.content + client.reasoning + "".join(client.arguments)
    for call in client.calls.values():
        assert call["name"] in text or request["tool_choice"]["function"]["name"] == call["name"]
        seen += call["name"] + call["id"]
    assert_words_stay(text, seen, _SKIPPED.get(name, _OBJECTS))


def assert_words_stay(text, seen, skipped):
    """Each word that was put in comes out at least once, unless it fell into what the grammar skips."""
    for word in set(WORDS) & set(re.findall(r"w\d+w", skipped.sub("", text))):
        assert word in seen


# Members of an object beside name and arguments, a DeepSeek call's type, harmony's headers; the others skip nothing.
_OBJECTS = re.compile(r"(?s)\{.*")
_NOTHING = re.compile(r"(?!)")
_TYPES = re.compile(r"<｜tool▁call▁begin｜>\s*\S*?\s*<｜tool▁sep｜>|```\w*")
_HEADERS = re.compile(
    r"(?s)(?:<\|(?:start|channel|constrain)\|>|(?:^|<\|(?:end|call|return)\|>)\s*to=).*?(?:<\|message\|>|\Z)"
)
_SKIPPED = {
    "deepseek_v3": _TYPES,
    "harmony": _HEADERS,
    **dict.fromkeys(["qwen3_coder", "glm47", "minimax_m2", "deepseek_v4", "deepseek_v3_2"], _NOTHING),
    **dict.fromkeys(["kimi_k2", "deepseek_v3_1", "functionary", "gemma4", "pythonic", "olmo3"], _NOTHING),
}


@pytest.mark.parametrize("name", THOUGHTS)
@given(data=st.data())
@settings(max_examples=25)
def test_thoughts(name, data):
    """No character is lost but tags and the blanks next to them, and cuts change nothing."""
    samples = [*texts_of(THOUGHTS[name], "reasoning_parser"), "<think>a `</think>` b</think>\nc"]
    text = data.draw(model_texts(samples))
    cut = cut_at(text, data.draw(st.lists(st.integers(0, 1000), max_size=8)))
    kwargs = {"thinking": data.draw(st.sampled_from([None, True, False]))}
    client = check(lambda: Client({"chat_template_kwargs": kwargs}, reasoning_parser=name), text, cut, "stop")
    seen = client.content + client.reasoning
    assert_words_stay(text, seen, _HEADERS if name == "harmony" else _NOTHING)


@given(
    st.lists(
        st.sampled_from([*pieces_of(cases()["hermes--two-objects-in-one-tag"]["text"]), "<think>", "</think>", "`"])
    ),
    st.lists(st.integers(0, 1000), max_size=8),
)
@settings(max_examples=60)
def test_thoughts_and_calls_together(tokens, places):
    """The two stages in a row do not depend on the cut either."""
    text = "<think>" + "".join(tokens)
    check(
        lambda: Client({"tools": TOOLS}, tool_call_parser="hermes", reasoning_parser="qwen3"),
        text,
        cut_at(text, places),
        "stop",
    )
