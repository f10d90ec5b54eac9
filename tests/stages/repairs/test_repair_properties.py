"""What holds for every stream: right ones stay as they are, quirks are mended, and nothing is invented."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from repair_helpers import CLASSES, ENVELOPE, NULL, Repaired, body_of, choice, chunk, e, item, piece

from pipeline.chunks import encode_json
from pipeline.items import Chunk, End
from pipeline.sse import SseDecoder
from pipeline.testing import make_stage, run_stages
from stages.glued_events import GluedEvents
from stages.repairs import ALL_REPAIRS, RECOMMENDED

NAMES = ["f", "get_weather", "list_charts"]
REQUEST = {"tools": [{"type": "function", "function": {"name": name}} for name in NAMES]}

# --- right streams ------------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.text(max_size=6)
KEYS = st.text(max_size=4) | st.sampled_from(["{", ":{", '"', "\\", '{"'])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)


@st.composite
def argument_texts(draw):
    """The text of an object that is not empty, as some server might write it."""
    value = draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",\n", ":\t")]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)


@st.composite
def cut(draw, text):
    """A text in pieces."""
    places = sorted(set(draw(st.lists(st.integers(1, max(1, len(text) - 1)), max_size=5))))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def right_choices(draw, index):
    """The choices of a right stream that belong to one index, in order."""
    calls = []
    for number in range(draw(st.integers(0, 3))):
        own = number + draw(st.integers(0, 1)) * 7
        pieces = draw(argument_texts().flatmap(cut))
        if draw(st.booleans()):
            pieces.insert(0, "")
        again = draw(st.sampled_from([{}, {"id": ""}, {"id": NULL}, {"id": f"call_{index}_{number}", "name": NULL}]))
        opener = e(own, f"call_{index}_{number}", draw(st.sampled_from(NAMES)), pieces[0], type="function")
        calls.append([opener, *(e(own, arguments=text, **again) for text in pieces[1:])])
    chance = random.Random(draw(st.integers(0, 99)))
    entries = []
    while any(calls):
        entries.append(chance.choice([call for call in calls if call]).pop(0))
    texts = [choice(index=index, content=text) for text in draw(st.lists(st.text(max_size=3), max_size=2))]
    finish = "tool_calls" if entries else draw(st.sampled_from(["stop", "length", "content_filter"]))
    opener = choice(index=index, role="assistant", content=draw(st.sampled_from(["", None])))
    return [opener, *texts, *(choice(entry, index=index) for entry in entries), choice(index=index, finish=finish)]


@st.composite
def right_streams(draw):
    """A stream that keeps OpenAI's contract."""
    own = [draw(right_choices(index)) for index in range(draw(st.integers(1, 2)))]
    chance = random.Random(draw(st.integers(0, 99)))
    payloads = []
    while any(own):
        payloads.append({**ENVELOPE, "choices": [chance.choice([one for one in own if one]).pop(0)]})
    usage = {**ENVELOPE, "choices": [], "usage": {"total_tokens": 3}}
    return [*payloads, usage] if draw(st.booleans()) else payloads


@given(right_streams())
def test_a_right_stream_is_untouched_by_all_repairs_together(payloads):
    """Every chunk comes out as the same object, at once, and no repair is told of."""
    stages = [make_stage(stage, request=REQUEST) for stage in CLASSES if stage is not GluedEvents]
    for one in map(item, payloads):
        given = [one]
        for stage in stages:
            given = [made for single in given for made in stage.feed(single)]
        assert given == [one]
    gateway = Repaired(ALL_REPAIRS, REQUEST)
    body = body_of(payloads)
    assert gateway.all_of([body]) == Repaired([], REQUEST).all_of([body])
    assert gateway.repairs() == []


# --- quirks ---------------------------------------------------------------------------------------------------------


@st.composite
def calls(draw):
    """One to three calls with different arguments: name, pieces."""
    texts = draw(st.lists(argument_texts(), min_size=1, max_size=3, unique_by=lambda text: json.dumps(json.loads(text))))
    return [(draw(st.sampled_from(NAMES)), draw(cut(text))) for text in texts]


