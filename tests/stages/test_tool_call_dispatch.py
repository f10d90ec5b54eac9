"""The dispatcher beyond the numbered rows: what it reports, what it refuses, where it stops."""

from __future__ import annotations

import json
import tracemalloc

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from notation import FIN, C, E, Gateway, c1, chunk, events_per_chunk, on_choice, t, told

from pipeline.chunks import MAX_CHOICES
from pipeline.errors import StreamFailure
from pipeline.sse import sse_frame
from stages.json_scanner import JsonScanner, Verdict
from stages.tool_call_dispatch import ToolCallDispatch, ToolCallDispatchOptions

TC = FIN("tool_calls")
STOP = FIN("stop")


def run(*chunks, **options):
    """The gateway after these chunks, the options being the dispatcher's."""
    chosen = {ToolCallDispatch: ToolCallDispatchOptions(**options)}
    gateway = Gateway(options=chosen)
    for parts in chunks:
        gateway.send(parts if isinstance(parts, dict) else chunk(parts))
    return gateway


def with_fragment(fragment):
    return {**chunk(()), "choices": [{"index": 0, "delta": {"tool_calls": [fragment]}}]}


# --- what it reports ------------------------------------------------------------------------------------------------


def test_a_call_is_opened_closed_and_dispatched():
    """The observer hears of each step when it happens, and of the finish after the calls that it settles."""
    gateway = run(t(0, "c", "f", '{"a":'), t(0, None, None, "1}"), t(1, "d", "g"), TC, TC)
    assert gateway.observer.records == [
        ("call_opened", 0, 0),
        ("call_closed", 0, 0),
        ("call_dispatched", 0, 0),
        ("event_sent", "tool_call_dispatch"),
        ("call_opened", 0, 1),
        ("call_closed", 0, 1),
        ("call_dispatched", 0, 1),
        ("event_sent", "tool_call_dispatch"),
        ("choice_finished", 0, "tool_calls"),
    ]


def test_only_the_first_finish_of_a_choice_is_reported():
    """Providers repeat finish reasons; the first one counts, and an empty one is none."""
    gateway = run(FIN(""), STOP, FIN("length"), c1(FIN("length")))
    assert told(gateway.observer, "choice_finished") == [(0, "stop"), (1, "length")]


REFUSED = [
    ("id-of-one-call", [t(0, "c", "f", "{"), t(0, "d")], ("identity_conflict", "tool_call_id")),
    ("id-and-name", [t(0, "c", "f", "{"), t(0, "d", "g", "{}")], ("identity_conflict", "tool_call_index")),
    ("id-after-the-end", [t(0, "c", None, "{}"), t(0, "d", "g", "{}")], ("identity_conflict", "tool_call_index")),
    ("type", [t(0, "c", "f", "{"), t(0, None, None, "}", type="custom")], ("identity_conflict", None)),
    ("name", [t(0, "c", "f", ""), t(0, None, "oo")], ("identity_conflict", "tool_call_name")),
    ("trailing-text", [t(0, "c", "f", "{}}")], ("malformed", "trim_tool_call_arguments")),
    ("bad-syntax", [t(0, "c", "f", "{'a':1}")], ("not_json", "tool_call_arguments")),
    ("blank", [t(0, "c", "f", " "), TC], ("not_json", "tool_call_arguments")),
    ("scalar", [t(0, "c", "f", "tru"), TC], ("not_json", "tool_call_arguments")),
    ("object", [t(0, "c", "f", {"a": 1})], ("not_text", "tool_call_arguments")),
    ("cut-off", [t(0, "c", "f", '{"a'), TC], ("cut_off", None)),
    ("length", [t(0, "c", "f", '{"a'), FIN("length")], ("finish_reason", None)),
    ("no-id", [t(0, None, "f", "{}"), TC], ("no_identity", "tool_call_id")),
    ("no-name", [t(0, "c", None, "{}"), TC], ("no_identity", None)),
    ("orphan", [t(0, None, None, "{}"), TC], ("no_identity", "tool_call_index")),
]


