"""Every row D1 to D60 of the dispatch tables (spec, dispatch, 3.10), through the default order of stages."""

from __future__ import annotations

import json

import pytest
from notation import DEFAULT_ORDER, FIN, E, Gateway, as_lists, c1, chunk, events_per_chunk, t, told

TC = FIN("tool_calls")
STOP = FIN("stop")
LENGTH = FIN("length")
NBSP, VT, FF, BOM = "\u00a0", "\v", "\f", "\ufeff"


def whole(text, **identity):
    """The event of call c, function w, on choice 0."""
    return E(0, 0, "c", "w", text, **identity)


ROWS = [
    (
        "D1",
        [t(0, "call_9a", "lookup_tide", '{"port":"Bergen"}')],
        [E(0, 0, "call_9a", "lookup_tide", '{"port":"Bergen"}')],
    ),
    (
        "D2",
        [t(0, "call_77", "write_note"), t(0, None, None, '{"path":"/srv/n'), t(0, None, None, 'otes/a.md"}'), TC],
        [0, 0, E(0, 0, "call_77", "write_note", '{"path":"/srv/notes/a.md"}'), 0],
    ),
    (
        "D3",
        [t(0, "c", "search_docs", ""), t(0, None, None, '{"q":'), t(0, None, None, '"k"}')],
        [0, 0, E(0, 0, "c", "search_docs", '{"q":"k"}')],
    ),
    (
        "D4",
        [t(0, None, None, '{"x":7}'), t(0, "call_5"), t(0, None, "square")],
        [0, 0, E(0, 0, "call_5", "square", '{"x":7}')],
    ),
    ("D5", [t(0, "call_a", "f", '{"x":'), t(0, "call_b"), t(0, None, None, "1}"), TC], [0, 0, 0, 0]),
    ("D6", [t(0, "call_a", "f", '{"x":'), t(0, "call_a", "g"), t(0, None, None, "1}"), TC], [0, 0, 0, 0]),
    (
        "D7",
        [t(0, "c", "w", '{"t":"} not yet \\'), t(0, None, None, '"still} \\" '), t(0, None, None, '"}')],
        [0, 0, whole('{"t":"} not yet \\"still} \\" "}')],
    ),
    ("D8", [t(0, "c", "w", '{"a":"x\\'), t(0, None, None, '"}"}')], [0, whole('{"a":"x\\"}"}')]),
    ("D9", [t(0, "c", "w", '{"a":{"b":[1,2]'), t(0, None, None, "}}")], [0, whole('{"a":{"b":[1,2]}}')]),
    ("D10", [t(0, "c", "w", '[1,{"a":2}'), t(0, None, None, "]")], [0, whole('[1,{"a":2}]')]),
    ("D11", [t(0, "c", "w", '{"path":"/srv/n')], [0]),
    ("D12", [t(0, "c", "w", "{}oops"), TC], [0, 0]),
    ("D13", [t(0, "c", "w", '}{"x":1}'), TC], [0, 0]),
    ("D14", [t(0, "c", "w", 'ok:{"a":1}'), TC], [0, 0]),
    ("D15", [t(0, "c", "w", '{"a":1}{"b":2}'), STOP], [0, 0]),
    ("D16", [t(0, "c", "now", "{}")], [E(0, 0, "c", "now", "{}")]),
    (
        "D17",
        [t(0, "c0", "slow", '{"a":') + t(1, "c1", "fast", '{"b":'), t(1, None, None, "2}"), t(0, None, None, "1}")],
        [0, E(0, 1, "c1", "fast", '{"b":2}'), E(0, 0, "c0", "slow", '{"a":1}')],
    ),
    (
        "D18",
        [
            t(0, "c", "f", '{"k":') + c1(t(0, "c", "f", '{"k":')),
            t(0, None, None, "0}") + c1(t(0, None, None, "1}")),
        ],
        [0, [E(0, 0, "c", "f", '{"k":0}'), E(1, 0, "c", "f", '{"k":1}')]],
    ),
    (
        "D19",
        [t(0, "c", "f", "{}") + c1(t(0, "c", "f", "{}"))],
        [[E(0, 0, "c", "f", "{}"), E(1, 0, "c", "f", "{}")]],
    ),
    ("D21", [t(0, "c", "f", '{"k":1}'), t(0, "c", "f", '{"k":1}')], [E(0, 0, "c", "f", '{"k":1}'), 0]),
    ("D22", [t(0, "c", "f", '{"k":1}'), t(0, None, None, ',"z":2}')], [E(0, 0, "c", "f", '{"k":1}'), 0]),
    ("D23", [t(0, "c", "f", '{"k":1}'), t(0, "d", "g", '{"q":2}')], [E(0, 0, "c", "f", '{"k":1}'), 0]),
    (
        "D24",
        [t(0, "c", "f", '{"k":1}'), t(1, "c", "f", '{"k":1}')],
        [E(0, 0, "c", "f", '{"k":1}'), E(0, 1, "c", "f", '{"k":1}')],
    ),
    ("D25", [t(0, "c", "w", '{"a":'), t(0, None, None, "1}") + TC], [0, whole('{"a":1}')]),
    ("D26", [t(0, "c", "now"), TC], [0, E(0, 0, "c", "now")]),
    ("D27", [t(0, "c", "now", ""), TC], [0, E(0, 0, "c", "now", "")]),
    ("D28-absent", [t(0, "c", "now"), STOP], [0, E(0, 0, "c", "now")]),
    ("D28-empty", [t(0, "c", "now", ""), STOP], [0, E(0, 0, "c", "now", "")]),
    ("D29-tool_calls", [t(0, "c", "f", '{"a":'), TC], [0, 0]),
    ("D29-stop", [t(0, "c", "f", '{"a":'), STOP], [0, 0]),
    ("D30-open", [t(0, "c", "f", '{"a":'), LENGTH], [0, 0]),
    ("D30-absent", [t(0, "c", "now"), LENGTH], [0, 0]),
    ("D31-content_filter", [t(0, "c", "now"), FIN("content_filter")], [0, 0]),
    ("D31-function_call", [t(0, "c", "now"), FIN("function_call")], [0, 0]),
    ("D32", [t(0, "c", "now")], [0]),
    ("D33", [t(0, "c", "w", '{"a":'), t(0, None, None, "1}") + LENGTH], [0, whole('{"a":1}')]),
    ("D34", [t(0, "c", "w", '{"a":1e999}')], [whole('{"a":1e999}')]),
    ("D35", [t(0, None, None, '{"a":1}'), t(0, None, None, FF), t(0, "c", "f"), TC], [0, 0, 0, 0]),
    ("D36", [t(0, "c", "w", '{"a":1}'), t(0, None, None, " \n")], [whole('{"a":1}'), 0]),
    ("D37", [t(0, "c", "w", '{"a":1}  \n')], [whole('{"a":1}  \n')]),
    ("D38", [t(0, None, "f", '{"a":1}'), TC], [0, 0]),
    ("D39", [t(0, "c", None, '{"a":1}'), TC], [0, 0]),
    ("D40", [t(0, "c"), TC], [0, 0]),
    (
        "D41",
        [t(0, "c0", "f", '{"a":1}') + t(1, "c1", "g", '{"b":2}')],
        [[E(0, 0, "c0", "f", '{"a":1}'), E(0, 1, "c1", "g", '{"b":2}')]],
    ),
    ("D42", [t(0, "c0", "f", '{"a":1}') + t(1, "c1", "g")], [E(0, 0, "c0", "f", '{"a":1}')]),
    ("D43", [()], [0]),
    ("D44", [t(0, "", "", "{"), t(0, "c", "f", "}")], [0, E(0, 0, "c", "f", "{}")]),
    ("D45", [t(0, "", "", "{}"), TC], [0, 0]),
    ("D46", [t(0, "c", "f"), t(0, "", "", "{}")], [0, E(0, 0, "c", "f", "{}")]),
    ("D47", [t(0, "c", "w", "1"), t(0, None, None, "2"), TC], [0, 0, whole("12")]),
    ("D48-string", [t(0, "c", "w", '"hi"'), STOP], [0, whole('"hi"')]),
    ("D48-number", [t(0, "c", "w", "1e999"), STOP], [0, whole("1e999")]),
    ("D49-literal", [t(0, "c", "w", "tru"), STOP], [0, 0]),
    ("D49-blank", [t(0, "c", "w", "  "), TC], [0, 0]),
    (
        "D50",
        [t(3, "c3", "z") + t(1, "c1", "y") + t(2, "c2", "x", '{"a":'), TC],
        [0, [E(0, 1, "c1", "y"), E(0, 3, "c3", "z")]],
    ),
    ("D51-later", [t(0, "c", "w", '{"a":[1}'), t(0, None, None, "]"), TC], [0, 0, 0]),
    ("D51-at-once", [t(0, "c", "w", '{"a":1]'), TC], [0, 0]),
    ("D52-comma", [t(0, "c", "w", '{"a":1,}'), TC], [0, 0]),
    ("D52-nan", [t(0, "c", "w", '{"a":NaN}'), TC], [0, 0]),
    ("D52-zero", [t(0, "c", "w", '{"a":01}'), TC], [0, 0]),
    ("D52-escape", [t(0, "c", "w", '{"a":"\\x41"}'), TC], [0, 0]),
    ("D52-newline", [t(0, "c", "w", '{"a":"\n"}'), TC], [0, 0]),
    ("D53-twice", [t(0, "c", "w", '{"a":1,"a":2}')], [whole('{"a":1,"a":2}')]),
    ("D53-surrogate", [t(0, "c", "w", '{"a":"\\ud800"}')], [whole('{"a":"\\ud800"}')]),
    ("D53-deep", [t(0, "c", "w", "[" * 300 + "]" * 300)], [whole("[" * 300 + "]" * 300)]),
    ("D53-deeper", [t(0, "c", "w", "[" * 5000 + "]" * 5000)], [whole("[" * 5000 + "]" * 5000)]),
    ("D54-nbsp", [t(0, "c", "w", '{"a":1}' + NBSP), TC], [0, 0]),
    ("D54-vt", [t(0, "c", "w", "{" + VT + '"a":1}'), TC], [0, 0]),
    ("D55", [t(0, "c", "w", BOM + '{"a":1}'), TC], [0, 0]),
    ("D56", [t(0, "c", "w", '{"a":"é'), t(0, None, None, '🦊"}')], [0, whole('{"a":"é🦊"}')]),
    ("D57", [t(0, "c", "w", "{}", type=None)], [whole("{}", type=None)]),
    ("D58", [t(0, "c", "now"), c1(TC), TC], [0, 0, E(0, 0, "c", "now")]),
    ("D59", [t(0, "c", "f", '{"a":'), TC, t(0, None, None, "1}")], [0, 0, 0]),
    ("D60", [TC, t(0, "c", "f", '{"a":1}')], [0, E(0, 0, "c", "f", '{"a":1}')]),
]


