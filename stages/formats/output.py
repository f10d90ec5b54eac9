"""What readers make of the text of one choice, until the stage takes it for a chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from pipeline.items import Evidence, Payload
from stages.formats.call_ids import CallIds

__all__ = ["Call", "Output", "Taken"]


@attrs.frozen
class Taken:
    """What a chunk is given."""

    texts: Mapping[str, str]
    """For a key of the delta its text, in the order in which the model wrote them."""
    fragments: list[Payload]
    """Of ``tool_calls``, at most one a call."""
    evidence: tuple[Evidence, ...]


@attrs.define(eq=False)
class _Fragment:
    head: Payload
    """The fragment but for its arguments."""
    function: Payload
    arguments: list[str] = attrs.field(factory=list)


class Output:
    """Collects the text and the fragments of calls of one choice; what belongs together is joined once.

    Args:
        choice_index: the choice's.
        ids: gives each call its id.
    """

    def __init__(self, choice_index: int, ids: CallIds) -> None:
        self._choice_index = choice_index
        self._ids = ids
        self._texts: dict[str, list[str]] = {}
        self._fragments: dict[int, _Fragment] = {}
        self._evidence: list[Evidence] = []
        self.opened = 0
        """How many calls there are so far."""
        self.closed = 0
        """How many of them are whole."""

    def say(self, key: str, text: str) -> None:
        """Give text to a key of the delta."""
        if text:
            self._texts.setdefault(key, []).append(text)

    def open_call(self, name: str, own_id: str | None = None) -> Call:
        """Begin a call: its opener is certain to go out.

        Args:
            name: the function's.
            own_id: the id that the model wrote, if it wrote one.
        """
        index = self.opened
        self.opened += 1
        head: dict[str, Any] = {"index": index, "id": self._ids.give(index, own_id), "type": "function"}
        self._fragments[index] = _Fragment(head, {"name": name})
        self._evidence.append(Evidence(self._choice_index, index, complete=False))
        return Call(self, index)

    def write(self, index: int, text: str) -> None:
        """Add text to a call's arguments."""
        if text:
            if index not in self._fragments:
                self._fragments[index] = _Fragment({"index": index}, {})
            self._fragments[index].arguments.append(text)

    def close_call(self, index: int) -> None:
        """End a call: its arguments are whole."""
        self.closed += 1
        self._evidence.append(Evidence(self._choice_index, index, complete=True))

    def take(self) -> Taken:
        """All that came since it was last taken."""
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        fragments = [
            {**fragment.head, "function": {**fragment.function, "arguments": "".join(fragment.arguments)}}
            for fragment in self._fragments.values()
        ]
        taken = Taken(texts, fragments, tuple(self._evidence))
        self._texts.clear()
        self._fragments.clear()
        self._evidence.clear()
        return taken


@attrs.define(eq=False)
class Call:
    """A call whose opener has gone out."""

    _output: Output
    _index: int

    def write(self, text: str) -> None:
        """Add text to the arguments."""
        self._output.write(self._index, text)

    def close(self) -> None:
        """The arguments are whole."""
        self._output.close_call(self._index)
