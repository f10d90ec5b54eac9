"""One call and its id, and whether it is another call sent again (spec, repairs, 8)."""

from __future__ import annotations

import json
from typing import Any

import attrs

from pipeline.items import Payload
from stages.call_entry import entry_text, with_arguments
from stages.call_text import KeptText, TextScanner, TextState, trimmed
from stages.json_syntax import is_json
from stages.merge_values import merge_piece, settled

__all__ = ["IdentifiedCall"]


@attrs.define(eq=False)
class IdentifiedCall:
    """What is known of one call of a choice."""

    id: str = ""
    """What the client knows it by; empty until it has one."""
    is_made_up: bool = False
    name: str = ""
    is_custom: bool = False
    scanner: TextScanner = attrs.field(factory=TextScanner)
    text: KeptText = attrs.field(factory=KeptText)
    owner: IdentifiedCall | None = None
    """The call that had the id first."""
    held: list[Payload] | None = None
    """Its entries, as long as it may be a repeat."""
    is_repeat: bool = False

    @property
    def is_done(self) -> bool:
        """Whether its text is complete, or beyond help; that of a free-form call always is."""
        return self.is_custom or self.scanner.is_done

    def add(self, name: str, text: str, *, is_custom: bool) -> None:
        """Note what an entry says."""
        self.name = self.name or name
        self.is_custom = self.is_custom or is_custom
        self.scanner.feed(text)
        self.text.add(text)

    def may_be_repeated_by(self, name: str, *, is_custom: bool) -> bool:
        """Whether a call that opens with this one's id, and with this name if any, may be this one again (ID9)."""
        if is_custom or self.is_custom or (name and self.name and name != self.name):
            return False
        return self.scanner.state in (TextState.BLANK, TextState.CLOSED)

    def hold(self, owner: IdentifiedCall) -> None:
        """Keep its entries back: it may be another call again."""
        self.owner, self.held = owner, []

    @property
    def may_still_be_repeat(self) -> bool:
        """Whether nothing that came so far decides it."""
        return not self.is_done and not self.text.is_lost and self._may_have_name_of_owner

    @property
    def _may_have_name_of_owner(self) -> bool:
        owner = self.owner
        return owner is None or not owner.name or self.name in ("", owner.name)

    @property
    def repeats_its_owner(self) -> bool:
        """Whether id, name and arguments are those of the call that had the id first."""
        owner = self.owner
        if owner is None or not self.name or self.name != owner.name:
            return False
        if self.scanner.state is not TextState.CLOSED or owner.scanner.state is not TextState.CLOSED:
            return False
        return not owner.text.is_lost and _are_equal(self.text.value, owner.text.value)

    @property
    def repeats_its_blank_owner(self) -> bool:
        """The same of calls that have no arguments."""
        owner = self.owner
        if owner is None or not self.name or self.name != owner.name or owner.is_custom:
            return False
        return self.scanner.state is TextState.BLANK and owner.scanner.state is TextState.BLANK

    def take_held(self) -> Payload:
        """One entry that says what all that were held said."""
        held, self.held = self.held or [], None
        if len(held) == 1:
            return held[0]
        pieces: Any = None
        for entry in held:
            pieces = merge_piece(pieces, entry, "")
        merged: Payload = {**settled(pieces), "id": self.id}
        for key in ("function", "custom"):
            if isinstance(merged.get(key), dict) and merged[key].get("name") is not None:
                merged[key] = {**merged[key], "name": self.name}
        text = "".join(map(entry_text, held))
        return with_arguments(merged, text) if text else merged


def _are_equal(one: str, other: str) -> bool:
    """Whether two texts hold the same JSON value; numbers are compared as they are written."""
    if trimmed(one) == trimmed(other):
        return True
    try:
        return is_json(one) and is_json(other) and bool(_parse(one) == _parse(other))
    except RecursionError:
        return False


def _parse(text: str) -> Any:
    return json.loads(text, parse_int=_as_written, parse_float=_as_written)


def _as_written(text: str) -> tuple[str]:
    return (text,)
