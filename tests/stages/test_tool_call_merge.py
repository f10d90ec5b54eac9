"""The merge policy: rows M1 to M6 (spec, dispatch, 3.10), and the shapes that the tables leave out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import t

from stages.tool_call_merge import ToolCall, argument_text, merge


def fragment(id=None, name=None, arguments=None, **keys):  # noqa: A002 - the wire's own word
    """A fragment without index and type, as the table writes it."""
    ((_, _, made),) = t(0, id, name, arguments, type=None)
    return {**made, **keys}


ROWS = [
    ("M1", fragment("c", "f", '{"a"'), fragment(None, None, ":1}"), None, ("c", "f", '{"a":1}')),
    ("M2", fragment("c", "f"), fragment("d", "g"), "id", ("c", "f", None)),
    ("M3", fragment("c", "f"), fragment("", "", "{}"), None, ("c", "f", "{}")),
    ("M4", fragment("", ""), fragment("c", "f"), None, ("c", "f", None)),
    ("M5", {}, fragment("", ""), None, ("", "", None)),
    ("M6", fragment("c", "f"), fragment("c", "g"), "function.name", ("c", "f", None)),
    (
        "type-second",
        {**fragment("c", "f"), "type": "function"},
        {**fragment("c", "g"), "type": "custom"},
        "type",
        ("c", "f", None),
    ),
    (
        "id-before-type",
        {**fragment("c"), "type": "function"},
        {**fragment("d"), "type": "custom"},
        "id",
        ("c", "", None),
    ),
    ("conflict-keeps-text", fragment("c", "f", "{"), fragment("d", "f", "}"), "id", ("c", "f", "{}")),
    ("null-is-absent", fragment("c", "f", "{}"), {"id": None, "type": None, "function": None}, None, ("c", "f", "{}")),
    ("null-arguments", fragment("c", "f"), {"function": {"name": None, "arguments": None}}, None, ("c", "f", None)),
    ("other-types", fragment("c", "f"), {"id": 7, "type": [], "function": {"name": {}}}, None, ("c", "f", None)),
    ("function-is-a-list", fragment("c", "f"), {"function": [{"name": "g"}]}, None, ("c", "f", None)),
]


@pytest.mark.parametrize(
    ("accumulated", "incoming", "conflict", "result"), [pytest.param(*row[1:], id=row[0]) for row in ROWS]
)
def test_row(accumulated, incoming, conflict, result):
    """Accumulated and incoming give the table's result, and the conflict is the first field that differs."""
    call = ToolCall()
    assert merge(call, accumulated) is None
    assert merge(call, incoming) == conflict
    assert (call.id, call.name, call.arguments) == result


@pytest.mark.parametrize("foreign", [{}, {"a": 1}, [], [1], 0, 1.5, True, False])
def test_arguments_that_are_no_text_are_noted_and_not_merged(foreign):
    """Neither text nor null: the text stays as it was, and the call says so."""
    call = ToolCall()
    merge(call, fragment("c", "f", "{"))
    merge(call, {"function": {"arguments": foreign}})
    assert call.has_foreign_arguments
    assert call.arguments == "{"


def test_an_empty_text_is_not_the_same_as_no_text():
    """Whether any fragment carried the key decides between no arguments and empty ones."""
    call = ToolCall()
    merge(call, fragment("c", "f"))
    assert call.arguments is None
    assert call.has_function
    merge(call, fragment(None, None, ""))
    assert call.arguments == ""


def test_input_of_free_form_calls_is_joined():
    """custom.input is text like arguments; its name is no function name."""
    call = ToolCall()
    merge(call, {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}})
    merge(call, {"custom": {"input": " -l"}})
    assert (call.custom_name, call.input, call.name, call.has_function) == ("shell", "ls -l", "", False)
    assert call.text_bytes == 5


@given(st.lists(st.text(st.characters(codec=None))))
def test_text_is_joined_as_it_came(pieces):
    """Line ends, surrogates and all: the arguments are the pieces joined, and their length is that in UTF-8."""
    call = ToolCall()
    for piece in pieces:
        merge(call, fragment(None, None, piece))
    text = "".join(pieces)
    assert (call.arguments or "") == text
    assert call.text_bytes == len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("odd", [{}, {"function": None}, {"function": 3}, {"function": {"arguments": {}}}])
def test_argument_text_of_odd_fragments_is_empty(odd):
    """A fragment without argument text adds nothing."""
    assert argument_text(odd) == ""


def test_line_ends_are_not_translated():
    """The buffer behind a call keeps CR and LF as they came."""
    call = ToolCall()
    call.add_arguments("\r\n\r")
    assert call.arguments == "\r\n\r"
