"""The formats of thoughts (spec, parsers, 7)."""

from __future__ import annotations

from typing import Final

from stages.formats.format import Format, MarkedThoughts
from stages.formats.thought_reader import ThoughtMarkup

__all__ = ["THOUGHT_FORMATS"]

_THINK: Final = ThoughtMarkup(("<think>",), ("</think>",))

THOUGHT_FORMATS: Final[tuple[Format, ...]] = (
    MarkedThoughts(
        names=("basic", "qwen3", "glm45", "glm47", "nemotron_deci", "deepseek_v4"),
        markup=_THINK,
    ),
    MarkedThoughts(
        names=(
            "deepseek_r1",
            "qwen3_thinking",
            "minimax_m2",
            "minimax",
            "kimi_k25",
            "nemotron_nano",
            "nemotron3",
            "nemotron_v3",
            "step3",
        ),
        markup=_THINK,
        is_inside=True,
    ),
    MarkedThoughts(
        names=("deepseek_v3_1", "deepseek_v3_2", "deepseek_v3"),
        markup=_THINK,
        switch="thinking",
    ),
    MarkedThoughts(
        names=("mistral",),
        hides_tokens=True,
        markup=ThoughtMarkup(("[THINK]",), ("[/THINK]",), counts_anywhere=True),
    ),
    MarkedThoughts(
        names=("kimi",),
        markup=ThoughtMarkup(("◁think▷",), ("◁/think▷",), counts_anywhere=True),
    ),
    MarkedThoughts(
        names=("gemma4",),
        hides_tokens=True,
        markup=ThoughtMarkup(("<|channel>thought\n",), ("<channel|>",), counts_anywhere=True),
    ),
    MarkedThoughts(
        names=("granite",),
        markup=ThoughtMarkup(
            ("Here is my thought process:", "Here's my thought process:"),
            ("Here is my response:", "Here's my response:"),
        ),
    ),
)
