"""A stage's options, from a config to its attrs class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args, get_origin

import attrs
import cattrs

from pipeline.class_registry import nearest
from pipeline.errors import PlanError
from pipeline.stage import Stage

__all__ = ["read_options"]

_LISTS: Final = (list, tuple, set, frozenset)


def read_options(name: str, stage: type[Stage], given: Mapping[str, Any]) -> Any:
    """The options of a stage from what a config has under ``[stages.NAME]``.

    Nothing is converted that a config did not mean: ``true`` is no number, ``"80"`` neither, ``"ab"`` no list.

    Args:
        name: the stage's name, for errors.
        stage: its class.
        given: the table; what is absent has its default.

    Raises:
        PlanError: an option is unknown, of the wrong type, or refused by a validator. One line, with the config key.
    """
    fields = attrs.fields_dict(attrs.resolve_types(stage.Options))
    values = {}
    for key, value in given.items():
        path = f"stages.{name}.{key}"
        if key not in fields:
            allowed = nearest(key, fields) or f"; it has {', '.join(fields) or 'none'}"
            raise PlanError(path, f"is no option of this stage{allowed}")
        try:
            values[key] = _read(value, fields[key].type)
        except Exception as error:
            raise PlanError(path, _reason(error)) from error
    try:
        return stage.Options(**values)
    except Exception as error:
        raise PlanError(f"stages.{name}", _reason(error)) from error


def _read(value: Any, wanted: Any) -> Any:
    if (get_origin(wanted) or wanted) in _LISTS and not isinstance(value, (list, tuple)):
        raise ValueError(f"is {value!r}, of type {type(value).__name__}; it must be a list")
    return _CONVERTER.structure(value, Any if wanted is None else wanted)


def _read_simple(value: Any, wanted: type) -> Any:
    allowed = (int, float) if wanted is float else (wanted,)
    if type(value) not in allowed:
        raise ValueError(f"is {value!r}, of type {type(value).__name__}; it must be of type {wanted.__name__}")
    return wanted(value)


def _is_literal(wanted: Any) -> bool:
    return get_origin(wanted) is Literal


def _read_literal(value: Any, wanted: Any) -> Any:
    allowed = get_args(wanted)
    if value not in allowed:
        near = nearest(value, map(str, allowed)) if isinstance(value, str) else ""
        raise ValueError(f"is {value!r}; it must be {' or '.join(map(repr, allowed))}{near}")
    return value


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):  # cattrs, inside of a list or a nested class
        error = error.exceptions[0]
    # attrs puts more than the message into the arguments of what its validators raise.
    return str(error.args[0] if error.args else type(error).__name__).partition("\n")[0]


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (str, int, float, bool):
        converter.register_structure_hook(kind, _read_simple)
    converter.register_structure_hook_func(_is_literal, _read_literal)
    return converter


_CONVERTER: Final = _make_converter()
