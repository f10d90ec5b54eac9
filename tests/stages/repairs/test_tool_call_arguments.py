"""``tool_call_arguments``: rows AR1 to AR8 of spec, repairs, 10."""

from __future__ import annotations

import json

import pytest
from repair_helpers import (
    DONE,
    Repaired,
    body_of,
    check,
    chunk,
    e,
    item,
    made_up,
    piece,
    untouched,
)

from pipeline.chunks import exact_payload
from pipeline.errors import StreamFailure
from pipeline.items import StreamError
from pipeline.testing import make_stage
from stages.tool_call_arguments import ToolCallArguments

FIN = chunk(finish="tool_calls")
STRINGIFY, EMPTY, CUMULATIVE, DECODE, ESCAPE = (
    "stringify-arguments",
    "empty-arguments-to-object",
    "replace-cumulative-arguments",
    "decode-double-encoding",
    "escape-control-characters",
)
ERROR = {**chunk(), "error": {"message": "x"}}
FAILURE = StreamError(StreamFailure("x"))


def of_call(texts):
    """Chunks of one call, by the arguments of each entry; the first has the identity."""
    return [chunk(e(0, "a", "f", text) if not place else piece(text)) for place, text in enumerate(texts)]


# Arguments as they come, and as they must go on; None: the same object.
TEXTS = {
    "AR1": ([{"city": "Lima", "days": 3}], ['{"city":"Lima","days":3}'], STRINGIFY),
    "AR1 key order, letters, digits": (
        [{"z": 1, "a": {"b": []}, "é": "\u2028\x7f"}],
        ['{"z":1,"a":{"b":[]},"é":"\u2028\x7f"}'],
        STRINGIFY,
    ),
    "AR1 an array": ([[1, 2.5]], ["[1,2.5]"], STRINGIFY),
    "AR1 empty": ([{}], ["{}"], STRINGIFY),
    "AR3": (['{"q":1}', '{"q":1}', '{"q":1}'], [None, "", ""], CUMULATIVE),
    "AR3 from pieces, blanks aside": (['{"q":', "1}", ' {"q":1}\n'], [None, None, ""], CUMULATIVE),
    "AR3 {} again": (["{}", "{}"], [None, ""], CUMULATIVE),
    "AR3 a string again": (['"x"', '"x"'], [None, ""], CUMULATIVE),
    "AR4": (['{"q":', '{"q":"tide', '{"q":"tide tables"}'], None, None),
    "AR4 inside a string": (['{"q":"', '{"q":"tide', '{"q":"tide tables"}'], [None, "tide", ' tables"}'], CUMULATIVE),
    "AR4 behind the brace": (["{", '{"q', '{"q":1}'], [None, '"q', '":1}'], CUMULATIVE),
    "AR4 behind a value": (['{"q":1', '{"q":12', '{"q":12,', '{"q":12,"r":3}'], [None, "2", ",", '"r":3}'], CUMULATIVE),
    "AR4 the same again": (['{"q":1', '{"q":1', '{"q":1}'], [None, "", "}"], CUMULATIVE),
    "AR4 then the whole again": (['{"q":"', '{"q":"x"}', '{"q":"x"}'], [None, 'x"}', ""], CUMULATIVE),
    "AR4 a first key that is a brace": (['{"', '{"q":1}'], [None, 'q":1}'], CUMULATIVE),
    "AR5": (['"{\\"mode\\":', '\\"eco\\"', '}"', " "], ["", "", '{"mode":"eco"}', None], DECODE),
    "AR5 in one piece": (['"{\\"deg\\":270}" '], ['{"deg":270}'], DECODE),
    "AR5 a blank piece first": ([" ", '\n"', "{}", '"'], [None, "", "", "{}"], DECODE),
    "AR5 escaped brace": (['"\\u00', '7b}"'], ["", "{}"], DECODE),
    "AR5 sent again": (['"{}"', '"{}"'], ["{}", ""], None),
    "AR5 no object inside": (['"{', 'x"'], ["", '"{x"'], None),
    "AR5 not after all": (['"', 'ahoy"'], ["", '"ahoy"'], None),
    "AR5 an empty string": (['"', '"'], ["", '""'], None),
    "AR5 more than blanks behind": (['"{', '}"x', "y"], ["", '"{}"x', None], None),
    "AR6": (['{"t":"one', '\ntwo\t!"}'], [None, '\\ntwo\\t!"}'], ESCAPE),
    "AR6 short and long": (['["\b\f\n\r\t\x00\x1f"]'], ['["\\b\\f\\n\\r\\t\\u0000\\u001f"]'], ESCAPE),
    "AR6 behind an escaped backslash": (['{"t":"a\\\\', "\n", '"}'], [None, "\\n", None], ESCAPE),
    "AR6 only inside strings": (['{\n"a":\n"\n"\n}\n'], ['{\n"a":\n"\\n"\n}\n'], ESCAPE),
    "AR6 of text that is repeated": (['{"q":"', '{"q":"\n', '{"q":"\n"}'], [None, "\\n", '"}'], None),
}


