"""Formats are found by the names that people know, built in or installed by others."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from parsing import cases

from pipeline.errors import RegistryError
from stages.formats import registry
from stages.formats.declarations import FORMATS
from stages.formats.format import CallFormat, MarkedCalls, MarkedThoughts, ReasoningFormat
from stages.formats.json_body import JsonBody
from stages.formats.registry import find_call_format, find_reasoning_format, format_names
from stages.formats.thought_reader import ThoughtMarkup

ACME = MarkedCalls(names=("acme",), bodies=(JsonBody(("<acme>",)),))
ACME_THOUGHTS = MarkedThoughts(names=("acme",), markup=ThoughtMarkup(("<hm>",), ("</hm>",)))
BOTH = [ACME, ACME_THOUGHTS]


@pytest.fixture
def installed(monkeypatch):
    """Other packages' formats."""
    points = [
        EntryPoint("acme", "test_format_registry:ACME", registry.ENTRY_POINT_GROUP),
        EntryPoint("acme-2", "test_format_registry:BOTH", registry.ENTRY_POINT_GROUP),
        EntryPoint("broken", "test_format_registry_none:X", registry.ENTRY_POINT_GROUP),
        EntryPoint("hermes", "test_format_registry:ACME", registry.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "callahead.formats" else [])


@pytest.mark.parametrize("kind", [CallFormat, ReasoningFormat])
def test_no_name_means_two_formats(kind):
    """A name leads to one format of each kind."""
    names = [name for each in FORMATS if isinstance(each, kind) for name in each.names]
    assert len(names) == len({name.replace("_", "") for name in names})


@pytest.mark.parametrize("found", FORMATS, ids=lambda found: found.names[0])
def test_every_format_has_vectors(found):
    """A declaration is not complete without texts and their right parse."""
    key = "tool_call_parser" if isinstance(found, CallFormat) else "reasoning_parser"
    assert any(case["format"].get(key) in found.names for case in cases().values())


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("qwen25", "hermes"),
        ("nemotron_nano", "qwen3_coder"),
        ("glm45", "glm47"),
        ("deepseek-v4", "deepseek_v4"),
        ("deepseekv31", "deepseek_v3_1"),
        ("MiniMax-M2", "minimax_m2"),
        ("gemma-4", "gemma4"),
        ("openai", "harmony"),
        ("gpt-oss", "harmony"),
    ],
)
def test_aliases(name, own):
    """The names that other servers use lead to the same formats."""
    assert find_call_format(name).names[0] == own


def test_harmony_is_of_both_kinds():
    """Either stage reads harmony with the same declaration."""
    assert find_call_format("harmony") is find_reasoning_format("gpt_oss")


def test_an_unknown_name():
    """The error has the nearest right name of that kind, and all there are."""
    with pytest.raises(RegistryError) as error:
        find_reasoning_format("deepsek_r1")
    said = 'there is no reasoning format "deepsek_r1"; did you mean "deepseek_r1"?; there are: harmony, basic, '
    assert str(error.value).startswith(said)


def test_formats_of_others(installed):
    """An entry point adds a format of one kind or of both; it cannot take a built-in name away."""
    assert find_call_format("acme") is ACME
    assert find_call_format("acme_2") is ACME
    assert find_reasoning_format("acme-2") is ACME_THOUGHTS
    assert find_call_format("hermes") is not ACME
    assert "acme" in format_names(CallFormat)


def test_broken_formats_of_others(installed):
    """What cannot be imported, or is no format of the kind that was asked for, is one clear line."""
    with pytest.raises(RegistryError, match=r'format "broken" \(.*\) cannot be imported: ModuleNotFoundError'):
        find_call_format("broken")
    with pytest.raises(RegistryError, match=r'format "acme" \(.*\) is .*, which is no ReasoningFormat'):
        find_reasoning_format("acme")
