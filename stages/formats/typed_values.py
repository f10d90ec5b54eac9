"""Text to JSON, by the types that a schema allows (spec, parsers, 4)."""

from __future__ import annotations

import re
from typing import Final

from stages.formats.cursor import BLANK
from stages.formats.escapes import quoted
from stages.formats.literals import PYTHON, converted
from stages.formats.schema_types import STRING
from stages.json_syntax import is_json

__all__ = ["typed_value"]

_NUMBER: Final = re.compile(r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+")


def typed_value(text: str, types: frozenset[str]) -> str:
    """The JSON of a parameter's value. What fits none of its types becomes a string: nothing is lost or guessed.

    Args:
        text: the value as the model wrote it.
        types: those that its schema allows.
    """
    if types == STRING:
        return quoted(text)
    bare = text.strip(BLANK)
    return _read_exactly(bare, types) or quoted(text)


def _read_exactly(bare: str, types: frozenset[str]) -> str | None:
    is_any = "any" in types
    if ("null" in types or "string" not in types) and bare.lower() in ("null", "none"):
        return "null"
    if (is_any or "integer" in types or "number" in types) and _NUMBER.fullmatch(bare):
        return bare
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    if is_any and bare in ("true", "false", "True", "False"):
        return bare.lower()
    if (bare.startswith("{") and (is_any or "object" in types)) or (
        bare.startswith("[") and (is_any or "array" in types)
    ):
        return bare if is_json(bare) else converted(bare, PYTHON)
    return None
