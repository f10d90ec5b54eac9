"""A stream folded into one response: the rows A1 to A28, and the keys of chunk, choice and delta."""

from __future__ import annotations

import pytest
from folding import fold, fold_message
from notation import FIN, A, C, R, c1, chunk, t

from pipeline.chunks import encode_json
from pipeline.testing import text_chunk
from stages.aggregate import Aggregate, AggregateOptions

ONE = AggregateOptions(parallel_tool_calls=False)
NONEMPTY = AggregateOptions(nonempty_content=True)
WHOLE = t(0, "x", "n", '{"a":1}')
CUT = t(0, "x", "n", '{"a":')
SECOND_CUT = t(1, "y", "m", '{"b":')


def fold_choice(*parts, options=None):
    """The one choice of the response of chunks in the tables' notation."""
    (choice,) = fold(map(chunk, parts), options)["choices"]
    return choice


def part(key, value):
    """One key of the delta of choice 0."""
    return ((0, key, value),)


def text(*words):
    return {"type": "text", "text": "".join(words)}


def picture(name):
    return {"type": "image_url", "image_url": {"url": name}}


def thinking(words, **more):
    return {"type": "thinking", "thinking": [text(words)], **more}


# --- the rows -----------------------------------------------------------------------------------------------------

X = ("x", "n", '{"a":1}')
X_CUT = ("x", "n", '{"a":')
Y = ("y", "m", '{"b":1}')
ROWS = [
    ("A1 stop", [WHOLE + FIN("stop")], [X], "tool_calls"),
    ("A1 tool_calls", [WHOLE, FIN("tool_calls")], [X], "tool_calls"),
    ("A1 none", [WHOLE], [X], "tool_calls"),
    ("A2 length", [WHOLE + FIN("length")], [X], "length"),
    ("A2 content_filter", [WHOLE + FIN("content_filter")], [X], "content_filter"),
    ("A2 function_call", [WHOLE + FIN("function_call")], [X], "function_call"),
    ("A3 stop", [CUT + FIN("stop")], [X_CUT], "tool_calls"),
    ("A3 tool_calls", [CUT + FIN("tool_calls")], [X_CUT], "tool_calls"),
    ("A3 content_filter", [CUT + FIN("content_filter")], [X_CUT], "content_filter"),
    ("A4", [CUT + FIN("length")], [], "length"),
    ("A5", [t(0, "x", "n", "") + FIN("length")], [], "length"),
    ("A6 empty", [t(0, "x", "n", "") + FIN("stop")], [("x", "n", "")], "tool_calls"),
    ("A6 absent", [t(0, "x", "n") + FIN("stop")], [("x", "n", "")], "tool_calls"),
    ("A7", [CUT, SECOND_CUT, FIN("length")], [X_CUT], "length"),
    ("A8", [CUT, t(1, "y", "m", '{"b":1}'), FIN("length")], [X_CUT, Y], "length"),
    # Dynamo drops it: its check builds values. The dispatcher's does not.
    ("A9", [t(0, "x", "n", '{"a":1e999}') + FIN("length")], [("x", "n", '{"a":1e999}')], "length"),
    ("A10", [t(3, "x", "n", '{"a":1}'), t(1, "y", "m", '{"b":1}'), FIN("stop")], [Y, X], "tool_calls"),
    # Dynamo drops the one without an id.
    (
        "A11",
        [C("Hm."), t(0, None, "n", '{"a":1}'), t(1, "y", "m", '{"b":1}'), FIN("stop")],
        [("", "n", '{"a":1}'), Y],
        "tool_calls",
    ),
    ("A12", [t(0, "x", None, '{"a":1}'), FIN("tool_calls")], [], "tool_calls"),
    ("A13", [t(0, "x", "n", '{"a":'), t(0, "y", "m", "1}"), FIN("stop")], [X], "tool_calls"),
    ("A14", [t(0, "", "", ""), t(0, "y", "m", '{"b":1}'), FIN("stop")], [Y], "tool_calls"),
    # Dynamo removes the call and says "stop": the request declares no tools.
    ("A16", [WHOLE, FIN("tool_calls")], [X], "tool_calls"),
    (
        "A25 split",
        [t(0, "x", "n", ""), t(0, None, None, '{"a"'), t(0, None, None, ":1}"), FIN("stop")],
        [X],
        "tool_calls",
    ),
    (
        "A25 interleaved",
        [CUT, SECOND_CUT, t(0, None, None, "1}"), t(1, None, None, "1}"), FIN("stop")],
        [X, Y],
        "tool_calls",
    ),
    ("A25 no opener", [t(0, None, None, '{"a"'), t(0, None, None, ":1}"), FIN("stop")], [], "stop"),
]