@pytest.mark.parametrize("row", [row for row in TEXTS if TEXTS[row][1]])
def test_text(row):
    """The arguments of each entry are JSON text, once."""
    texts, left, repair = TEXTS[row]
    repairs = repair and [(0, 0, repair)]
    before = of_call(texts)
    wanted = of_call(left)
    after = [place if left[place] is None else wanted[place] for place in range(len(texts))]
    check(ToolCallArguments, before, after, repairs=repairs)


UNTOUCHED = {
    "AR1 text": ['{ "n" : 1.50 }'],
    "AR2": [7, "{}", True, {"a": 1}],
    "AR3 while open": ['{"a":"na', "na", "na"],
    "AR3 other text": ['{"q":1}', '{"q":2}'],
    "AR4 a true nesting": ['{"node":', '{"node":1}', "}"],
    "AR4 a true nesting behind blanks": ['{"node": ', '{"node": 1}', "}"],
    "AR4 in an array": ['{"a":[', '{"a":[1]}', "]}"],
    "AR4 another root": ['["a', '["a"]'],
    "AR4 a key that is a brace": ['{"', '{":1}'],
    "AR4 and a colon": ['{"', '{" :1}'],
    "AR4 a key of a colon and a brace": ['{":', '{":1}'],
    "AR4 a brace in a value": ['{",":"', '{",":1}'],
    "AR4 the same beginning twice": ['{"', '{"', ":1}"],
    "AR5 a plain string": ['"ahoy', ' there"'],
    "AR5 an escape that is no brace": ['"\\u0041"'],
    "AR6 newlines between tokens": ['{\n\t"t":', '\r\n\t"x"\n}'],
    "AR6 escapes, DEL and U+2028": ['{"t":"\\n\\u0000\x7f\u2028"}'],
    "AR6 right behind a backslash": ['{"t":"\\\n"}'],
    "AR6 the same across pieces": ['{"t":"\\', '\n"}'],
    "AR6 other roots": ["tr\nue", "\x00"],
    "AR6 behind the root": ['{} "\n"', '"\n'],
    "null": [None, "{}"],
}


@pytest.mark.parametrize("row", UNTOUCHED)
def test_text_that_is_left_alone(row):
    """Text that is right, or that nobody understands, stays as it is."""
    untouched(ToolCallArguments, *of_call(UNTOUCHED[row]), FIN)


FRAMES = {
    "AR1 without a usable index": (
        [chunk(e(None, "a", "f", {"x": 1})), chunk(e(-1, "a", "f", []))],
        [chunk(e(None, "a", "f", '{"x":1}')), chunk(e(-1, "a", "f", "[]"))],
    ),
    "AR7": ([*of_call(['"{\\"a']), FIN], [*of_call([""]), chunk(piece('"{\\"a'), finish="tool_calls")]),
    "AR7 length": ([*of_call(['"{']), chunk(finish="length")], [*of_call([""]), chunk(piece('"{'), finish="length")]),
    "AR7 [DONE]": ([*of_call(['"{']), DONE], [*of_call([""]), made_up(piece('"{')), DONE]),
    "AR7 a failure": ([*of_call(['"{']), FAILURE], [*of_call([""]), FAILURE]),
    "AR7 an error chunk": ([*of_call(['"{']), ERROR, DONE], [*of_call([""]), 1, DONE]),
    "AR8": ([*of_call([""]), FIN, FIN], [0, chunk(piece("{}"), finish="tool_calls"), 2]),
    "AR8 absent, at stop": ([*of_call([None]), chunk(finish="stop")], [0, chunk(piece("{}"), finish="stop")]),
    "AR8 a blank that was sent": (
        [chunk(e(0, "a", "f", " "), finish="tool_calls")],
        [chunk(e(0, "a", "f", " {}"), finish="tool_calls")],
    ),
    "AR8 by call": (
        [chunk(e(2, "a", "f", ""), e(1, "b", "g", "[]"), e(0, "c", "h")), FIN],
        [0, chunk(piece("{}"), piece("{}", 2), finish="tool_calls")],
    ),
    "AR8 without a delta": (
        [*of_call([None]), {"choices": [{"index": 0, "finish_reason": "stop"}]}],
        [0, {"choices": [{"index": 0, "finish_reason": "stop", "delta": {"tool_calls": [piece("{}")]}}]}],
    ),
    "AR8 early": (
        [chunk(e(0, "a", "f", ""), finish="stop"), chunk(piece('{"a":1}'), finish="stop")],
        [chunk(e(0, "a", "f", "{}"), finish="stop"), 1],
    ),
    "only the frames of the string wait": (
        [chunk(e(0, "a", "f", '"{'), e(1, "b", "g", "{}"), content="x"), chunk(content="y"), chunk(piece('}"'))],
        [chunk(e(0, "a", "f", ""), e(1, "b", "g", "{}"), content="x"), 1, chunk(piece("{}"))],
    ),
}


@pytest.mark.parametrize("row", FRAMES)
def test_frames(row):
    """What is kept back, and what is missing, comes with the finish."""
    before, after = FRAMES[row]
    # A string that never ends is kept back again, and comes out again.
    check(ToolCallArguments, before, after, again=DONE not in before)