@pytest.mark.parametrize(("chunks", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(chunks, expected):
    """The events of each chunk are those of the table, and nothing comes of the end."""
    gateway = Gateway()
    assert events_per_chunk(gateway, map(chunk, chunks)) == as_lists(expected)
    assert b"event:" not in gateway.close()


@pytest.mark.parametrize("row", [pytest.param("D20", id="D20")])
def test_forbidden_parallel_calls_are_never_assembled(row):
    """With parallel_tool_calls false only call 0 is dispatched, and call 1 is never even opened."""
    gateway = Gateway(request={"parallel_tool_calls": False})
    (name, event), (_, ordinary) = gateway.send(chunk(t(0, "c0", "f", "{}") + t(1, "c1", "g", "{}")))
    assert name == "tool_call_dispatch"
    assert json.loads(event) == E(0, 0, "c0", "f", "{}")
    assert json.loads(ordinary) == chunk(t(0, "c0", "f", "{}"))
    assert told(gateway.observer, "call_opened") == [(0, 0)]


@pytest.mark.parametrize("row", [pytest.param("D43", id="D43-no-data")])
def test_an_item_without_data_brings_nothing(row):
    """A comment passes while a call is open, and the call goes on as if it had not been."""
    gateway = Gateway()
    gateway.send(chunk(t(0, "c", "f", "{")))
    assert gateway.feed(b": waiting\n\n") == b": waiting\n\n"
    assert events_per_chunk(gateway, [chunk(t(0, None, None, "}"))]) == [[E(0, 0, "c", "f", "{}")]]


@pytest.mark.parametrize("row", ["D22", "D23"])
def test_a_differing_continuation_is_warned_of_once(row):
    """What comes after a dispatch and differs is reported, once however often it comes."""
    gateway = Gateway()
    chunks = next(row_chunks for number, row_chunks, _ in ROWS if number == row)
    for payload in map(chunk, [*chunks, chunks[-1]]):
        gateway.send(payload)
    ((stage, message),) = told(gateway.observer, "warned")
    assert stage == "tool_call_dispatch"
    assert message.startswith("choice 0, call 0 was dispatched")


@pytest.mark.parametrize("row", ["D21", "D36"])
def test_a_replay_and_trailing_blanks_are_not_worth_a_warning(row):
    """The very same call again, or whitespace behind it, changes nothing and is not reported."""
    gateway = Gateway()
    for payload in map(chunk, next(row_chunks for number, row_chunks, _ in ROWS if number == row)):
        gateway.send(payload)
    assert told(gateway.observer, "warned") == []


def test_every_row_is_here():
    """No row of D1 to D60 is missing."""
    numbers = {row[0].partition("-")[0] for row in ROWS} | {"D20"}
    assert numbers == {f"D{number}" for number in range(1, 61)}


def test_the_order_is_the_default_one():
    """The rows run through the stages of pipeline.plan.DEFAULT_STAGES, in that order."""
    from pipeline.plan import DEFAULT_STAGES  # noqa: PLC0415 - the plan is needed by this test only

    assert [stage.__module__ for stage in DEFAULT_ORDER] == [f"stages.{name}" for name in DEFAULT_STAGES]