@pytest.mark.parametrize(("chunks", "calls", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_calls(chunks, calls, reason):
    """The row's calls, in the order of their indexes, and its finish reason; without calls the key is absent."""
    choice = fold_choice(*chunks)
    elements = [{"id": id_, "type": "function", "function": {"name": n, "arguments": a}} for id_, n, a in calls]
    assert choice["message"].get("tool_calls", []) == elements
    assert ("tool_calls" in choice["message"]) == bool(calls)
    assert choice["finish_reason"] == reason


def test_a11_text_and_the_good_call():
    """A11: the text beside a call without an id stays."""
    assert fold_choice(C("Hm."), t(0, None, "n", "{}"), FIN("stop"))["message"]["content"] == "Hm."


def test_a15_the_first_call_in_index_order():
    """A15: without parallel calls only call 0 stays, though call 1 came first; and call 1 where it is alone."""
    first, second = t(1, "y", "m", "{}"), t(0, "x", "n", "{}")
    assert [call["id"] for call in fold_choice(first, second, options=ONE)["message"]["tool_calls"]] == ["x"]
    assert [call["id"] for call in fold_choice(first, options=ONE)["message"]["tool_calls"]] == ["y"]


TEXT_ROWS = [
    ("A17", [R("R1"), R("R2") + C("C1"), C("C2")], {"content": "C1C2", "reasoning_content": "R1R2"}),
    ("A18", [part("refusal", "no"), part("refusal", " way")], {"content": None, "refusal": "no way"}),
    # Dynamo loses the text.
    (
        "A19",
        [C("See "), C("here:"), C([picture("p1")]), C([picture("p2")])],
        {"content": [text("See here:"), picture("p1"), picture("p2")]},
    ),
    ("A26", [C("High"), C("  \n"), C("tide")], {"content": "High  \ntide"}),
]


@pytest.mark.parametrize(("chunks", "wanted"), [row[1:] for row in TEXT_ROWS], ids=[row[0] for row in TEXT_ROWS])
def test_text(chunks, wanted):
    """What the row says of the message."""
    message = fold_choice(*chunks)["message"]
    assert message == {"content": None, "refusal": None, "role": "assistant", **wanted}


def test_a20_choices_are_sorted():
    """A20: choice 1 came before choice 0; each has its own text and reason."""
    chunks = [c1(C("one")), C("zero"), c1(FIN("length")), FIN("stop")]
    choices = fold(map(chunk, chunks))["choices"]
    assert [(each["index"], each["message"]["content"], each["finish_reason"]) for each in choices] == [
        (0, "zero", "stop"),
        (1, "one", "length"),
    ]


def test_choices_of_odd_indexes():
    """Numbers come in their order, then texts; what is no index is choice 0, as an absent one is."""
    indexes = ["1", 10, 2, None, [0], -1]
    choices = fold({"choices": [{"index": each, "delta": {"content": str(each)}}]} for each in indexes)["choices"]
    assert [each["index"] for each in choices] == [-1, 0, 2, 10, "1"]
    assert choices[1]["message"]["content"] == "None[0]"


def test_a21_the_last_reason():
    """A21: finish length, then finish stop, then what is no reason."""
    assert fold_choice(C("x"), FIN("length"), FIN("stop"), C(""), FIN(""), FIN(7))["finish_reason"] == "stop"


def test_a22_the_first_role():
    """A22: a role only on the last chunk counts; of several the first."""
    assert fold_choice(C("x"), part("role", "user"))["message"]["role"] == "user"
    assert fold_choice(part("role", 7), part("role", "tool"), part("role", "user"))["message"]["role"] == "tool"


def test_a23_no_items():
    """A23: nothing folds to an empty response; the gateway answers 502 instead."""
    assert fold([]) == {"id": "", "choices": [], "created": 0, "model": "", "object": "chat.completion"}


def test_a24_only_empty_choices():
    """A24: chunks without a choice give a response without one."""
    assert fold([chunk(())]) == {
        "id": "chatcmpl-1",
        "choices": [],
        "created": 1790000000,
        "model": "demo",
        "object": "chat.completion",
    }


def test_a27_no_role():
    """A27: without a role anywhere it is the assistant's."""
    assert fold_choice(C("x"))["message"]["role"] == "assistant"


@pytest.mark.parametrize("said", [R, A])
@pytest.mark.parametrize(
    ("content", "moves"),
    [((), True), (C(" \n"), True), (C("Yes."), False), (C([picture("p")]), False), (t(0, "x", "n", "{}"), False)],
    ids=["A28 none", "A28 blank", "A28 text", "A28 parts", "A28 call"],
)
def test_reasoning_instead_of_content(said, content, moves):
    """A28: asked for, reasoning takes the place of content that is blank, and only of that."""
    asked = fold_choice(said("Think."), content, options=NONEMPTY)["message"]
    plain = fold_choice(said("Think."), content)["message"]
    assert "Think." in plain.values()
    if moves:
        assert asked == {"content": "Think.", "refusal": None, "role": "assistant"}
    else:
        assert asked == plain


def test_nothing_to_move():
    """Without reasoning, or with a blank one, content stays as it is."""
    assert fold_choice(R(" ") + C(""), options=NONEMPTY)["message"]["reasoning_content"] == " "


def test_the_body_of_the_specification():
    """4.3: the example, in the order of its keys."""
    usage = {"prompt_tokens": 11, "completion_tokens": 20, "total_tokens": 31}
    opener = chunk(part("role", "assistant") + t(0, "call_9a", "lookup_tide", ""), system_fingerprint=None)
    rest = chunk(t(0, None, None, '{"port":"Bergen"}'))
    response = fold([opener, rest, chunk(FIN("tool_calls")), chunk((), usage=usage)])
    assert encode_json(response).decode() == (
        '{"id":"chatcmpl-1","choices":[{"index":0,"message":{"content":null,"refusal":null,"tool_calls":[{"id":'
        '"call_9a","type":"function","function":{"name":"lookup_tide","arguments":"{\\"port\\":\\"Bergen\\"}"}}],'
        '"role":"assistant"},"finish_reason":"tool_calls","logprobs":null}],"created":1790000000,"model":"demo",'
        '"object":"chat.completion","usage":{"prompt_tokens":11,"completion_tokens":20,"total_tokens":31}}'
    )


# --- the envelope -------------------------------------------------------------------------------------------------

ENVELOPE = [
    ("id", ["a", "b"], "b"),
    ("id", ["a", ""], "a"),
    ("id", ["a", None], "a"),
    ("created", [1, 2, 0], 2),
    ("model", ["", "m"], "m"),
    ("object", ["chat.completion.chunk"], "chat.completion"),
    ("service_tier", ["default", None], "default"),
    ("system_fingerprint", ["fp_1", "fp_2", None], "fp_2"),
    ("usage", [{"a": 1, "b": 2}, None, {"a": 3}, None], {"a": 3}),
    ("nvext", [{"a": 1, "w": {"x": 1}}, {"b": 2, "w": {"y": 2}}], {"a": 1, "w": {"y": 2}, "b": 2}),
    ("x_groq", [{"id": "r", "seed": 1}, {"id": "r", "seed": None}], {"id": "r", "seed": 1}),
    ("provider", ["p", "p"], "p"),
    ("citations", [["u"], ["u", "v"]], ["u", "v"]),
    ("seed", [7, 0], 0),
    ("flag", [True, False], False),
    ("note", ["x", ""], ""),
    ("odd", [{"a": 1}, [2], None], [2]),
]


@pytest.mark.parametrize(("key", "values", "wanted"), ENVELOPE, ids=[f"{row[0]} {row[1]}" for row in ENVELOPE])
def test_envelope(key, values, wanted):
    """The last value that says something stays; objects are merged by key, usage is not."""
    assert fold({"choices": [], key: value} for value in values)[key] == wanted


# --- beside the delta ---------------------------------------------------------------------------------------------

BESIDE = [
    ("native_finish_reason", ["stop", "stop"], "stop"),
    ("content_filter_results", [{}, {"hate": 1}, {"hate": 2, "self_harm": 3}], {"hate": 2, "self_harm": 3}),
    ("token_ids", [[1, 2], None, [3]], [1, 2, 3]),
    ("seed", [5, 6], 6),
]


@pytest.mark.parametrize(("key", "values", "wanted"), BESIDE, ids=[row[0] for row in BESIDE])
def test_beside_the_delta(key, values, wanted):
    """On the choice the last value stays, objects are merged, and lists are extended."""
    (choice,) = fold({"choices": [{"index": 0, "delta": {}, key: value}]} for value in values)["choices"]
    assert choice[key] == wanted


def test_a_message_beside_the_delta_is_not_added():
    """What Perplexity and Writer say twice is said once."""
    (choice,) = fold(
        {"choices": [{"index": 0, "delta": {"content": word}, "message": {"content": "all"}}]}
        for word in ("High", " tide")
    )["choices"]
    assert choice["message"]["content"] == "High tide"


def test_logprobs():
    """Both lists are joined, each for itself; both keys are there once any logprobs are, and nothing is shared."""
    logprobs = [{"content": [{"token": "a"}]}, None, {"content": [{"token": "b"}], "refusal": None}, {"top": "x"}]
    payloads = [{"choices": [{"index": 0, "logprobs": each}]} for each in logprobs]
    (choice,) = fold(payloads)["choices"]
    assert choice["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None, "top": "x"}
    assert logprobs[0] == {"content": [{"token": "a"}]}


# --- the delta ----------------------------------------------------------------------------------------------------

PARTS = [
    ("no text at all", [None, ""], None),
    ("text", ["a", None, "b\r\n"], "ab\r\n"),
    ("text parts are text", ["a", [text("b")], [text("c"), text("d")]], "abcd"),
    ("text around a part", ["a", [text("b"), picture("p")], "c", [text("d")]], [text("ab"), picture("p"), text("cd")]),
    ("an empty text beside a part", ["", [picture("p")]], [picture("p")]),
    ("a text part that says more", [[{**text("a"), "note": 1}], "b"], [{**text("a"), "note": 1}, text("b")]),
    ("an empty list", [[]], None),
    (
        "thinking is one part",
        [[thinking("a"), thinking("b", closed=True)], [thinking("c")], "d"],
        [thinking("abc", closed=True), text("d")],
    ),
    ("thinking apart", [[thinking("a")], "", [thinking("b")]], [thinking("a"), thinking("b")]),
    (
        "thinking of another shape",
        [[{"type": "thinking", "thinking": "a"}]] * 2,
        [{"type": "thinking", "thinking": "a"}] * 2,
    ),
]


@pytest.mark.parametrize(("contents", "wanted"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_content(contents, wanted):
    """Text and text parts are joined in order; other parts stand where they came."""
    assert fold_message(*({"content": content} for content in contents))["content"] == wanted


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning(key):
    """Reasoning keeps the name that it came under; an empty text that arrived is kept, absence is too."""
    assert fold_message({key: "Let "}, {key: None}, {key: "me"})[key] == "Let me"
    assert fold_message({key: ""})[key] == ""
    assert key not in fold_message({key: None})


def test_legacy_function_call():
    """The pieces of an old stream's one call add up, and its finish reason stays."""
    choice = fold_choice(
        part("function_call", {"name": "f", "arguments": ""}),
        part("function_call", {"arguments": '{"a"', "note": "x"}),
        part("function_call", None),
        part("function_call", {"arguments": ":1}"}),
        FIN("function_call"),
    )
    assert choice["message"]["function_call"] == {"name": "f", "arguments": '{"a":1}', "note": "x"}
    assert choice["finish_reason"] == "function_call"
    assert "function_call" not in fold_message({"function_call": "none"})


DELTA_KEYS = [
    ("signature", ["ab", "cd"], "abcd"),
    ("ids", [[1], [], [2, {"a": 1}]], [1, 2, {"a": 1}]),
    ("audio", [{"id": "a", "data": "xy"}, {"id": "a", "data": "z", "end": 5}], {"id": "a", "data": "xyz", "end": 5}),
    ("deep", [{"a": {"b": ["c"], "t": "x"}}, {"a": {"b": ["d"], "t": "y"}}], {"a": {"b": ["c", "d"], "t": "xy"}}),
    ("token_id", [4, 5], 5),
    ("final", [False, True], True),
    ("channel", ["analysis", "analysis"], "analysis"),
    ("odd", ["text", {"a": 1}, [2]], [2]),
]


@pytest.mark.parametrize(("key", "values", "wanted"), DELTA_KEYS, ids=[row[0] for row in DELTA_KEYS])
def test_unknown_keys_of_a_delta(key, values, wanted):
    """Text is joined, lists are extended, objects merged; of other values, and of labels, the last one stays."""
    assert fold_message(*({key: value} for value in values))[key] == wanted


def test_reasoning_details():
    """Elements with one index are one, until type or id changes: OpenRouter numbers them all 0."""
    details = [
        {"index": 0, "type": "reasoning.text", "text": "Let "},
        {"index": 0, "type": "reasoning.text", "text": "me.", "format": None},
        {"index": 0, "type": "reasoning.text", "signature": "c2ln"},
        {"index": 0, "type": "reasoning.encrypted", "id": "call_1", "data": "AA"},
        {"index": 0, "type": "reasoning.encrypted", "id": "call_2", "data": "BB"},
        {"index": 1, "type": "reasoning.text", "text": "Hm."},
        {"type": "reasoning.text", "text": "no index"},
    ]
    message = fold_message(*({"reasoning_details": [each]} for each in details))
    assert message["reasoning_details"] == [
        {"index": 0, "type": "reasoning.text", "text": "Let me.", "format": None, "signature": "c2ln"},
        *details[3:],
    ]


# --- completeness -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "before it sent any choice"),
        ([C("a"), c1(C("b")), FIN("stop")], "before choice 1 had finished"),
        ([WHOLE], "before choice 0 had finished"),
        ([C("a") + c1(FIN("stop")), FIN("stop"), C("more")], None),
    ],
)
def test_cut(chunks, message):
    """A stream is whole once every choice that it opened has finished."""
    aggregate = Aggregate()
    for parts in chunks:
        aggregate.feed(chunk(parts))
    cut = aggregate.cut()
    assert cut is None if message is None else message in cut.message


def test_choices_that_are_none():
    """What stands instead of a list of choices, or of an object, takes no place of the response's."""
    chunks = [text_chunk("a").payload, {"choices": "none", "object": "x"}, {"choices": {"index": 0}}]
    response = fold(chunks)
    assert response["object"] == "chat.completion"
    assert [choice["message"]["content"] for choice in response["choices"]] == ["a"]
