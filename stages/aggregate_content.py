"""The content of a response's message: text, or text and parts (spec, dispatch, 4.1.4)."""

from __future__ import annotations

import io
from typing import Any

from pipeline.items import Payload

__all__ = ["ContentAggregate"]


class ContentAggregate:
    """Text and parts in the order in which they came; neighbouring text is one, and so is neighbouring thinking.

    Args:
        is_inner: it is the content of a part; what is nested further is kept as it comes.
    """

    def __init__(self, *, is_inner: bool = False) -> None:
        self._is_inner = is_inner
        self._runs: list[Any] = []
        self._text: io.StringIO | None = None
        self.has_parts = False
        """Whether anything but text came."""

    def add(self, value: Any) -> None:
        """Add a delta's ``content``: text, or a list of parts of which those of type ``text`` are text too."""
        if type(value) is str and self._text is not None:
            self._text.write(value)
        elif value is not None:
            for part in value if isinstance(value, list) else [value]:
                self._add_part(part)

    def value(self) -> Any:
        """A text where there was nothing but text, null where there was none, else a list of parts."""
        return self.parts() if self.has_parts else "".join(run.getvalue() for run in self._runs) or None

    def parts(self) -> list[Any]:
        """All of it as parts."""
        parts = []
        for run in self._runs:
            if isinstance(run, _Thinking):
                parts.append(run.part())
            elif not isinstance(run, io.StringIO):
                parts.append(run)
            elif text := run.getvalue():
                parts.append({"type": "text", "text": text})
        return parts

    def _add_part(self, part: Any) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if kind == "text" and part.keys() == {"type", "text"} else part
        if isinstance(text, str):
            if self._text is None:
                self._text = io.StringIO()
                self._runs.append(self._text)
            self._text.write(text)
            return
        self.has_parts = True
        self._text = None
        if kind == "thinking" and isinstance(part.get("thinking"), list) and not self._is_inner:
            if not self._runs or not isinstance(self._runs[-1], _Thinking):
                self._runs.append(_Thinking())
            self._runs[-1].add(part)
        else:
            self._runs.append(part)


class _Thinking:
    """Mistral's reasoning: each chunk has a part of type ``thinking``, which has parts of its own."""

    def __init__(self) -> None:
        self._others: Payload = {}
        self._content = ContentAggregate(is_inner=True)

    def add(self, part: Payload) -> None:
        self._others.update(part)
        for piece in part["thinking"]:
            self._content.add(piece)

    def part(self) -> Payload:
        return {**self._others, "thinking": self._content.parts()}
