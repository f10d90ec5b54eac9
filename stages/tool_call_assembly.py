"""Assembles the tool calls of one choice from their fragments (spec, dispatch, 3.1, 3.2 and 3.6 to 3.8).

A call is *open* from its first fragment until it is *settled*: dispatched or refused, either for good.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from pipeline.chunks import usable_index
from pipeline.items import Payload
from pipeline.observer import Observer
from pipeline.runs import Run
from stages.json_scanner import JsonScanner, Verdict
from stages.json_syntax import is_json
from stages.refusals import Refusal
from stages.tool_call_merge import ToolCall, argument_text, bare_text, merge, utf8_length

__all__ = ["CallBudget", "ChoiceCalls"]

# The finish reasons that promise whole calls; producers report tool turns with "stop" too.
_PROMISING: Final = frozenset({"tool_calls", "stop"})
# Stands for "the repair that the refusal itself names".
_USUAL: Final = "usual"


@attrs.define(eq=False)
class CallBudget:
    """What all choices of one request share."""

    stage: str
    """Who warns."""
    observer: Observer
    max_argument_bytes: int
    max_open_calls: int
    opened: int = 0
    """Calls of this request so far."""
    is_overdrawn: bool = False
    """Whether a call was refused for being one too many."""


@attrs.define(eq=False)
class _OpenCall:
    call: ToolCall = attrs.field(factory=ToolCall)
    scanner: JsonScanner = attrs.field(factory=JsonScanner)
    is_confirmed: bool = False


@attrs.frozen(eq=False)
class _Dispatched:
    """What is kept of a call that went out: enough to tell a replay from a continuation."""

    id: str
    type: str
    name: str
    arguments_length: int
    arguments_hash: int


class ChoiceCalls:
    """The calls of one choice by the index of their fragments, never by their id.

    Args:
        index: the choice's own.
        budget: shared with the other choices of the request.
    """

    def __init__(self, index: int, budget: CallBudget) -> None:
        self.index = index
        self._budget = budget
        self._observer = budget.observer
        self._open: dict[int, _OpenCall] = {}
        # None: refused, or dispatched and already warned about.
        self._settled: dict[int, _Dispatched | None] = {}
        self._has_keyless = False

    def feed(self, fragments: Any) -> list[Payload]:
        """The payloads of the calls that a delta's ``tool_calls`` complete; it may be any JSON value."""
        if isinstance(fragments, dict) and fragments:  # one call that should be a list: no key, see spec, repairs, 6
            self._note_keyless()
        if not isinstance(fragments, list):
            return []
        return [
            event
            for fragment in fragments
            if isinstance(fragment, dict) and (event := self._feed_fragment(fragment)) is not None
        ]

    def _feed_fragment(self, fragment: Payload) -> Payload | None:
        index = usable_index(fragment.get("index"))
        if index is None:
            self._note_keyless()
            return None
        opened = self._open.get(index)
        if opened is None:
            if index in self._settled:
                self._check_replay(index, fragment)
                return None
            opened = self._open_call(index)
            if opened is None:
                return None
        text = bare_text(fragment)
        if text is None:
            return self._feed_call(index, opened, fragment)
        opened.call.add_arguments(text)
        return self._judge(index, opened, text)

    def feed_run(self, run: Run) -> int:
        """Add neighbouring fragments to their call, up to the first that may complete or settle it.

        Args:
            run: their chunks.

        Returns:
            How many were added.
        """
        fragment = run.shape.fragment
        assert fragment is not None
        opened = self._open.get(fragment["index"])
        if opened is None or not _repeats(fragment, opened.call):
            return 0
        scanner, text, added = opened.scanner.copy(), run.text, len(run.texts)
        if scanner.feed(text) is not Verdict.INCOMPLETE:  # else it was incomplete after each of them
            scanner = opened.scanner.copy()
            added = next(at for at, each in enumerate(run.texts) if scanner.feed(each) is not Verdict.INCOMPLETE)
            scanner, text = opened.scanner.copy(), "".join(run.texts[:added])
            scanner.feed(text)
        if opened.call.text_bytes + utf8_length(text) > self._budget.max_argument_bytes:
            return 0
        opened.scanner = scanner
        opened.call.add_arguments(text)
        return added

    def finish(self, reason: str) -> list[Payload]:
        """The terminal pass: settle every open call, in ascending index; gives the payloads of those that are whole.

        The choice may go on afterwards, with other calls.
        """
        return [event for index in sorted(self._open) if (event := self._resolve(index, reason))]

    def abandon(self) -> None:
        """The stream has ended without a finish: refuse every open call."""
        for index in sorted(self._open):
            self._refuse(index, Refusal.CUT_OFF)

    def _open_call(self, index: int) -> _OpenCall | None:
        budget = self._budget
        if budget.opened >= budget.max_open_calls:
            if not budget.is_overdrawn:
                budget.is_overdrawn = True
                self._warn(index, f"is one more than max_open_calls = {budget.max_open_calls}; no more are dispatched")
                self._observer.call_refused(self.index, index, Refusal.TOO_MANY, Refusal.TOO_MANY.repair)
            return None
        budget.opened += 1
        self._observer.call_opened(self.index, index)
        opened = self._open[index] = _OpenCall()
        return opened

    def _feed_call(self, index: int, opened: _OpenCall, fragment: Payload) -> Payload | None:
        call = opened.call
        conflict = merge(call, fragment)
        if conflict is not None:
            repair = _repair_of_conflict(conflict, opened, fragment)
            self._refuse(index, Refusal.IDENTITY_CONFLICT, repair)
            return None
        if call.has_foreign_arguments:
            self._refuse(index, Refusal.NOT_TEXT)
            return None
        return self._judge(index, opened, argument_text(fragment))

    def _judge(self, index: int, opened: _OpenCall, text: str) -> Payload | None:
        """What comes of a call once a fragment's text is merged."""
        verdict = opened.scanner.feed(text)
        call = opened.call
        if call.text_bytes > self._budget.max_argument_bytes:
            self._warn(index, f"is longer than max_argument_bytes = {self._budget.max_argument_bytes}; not dispatched")
            self._refuse(index, Refusal.TOO_LARGE)
            return None
        if verdict is Verdict.INCOMPLETE:
            return None
        if verdict is Verdict.MALFORMED:
            self._refuse(index, Refusal.MALFORMED)
        elif self._confirm(index, opened) and call.id and call.name:
            return self._dispatch(index, opened)
        return None

    def _resolve(self, index: int, reason: str) -> Payload | None:
        opened = self._open[index]
        call = opened.call
        if reason not in _PROMISING:
            self._refuse(index, Refusal.FINISH_REASON)
        elif opened.scanner.is_open:
            self._refuse(index, Refusal.CUT_OFF)
        elif self._confirm(index, opened):
            if call.id and call.name:
                return self._dispatch(index, opened)
            self._refuse(index, Refusal.NO_IDENTITY, _repair_of_identity(call))
        return None

    def _confirm(self, index: int, opened: _OpenCall) -> bool:
        """Check the syntax, once a call; no text at all is fine where the terminal pass asks. Refuses on failure."""
        if not opened.is_confirmed:
            arguments = opened.call.arguments
            if arguments and not is_json(arguments):
                self._refuse(index, Refusal.NOT_JSON)
                return False
            opened.is_confirmed = True
            self._observer.call_closed(self.index, index)
        return True

    def _dispatch(self, index: int, opened: _OpenCall) -> Payload:
        call, arguments = opened.call, opened.call.arguments
        text = arguments or ""
        del self._open[index]
        self._settled[index] = _Dispatched(call.id, call.type, call.name, len(text), hash(text))
        self._observer.call_dispatched(self.index, index)
        tool_call: Payload = {"index": index, "id": call.id}
        if call.type:
            tool_call["type"] = call.type
        tool_call["function"] = {"name": call.name}
        if arguments is not None:
            tool_call["function"]["arguments"] = arguments
        return {"choice_index": self.index, "tool_call": tool_call}

    def _refuse(self, index: int, reason: Refusal, repair: str | None = _USUAL) -> None:
        del self._open[index]
        self._settled[index] = None
        self._observer.call_refused(self.index, index, reason, reason.repair if repair is _USUAL else repair)

    def _check_replay(self, index: int, fragment: Payload) -> None:
        """An event cannot be taken back: warn, once a call, of a fragment that adds to a dispatched one."""
        sent = self._settled[index]
        if sent is None:
            return
        text = argument_text(fragment)
        given = ToolCall(sent.id, sent.type, sent.name)
        conflict = merge(given, fragment)
        if conflict is None and (
            not text.strip(" \t\n\r") or (len(text) == sent.arguments_length and hash(text) == sent.arguments_hash)
        ):
            return
        self._settled[index] = None
        if conflict == "id":
            self._warn(index, "was dispatched, and another id followed under its index; see the repair tool_call_index")
        else:
            self._warn(index, "was dispatched, and something else followed that does not repeat it")

    def _note_keyless(self) -> None:
        """Fragments without a usable index: said once a choice."""
        if not self._has_keyless:
            self._has_keyless = True
            self._observer.call_refused(self.index, None, Refusal.NO_INDEX, Refusal.NO_INDEX.repair)

    def _warn(self, index: int, message: str) -> None:
        self._observer.warned(self._budget.stage, f"choice {self.index}, call {index} {message}")


def _repeats(fragment: Payload, call: ToolCall) -> bool:
    """Whether a fragment says nothing of its call's identity but what is known."""
    return fragment.get("id") in (None, "", call.id) and fragment.get("type") in (None, "", call.type)


def _repair_of_conflict(field: str, opened: _OpenCall, fragment: Payload) -> str | None:
    """One call whose id changes, several calls on one index, or a name in pieces (spec, repairs, 6 to 8)."""
    if field == "type":
        return None
    if field == "function.name":
        return "tool_call_name"
    function = fragment.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    is_another_call = opened.is_confirmed or (isinstance(name, str) and name not in ("", opened.call.name))
    return "tool_call_index" if is_another_call else "tool_call_id"


def _repair_of_identity(call: ToolCall) -> str | None:
    if call.name:
        return "tool_call_id"
    if call.id or call.custom_name:
        return None
    return "tool_call_index"  # arguments that lost their call
