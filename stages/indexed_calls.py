"""Which call of a choice an entry belongs to, when its index alone does not say (spec, repairs, 6)."""

from __future__ import annotations

from typing import Final, Self

import attrs

from pipeline.items import Payload
from stages.call_entry import entry_id, entry_name, entry_text, is_custom
from stages.call_text import PLACEHOLDER, KeptText, TextScanner, TextState, begins_object, is_blank, trimmed

__all__ = ["Entry", "IndexedCall", "IndexedCalls"]

_MAX_IDS: Final = 64
"""The ids of one call that are known again; a server that makes a new one for each fragment never repeats one."""


@attrs.frozen(eq=False)
class Entry:
    """What one entry says of its call; an empty text means that it says nothing."""

    id: str
    name: str
    text: str
    is_custom: bool

    @classmethod
    def of(cls, entry: Payload) -> Self:
        """Read an entry of any shape."""
        return cls(entry_id(entry), entry_name(entry), entry_text(entry), is_custom(entry))

    @property
    def has_text(self) -> bool:
        """Whether there is text that is not blank."""
        return not is_blank(self.text)


@attrs.define(eq=False)
class IndexedCall:
    """One call of a choice."""

    index: int
    """What the client knows it by."""
    opened_on: int | None
    """The index on the wire that it was opened under, if it had one."""
    opened_in: int
    """The number of the delta that it was opened in."""
    name: str = ""
    has_id: bool = False
    ids: int = 0
    """How many different ids of it are known again."""
    is_custom: bool = False
    scanner: TextScanner = attrs.field(factory=TextScanner)
    text: KeptText = attrs.field(factory=KeptText)
    """Only while there is no id: nothing else compares it."""

    @property
    def is_done(self) -> bool:
        """Whether its text is complete, or beyond help; that of a free-form call always is."""
        return self.is_custom or self.scanner.is_done

    def add(self, entry: Entry) -> None:
        """Note an entry of this call; an object behind a lone ``{}`` begins its text anew (spec, repairs, 9)."""
        self.name = self.name or entry.name
        self.is_custom = self.is_custom or entry.is_custom
        text = entry.text
        if self.scanner.state is TextState.CLOSED and self.scanner.has_empty_root and begins_object(text):
            self.scanner, self.text = TextScanner(), KeptText()
        while self.scanner.state is TextState.BLANK and (placeholder := PLACEHOLDER.match(text)):
            text = text[placeholder.end() :]
        self.scanner.feed(text)
        if entry.id and not self.has_id:
            self.has_id, self.text = True, KeptText()
        if not self.has_id:
            self.text.add(text)

    def is_followed_by(self, entry: Entry) -> bool:
        """Whether an entry under this call's index opens another call (rows IX3 to IX8).

        An id of the entry is one that this call has not had.
        """
        has_other_name = bool(entry.name and self.name) and entry.name != self.name
        if entry.id and self.has_id:
            if not entry.name:
                return self.is_done and entry.has_text  # IX3
            return has_other_name or self.is_done  # IX4, IX5
        if self.has_id or not (self.name and entry.name) or not self.is_done:
            return False  # IX8
        if has_other_name:
            return True
        return entry.has_text and (bool(entry.id) or trimmed(entry.text) != trimmed(self.text.value))  # IX6, IX7


class IndexedCalls:
    """The calls of one choice in the order in which they were opened."""

    def __init__(self) -> None:
        self._calls: list[IndexedCall] = []
        self._holders: dict[int, IndexedCall] = {}
        self._by_id: dict[str, IndexedCall] = {}
        self._by_id_and_index: dict[tuple[str, int | None], IndexedCall] = {}
        self._taken: set[int] = set()
        self._last: IndexedCall | None = None
        self._deltas = 0

    def begin_delta(self) -> None:
        """The entries that follow are elements of another list."""
        self._deltas += 1

    def find(self, index: int, entry: Entry, *, reindex: bool) -> tuple[IndexedCall | None, bool]:
        """The call that holds an index, and whether the entry opens another one; no call: nobody has used the index."""
        holder = self._holders.get(index)
        if holder is None or not reindex:
            return holder, holder is None
        known = self._by_id_and_index.get((entry.id, index))  # IX2
        if known is not None:
            return known, False
        return holder, holder.is_followed_by(entry)

    def find_without_index(self, entry: Entry) -> tuple[IndexedCall | None, bool]:
        """The call that an entry without an index goes on with, and whether it opens another one (IX10 to IX15)."""
        known = self._by_id.get(entry.id)
        if known is not None:
            return known, False
        last = self._last
        if last is None:
            return None, bool(entry.id or entry.name)
        if entry.name and last.opened_in == self._deltas:
            return last, True
        if entry.name and not entry.id and last.name and not last.has_id and entry.name != last.name:
            return last, True
        return last, last.is_followed_by(entry)

    def open_call_of_orphan(self, index: int, entry: Entry) -> IndexedCall | None:
        """The one call that text without any identity under an unused index can belong to (IX9)."""
        if not entry.text or entry.id or entry.name:
            return None
        open_calls = [call for call in self._calls if (call.has_id or call.name) and not call.is_done]
        if len(open_calls) != 1:
            return None
        (call,) = open_calls
        return call if call.scanner.state is not TextState.BLANK or index < call.index else None

    def open(self, index: int | None) -> IndexedCall:
        """A new call; it keeps its index if that is free, else it gets one more than the highest in use."""
        own = index if index is not None and index not in self._taken else max(self._taken, default=-1) + 1
        call = IndexedCall(own, index, self._deltas)
        self._calls.append(call)
        self._taken.add(own)
        return call

    def add(self, call: IndexedCall, entry: Entry, index: int | None) -> None:
        """Note an entry of a call, which from now on holds the index."""
        call.add(entry)
        self._last = call
        if index is not None:
            self._holders[index] = call
        key = (entry.id, call.opened_on)
        if entry.id and key not in self._by_id_and_index and call.ids < _MAX_IDS:
            call.ids += 1
            self._by_id_and_index[key] = call
            self._by_id.setdefault(entry.id, call)