def stream(calls, index=None, id=None, entry=None, finish="tool_calls", role="assistant"):  # noqa: A002 - the wire's word
    """The payloads of these calls, one fragment a chunk.

    Args:
        calls: name and pieces of each.
        index: of a call's number and the count of fragments so far, the wire's index.
        id: of a call's number and its fragment's, the id.
        entry: changes an entry, given with the call's number and its fragment's.
        finish: the reason.
        role: that of the first chunk.
    """
    payloads = [chunk(content="", **({"role": role} if role else {}))]
    count = 0
    for number, (name, pieces) in enumerate(calls):
        for place, text in enumerate(pieces):
            own_index = index(number, count) if index else number
            own_id = id(number, place) if id else None if place else f"call_{number}"
            made = e(own_index, own_id, None if place else name, text)
            made = entry(made, number, place) if entry else made
            payloads += [chunk(one) for one in (made if isinstance(made, list) else [made])]
            count += 1
    return [*payloads, chunk(finish=finish)]


def whole(calls):
    """The calls, each in one piece."""
    return [(name, ["".join(pieces)]) for name, pieces in calls]


def with_text(made, text):
    """An entry with other arguments."""
    return {**made, "function": {**made.get("function", {}), "arguments": text}}


def plain(text):
    """Pieces of three characters, the first of which ends inside a key that begins with a letter.

    What a value, or the end of a first key, could follow is not told from a nesting (spec, repairs, 10).
    """
    text = json.dumps({f"k{key}": value for key, value in json.loads(text).items()})
    return [text[start : start + 3] for start in range(0, len(text), 3)]


def cumulative(calls):
    """Each piece says all that came before."""
    return [(name, ["".join(pieces[: end + 1]) for end in range(len(pieces))]) for name, pieces in calls]


def in_two(name):
    """A name in two pieces, the first of which begins with two letters."""
    return [name[:2], name[2:]]


def split_name(made, _number, place):
    """The entries of a name in two pieces, without text, in front of the text."""
    if place:
        return made
    function = made["function"]
    if len(function["name"]) < 3:
        return made
    first, second = in_two(function["name"])
    opener = {**made, "function": {"name": first, "arguments": ""}}
    index = made["index"]
    return [opener, e(index, name=second), piece(function["arguments"], index)]


QUIRKS = {
    "infer-missing-index": lambda calls: stream(calls, index=lambda number, count: None),
    "infer-missing-index -1": lambda calls: stream(calls, index=lambda number, count: -1),
    "coerce-index": lambda calls: stream(calls, index=lambda number, count: str(number)),
    "coerce-index float": lambda calls: stream(calls, index=lambda number, count: float(number)),
    "reindex-parallel-calls": lambda calls: stream(whole(calls), index=lambda number, count: 0),
    "reattach-orphan-fragments": lambda calls: stream(calls, index=lambda number, count: count),
    "wrap-single-tool-call": lambda calls: [
        chunk(tool_calls=one["choices"][0]["delta"]["tool_calls"][0]) if "tool_calls" in one["choices"][0]["delta"] else one
        for one in stream(calls)
    ],
    "join-name-fragments": lambda calls: stream(calls, entry=split_name),
    "synthesize-missing-id": lambda calls: stream(calls, id=lambda number, place: None),
    "synthesize-missing-id integer": lambda calls: stream(calls, id=lambda number, place: None if place else number),
    "pin-first-id": lambda calls: stream(calls, id=lambda number, place: f"call_{number}_{place}"),
    "unique-ids": lambda calls: stream(calls, id=lambda number, place: None if place else "same"),
    "unique-ids everywhere": lambda calls: stream(calls, id=lambda number, place: "same"),
    "drop-duplicate-calls": lambda calls: [
        *(one for one in stream(calls)[:-1]),
        *(
            chunk(e(10 + number, f"call_{number}", name, text))
            for number, (name, (text,)) in enumerate(whole(calls))
        ),
        chunk(finish="tool_calls"),
    ],
    "strip-empty-object-prefix": lambda calls: stream([(name, ["{}", *pieces]) for name, pieces in calls]),
    "stringify-arguments": lambda calls: stream(
        whole(calls), entry=lambda made, number, place: with_text(made, json.loads(made["function"]["arguments"]))
    ),
    "replace-cumulative-arguments": lambda calls: stream(cumulative(calls)),
    "replace-cumulative-arguments once": lambda calls: stream([(name, [*pieces, "".join(pieces)]) for name, pieces in calls]),
    "decode-double-encoding": lambda calls: stream(
        [(name, [text[:2], text[2:]]) for name, (plain,) in whole(calls) for text in [json.dumps(plain)]]
    ),
    "escape-control-characters": lambda calls: stream(
        [(name, [raw_controls(text) for text in texts]) for name, texts in whole(calls)]
    ),
    "trim-trailing-text": lambda calls: stream([(name, [*pieces, "}", " and more {}"]) for name, pieces in calls]),
    "finish-reason-tool-calls": lambda calls: stream(calls, finish="stop"),
    "add-missing-role": lambda calls: stream(calls, role=None),
    "function-call-to-tool-call": lambda calls: [
        chunk(role="assistant"),
        *(
            chunk(function_call={**({} if place else {"name": calls[0][0]}), "arguments": text})
            for place, text in enumerate(calls[0][1])
        ),
        chunk(finish="function_call"),
    ],
}
"""For each repair a way to spoil a stream."""


