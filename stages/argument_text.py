"""The argument text of one call, repaired piece by piece (spec, repairs, 10, rows AR3 to AR6)."""

from __future__ import annotations

import json
import re
from typing import Final

from stages.call_text import KeptText, TextScanner, TextState, begins_object, is_blank, trimmed
from stages.json_syntax import is_json

__all__ = ["ArgumentText"]

_CONTROL: Final = re.compile(r"[\x00-\x1f]")
# Inside a string: an escape, which stays, or a control character.
_ESCAPE_OR_CONTROL: Final = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)
_OUTSIDE: Final = re.compile(r'[^"]*+"?')
_INSIDE: Final = re.compile(r'(?:[^"\\]++|\\.)*+\\?"?', re.DOTALL)
# A string may go on with a brace and end there, as the key of {"{":1}.
_MAY_CLOSE: Final = re.compile(r'[^"]*+"[ \t\n\r]*+(?:[:,}\]]|\Z)')
_SHORT: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# What is known of the first character that a JSON string decodes to.
_FIRST: Final = re.compile(
    r'[ \t\n\r]*+"(?:\\u(?P<code>[0-9A-Fa-f]{4})|(?P<wait>\\(?:u[0-9A-Fa-f]{0,3})?\Z|\Z)|(?P<other>.))', re.DOTALL
)


class ArgumentText:
    """What one call's text was so far, as it came and as it was sent."""

    __slots__ = ("_kept", "_looks_encoded", "has_sent", "is_cumulative", "received", "repairs", "scanner")

    def __init__(self) -> None:
        self.scanner = TextScanner()
        self.received = KeptText()
        """As it came; of text that repeats all before it, once."""
        self.is_cumulative = False
        """Whether a piece has repeated all before it."""
        self.has_sent = False
        """Whether anything but blanks was sent."""
        self.repairs: list[str] = []
        """The repairs that the latest piece needed, as the cases call them."""
        self._kept: list[str] | None = None
        self._looks_encoded = False

    def what_is_new(self, piece: str) -> str:
        """The piece without what the text so far has already (AR3, AR4); the same object where it repeats nothing."""
        scanner, received = self.scanner, self.received
        if received.is_lost:
            return piece
        if scanner.state is TextState.CLOSED:
            if not is_blank(piece) and trimmed(piece) == trimmed(received.value):
                return ""
        elif scanner.state is TextState.OPEN and scanner.root == "{" and len(piece) >= received.length:
            known = received.value
            if piece.startswith(known) and (self.is_cumulative or self._cannot_follow(known, piece)):
                self.is_cumulative = True
                return piece[len(known) :]
        return piece

    def _cannot_follow(self, known: str, piece: str) -> bool:
        """Whether known text and a piece that begins with it cannot be the beginning of one JSON text."""
        if self.scanner.in_string:
            return _MAY_CLOSE.match(piece) is None
        return trimmed(known)[-1] not in ":[,"

    def feed(self, piece: str, *, may_decode: bool, escape: bool) -> str:
        """Take a piece that is new; what is to be sent in its place.

        Args:
            piece: as it came.
            may_decode: whether a string may hold an object (AR5).
            escape: whether control characters are escaped (AR6).
        """
        scanner = self.scanner
        before, in_string, escaped = scanner.state, scanner.in_string, scanner.escaped
        self.received.add(piece)
        scanner.feed(piece)
        if before is TextState.BLANK and scanner.root == '"' and may_decode:
            self._kept = []
        is_in_root = before in (TextState.BLANK, TextState.OPEN) and scanner.root in ("{", "[")
        if self._kept is not None:
            sent = self._decode(piece)
        elif escape and is_in_root and _CONTROL.search(piece):
            sent = self._escape(piece, in_string=in_string, escaped=escaped)
        else:
            sent = piece
        self.has_sent = self.has_sent or not is_blank(sent)
        return sent

    def let_go(self) -> str:
        """What is kept back, as it came."""
        kept, self._kept = self._kept, None
        text = "".join(kept or ())
        self.has_sent = self.has_sent or not is_blank(text)
        return text

    def _decode(self, piece: str) -> str:
        assert self._kept is not None
        self._kept.append(piece)
        state = self.scanner.state
        if state is TextState.OPEN and not self.received.is_lost:
            if self._looks_encoded:
                return ""
            first = _FIRST.match("".join(self._kept))
            if first is None or first["wait"] is not None:
                return ""
            character = chr(int(first["code"], 16)) if first["code"] else first["other"]
            if character == "{":
                self._looks_encoded = True
                return ""
        text = self.let_go()
        decoded = _object_in(text) if state is TextState.CLOSED else None
        if decoded is None:
            return text
        self.repairs.append("decode-double-encoding")
        return decoded

    def _escape(self, piece: str, *, in_string: bool, escaped: bool) -> str:
        end = len(piece) if self.scanner.root_end is None else self.scanner.root_end
        parts: list[str] = []
        position = 0
        if escaped and piece:
            parts.append(piece[0])
            position = 1
        while position < end:
            found = (_INSIDE if in_string else _OUTSIDE).match(piece, position, end)
            assert found is not None
            parts.append(_ESCAPE_OR_CONTROL.sub(_escaped, found[0]) if in_string else found[0])
            in_string = not in_string
            position = found.end()
        escaped_piece = "".join(parts) + piece[end:]
        if escaped_piece != piece:
            self.repairs.append("escape-control-characters")
        return escaped_piece


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    return text if text[0] == "\\" else _SHORT.get(text) or f"\\u{ord(text):04x}"


def _object_in(text: str) -> str | None:
    """The JSON object that a JSON string holds, as text; none where it holds something else."""
    if not is_json(text):
        return None
    decoded: str = json.loads(text)
    return decoded if begins_object(decoded) and is_json(decoded) else None
