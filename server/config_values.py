"""One value of a config: its type, its rule, and the one line that says what is wrong with it.

Nothing is converted that a config did not mean: ``true`` is no number, ``"8080"`` no port. Only an
integer will do for any number.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from pipeline.class_registry import nearest

__all__ = ["KeyPath", "Rule", "dotted", "problems", "shown", "structure"]

KeyPath: TypeAlias = tuple[str, ...]
"""Where a value stands: ``("upstream", "idle_timeout")``."""

_LONGEST_SHOWN: Final = 80
_FILES: Final = tuple[Path, ...]
_NAMES: Final = tuple[str, ...]


@attrs.frozen
class Rule:
    """What a value must be beyond its type; the annotation of a settings class's attribute."""

    wanted: str
    """A clause for the error: ``it must be ...``."""
    holds: Callable[[Any], bool]


def structure(table: Mapping[str, Any], cls: type[Any]) -> Any:
    """Make an attrs class from a TOML table.

    Raises:
        ClassValidationError: some values are wrong; ``problems`` says which.
    """
    return _CONVERTER.structure(table, cls)


def problems(error: ClassValidationError, path: KeyPath, cls: type[Any]) -> Iterator[tuple[KeyPath, str]]:
    """Each fault that ``structure`` found: the key's path and what is wrong with it."""
    found, others = error.group_exceptions()
    for each, note in found:
        yield (*path, note.name), str(each)
    for other in others:
        if not isinstance(other, ForbiddenExtraKeysError):
            yield path, str(other)
            continue
        known = [field.name for field in attrs.fields(cls)]
        for key in sorted(other.extra_fields):
            near = nearest(key, known) or f"; it has {', '.join(known)}"
            yield (*path, key), f"is no key of [{dotted(path)}]{near}"


def dotted(path: KeyPath) -> str:
    """The path as TOML writes it; names that TOML would quote are quoted."""
    return ".".join(part if part.replace("_", "").replace("-", "").isalnum() else json.dumps(part) for part in path)


def shown(value: Any) -> str:
    """A value of a config in an error: as TOML would have it, on one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _integer(value: Any, wanted: str = "it must be an integer") -> int:
    if type(value) is not int:
        raise ValueError(f"is {shown(value)}; {wanted}")
    return value


def _number(value: Any, wanted: str = "it must be a number") -> float:
    try:
        if type(value) in (int, float) and math.isfinite(number := float(value)):
            return number
    except OverflowError:
        pass
    raise ValueError(f"is {shown(value)}; {wanted}")


def _boolean(value: Any, wanted: str = "it must be true or false") -> bool:
    if type(value) is not bool:
        raise ValueError(f"is {shown(value)}; {wanted}")
    return value


def _text(value: Any, wanted: str = "it must be a non-empty string") -> str:
    if type(value) is not str or not value or not value.isprintable():
        raise ValueError(f"is {shown(value)}; {wanted}")
    return value


_SIMPLE: Final[Mapping[Any, Callable[..., Any]]] = {int: _integer, float: _number, bool: _boolean, str: _text}


def _ruled(value: Any, annotated: Any) -> Any:
    base, rule = get_args(annotated)
    found = _SIMPLE[base](value, rule.wanted)
    if not rule.holds(found):
        raise ValueError(f"is {shown(value)}; {rule.wanted}")
    return found


def _choice(value: Any, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return str(value)
    *most, last = (json.dumps(each) for each in allowed)
    near = nearest(value, allowed) if isinstance(value, str) else ""
    raise ValueError(f"is {shown(value)}; it must be {', '.join(most)} or {last}{near}")


def _literal(value: Any, kind: Any) -> str:
    return _choice(value, get_args(kind))


def _member(value: Any, cls: type[enum.Enum]) -> enum.Enum:
    return cls(_choice(value, tuple(each.value for each in cls)))


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(type(each) is str and each for each in value):
        raise ValueError(f"is {shown(value)}; it must be a list of non-empty strings")
    return tuple(value)


def _paths(value: Any) -> tuple[Path, ...]:
    many = [value] if type(value) is str else value
    if not isinstance(many, (list, tuple)) or not many or not all(type(each) is str and each for each in many):
        raise ValueError(f"is {shown(value)}; it must be a path or a list of paths")
    return tuple(Path(each) for each in many)


def _path(value: Any) -> Path:
    return Path(_text(value, "it must be a path"))


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, read in _SIMPLE.items():
        converter.register_structure_hook(kind, _ignoring_type(read))
    converter.register_structure_hook(Path, _ignoring_type(_path))
    converter.register_structure_hook_func(lambda kind: kind == _FILES, _ignoring_type(_paths))
    converter.register_structure_hook_func(lambda kind: kind == _NAMES, _ignoring_type(_names))
    converter.register_structure_hook_func(_is_annotated, _ruled)
    converter.register_structure_hook_func(_is_literal, _literal)
    converter.register_structure_hook_func(_is_enum, _member)
    return converter


def _ignoring_type(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


_CONVERTER: Final = _make_converter()
