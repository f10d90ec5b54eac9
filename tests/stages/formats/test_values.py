"""What the text of a parameter becomes, by its schema, and Python's and Gemma's literals (spec, parsers, 4 and 6)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.formats.literals import GEMMA, PYTHON, converted
from stages.formats.schema_types import types_of_parameter
from stages.formats.typed_values import typed_value

ANY = ["any"]
SCHEMA = {
    "properties": {
        "plain": {"type": "string"},
        "list": {"type": ["integer", "null"]},
        "union": {"anyOf": [{"type": "integer"}, {"oneOf": [{"type": "boolean"}, {"type": "null"}]}]},
        "enum": {"enum": ["a", 1, 1.5, True, None, [], {}]},
        "reference": {"$ref": "#/$defs/a~1b"},
        "chain": {"$ref": "#/$defs/c"},
        "loop": {"$ref": "#/$defs/loop"},
        "foreign": {"$ref": "https://example.com/x"},
        "dangling": {"$ref": "#/$defs/none"},
        "empty": {},
        "true": True,
        "odd": {"type": "dict"},
        "odd-list": {"type": [5, "string"]},
        "nothing": {"type": [], "anyOf": 5, "enum": "ab"},
    },
    "$defs": {
        "a/b": {"type": "array"},
        "c": {"$ref": "#/$defs/d"},
        "d": {"allOf": [{"$ref": "#/$defs/a~1b"}, {"type": "string"}]},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}] * 40},
    },
}


@pytest.mark.parametrize(
    ("key", "types"),
    [
        ("plain", ["string"]),
        ("list", ["integer", "null"]),
        ("union", ["boolean", "integer", "null"]),
        ("enum", ["array", "boolean", "null", "number", "object", "string"]),
        ("reference", ["array"]),
        ("chain", ["array", "string"]),
        *((key, ANY) for key in ("loop", "foreign", "dangling", "empty", "true", "odd", "nothing")),
        ("odd-list", ["any", "string"]),
        ("unknown", ["string"]),
    ],
)
def test_types_of_a_parameter(key, types):
    """References, lists, unions and values of an enumeration are followed; what says nothing is any type."""
    assert sorted(types_of_parameter(SCHEMA, key)) == types


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, ANY),
        (None, ANY),
        ([], ANY),
        ({"properties": {}}, ANY),
        ({"properties": []}, ANY),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "number"}}, ["number"]),
        ({"properties": {"a": {}}, "additionalProperties": True}, ["string"]),
        ({"$ref": "#/$defs/root", "$defs": {"root": {"properties": {"k": {"type": "null"}}}}}, ["null"]),
    ],
)
def test_types_of_a_parameter_that_is_not_listed(schema, types):
    """Where properties are listed another one is a string, where none are it is anything."""
    assert sorted(types_of_parameter(schema, "k")) == types


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("7", "string", '"7"'),
        (" null\n", "string", '" null\\n"'),
        ("null", "string null", "null"),
        ("NONE", "integer", "null"),
        ("None", "string integer", '"None"'),
        (" 2.50 ", "number", "2.50"),
        ("042", "integer", '"042"'),
        ("7", "string integer", "7"),
        ("7a", "string integer", '"7a"'),
        ("TRUE", "boolean", "true"),
        ("maybe", "boolean", '"maybe"'),
        ("True", "any", "true"),
        ("TRUE", "any", '"TRUE"'),
        ('{"a": [1, 2]}', "object", '{"a": [1, 2]}'),
        ('{"a": 1}', "array", '"{\\"a\\": 1}"'),
        ("{'a': (1, None)}", "object", '{"a":[1,null]}'),
        ("[not json", "string array", '"[not json"'),
        ("[1, x]", "any", '"[1, x]"'),
        ("[1] 2", "any", '"[1] 2"'),
        ("[" * 5000 + "]" * 5000, "any", "[" * 5000 + "]" * 5000),
        ("é\x00\u2028\ud83d", "string", '"é\\u0000\u2028\ud83d"'),
        ("", "integer", '""'),
    ],
)
def test_typed_value(text, types, value):
    """A value that reads exactly as one of its types becomes that, anything else is the text itself."""
    assert typed_value(text, frozenset(types.split())) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1_000, .5, 5., -.5e3, +3, 0x1F, -0b11, 0o17, 1E5, 12345678901234567890123]", "[1000,0.5,5.0,-0.5e3,3,31,-3,15,1E5,12345678901234567890123]"),
        (r"""['\x41\u00e9\U0001F600\101\0', "\ud83d\ude00", '\q\
z', '\N{DASH}']""", r'["Aé😀A\u0000","😀","\\qz","\\N{DASH}"]'),
        ("""[''''a'b''', "", \"\"\"x"y\"\"\", '']""", """["'a'b","","x\\"y",""]"""),
        ("{ 'a' : {\"b\": ()} , }", '{"a":{"b":[]}}'),
        ("[true, null, False]", "[true,null,false]"),
    ],
)  # fmt: skip
def test_python_literals(text, value):
    """Python's spellings become JSON's."""
    assert converted(text, PYTHON) == value
    json.loads(value, strict=False)


@pytest.mark.parametrize(
    "text",
    ["[f(1)]", "[1 2]", "{1: 2}", "{a: 1}", "{'a'}", "[1,,2]", "[,]", "[x]", "[1j]", "[00]", "[1-2]", "[1__0]", "['a", "['\\", "[0x]", "[1", "[]]", "", "(", "['a' 'b']", "{'a' 1}", "[\\]"],
)  # fmt: skip
def test_what_is_no_python_literal(text):
    """Expressions, unknown names and broken literals are not guessed at."""
    assert converted(text, PYTHON) is None


def test_digits_beyond_what_python_converts():
    """An integer that Python refuses to write out is no literal; written in decimal it stays as it is."""
    assert converted(f"[0x{'f' * 5000}]", PYTHON) is None
    assert converted(f"[{'9' * 5000}]", PYTHON) == f"[{'9' * 5000}]"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=3))
def test_what_python_writes_is_read(value):
    """The JSON of a literal has the value that the literal had."""
    assert json.loads(converted(repr(value), PYTHON)) == value


@given(st.text(alphabet="[]{}(),:'\"\\ntu01.eE+-_ \n<|>aTrue", max_size=30))
def test_any_text_is_a_literal_or_none(text):
    """Whatever is read as a literal is JSON."""
    for dialect in (PYTHON, GEMMA):
        value = converted(f"[{text}]", dialect)
        if value is not None:
            json.loads(value)