def raw_controls(text):
    r"""The text with ``\n`` and ``\t`` of strings as raw characters, where that says the same."""
    spoilt = text.replace("\\n", "\n").replace("\\t", "\t")
    try:
        return spoilt if json.loads(spoilt, strict=False) == json.loads(text) else text
    except ValueError:
        return text


def dispatched(gateway_out):
    """The calls that the client is told of: name and value of the arguments, with the id."""
    found = []
    for frame in SseDecoder().feed(gateway_out):
        if frame.event == "tool_call_dispatch":
            call = json.loads(frame.data)["tool_call"]
            found.append((call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"]))
    return found


@pytest.mark.parametrize("quirk", QUIRKS)
@settings(max_examples=20)
@given(calls())
def test_a_quirk_is_mended(quirk, calls):
    """All repairs together dispatch from the spoilt stream what the right one holds, each call once, under its own id."""
    if quirk.startswith("replace-cumulative"):
        calls = [(name, plain(text)) for name, (text,) in whole(calls)]
    if quirk == "reattach-orphan-fragments":
        assume(all(pieces[0].strip() for _, pieces in calls))
    if quirk == "function-call-to-tool-call":
        calls = calls[:1]
    payloads = QUIRKS[quirk](calls)
    wanted = [(name, json.loads("".join(pieces))) for name, pieces in calls]
    out = Repaired(ALL_REPAIRS, REQUEST).all_of([body_of(payloads)])
    got = dispatched(out)
    assert [(name, arguments) for name, arguments, _ in got] == wanted
    assert len({id for *_, id in got}) == len(got)
    assert all(id for *_, id in got)
    assert b'"finish_reason":"tool_calls"' in out
    assert b'"role":"assistant"' in out


@pytest.mark.parametrize("quirk", QUIRKS)
@settings(max_examples=20)
@given(calls())
def test_repairs_are_idempotent(quirk, calls):
    """The preset in its order, run over what it gave, changes nothing; nor does its one repair."""
    items = [*map(item, QUIRKS[quirk](calls)), End(b"data: [DONE]\n\n")]
    orders = [[stage] for stage in CLASSES], [stage for stage in CLASSES if name_of(stage) in RECOMMENDED]
    for order in (*orders[0], orders[1]):
        once = run_stages([make_stage(stage, request=REQUEST) for stage in order], items)
        twice = run_stages([make_stage(stage, request=REQUEST) for stage in order], once)
        assert [written(one) for one in twice] == [written(one) for one in once]


def name_of(stage):
    return stage.__module__.removeprefix("stages.")


def written(one):
    return encode_json(one.payload) if isinstance(one, Chunk) else one


# --- any stream -----------------------------------------------------------------------------------------------------

TEXTS = ['{"k":', "1}", '{"k":1}', "{}", "}", " ", "", '"{}"', '"{', "[2", "]", "x", {"k": 3}, {}, [4], None, 5]
ENTRIES = st.builds(
    e,
    st.sampled_from([None, 0, 1, 2, "0", -1, 1.0]),
    st.sampled_from([None, "", "a", "b", "c", NULL, 7]),
    st.sampled_from([None, "", "f", "get_", "weather", "list_charts"]),
    st.sampled_from(TEXTS),
)


@st.composite
def any_choices(draw):
    """A choice of any shape of those that repairs look at."""
    entries = draw(st.lists(ENTRIES, max_size=3))
    delta = draw(st.sampled_from([{}, {"role": None}, {"content": "x"}, {"reasoning": "r"}, {"function_call": {"name": "f"}}]))
    finish = draw(st.sampled_from([None, None, None, "stop", "tool_calls", "length", "function_call", ""]))
    made = choice(*entries, index=draw(st.sampled_from([0, 0, 0, 1, -1])), finish=finish, **delta)
    if len(entries) == 1 and draw(st.booleans()):
        made["delta"]["tool_calls"] = entries[0]
    return made


ANY_STREAMS = st.lists(st.lists(any_choices(), min_size=1, max_size=2).map(lambda made: {**ENVELOPE, "choices": made}), max_size=8)


def texts_of(payloads, index):
    """All argument text of a choice, in order."""
    texts = []
    for payload in payloads:
        for one in payload["choices"]:
            if one["index"] == index:
                entries = one["delta"].get("tool_calls") or []
                for entry in entries if isinstance(entries, list) else [entries]:
                    text = entry.get("function", {}).get("arguments")
                    texts.append(text if isinstance(text, str) else encode_json(text).decode() if text is not None else "")
    return "".join(texts)


def is_subsequence(text, of):
    rest = iter(of)
    return all(character in rest for character in text)


@pytest.mark.parametrize("repairs", [["recommended"], ALL_REPAIRS, *([name] for name in ALL_REPAIRS)], ids=len)
@settings(max_examples=40)
@given(ANY_STREAMS)
def test_nothing_is_invented(repairs, payloads):
    """A dispatched call has no arguments that the stream did not hold, but {} for none; the stream says the same."""
    out = Repaired(repairs, REQUEST).all_of([body_of(payloads)])
    sent = {}
    for frame in SseDecoder().feed(out):
        if frame.event == "tool_call_dispatch":
            event = json.loads(frame.data)
            call = event["tool_call"]
            text = call["function"].get("arguments", "")
            assert text.strip() == "{}" or is_subsequence(text, texts_of(payloads, event["choice_index"]))
            sent[event["choice_index"], call["index"]] = text
    for (own, index), text in sent.items():
        assert texts_in(out, own, index).startswith(text)


def texts_in(out, own, index):
    """The argument text of one call in the ordinary frames."""
    texts = []
    for frame in SseDecoder().feed(out):
        if frame.event is None and frame.data != b"[DONE]":
            for one in json.loads(frame.data).get("choices", []):
                entries = one["delta"].get("tool_calls") if one["index"] == own else None
                for entry in entries if isinstance(entries, list) else []:
                    if type(entry.get("index")) is int and entry["index"] == index:
                        texts.append(entry.get("function", {}).get("arguments"))
    return "".join(text for text in texts if isinstance(text, str))


@given(ANY_STREAMS)
def test_the_preset_is_idempotent_on_what_it_mends(payloads):
    """The indexes and ids that come out of the preset are right: a second run leaves them alone."""
    order = [stage for stage in CLASSES if name_of(stage) in ("tool_call_index", "missing_role", "finish_reason")]
    once = run_stages([make_stage(stage, request=REQUEST) for stage in order], map(item, payloads))
    twice = run_stages([make_stage(stage, request=REQUEST) for stage in order], once)
    assert [written(one) for one in twice] == [written(one) for one in once]
