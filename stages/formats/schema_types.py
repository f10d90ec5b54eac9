"""The types that a JSON schema allows for a parameter (spec, parsers, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

__all__ = ["ANY", "STRING", "types_of_parameter"]

ANY: Final = frozenset({"any"})
STRING: Final = frozenset({"string"})

_KNOWN: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_MAX_STEPS: Final = 8
"""How many references in a row are followed."""
_NO_SCHEMA: Final[Mapping[str, Any]] = MappingProxyType({})


def types_of_parameter(schema: Any, key: str) -> frozenset[str]:
    """The names of the types that the value of a parameter may have; ``any`` where the schema does not say.

    Args:
        schema: the tool's ``parameters``, of any shape.
        key: the parameter.
    """
    root = schema if isinstance(schema, dict) else {}
    whole = _followed(root, root)
    properties = whole.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    if key in properties:
        return _types(root, properties[key])
    others = whole.get("additionalProperties")
    if isinstance(others, dict):
        return _types(root, others)
    return STRING if properties else ANY


def _types(root: Mapping[str, Any], schema: Any) -> frozenset[str]:
    """The types of a schema; each one within it is looked at once, however they refer to each other."""
    found: set[str] = set()
    seen: set[int] = set()
    pending = [schema]
    while pending:
        part = _followed(root, pending.pop())
        if id(part) in seen:
            continue
        seen.add(id(part))
        named = part.get("type")
        branches = [branch for union in _UNIONS for branch in _list(part.get(union))]
        values = _list(part.get("enum"))
        if isinstance(named, (str, list)) and named:
            names = [named] if isinstance(named, str) else named
            found.update(name if isinstance(name, str) and name in _KNOWN else "any" for name in names)
        elif branches:
            pending += branches
        else:
            found.update(map(_type_of_value, values) if values else ANY)
    return frozenset(found) or ANY


def _followed(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """The schema behind local references."""
    for _ in range(_MAX_STEPS):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            break
        found: Any = root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        schema = found
    return schema if isinstance(schema, dict) else _NO_SCHEMA


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _type_of_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
