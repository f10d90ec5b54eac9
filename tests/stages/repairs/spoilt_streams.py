"""Generated streams: right ones, and for each repair a way to spoil one."""

from __future__ import annotations

import json
import random

from hypothesis import strategies as st
from repair_helpers import ENVELOPE, NULL, choice, chunk, e, piece

NAMES = ["f", "get_weather", "list_charts"]
REQUEST = {"tools": [{"type": "function", "function": {"name": name}} for name in NAMES]}

SCALARS = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.text(max_size=6)
KEYS = st.text(max_size=4) | st.sampled_from(["{", ":{", '"', "\\", '{"'])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


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


# --- right streams --------------------------------------------------------------------------------------------------


def interleaved(lists, chance):
    """The elements of all lists, each list in its order."""
    mixed = []
    while any(lists):
        mixed.append(chance.choice([one for one in lists if one]).pop(0))
    return mixed


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
    entries = interleaved(calls, random.Random(draw(st.integers(0, 99))))
    texts = [choice(index=index, content=text) for text in draw(st.lists(st.text(max_size=3), max_size=2))]
    finish = "tool_calls" if entries else draw(st.sampled_from(["stop", "length", "content_filter"]))
    opener = choice(index=index, role="assistant", content=draw(st.sampled_from(["", None])))
    return [opener, *texts, *(choice(entry, index=index) for entry in entries), choice(index=index, finish=finish)]


@st.composite
def right_streams(draw):
    """A stream that keeps OpenAI's contract."""
    own = [draw(right_choices(index)) for index in range(draw(st.integers(1, 2)))]
    choices = interleaved(own, random.Random(draw(st.integers(0, 99))))
    payloads = [{**ENVELOPE, "choices": [one]} for one in choices]
    usage = {**ENVELOPE, "choices": [], "usage": {"total_tokens": 3}}
    return [*payloads, usage] if draw(st.booleans()) else payloads


# --- quirks ---------------------------------------------------------------------------------------------------------


@st.composite
def calls(draw):
    """One to three calls with different arguments: name, pieces."""
    texts = draw(
        st.lists(argument_texts(), min_size=1, max_size=3, unique_by=lambda text: json.dumps(json.loads(text)))
    )
    return [(draw(st.sampled_from(NAMES)), draw(cut(text))) for text in texts]


def stream(calls, entry=None, finish="tool_calls", role="assistant"):
    """The payloads of these calls, one fragment a chunk.

    Args:
        calls: name and pieces of each.
        entry: what becomes of an entry, an entry or a list; given it, its call's number, its place in that, and how
            many there were before it.
        finish: the reason.
        role: that of the first chunk.
    """
    payloads = [chunk(content="", **({"role": role} if role else {}))]
    count = 0
    for number, (name, pieces) in enumerate(calls):
        for place, text in enumerate(pieces):
            identity = {} if place else {"id": f"call_{number}", "name": name}
            made = e(number, arguments=text, **identity)
            made = entry(made, number, place, count) if entry else made
            payloads += [chunk(one) for one in (made if isinstance(made, list) else [made])]
            count += 1
    return [*payloads, chunk(finish=finish)]


def with_index(index):
    """Every entry with the index that a call's number and the count of entries give; none for no index."""

    def changed(made, number, _place, count):
        given = {"index": index(number, count)}
        return {**made, **given} if given["index"] is not None else {key: made[key] for key in made if key != "index"}

    return changed


def with_id(id_of):
    """Every entry with the id that its call's number and its place give; none for no id."""

    def changed(made, number, place, _count):
        given = {key: value for key, value in made.items() if key != "id"}
        own = id_of(number, place)
        return given if own is None else {**given, "id": own}

    return changed


def whole(calls):
    """The calls, each in one piece."""
    return [(name, ["".join(pieces)]) for name, pieces in calls]


def plain(text):
    """Pieces of three characters, the first of which ends inside a key that begins with a letter.

    What a value, or the end of a first key, could follow is not told from a nesting (spec, repairs, 10).
    """
    text = json.dumps({f"k{key}": value for key, value in json.loads(text).items()})
    return [text[start : start + 3] for start in range(0, len(text), 3)]


