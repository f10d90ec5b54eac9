"""Recorded streams that come with the package, so that the feature can be seen without an inference server.

Their content is invented. ``two-parallel-calls`` is what a model of vLLM sends that thinks, says a sentence and calls
two tools; ``text-only`` is a plain answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["BUNDLED_TOKENS_PER_SECOND", "bundled_recordings"]

BUNDLED_TOKENS_PER_SECOND: Final = 40.0
"""A pace at which a reader can follow, and usual for a model of middle size."""


def bundled_recordings() -> tuple[Path, ...]:
    """The files, the one with tool calls first: a model name that no recording has gets it."""
    folder = Path(__file__).parent
    return tuple(folder / f"{name}.sse" for name in ("two-parallel-calls", "text-only"))
