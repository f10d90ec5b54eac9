"""Redaction by JSON path: what the paths select is replaced before a record is encoded.

The paths are a part of RFC 9535: members (``.name``, ``['name']``), wildcards (``.*``, ``[*]``), list positions
(``[0]``) and descent (``..name``). They start at ``$``, an object with ``request``, ``response`` and ``headers``; any
other first name is looked for in the request, so ``$.messages[*].content`` is ``$.request.messages[*].content``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

__all__ = ["REDACTED", "Redaction"]

REDACTED: Final = "[redacted]"
"""What stands in the place of a redacted value, whatever its type was."""

_ROOTS: Final = frozenset({"request", "response", "headers"})
_STEP: Final = re.compile(
    r"""(?P<deep>\.\.) (?: (?P<deep_name>[^.\[\]\s'"*]+ | \*) | (?=\[) )
      | \. (?P<name>[^.\[\]\s'"*]+ | \*)
      | \[ (?P<inside>\* | \d{1,9} | '[^']*' | "[^"]*") \]""",
    re.VERBOSE,
)


@attrs.frozen
class _Step:
    """One step of a path."""

    key: str | int | None
    """A member's name, a position in a list, or none for all there are."""
    deep: bool = False
    """Whether it is looked for at any depth."""

    def keys(self, node: Any) -> Iterable[Any]:
        """The keys of a node that the step selects."""
        if isinstance(node, dict):
            return list(node) if self.key is None else [self.key] if self.key in node else ()
        if self.key is None:
            return range(len(node))
        return [self.key] if isinstance(self.key, int) and self.key < len(node) else ()


class Redaction:
    """Some paths, compiled once.

    Args:
        paths: as the module describes them; their order does not matter.

    Raises:
        ValueError: a path cannot be read. One line that starts with the path's place, ``[0]: ...``.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths: Final = [_compiled(path, place) for place, path in enumerate(paths)]

    def __bool__(self) -> bool:
        return bool(self._paths)

    def apply(self, root: dict[str, Any]) -> None:
        """Replace what the paths select, in place.

        Args:
            root: an object with ``request``, ``response`` and ``headers``, as far as they are there.
        """
        for path in self._paths:
            nodes: list[Any] = [root]
            for step in path[:-1]:
                reached = [node[key] for node in _searched(nodes, step) for key in step.keys(node)]
                nodes = [node for node in reached if isinstance(node, (dict, list))]
            for node in _searched(nodes, path[-1]):
                for key in path[-1].keys(node):
                    node[key] = REDACTED


def _compiled(path: str, place: int) -> tuple[_Step, ...]:
    text = path.removeprefix("$")
    steps: list[_Step] = []
    position, deep = 0, False
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            break
        position = found.end()
        if found["deep"] and not found["deep_name"]:
            deep = True  # it belongs to the bracket that follows
            continue
        steps.append(_Step(_key(found), deep or bool(found["deep"])))
        deep = False
    if position < len(text) or not steps:
        where = len(path) - len(text) + position + 1
        raise ValueError(
            f'[{place}]: "{path}" cannot be read at character {where}; it must be a path '
            f"such as $.messages[*].content, $.response.choices[*].message.content or $..arguments"
        )
    if not steps[0].deep and isinstance(steps[0].key, str) and steps[0].key not in _ROOTS:
        steps.insert(0, _Step("request"))
    return tuple(steps)


def _key(found: re.Match[str]) -> str | int | None:
    text = found["deep_name"] or found["name"] or found["inside"]
    if text == "*":
        return None
    if found["inside"]:
        return int(text) if text.isdigit() else text[1:-1]
    return text


def _searched(nodes: list[Any], step: _Step) -> Iterable[Any]:
    """The nodes in which a step is looked for, each once.

    Without recursion, since a request may be nested deeper than the interpreter's stack.
    """
    if not step.deep:
        return nodes
    found: dict[int, Any] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if id(node) not in found:
            found[id(node)] = node
            children = node.values() if isinstance(node, dict) else node
            pending += [child for child in children if isinstance(child, (dict, list))]
    return found.values()