def with_name_in_two(made, _number, place, _count):
    """A name in two pieces, without text, in front of the text."""
    name = made["function"].get("name", "")
    if place or len(name) < 3:
        return made
    opener = {**made, "function": {"name": name[:2], "arguments": ""}}
    return [opener, e(made["index"], name=name[2:]), piece(made["function"]["arguments"], made["index"])]


def with_object(made, *_):
    """Arguments that are no text."""
    return {**made, "function": {**made["function"], "arguments": json.loads(made["function"]["arguments"])}}


def raw_controls(text):
    r"""The text with ``\n`` and ``\t`` of strings as raw characters, where that says the same."""
    spoilt = text.replace("\\n", "\n").replace("\\t", "\t")
    try:
        return spoilt if json.loads(spoilt, strict=False) == json.loads(text) else text
    except ValueError:
        return text


def unlisted(payload):
    """The one entry where the list would be."""
    entries = payload["choices"][0]["delta"].get("tool_calls")
    return chunk(tool_calls=entries[0]) if entries else payload


def sent_twice(calls):
    """Every call again, under another index and its own id."""
    again = [chunk(e(10 + n, f"call_{n}", name, text)) for n, (name, (text,)) in enumerate(whole(calls))]
    return [*stream(calls)[:-1], *again, chunk(finish="tool_calls")]


def legacy(calls):
    """The first call as a ``function_call``."""
    name, pieces = calls[0]
    deltas = [{"name": name, "arguments": pieces[0]}, *({"arguments": text} for text in pieces[1:])]
    return [chunk(role="assistant"), *(chunk(function_call=one) for one in deltas), chunk(finish="function_call")]


QUIRKS = {
    "infer-missing-index": lambda calls: stream(calls, with_index(lambda _number, _count: None)),
    "infer-missing-index -1": lambda calls: stream(calls, with_index(lambda _number, _count: -1)),
    "coerce-index": lambda calls: stream(calls, with_index(lambda number, _count: str(number))),
    "coerce-index float": lambda calls: stream(calls, with_index(lambda number, _count: float(number))),
    "reindex-parallel-calls": lambda calls: stream(whole(calls), with_index(lambda _number, _count: 0)),
    "reattach-orphan-fragments": lambda calls: stream(calls, with_index(lambda _number, count: count)),
    "wrap-single-tool-call": lambda calls: [unlisted(payload) for payload in stream(calls)],
    "join-name-fragments": lambda calls: stream(calls, with_name_in_two),
    "synthesize-missing-id": lambda calls: stream(calls, with_id(lambda _number, _place: None)),
    "synthesize-missing-id int": lambda calls: stream(calls, with_id(lambda number, place: None if place else number)),
    "pin-first-id": lambda calls: stream(calls, with_id(lambda number, place: f"call_{number}_{place}")),
    "unique-ids": lambda calls: stream(calls, with_id(lambda _number, place: None if place else "same")),
    "unique-ids everywhere": lambda calls: stream(calls, with_id(lambda _number, _place: "same")),
    "drop-duplicate-calls": sent_twice,
    "strip-empty-object-prefix": lambda calls: stream([(name, ["{}", *pieces]) for name, pieces in calls]),
    "stringify-arguments": lambda calls: stream(whole(calls), with_object),
    "replace-cumulative-arguments": lambda calls: stream(
        [(name, ["".join(pieces[: end + 1]) for end in range(len(pieces))]) for name, pieces in calls]
    ),
    "replace-cumulative-arguments once": lambda calls: stream(
        [(name, [*pieces, "".join(pieces)]) for name, pieces in calls]
    ),
    "decode-double-encoding": lambda calls: stream(
        [(name, [text[:2], text[2:]]) for name, (one,) in whole(calls) for text in [json.dumps(one)]]
    ),
    "escape-control-characters": lambda calls: stream([(name, [raw_controls(text)]) for name, (text,) in whole(calls)]),
    "trim-trailing-text": lambda calls: stream([(name, [*pieces, "}", " and more {}"]) for name, pieces in calls]),
    "finish-reason-tool-calls": lambda calls: stream(calls, finish="stop"),
    "add-missing-role": lambda calls: stream(calls, role=None),
    "function-call-to-tool-call": legacy,
}
"""For each repair a way to spoil the stream of some calls."""
