"""RFC 8259 syntax and nothing but that: edge cases, a strict reference, any mutation, a cost that is linear."""

from __future__ import annotations

import json
import time

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.json_syntax import _follows_grammar, is_json

BACKSLASH = "\\"

VALID = [
    # roots
    "{}", "[]", "0", "-0", "1", '""', '"a"', "true", "false", "null", " 1 ", "\t\r\n []\t\r\n ", "[[]]", "[{}]", '{"":{}}',
    # numbers
    "-1", "10", "120", "0.0", "-0.0", "0.5", "1.25", "1e1", "1E1", "1e+1", "1e-1", "1E+01", "0e0", "0E-0", "-0e+00",
    "1.5e300", "1e999", "-1e999", "1e-999", "1e99999999999999999999", "123456789012345678901234567890", "0." + "0" * 400,
    "9" * 5000, "-" + "9" * 5000, "[0,1.5,-2e3]", "1.0000000000000000000000001", "123e45", "0e1", "20e1",
    # strings
    '"\\""', '"\\\\"', '"\\/"', '"\\b\\f\\n\\r\\t"', '"\\u0000"', '"\\u00e9\\u00E9"', '"\\uD83D\\uDE00"', '"\\ud800"',
    '"\\udc00"', '"\\udfff\\ud800"', '"\\ud800a"', '"\\ud800\\n"', '"\\ud800\\ud800"', '"\\uFFFF"', '"\\u2028\\u2029"',
    '"\u2028\u2029"', '"\x7f"', '"\x80\x9f"', '"é"', '"\U0001f98a"', '"\uffff"', '"\U0010ffff"', '"\ufeff"', '"\ud800"',
    '"\udfff tail"', '"/"', '"\'"', '"{[}],:"', '"\\\\\\""', '"\\\\u12"', '"a b"', '"\u00a0"', '"null"',
    # arrays
    "[1]", "[1,2]", "[ 1 , 2 ]", '["a","b"]', "[true,false,null]", "[[],[]]", "[[[[[[]]]]]]", "[[[1],2],3]", "[{},{}]",
    "[ ]", "[\n]", "[[] ]", "[ [ ] ]", "[[[]],[[]]]", "[-0]", '[""]', "[\t1\r,\n2 ]", "[" * 300 + "]" * 300,
    "[" * 5000 + "]" * 5000, "[ " * 3000 + "] " * 3000, "[[1],[[2]],[[[3]]]]", "[[[" + "]]]", "[1,[2,[3,[4]]]]",
    # objects
    '{"a":1}', '{"a":1,"b":2}', '{ "a" : 1 , "b" : 2 }', '{"a":1,"a":2}', '{"a":{"b":{"c":[]}}}', '{"":0}',
    '{"\\ud800":1}', '{"a":[{"b":1},{"c":2}]}', '{"\\u0061":1}', "{\n}", '{"a":\n1\n}', '{"a":[],"b":{}}',
    '{"a":' * 3000 + "1" + "}" * 3000, '{"a":[' * 2000 + "]}" * 2000, '{"a":true,"b":false,"c":null}',
    '{"x":[[],[[]]],"y":{}}', '{"a":1e999,"b":[1e999]}', '[{"a":[{"b":1e999}]},1]', '{"a":"\\ud800","b":[1,{}]}',
]  # fmt: skip

INVALID = [
    # nothing, blanks, what is no blank
    "", " ", "\n", "\ufeff", "\ufeff{}", "\ufeff1", "{}\ufeff", "\u00a01", "1\u00a0", "\v1", "1\f", "[\u00a01]", "[1\v]", "\x001",
    "1\x00", "[\u2028]", "\x85[]", "{}\u3000", "[1\u200b]",
    # literals
    "nul", "nulll", "True", "NULL", "tru", "truee", "false0", "undefined", "NaN", "nan", "Infinity", "-Infinity", "inf", "None",
    "[NaN]", '{"a":NaN}', "[-Infinity]", "t", "-", "+", "--1", "-a",
    # numbers
    "01", "-01", "00", "+1", ".5", "-.5", "5.", "-5.", "1.e1", "1e", "1e+", "1E-", "1.5e", "0x10", "1_000", "1,000", "1 2",
    "1.2.3", "1e1.5", "1e1e1", "0e", "1a", "[1.]", "[.1]", "[01]", "[+1]", "[1e]", "- 1", "1. 5", "[0 1]", "0123456789", "1e\u0661",
    "\u0661", "\uff11", "1\u0662", "2.e3", "0.1.", "-e1", "1ee1",
    # strings
    '"', '"a', 'a"', "'a'", '"\\"', '"\\x41"', '"\\a"', '"\\0"', '"\\\'"', '"\\u"', '"\\u1"', '"\\u12"', '"\\u123"', '"\\u123g"',
    '"\\U00e9"', '"\\u 123"', '"\\uÀ000"', '"\\u\uff10\uff1000"', '"\x00"', '"\x01"', '"\n"', '"\r"', '"\t"', '"\x1f"', '"\\\n"', '"a""b"',
    '"a" "b"', '"\\', '"\\\\\\"', '"\ud800', '"\\ud800\\x"', '"\\ud800\n"', "abc", '"\\ud8"', '"a\\',
    # arrays
    "[", "]", "[1", "1]", "[1,", "[1,]", "[,1]", "[,]", "[1,,2]", "[1 2]", "[1;2]", "[1:2]", "[[]", "[]]", "[}", "[1}", "[{]}", "][",
    "[1]1", "[] []", "[][]", "[1]]", "(1)", '["a",', '["a":1]', "[" * 5000, "[" * 5000 + "]" * 4999, "[" * 5000 + "]" * 5001,
    "[[1],", "[[]}", "[[ ]", "[1e999", "[1e999,]", "[[1e999]}", "[[[" + "]]", "[,[]]", "[[],,[]]", "[[][]]",
    # objects
    "{", "}", "{]", '{"a"}', '{"a":}', '{"a":1', '{"a":1,}', '{"a":1,,"b":2}', "{,}", '{,"a":1}', "{a:1}", "{'a':1}", "{1:1}", '{"a" 1}',
    '{"a"::1}', '{"a":1:2}', '{"a":1 "b":2}', '{"a":1]', '{"a":1}}', '{"a":1}{"b":2}', "{}{}", "{}oops", '{"a":1}x', '{"a":1,"b"}',
    '{"a":1,"b":}', '{"a":1;"b":2}', '{"a":[1}', '{"a":[1}]', '{"a":1e999,}', '{"a":1e999,1}', '{"a":"b}', '{"a":\'b\'}', "{[]:1}",
    "{null:1}", '{"a":1/*c*/}', '{"a":1}//c', "#1", '{"a":1e999 "b":1}', '{"a":[1e999]]', '{"a":' * 3000 + "1" + "}" * 2999, '{"\n":1}',
    '{"a":{"b":1e999]}', "{{}}", '{"a":{}', "{[}]",
]  # fmt: skip


