"""``[models]`` and the formats of parsers: what a config comes to, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.registry import StageRegistry
from server.config import load_config
from server.errors import ConfigError
from server.model_plans import ModelPlans

PATTERNS = """
[pipeline]
reasoning_parser = "qwen3"
repairs = "tool_call_id"
[models]
"Qwen3-Coder-*" = { tool_call_parser = "qwen3_coder" }
"Qwen3-?B" = { tool_call_parser = "hermes", reasoning_parser = "qwen3_thinking", repairs = [] }
"gpt-oss-[0-9]*" = { repairs = "tool_call_index", stages = ["role_dedup", "sse_encoder"] }
"Qwen3-*" = { reasoning_parser = "basic" }
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes ``gateway.toml`` into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write_text(text):
        Path("gateway.toml").write_text(text, "utf-8")
        return Path("gateway.toml")

    return write_text


def plans_of(path, flags=None) -> ModelPlans:
    return load_config(path, {}, flags or {}).plans(StageRegistry())


def shape(plan) -> list[str]:
    """The stages of a plan up to the first that is always there, parsers with their format."""
    names = [f"{step.name}:{step.options.format}" if "parser" in step.name else step.name for step in plan.steps]
    return names[: names.index("role_dedup")]


@pytest.mark.parametrize(
    ("model", "pattern", "expected"),
    [
        (
            "Qwen3-Coder-30B",
            "Qwen3-Coder-*",
            ["reasoning_parser:qwen3", "tool_call_parser:qwen3_coder", "tool_call_id", "parallel_call_filter"],
        ),
        (
            "Qwen3-8B",
            "Qwen3-?B",
            ["reasoning_parser:qwen3_thinking", "tool_call_parser:hermes", "parallel_call_filter"],
        ),
        ("Qwen3-32B", "Qwen3-*", ["reasoning_parser:basic", "tool_call_id", "parallel_call_filter"]),
        ("gpt-oss-120b", "gpt-oss-[0-9]*", ["reasoning_parser:qwen3", "tool_call_index"]),
        ("qwen3-8B", None, ["reasoning_parser:qwen3", "tool_call_id", "parallel_call_filter"]),
        (None, None, ["reasoning_parser:qwen3", "tool_call_id", "parallel_call_filter"]),
    ],
)
def test_the_first_pattern_that_matches_counts(write, model, pattern, expected):
    """What a pattern does not say is as in `[pipeline]`; parsers come first, then repairs; case counts."""
    plans = plans_of(write(PATTERNS))
    assert plans.pattern_of(model) == pattern
    assert shape(plans.for_model(model)) == expected


def test_a_flag_is_the_default_of_patterns(write):
    """`--tool-call-parser` sets `pipeline.tool_call_parser`: patterns that name another format keep theirs."""
    plans = plans_of(write(PATTERNS), {"tool_call_parser": "mistral"})
    assert "tool_call_parser:mistral" in shape(plans.default)
    assert "tool_call_parser:mistral" in shape(plans.for_model("Qwen3-32B"))
    assert "tool_call_parser:qwen3_coder" in shape(plans.for_model("Qwen3-Coder-30B"))


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        (
            '[pipeline]\ntool_call_parser = "qwen3_codr"',
            'stages.tool_call_parser: there is no tool-call format "qwen3_codr"; did you mean "qwen3_coder"?; there are: hermes,',
            "default",
        ),
        (
            '[models]\n"a*" = { reasoning_parser = "hermes" }',
            'models."a*": stages.reasoning_parser: there is no reasoning format "hermes"; there are: ',
            "granite",
        ),
        (
            '[models]\n"a*" = { tool_parser = "hermes" }',
            'models."a*".tool_parser: is no key of [models."a*"]; did you mean "tool_call_parser"?',
            "",
        ),
        ('[models]\n"a*" = "hermes"', 'models."a*": is "hermes"; it must be a table', ""),
        ('models = "hermes"', 'models: is "hermes"; it must be a table, [models]', ""),
        ('[models]\n"a*" = { tool_call_parser = 5 }', 'models."a*".tool_call_parser: is 5; it must be', "string"),
        ("[models]\na = { repairs = 5 }", "models.a.repairs: is 5; it must be", ""),
        (
            '[models]\na = { stages = ["tool_call_dispatch"] }',
            'models.a: pipeline.stages[0]: the last stage "tool_call_dispatch" gives items;',
            '"sse_encoder" last',
        ),
        ('[models]\na = { repairs = ["tool_call_idd"] }', "", 'there is no repair "tool_call_idd"'),
    ],
)
def test_a_mistake_is_one_line(write, text, start, end):
    """Each names the file, the pattern and the key, what was found, and what is right."""
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        plans_of(path)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"gateway.toml: {start}")
    assert end in line


def test_each_mistake_has_its_line(write):
    """Faults of several patterns are told at once."""
    path = write('[models]\na = { x = 1, tool_call_parser = "" }\nb = 2')
    with pytest.raises(ConfigError) as caught:
        load_config(path, {}, {})
    assert len(str(caught.value).splitlines()) == 3
