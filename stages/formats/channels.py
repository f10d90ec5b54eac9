"""Family C: harmony, one decoder for thoughts, text and calls (spec, parsers, 6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from stages.formats.cursor import BLANK, Cursor, Ended, Impossible, Steps, finish
from stages.formats.json_body import STRAYS
from stages.formats.json_text import pass_object, skip_strays
from stages.formats.markers import Markers, markers_of
from stages.formats.output import Output
from stages.formats.tools import Tools

__all__ = ["ChannelReader"]

_START: Final = "<|start|>"
_CHANNEL: Final = "<|channel|>"
_CONSTRAIN: Final = "<|constrain|>"
_MESSAGE: Final = "<|message|>"
_ENDS: Final = ("<|end|>", "<|call|>", "<|return|>")
_STOPS: Final = markers_of((_START, _CHANNEL, _CONSTRAIN, _MESSAGE, *_ENDS))
_IN_MESSAGE: Final = markers_of((_START, *_ENDS))
_IN_PLAIN_TEXT: Final = markers_of((_START,))

_HEADER_TEXT: Final = re.compile(r"[^<\r\n`]*+")
_MAX_HEADER: Final = 256
_RECIPIENT: Final = re.compile(r"(?:^|\s)to=(\S+)")
_FUNCTION: Final = re.compile(r"[^\s\"'`()\[\]{}<>,;=]{1,256}")

_CONTENT: Final = "content"
_REASONING: Final = "reasoning_content"


def _may_be(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: len(text) <= _MAX_HEADER and compiled.fullmatch(text) is not None


# What may stand behind a token, asked of each beginning of it. A recipient may come before the first token.
_TO: Final = r"(?:t|to|to=\S*[ \t]*)?"
_MAY_BE_HEADER: Final[Mapping[str, Callable[[str], bool]]] = {
    "": _may_be(_TO),
    _START: _may_be(rf"[\w.:-]*(?:[ \t]+{_TO})?"),
    _CHANNEL: _may_be(r".*"),
    _CONSTRAIN: _may_be(r".*"),
}


class ChannelReader:
    """Reads one choice's text, message by message, and gives thoughts, text and calls to an output.

    Args:
        tools: the request's. Without any that may be called, a call's body is content.
        output: takes what is read.
    """

    is_done = False
    """A call may come at any time."""

    def __init__(self, tools: Tools, output: Output) -> None:
        self._cursor = Cursor()
        self._tools = tools
        self._output = output
        self._key = _CONTENT
        self._function: str | None = None
        self._is_message = False
        self._follows_markup = False
        self._may_close = False
        self._plain: Markers | None = None
        self._steps = self._read()
        next(self._steps)

    def passes(self, text: str) -> bool:
        """Whether the text goes out as it is. It counts as read then."""
        return self._plain is not None and not self._plain.concern(text)

    def feed(self, text: str) -> None:
        """Read more text."""
        self._cursor.push(text)
        next(self._steps)

    def finish(self, reason: str | None) -> None:
        """Read what is held as the end of the text.

        Args:
            reason: the choice's finish reason; none if it was broken off.
        """
        self._may_close = reason in ("stop", "tool_calls")
        finish(self._steps, self._cursor)

    def _read(self) -> Steps[None]:
        try:
            yield from self._begins_message()
            while True:
                if self._function is not None:
                    yield from self._read_call(self._function)
                yield from self._read_text()
        except Ended:
            cursor = self._cursor
            cursor.go_back()
            if not self._follows_markup or cursor.text[cursor.at :].strip(BLANK):
                self._say(len(cursor.text))

    # --- headers ------------------------------------------------------------------------------------------------

    def _begins_message(self) -> Steps[bool]:
        """Read a header and the blanks before it; whether there is one. If not, the cursor stays."""
        cursor = self._cursor
        cursor.mark()
        try:
            parts = yield from self._read_header()
        except Impossible:
            cursor.go_back()
            return False
        cursor.unmark()
        self._is_message = True
        self._address(parts)
        return True

    def _read_header(self) -> Steps[list[tuple[str, str]]]:
        """The text behind each token of a header, the token first; up to the body."""
        cursor = self._cursor
        parts: list[tuple[str, str]] = []
        token = ""
        if (yield from cursor.visible()) == "<":
            token = yield from cursor.expect(_START, _CHANNEL, _MESSAGE)
        try:
            while token != _MESSAGE:
                text = yield from cursor.run(_HEADER_TEXT, _MAY_BE_HEADER[token])
                parts.append((token, text))
                token = yield from cursor.expect(_CHANNEL, _CONSTRAIN, _MESSAGE)
        except Ended:
            if token:
                cursor.unmark()
                cursor.take_rest()
            raise
        return parts

    def _address(self, parts: list[tuple[str, str]]) -> None:
        """Decide where the body goes that follows a header."""
        channels = [text.split() for token, text in parts if token == _CHANNEL]
        recipients = [name for _, text in parts for name in _RECIPIENT.findall(text) if name != "assistant"]
        recipient = recipients[-1] if recipients else ""
        self._function = None
        if self._tools.are_allowed and (recipient.startswith("functions.") or self._tools.declares(recipient)):
            name = recipient.removeprefix("functions.")
            self._function = name if _FUNCTION.fullmatch(name) else None
        is_thought = bool(channels) and channels[-1][:1] == ["analysis"] and self._function is None
        self._key = _REASONING if is_thought else _CONTENT

    # --- bodies -------------------------------------------------------------------------------------------------

    def _read_call(self, function: str) -> Steps[None]:
        """Read the arguments; a body that is not an object is text, and stays."""
        cursor = self._cursor
        self._follows_markup = True
        cursor.mark()
        try:
            if (yield from self._is_empty()):
                call = self._output.open_call(function)
                call.write("{}")
                call.close()
            else:
                cursor.unmark()
                yield from pass_object(cursor, self._output.open_call(function), _STOPS)
                yield from skip_strays(cursor, STRAYS)
                cursor.mark()
                yield from cursor.skip_blanks()
                yield from self._meet_end()
        except Impossible:
            cursor.go_back()
        cursor.unmark()

    def _is_empty(self) -> Steps[bool]:
        """Whether nothing but blanks stands in the message, which has ended.

        Raises:
            Impossible: it holds something else than an object.
        """
        try:
            if (yield from self._cursor.visible()) == "{":
                return False
            yield from self._meet_end()
        except Ended:
            if not self._may_close or self._cursor.take_rest():
                raise
        return True

    def _meet_end(self) -> Steps[None]:
        """Make sure that the message ends here; what ends it stays."""
        token = yield from self._cursor.expect(_START, *_ENDS)
        self._cursor.at -= len(token)

    def _read_text(self) -> Steps[None]:
        """Pass on text up to the next message's body."""
        cursor = self._cursor
        while True:
            markers = _IN_MESSAGE if self._is_message else _IN_PLAIN_TEXT
            found = markers.find(cursor.text, cursor.at)
            if found is None:
                self._say(markers.held_from(cursor.text, cursor.at))
                is_empty = cursor.at == len(cursor.text)
                self._plain = markers if is_empty and self._key == _CONTENT else None
                yield from cursor.more()
                self._plain = None
                continue
            place, marker = found
            self._say(place)
            if marker != _START:
                cursor.at += len(marker)
                self._key = _CONTENT
                self._is_message = False
                self._follows_markup = True
            if (yield from self._begins_message()):
                return
            if marker == _START:
                self._say(cursor.at + len(_START))

    def _say(self, end: int) -> None:
        text = self._cursor.text[self._cursor.at : end]
        if text:
            self._cursor.at = end
            self._follows_markup = False
            self._output.say(self._key, text)