@pytest.mark.parametrize("text", VALID, ids=lambda text: ascii(text)[:40])
def test_valid(text):
    """JSON by the grammar is accepted, by the fast path or by the walk, and by the walk alone."""
    assert is_json(text)
    assert _follows_grammar(text)


@pytest.mark.parametrize("text", INVALID, ids=lambda text: ascii(text)[:40])
def test_invalid(text):
    """What the grammar does not allow is refused, by both."""
    assert not is_json(text)
    assert not _follows_grammar(text)


def test_there_are_many_of_them():
    """The two lists hold what conformance suites try, each text once."""
    assert len(set(VALID)) == len(VALID) > 100
    assert len(set(INVALID)) == len(INVALID) > 150


def reference(text):
    """The standard library, made strict; these texts stay within its limit on depth."""
    if "\ufeff" in text[:1]:
        return False

    def refuse(constant):
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str, strict=True)
    except ValueError:
        return False
    return True


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
    max_leaves=12,
)
NEARLY_JSON = st.text('{}[]:,"\\ \n\t0123456789-+.eEtrufalsn\x00\x1f\x7f\u00a0\ud800é/b', max_size=30)


@given(JSON, st.booleans(), st.sampled_from([None, 0, 1]))
def test_it_agrees_with_the_reference_on_documents(value, ascii_only, indent):
    """Documents as the standard library writes them, NaN and Infinity among them."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert is_json(text) == _follows_grammar(text) == reference(text)


@given(JSON, st.data())
def test_it_agrees_with_the_reference_on_mutations(value, data):
    """A document with one piece cut out, doubled or replaced."""
    text = json.dumps(value)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 4)))
    mutated = text[:start] + data.draw(NEARLY_JSON | st.just(text[start:end] * 2)) + text[end:]
    assert is_json(mutated) == _follows_grammar(mutated) == reference(mutated)


@given(NEARLY_JSON)
@example('"\ud800"')
@example("[1,]")
def test_it_agrees_with_the_reference_on_noise(text):
    """Any text of the characters that matter."""
    assert is_json(text) == _follows_grammar(text) == reference(text)


@given(NEARLY_JSON | JSON.map(json.dumps))
def test_orjson_never_accepts_what_the_grammar_refuses(text):
    """The fast path is sound: orjson refuses too much, never too little."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    assert _follows_grammar(text)


@pytest.mark.parametrize(
    ("start", "unit", "end"),
    [
        pytest.param("", "[", "", id="open-arrays"),
        pytest.param("", "[ ", "", id="open-arrays-spaced"),
        pytest.param("", '{"a":', "", id="open-objects"),
        pytest.param("", '[{"a":', "", id="open-both"),
        pytest.param("[", "1,", "", id="elements"),
        pytest.param("", "1", "x", id="digits"),
        pytest.param("1.", "1", "x", id="fraction"),
        pytest.param("1e", "1", "x", id="exponent"),
        pytest.param('"', BACKSLASH, "", id="backslashes"),
        pytest.param('"', BACKSLASH * 2, "\n", id="escaped-backslashes"),
        pytest.param('"', "\\ud800", "", id="surrogates"),
        pytest.param('"', "a", "", id="open-string"),
        pytest.param("", " ", "x", id="blanks"),
        pytest.param("[", '"",', "", id="strings"),
        pytest.param("[" * 2000, "]", "", id="closers"),
    ],
)
def test_the_cost_is_linear(start, unit, end):
    """Long texts that are refused only at their end cost per character what short ones do."""

    def seconds_per_character(length):
        text = start + unit * (length // len(unit)) + end
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            is_json(text)
            best = min(best, time.perf_counter() - begin)
        return best / len(text)

    assert seconds_per_character(400_000) < 8 * seconds_per_character(20_000) + 1e-8


def test_depth_and_length_have_no_limit():
    """Ten million brackets, ten million digits: no recursion, no limit on conversion."""
    assert is_json("[" * 5_000_000 + "]" * 5_000_000)
    assert not is_json("[" * 5_000_000 + "]" * 4_999_999)
    assert is_json("1" * 10_000_000)