@pytest.mark.parametrize(("chunks", "refusal"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_a_refusal_is_reported_once_with_its_repair(chunks, refusal):
    """Reason and repair are said when the call is lost, and nothing more is said of it, nor dispatched."""
    gateway = run(*chunks, t(0, None, None, "}"), t(0, "c", "f", "{}"), TC)
    assert told(gateway.observer, "call_refused") == [(0, 0, *refusal)]
    assert told(gateway.observer, "call_dispatched") == []


def test_a_free_form_call_is_refused_at_the_finish():
    """custom.input is no JSON and has no function name; no repair would change that."""
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls {"}}
    gateway = run(with_fragment(custom), TC)
    assert told(gateway.observer, "call_refused") == [(0, 0, "no_identity", None)]


# --- fragments without a key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "0", -1, True, 1.0, [], {}])
def test_a_fragment_without_a_usable_index_is_refused_once_a_choice(index):
    """It has no key: passed on, never dispatched, and reported once however many there are."""
    payload = with_fragment({"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}})
    gateway = Gateway()
    assert events_per_chunk(gateway, [payload, payload, chunk(TC)]) == [[], [], []]
    assert told(gateway.observer, "call_refused") == [(0, None, "no_index", "tool_call_index")]


def test_an_absent_index_is_no_index():
    """Absent is not zero: with two such calls nothing would tell them apart."""
    gateway = run(with_fragment({"id": "c", "function": {"name": "f", "arguments": "{}"}}), TC)
    assert told(gateway.observer, "call_refused") == [(0, None, "no_index", "tool_call_index")]


def test_one_object_in_place_of_the_list_is_no_index():
    """Older TGI sends it; the repair that wraps it is named. An empty object holds no call."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    payload = {**chunk(()), "choices": [{"index": 0, "delta": {"tool_calls": call}}]}
    empty = {**chunk(()), "choices": [{"index": 1, "delta": {"tool_calls": {}}}]}
    gateway = Gateway()
    assert events_per_chunk(gateway, [payload, payload, empty]) == [[], [], []]
    assert told(gateway.observer, "call_refused") == [(0, None, "no_index", "tool_call_index")]


@pytest.mark.parametrize("index", [None, "0", -1, True, 0.0])
def test_a_choice_without_a_usable_index_has_no_keys(index):
    """Its calls are not dispatched, and its finish settles no other choice."""
    odd = {**chunk(t(0, "c", "f", "{}") + TC)}
    odd["choices"][0]["index"] = index
    gateway = Gateway()
    assert events_per_chunk(gateway, [chunk(t(0, "d", "g")), odd, odd, chunk(TC)]) == [[], [], [], [E(0, 0, "d", "g")]]
    assert told(gateway.observer, "call_refused") == [(None, None, "no_index", None)]
    assert told(gateway.observer, "choice_finished") == [(0, "tool_calls")]


def test_a_choice_without_an_index_is_choice_zero():
    """Absent counts as 0."""
    bare = chunk(t(0, "c", "f", "{}"))
    del bare["choices"][0]["index"]
    assert events_per_chunk(Gateway(), [bare]) == [[E(0, 0, "c", "f", "{}")]]


# --- where it stops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param({"error": {"message": "out of memory"}}, id="error-object"),
        pytest.param({"object": "error", "message": "out of memory", "code": 500}, id="vllm"),
        pytest.param({**chunk(t(1, "d", "g", "{}")), "error": "overloaded"}, id="beside-calls"),
        pytest.param({**chunk(TC), "error": {"code": 502}}, id="beside-a-finish"),
        pytest.param({**chunk(TC), "object": "error"}, id="vllm-beside-a-finish"),
    ],
)
def test_after_an_error_nothing_is_dispatched(failure):
    """Open calls are dropped, the chunk with the error announces nothing, and neither does what follows."""
    gateway = run(t(0, "c", "f", '{"a":'))
    gateway.send(failure)
    after = [chunk(t(0, None, None, "1}")), chunk(t(2, "e", "h", "{}")), chunk(TC)]
    assert events_per_chunk(gateway, after) == [[], [], []]
    assert told(gateway.observer, "call_refused") == [(0, 0, "cut_off", None)]


@pytest.mark.parametrize("end", ["failure", "named-error", "done", "close"])
def test_an_end_without_a_finish_drops_open_calls(end):
    """A failure, an error event, [DONE] and a clean close alike: cut off, said once."""
    gateway = run(t(0, "c", "now"), c1(t(3, "d", "now")))
    last = {
        "failure": lambda: gateway.fail(StreamFailure("reset")),
        "named-error": lambda: gateway.feed(sse_frame(b"{}", "error")),
        "done": lambda: gateway.feed(b"data: [DONE]\n\n"),
        "close": lambda: b"",
    }[end]()
    assert b"tool_call_dispatch" not in last + gateway.close()
    assert told(gateway.observer, "call_refused") == [(0, 0, "cut_off", None), (1, 3, "cut_off", None)]


def test_a_null_error_is_no_error():
    """Servers that write "error": null beside every chunk still have their calls dispatched."""
    payload = {**chunk(t(0, "c", "f", "{}")), "error": None}
    assert events_per_chunk(Gateway(), [payload]) == [[E(0, 0, "c", "f", "{}")]]


def test_it_is_left_out_unless_asked_for():
    """Without the event in force nothing is assembled."""
    gateway = Gateway(events=frozenset({"reasoning_dispatch"}))
    assert events_per_chunk(gateway, [chunk(t(0, "c", "f", "{}"))]) == [[]]
    assert gateway.observer.records == []


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "is_dispatched"), [('{"":"é"}', True), ('{"":"éa"}', False)])
def test_a_call_longer_than_the_limit_is_refused(text, is_dispatched):
    """Bytes of UTF-8 count; one too many is refused with one warning, in one fragment or in many."""
    for fragments in ([text], list(text)):
        gateway = run(t(0, "c", "f"), *(t(0, None, None, piece) for piece in fragments), TC, max_argument_bytes=9)
        assert len(told(gateway.observer, "call_dispatched")) == is_dispatched
        assert (
            len(told(gateway.observer, "warned")) == len(told(gateway.observer, "call_refused")) == (not is_dispatched)
        )
    if not is_dispatched:
        assert told(gateway.observer, "call_refused") == [(0, 0, "too_large", None)]
        ((_, message),) = told(gateway.observer, "warned")
        assert message == "choice 0, call 0 is longer than max_argument_bytes = 9; not dispatched"


def test_input_of_free_form_calls_counts_too():
    """What is kept of a call is bounded whatever it is."""
    custom = {"index": 0, "custom": {"name": "shell", "input": "0123456789"}}
    gateway = run(with_fragment(custom), max_argument_bytes=9)
    assert told(gateway.observer, "call_refused") == [(0, 0, "too_large", None)]


def test_calls_beyond_the_limit_are_not_dispatched():
    """Settled calls count, all choices count, and the first call too many is reported for all."""
    gateway = run(
        t(0, "a", "f", "{}"),
        c1(t(0, "b", "f", "{}")),
        t(1, "c", "f", "{}") + t(2, "d", "f"),
        TC,
        max_open_calls=2,
    )
    assert told(gateway.observer, "call_dispatched") == [(0, 0), (1, 0)]
    assert told(gateway.observer, "call_refused") == [(0, 1, "too_many", None)]
    assert len(told(gateway.observer, "warned")) == 1


def test_more_choices_than_anybody_asks_for_are_left_alone():
    """State does not grow with the numbers that an upstream makes up."""
    payload = chunk(tuple(part for index in range(MAX_CHOICES + 1) for part in on_choice(index, STOP)))
    gateway = run(payload, on_choice(MAX_CHOICES, t(0, "c", "f", "{}")), on_choice(0, t(0, "c", "f", "{}")))
    assert len(told(gateway.observer, "choice_finished")) == MAX_CHOICES
    assert told(gateway.observer, "call_dispatched") == [(0, 0)]


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(t(0, None, None, '"]'), id="dispatched"),
        pytest.param(t(0, None, None, '"]]'), id="refused"),
        pytest.param(t(0, "d"), id="conflict"),
    ],
)
def test_the_text_of_a_settled_call_is_let_go(last):
    """What stays until the stream ends is a few words, however long the arguments were."""
    gateway = run(t(0, "c", "f", '["'))
    piece = chunk(t(0, None, None, "x" * 50_000))
    tracemalloc.start()
    try:
        for _ in range(40):
            gateway.send(piece)
        assert tracemalloc.get_traced_memory()[0] > 1_900_000
        gateway.send(chunk(last))
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("option", [field.name for field in attrs.fields(ToolCallDispatchOptions)])
def test_a_limit_is_at_least_one(option):
    """Zero is no way to write "no limit"."""
    with pytest.raises(ValueError, match=option):
        ToolCallDispatchOptions(**{option: 0})


# --- replays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "is_warned"),
    [
        pytest.param(t(0, "c", "f", '{"k":1}'), False, id="replay"),
        pytest.param(t(0, "c", "f"), False, id="identity-again"),
        pytest.param(t(0, "", "", ""), False, id="nothing"),
        pytest.param(t(0, None, None, "\r\n"), False, id="blank"),
        pytest.param(t(0, "c", "f", "}"), True, id="last-fragment-again"),
        pytest.param(t(0, "c", "f", '{"k": 1}'), True, id="other-text"),
        pytest.param(t(0, "d"), True, id="other-id"),
        pytest.param(t(0, None, "g"), True, id="other-name"),
        pytest.param(t(0, type="custom"), True, id="other-type"),
    ],
)
def test_only_a_differing_continuation_is_warned_of(after, is_warned):
    """What repeats a dispatched call is silent; what contradicts or extends it is reported once."""
    gateway = run(t(0, "c", "f", '{"k":'), t(0, None, None, "1}"), after, after)
    assert len(told(gateway.observer, "warned")) == is_warned
    assert told(gateway.observer, "call_dispatched") == [(0, 0)]


# --- any cut ----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.builds(json.dumps, JSON, ensure_ascii=st.booleans())
NEARLY = DOCUMENTS | st.builds(
    lambda text, at, piece: text[:at] + piece + text[at:],
    DOCUMENTS,
    st.integers(0, 20),
    st.sampled_from('{}[]",\\ \n1'),
)


def cut(text, data):
    """The text in fragments of any size, empty ones among them."""
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def dispatched(fragments):
    """The arguments of the events that these fragments and a finish bring."""
    chunks = [chunk(t(0, "c", "f") + C("hm")), *(chunk(t(0, None, None, text)) for text in fragments), chunk(TC)]
    events = [event for seen in events_per_chunk(Gateway(), chunks) for event in seen]
    return [event["tool_call"]["function"]["arguments"] for event in events]


@given(DOCUMENTS, st.data())
def test_any_cut_of_a_document_gives_the_same_event(text, data):
    """Valid arguments are dispatched once, verbatim, however they are cut."""
    assert dispatched(cut(text, data)) == [text]


def is_strict_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(NEARLY, st.data())
def test_a_call_is_dispatched_if_and_only_if_it_is_valid(text, data):
    """At the first fragment that closes the root the text so far decides; without one, the whole text at the finish."""
    fragments = cut(text, data)
    scanner, so_far, expected = JsonScanner(), "", None
    for fragment in fragments:
        so_far += fragment
        verdict = scanner.feed(fragment)
        if verdict is not Verdict.INCOMPLETE:
            expected = [so_far] if verdict is Verdict.CLOSED and is_strict_json(so_far) else []
            break
    if expected is None:
        expected = [text] if not text or is_strict_json(text) else []
    assert dispatched(fragments) == expected
