"""The incremental scanner: rows S1 to S12 (spec, dispatch, 3.10), any cut, and a cost that is linear."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.json_scanner import JsonScanner, Verdict

INCOMPLETE, CLOSED, MALFORMED = Verdict.INCOMPLETE, Verdict.CLOSED, Verdict.MALFORMED

ROWS = [
    ("S1", ['{"a":1}'], CLOSED),
    ("S2", ["[", "1,2", "]"], CLOSED),
    ("S3", ['{"a":"}', '" }'], CLOSED),
    ("S4", ['{"a":"x\\', '"y"}'], CLOSED),
    ("S5", ["{}", "  \n"], CLOSED),
    ("S6", ['{"a":1'], INCOMPLETE),
    ("S7", ["1"], INCOMPLETE),
    ("S8", ["1", "2"], INCOMPLETE),
    ("S9", ["{}oops"], MALFORMED),
    ("S10", ['}{"x":1}'], MALFORMED),
    ("S11", ["{}", "{}"], MALFORMED),
    ("S12", ["{}", "\f"], MALFORMED),
    ("nothing", [""], INCOMPLETE),
    ("blank", [" \t\r\n"], INCOMPLETE),
    ("blank-first", [" \n", "", "[]"], CLOSED),
    ("closed-stays-closed", ["[]", "", ""], CLOSED),
    ("malformed-stays", ["]", "[]"], MALFORMED),
    ("scalar-for-good", ['"a"', "[]", "]"], INCOMPLETE),
    ("kinds-do-not-match", ["[1}"], CLOSED),
    ("nbsp-is-no-blank", ["{}\u00a0"], MALFORMED),
    ("bom-is-a-scalar", ["\ufeff{}"], INCOMPLETE),
    ("escape-cut-twice", ['["\\', "", '"', '"]'], CLOSED),
    ("escaped-backslash", ['["\\\\"]'], CLOSED),
    ("escaped-backslash-cut", ['["\\', '\\"]'], CLOSED),
    ("plain-after-escape", ['["\\', "nab", '"]'], CLOSED),
    ("newline-after-escape", ['["\\', "\n", '"]'], CLOSED),
]


@pytest.mark.parametrize(("fragments", "verdict"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(fragments, verdict):
    """The verdict after the last fragment is the table's."""
    scanner = JsonScanner()
    assert [scanner.feed(fragment) for fragment in fragments][-1] is verdict


@pytest.mark.parametrize(("fragments", "verdict"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row_character_by_character(fragments, verdict):
    """The same text in the smallest fragments ends in the same verdict."""
    scanner = JsonScanner()
    assert [scanner.feed(character) for character in ["", *"".join(fragments)]][-1] is verdict


class Model:
    """The scanner of the spec, one character at a time."""

    def __init__(self):
        self.depth, self.in_string, self.escaped = 0, False, False
        self.state = "before"

    def take(self, character):
        """Step."""
        blank = character in " \t\n\r"
        if self.state == "closed" and not blank:
            self.state = "malformed"
        elif self.state == "before" and not blank:
            self.state = "inside" if character in "{[" else "malformed" if character in "}]" else "scalar"
            self.depth = 1
        elif self.state == "inside" and self.in_string:
            if self.escaped:
                self.escaped = False
            elif character == "\\":
                self.escaped = True
            elif character == '"':
                self.in_string = False
        elif self.state == "inside":
            self.in_string = character == '"'
            self.depth += (character in "{[") - (character in "}]")
            self.state = "inside" if self.depth else "closed"

    @property
    def verdict(self):
        """What is known so far."""
        return {"closed": CLOSED, "malformed": MALFORMED}.get(self.state, INCOMPLETE)


@given(st.lists(st.text('{}[]"\\ \n\fa1é', max_size=8), max_size=12))
@example(['{"a":"\\', '"', '"}'])
def test_it_agrees_with_a_model_on_any_fragments(fragments):
    """After every fragment the verdict is that of a machine that reads character by character."""
    scanner, model = JsonScanner(), Model()
    for fragment in fragments:
        for character in fragment:
            model.take(character)
        assert scanner.feed(fragment) is model.verdict
        assert scanner.is_open == (model.state == "inside")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON.filter(lambda value: isinstance(value, (dict, list))), st.booleans(), st.data())
def test_a_document_closes_at_its_last_character_and_not_before(value, ascii_only, data):
    """However a document is cut, only the fragment with its last bracket reports that it is closed."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    fragments = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    scanner = JsonScanner()
    read = 0
    for fragment in fragments:
        verdict = scanner.feed(fragment)
        read += len(fragment)
        assert verdict is (CLOSED if read == len(text) else INCOMPLETE)


def seconds_per_character(text, size):
    fragments = [text[position : position + size] for position in range(0, len(text), size)]
    best = float("inf")
    for _ in range(3):
        scanner = JsonScanner()
        start = time.perf_counter()
        for fragment in fragments:
            scanner.feed(fragment)
        best = min(best, time.perf_counter() - start)
    return best / len(text)


@pytest.mark.parametrize("size", [64, 4096, 10**7])
@pytest.mark.parametrize(
    "unit",
    [
        pytest.param('{"name":"Ada \\"L\\"","tags":["a","b"],"n":-1.5},', id="ordinary"),
        pytest.param("lorem ipsum ", id="one-long-string"),
        pytest.param("\\\\", id="backslashes"),
        pytest.param("[", id="brackets"),
    ],
)
def test_the_cost_is_linear(unit, size):
    """A long text costs per character what a short one does."""
    opening = "[" if unit.startswith("{") else '["'
    short, long = (opening + unit * (length // len(unit)) for length in (20_000, 1_000_000))
    assert seconds_per_character(long, size) < 8 * seconds_per_character(short, size) + 1e-8
