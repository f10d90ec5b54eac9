"""``tool_call_index``: rows IX1 to IX15 and the options of spec, repairs, 6.

A row lists the entries of each chunk, and the indexes that they must have afterwards.
"""

from __future__ import annotations

import json

import pytest
from repair_helpers import DONE, ENVELOPE, NULL, Repaired, body_of, check, choice, chunk, e, piece, untouched

from stages.tool_call_index import ToolCallIndex

FULL = '{"k":1}'
OTHER = '{"k":2}'


def entries(*chunks):
    """Payloads of chunks, each given as one entry or a list of entries."""
    return [chunk(*(one if isinstance(one, list) else [one])) for one in chunks]


def numbered(payloads, indexes):
    """The same payloads with these indexes, one for each entry in order; None for an entry without."""
    indexes, after = list(indexes), []
    for place, payload in enumerate(payloads):
        before = payload["choices"][0]["delta"]["tool_calls"]
        calls = []
        for entry in before:
            index = indexes.pop(0)
            calls.append(entry if index is None else {**entry, "index": index})
        same = [json.dumps(call) for call in calls] == [json.dumps(call) for call in before]
        after.append(place if same else chunk(*calls))
    assert not indexes
    return after


ROWS = {
    # --- with an index
    "IX1": ([e(0, "a", "f", ""), e(1, "b", "g", FULL)], [0, 1]),
    "IX1 sparse and not from 0": ([e(5, "a", "f", FULL), e(2, "b", "g", "{"), piece("}", 2)], [5, 2, 2]),
    "IX2": ([e(0, "a", "f", FULL), e(0, "a", "f", FULL), piece("")], [0, 0, 0]),
    "IX2 back to an earlier call": (
        [e(0, "a", "f", "{"), e(0, "b", "g", "{"), e(0, "a", None, "}"), e(0, "b", None, "}")],
        [0, 1, 0, 1],
    ),
    "IX3 while open": ([e(0, "a", "f", "{"), e(0, "b", None, '"k":1'), e(0, "c", None, "}")], [0, 0, 0]),
    "IX3 blank behind a closed one": ([e(0, "a", "f", FULL), e(0, "b", None, " "), e(0, "c")], [0, 0, 0]),
    "IX3 text behind a closed one": ([e(0, "a", "f", FULL), e(0, "b", None, OTHER)], [0, 1]),
    "IX3 a late id": ([e(0, None, "f", ""), e(0, "a", None, FULL), e(0, "a")], [0, 0, 0]),
    "IX4": ([e(0, "a", "f", ""), e(0, "b", "g", FULL), piece("")], [0, 1, 1]),
    "IX4 closed": ([e(0, "a", "f", FULL), e(0, "b", "g", FULL)], [0, 1]),
    "IX5 while open": ([e(0, "a", "f", "{"), e(0, "b", "f", "}")], [0, 0]),
    "IX5 while blank": ([e(0, "a", "f", ""), e(0, "b", "f", FULL)], [0, 0]),
    "IX5 done": ([e(0, "a", "f", FULL), e(0, "b", "f", OTHER), e(0, "c", "f", "")], [0, 1, 2]),
    "IX5 no name yet": ([e(0, "a", None, "{"), e(0, "b", "f", "}"), e(0, "c", "g", FULL)], [0, 0, 1]),
    "IX6 while open": ([e(0, None, "f", "{"), e(0, "a", "f", "}"), e(0, "a", "f")], [0, 0, 0]),
    "IX6 identity comes late": ([e(0, None, "f", FULL), e(0, "a", "f", "")], [0, 0]),
    "IX6 done, other name": ([e(0, None, "f", FULL), e(0, "a", "g", "")], [0, 1]),
    "IX6 done, text": ([e(0, None, "f", FULL), e(0, "a", "f", FULL)], [0, 1]),
    "IX7 while open": ([e(0, None, "f", "{"), e(0, None, "f", "}")], [0, 0]),
    "IX7 name pieces": ([e(0, None, "edit_", ""), e(0, None, "file", FULL)], [0, 0]),
    "IX7 done, other name": ([e(0, None, "f", FULL), e(0, None, "g", "")], [0, 1]),
    "IX7 done, other text": ([e(0, None, "f", FULL), e(0, None, "f", OTHER), e(0, None, "f", OTHER)], [0, 1, 1]),
    "IX7 done, the same text": (
        [e(0, None, "f", FULL), e(0, None, "f", f" {FULL}\n"), e(0, None, "f", " ")],
        [0, 0, 0],
    ),
    "IX8 no name": ([e(0, "a", "f", FULL), piece("x"), e(0, "", "", "")], [0, 0, 0]),
    "IX8 a name beside the known id": (
        [e(0, "a", "edit_", ""), e(0, "a", "file", ""), e(0, None, "x", FULL)],
        [0, 0, 0],
    ),
    "IX8 no name yet": ([piece(FULL), e(0, "a", "f")], [0, 0]),
    "IX9 text has begun": ([e(0, "a", "f", "{"), piece('"k":1', 1), piece("}", 2)], [0, 0, 0]),
    "IX9 a lower index": ([e(3, "a", "f", ""), piece(FULL, 0)], [3, 3]),
    "IX9 a blank piece": ([e(0, "a", "f", "{"), piece(" ", 1), piece("}", 1)], [0, 0, 0]),
    "IX9 with a name alone": ([e(0, None, "f", "{"), piece("}", 1)], [0, 0]),
    "IX9 through two calls": (
        [e(0, "a", "f", "{"), piece("}", 1), e(2, "b", "g", "{"), piece("}", 3)],
        [0, 0, 2, 2],
    ),
    "not IX9: a higher index before any text": ([e(0, "a", "f", ""), piece(FULL, 1), e(1, "b", "g")], [0, 1, 1]),
    "not IX9: every call is done": ([e(0, "a", "f", FULL), piece(OTHER, 1), e(1, "b", "g")], [0, 1, 1]),
    "not IX9: two calls are open": ([e(0, "a", "f", "{"), e(1, "b", "g", "{"), piece("}", 2)], [0, 1, 2]),
    "not IX9: no text": ([e(0, "a", "f", "{"), e(1, None, None, ""), piece("}", 1)], [0, 1, 1]),
    # --- without an index
    "IX10": ([e(None, "a", "f", "{"), e(None, "b", "g", "{"), e(None, "a", None, "}")], [0, 1, 0]),
    "IX11": ([piece(FULL, None), e(None, "", "", "x"), e(None, "a", "f", FULL)], [None, None, 0]),
    "IX12": ([e(None, None, "f", FULL)], [0]),
    "IX13": ([[e(None, "", "f", FULL), e(None, "", "f", FULL)]], [0, 1]),
    "IX13 and continuations": ([[e(None, None, "f", "{"), piece("}", None), e(None, None, "f", "{}")]], [0, 0, 1]),
    "IX14": ([e(None, None, "f", ""), e(None, None, "g", FULL)], [0, 1]),
    "IX15 no identity goes on": (
        [e(None, "a", "f", ""), piece(FULL, None), e(None, "b", "f", ""), piece(OTHER, None)],
        [0, 0, 1, 1],
    ),
    "IX15 a fresh id on each fragment": ([e(None, "a", "f", "{"), e(None, "b", None, "}")], [0, 0]),
    "IX15 name again": ([e(None, None, "f", "{"), e(None, None, "f", "}"), e(None, None, "f", OTHER)], [0, 0, 1]),
    "unusable": ([e(-1, "a", "f", FULL), e("one", "b", "g", FULL), e(0.5, "c", "h", FULL)], [0, 1, 2]),
    "unusable too": ([e(NULL, "a", "f", FULL), e(True, "b", "g", FULL), e([0], "c", "h", FULL)], [0, 1, 2]),
    "with and without": ([e(0, "a", "f", "{"), piece("}", None), e(None, "b", "g", "{}"), piece("", 0)], [0, 0, 1, 0]),
    # --- coerce
    "text": ([e("0", "a", "f", ""), piece(FULL, "0"), e("1", "b", "g", FULL)], [0, 0, 1]),
    "whole floats": ([e(0.0, "a", "f", FULL), e(2.0, "b", "g", FULL)], [0, 2]),
    "texts that are no index": (
        [e("01", "a", "f", FULL), e("1234567890", "b", "g", FULL), e("+1", "c", "h")],
        [0, 1, 2],
    ),
    "floats that are no index": ([e(-1.0, "a", "f", FULL), e(1e300, "b", "g", FULL)], [0, 1]),
    # --- new indexes
    "1 was given away": (
        [e(0, "a", "f", FULL), e(0, "b", "f", FULL), e(1, "c", "f", FULL), piece("", 1)],
        [0, 1, 2, 2],
    ),
    "the first label stays": ([e(1, "a", "f", FULL), e(1, "b", "g", FULL)], [1, 2]),
    "above the highest": ([e(7, "a", "f", FULL), e(7, "b", "g", FULL), e(0, "c", "h", FULL)], [7, 8, 0]),
    # --- text
    "an object is its text": ([e(0, "a", "f", {"k": 1}), e(0, "b", "f", {"k": 2})], [0, 1]),
    "a string root closes": ([e(0, "a", "f", '"x'), e(0, "b", None, 'y"'), e(0, "c", None, '"z"')], [0, 0, 1]),
    "a scalar never closes": ([e(0, "a", "f", "1"), e(0, "b", None, "2")], [0, 0]),
    "junk is done": ([e(0, "a", "f", "}"), e(0, "b", "f", FULL)], [0, 1]),
    "a lone {} begins anew": (
        [e(0, "a", "f", "{}"), piece('{"k":'), e(0, "b", None, "1}"), e(0, "c", None, "{}")],
        [0, 0, 0, 1],
    ),
    "also in one piece": ([e(0, "a", "f", '{}{"k":'), e(0, "b", None, "1}")], [0, 0]),
    "a custom call is always done": (
        [e(0, "a", custom={"name": "sh", "input": "l"}), e(0, custom={"input": "s"}), e(0, "b", custom={"name": "sh"})],
        [0, 0, 1],
    ),
    "elements that are no objects": ([[e(None, "a", "f", "{}")]], [0]),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    """Each entry gets the index of its call; what has the right one stays as it is."""
    chunks, indexes = ROWS[row]
    payloads = entries(*chunks)
    check(ToolCallIndex, payloads, numbered(payloads, indexes))


# --- options --------------------------------------------------------------------------------------------------------

WRAPPED = [chunk(tool_calls=e(0, "a", "f", FULL), content=None)]
OPTION_ROWS = {
    "wrap": (WRAPPED, [chunk(e(0, "a", "f", FULL), content=None)], [(0, 0, "wrap-single-tool-call")]),
    "coerce": (entries(e("2", "a", "f", FULL)), entries(e(2, "a", "f", FULL)), [(0, 2, "coerce-index")]),
    "infer": (entries(e(None, "a", "f", FULL)), entries(e(0, "a", "f", FULL)), [(0, 0, "infer-missing-index")]),
    "reindex": (
        entries(e(0, "a", "f", FULL), e(0, "b", "g", FULL)),
        [0, *entries(e(1, "b", "g", FULL))],
        [(0, 1, "reindex-parallel-calls")],
    ),
    "reattach": (
        entries(e(0, "a", "f", "{"), piece("}", 1)),
        [0, *entries(piece("}", 0))],
        [(0, 0, "reattach-orphan-fragments")],
    ),
}


@pytest.mark.parametrize("option", OPTION_ROWS)
def test_option(option):
    """Each option does its part, tells so once a call, and can be turned off."""
    before, after, repairs = OPTION_ROWS[option]
    check(ToolCallIndex, before, after, repairs=repairs)
    off = {option: False} | ({"infer": False} if option == "coerce" else {})
    untouched(ToolCallIndex, *before, options=off)


def test_a_text_that_is_not_coerced_is_no_index():
    """Without coerce an index that is text is inferred like one that is absent."""
    before = entries(e("5", "a", "f", FULL))
    check(ToolCallIndex, before, entries(e(0, "a", "f", FULL)), options={"coerce": False})


def test_without_reindex_every_entry_stays_on_its_index():
    """Reindex off: a shared index is one call, whatever its ids say."""
    before = entries(e(0, "a", "f", FULL), e(0, "b", "g", FULL), e(0, "a", "f", FULL))
    untouched(ToolCallIndex, *before, options={"reindex": False})


@pytest.mark.parametrize("value", [{}, [], None, "x", 7, [None, 7, "x", []]])
def test_other_shapes_of_the_list(value):
    """What is no call stays as it came."""
    untouched(ToolCallIndex, chunk(tool_calls=value, content="x"), chunk(finish="stop"))


def test_one_object_is_wrapped_on_continuations_too():
    """The opening is a list, the continuations are objects."""
    before = [chunk(e(0, "a", "f", "")), chunk(tool_calls=piece('{"d":')), chunk(tool_calls=piece("8}"))]
    after = [0, chunk(piece('{"d":')), chunk(piece("8}"))]
    check(ToolCallIndex, before, after, repairs=[(0, 0, "wrap-single-tool-call")])


def test_choices_do_not_influence_each_other():
    """Each choice has its own calls; the index of a choice is nobody's business here."""
    before = [
        {**ENVELOPE, "choices": [choice(e(None, "a", "f", "{"), index=n) for n in (0, 1)]},
        {**ENVELOPE, "choices": [choice(piece("}", None), index=1), choice(piece("}", None), index=0)]},
        {**ENVELOPE, "choices": [choice(e(None, "a", "f", "{}"), index=n) for n in (-1, "2")]},
    ]
    after = [
        {**ENVELOPE, "choices": [choice(e(0, "a", "f", "{"), index=n) for n in (0, 1)]},
        {**ENVELOPE, "choices": [choice(piece("}", 0), index=1), choice(piece("}", 0), index=0)]},
        2,
    ]
    check(ToolCallIndex, before, after)


def test_nothing_waits_and_unknown_keys_stay():
    """Only the index is written; the entry, function, delta, choice and chunk keep what else they hold."""
    before = chunk({"id": "a", "x": 1, "function": {"name": "f", "y": [2], "arguments": "{}"}}, z=3)
    before["choices"][0]["w"] = 4
    before |= {"v": 12345678901234567890123, "usage": None}
    after = json.loads(json.dumps(before))
    after["choices"][0]["delta"]["tool_calls"][0]["index"] = 0
    check(ToolCallIndex, [before, DONE], [after, DONE])


def test_a_call_is_known_by_its_first_64_ids():
    """A fresh id on every fragment costs nothing for ever: late ones are not known again."""
    fragments = [e(0, f"x{number}", None, " ") for number in range(100)]
    before = entries(e(0, "a", "f", "{"), *fragments, piece("}"), e(0, "x5", None, "{}"), e(0, "x99", None, "{}"))
    check(ToolCallIndex, before, numbered(before, [*[0] * 103, 1]), again=False)


def test_the_request_has_at_most_1024_calls():
    """Calls beyond are left alone, and nothing breaks."""
    before = entries(*([e(None, f"a{n}", "f", "{}")] for n in range(1030)))
    after = numbered(before, [*range(1024), *[None] * 6])
    check(ToolCallIndex, before, after, again=False)


def test_dispatch():
    """Two calls of one function in one delta, without index and id, are two calls for the dispatcher."""
    before = [
        chunk(e(None, "a", "f", FULL), e(None, "b", "f", FULL), role="assistant"),
        chunk(finish="tool_calls"),
    ]
    gateway = Repaired(["tool_call_index"])
    out = gateway.all_of([body_of(before)])
    assert out.count(b"event: tool_call_dispatch") == 2
    assert gateway.repairs() == [("tool_call_index", 0, index, "infer-missing-index") for index in (0, 1)]


def test_parallel_call_filter_keeps_the_first_call():
    """With all calls on index 0 the filter would let them all through."""
    before = [chunk(e(0, "a", "f", FULL), role="assistant"), chunk(e(0, "b", "g", FULL)), chunk(finish="tool_calls")]
    request = {"parallel_tool_calls": False}
    assert b'"b"' in Repaired([], request).all_of([body_of(before)])
    out = Repaired(["tool_call_index"], request).all_of([body_of(before)])
    assert b'"b"' not in out
    assert out.count(b"event: tool_call_dispatch") == 1