FRAMES_UNTOUCHED = {
    "AR8 other reasons": [
        *of_call([""]),
        *(chunk(finish=one) for one in ("length", "content_filter", "function_call")),
    ],
    "AR8 without a finish": [*of_call([""]), DONE],
    "AR8 without a name": [chunk(e(0, "a", None, "")), FIN],
    "AR8 a custom call": [chunk(e(0, "a", custom={"name": "sh"})), FIN],
    "AR8 both kinds": [chunk(e(0, "a", "f", custom={"name": "sh"})), FIN],
    "AR8 other types": [*of_call([7]), FIN],
    "AR8 another choice": [*of_call([""]), chunk(finish="stop", index=1)],
    "AR8 no usable index": [chunk(e(None, "a", "f", "")), FIN],
    "on the finishing chunk": [chunk(e(0, "a", "f", '"{'), finish="tool_calls")],
    "odd shapes": [chunk(tool_calls=7), chunk({"index": 0, "function": 7}), chunk({"index": 0}), FIN],
}


@pytest.mark.parametrize("row", FRAMES_UNTOUCHED)
def test_frames_that_are_left_alone(row):
    """Nobody knows whether arguments were to come."""
    untouched(ToolCallArguments, *FRAMES_UNTOUCHED[row])


OPTIONS = {
    "stringify": [*of_call([{"a": 1}]), FIN],
    "empty": [*of_call([""]), FIN],
    "cumulative": of_call(['{"q":"', '{"q":"x"}', '{"q":"x"}']),
    "decode": of_call(['"{', '}"']),
    "escape": of_call(['{"a":"\n"}']),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_option(option):
    """Each option can be turned off."""
    untouched(ToolCallArguments, *OPTIONS[option], options={option: False})


@pytest.mark.parametrize("kind", ["string", "array", ["object", "string"], 7])
def test_ar5_not_for_a_tool_that_is_declared_to_take_something_else(kind):
    """A tool that takes a string is given the string."""
    request = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": kind}}}]}
    untouched(ToolCallArguments, *of_call(['"{', '}"']), request=request)


@pytest.mark.parametrize(
    "function", [{}, {"parameters": None}, {"parameters": {}}, {"parameters": {"type": "object"}}, {"name": "g"}]
)
def test_ar5_for_every_other_tool(function):
    """A tool that is declared without a type, or not at all, takes an object."""
    request = {"tools": [7, {"function": {"name": "f", **function}}]}
    check(ToolCallArguments, of_call(['"{}"']), of_call(["{}"]), request=request)


def test_long_integers_in_objects_keep_their_digits():
    """An object is written with the digits that the wire had."""
    number = 123456789012345678901234567890
    (given,) = make_stage(ToolCallArguments).feed(item(chunk(e(0, "a", "f", {"n": number}), x=number)))
    delta = exact_payload(given)["choices"][0]["delta"]
    assert delta["tool_calls"][0]["function"]["arguments"] == f'{{"n":{number}}}'
    assert delta["x"] == number


def test_a_text_over_the_limit_is_left_alone(monkeypatch):
    """The text of a call is kept up to a limit; what is kept back then goes out."""
    monkeypatch.setattr("stages.call_text.MAX_TEXT", 10)
    untouched(ToolCallArguments, *of_call(['{"q":"xxxxxx', '{"q":"xxxxxxy"}']), FIN)
    check(ToolCallArguments, of_call(['"{', "x" * 10, '"']), [*of_call(["", '"{' + "x" * 10]), 2])


def test_choices_do_not_influence_each_other():
    """A text of one choice says nothing of the same call of another."""
    untouched(ToolCallArguments, chunk(piece('{"q":1}')), chunk(piece('{"q":1}'), index=1), chunk(piece("x"), index=-1))


CALLS_LOST = {
    "stringify": of_call([{"a": 1}]),
    "blank": of_call([" "]),
    "cumulative": of_call(['{"q":"', '{"q":"x"}']),
    "escape": of_call(['{"a":"\n"}']),
}


@pytest.mark.parametrize("row", CALLS_LOST)
def test_dispatch(row):
    """Calls that failed closed go out, with arguments that are JSON."""
    body = body_of([chunk(role="assistant"), *CALLS_LOST[row], FIN])
    assert b"tool_call_dispatch" not in Repaired([]).all_of([body])
    out = Repaired(["tool_call_arguments"]).all_of([body])
    (event,) = [json.loads(line[6:]) for line in out.split(b"\n") if b'"choice_index"' in line]
    json.loads(event["tool_call"]["function"]["arguments"])


def test_an_encoded_object_is_dispatched_when_it_closes():
    """It does not wait for the finish any more."""
    gateway = Repaired(["tool_call_arguments"])
    out = gateway.feed(body_of(of_call(['"{', '}"'])).removesuffix(DONE.raw))
    assert b'"arguments":"{}"' in out.partition(b"event: tool_call_dispatch\n")[2]
