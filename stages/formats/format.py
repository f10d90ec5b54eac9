"""What a format is: its names, and the readers that it makes for one choice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import attrs

from stages.formats.answer_reader import AnswerReader
from stages.formats.body import Body, CallMarkup
from stages.formats.call_reader import CallReader
from stages.formats.channels import ChannelReader
from stages.formats.deferred import DeferredReader
from stages.formats.guided import GuidedReader, guided_bodies
from stages.formats.output import Output
from stages.formats.reader import Reader
from stages.formats.thought_reader import ThoughtMarkup, ThoughtReader
from stages.formats.tools import Tools
from stages.made_up_id import IdStyle

__all__ = [
    "REASONING_KEYS",
    "CallFormat",
    "Channels",
    "Format",
    "MarkedCalls",
    "MarkedThoughts",
    "ReasoningFormat",
]

REASONING_KEYS: Final = ("reasoning_content", "reasoning")
"""Where servers put thoughts."""


@attrs.frozen(eq=False, kw_only=True)
class Format:
    """One way in which models write thoughts or calls."""

    structured: ClassVar[frozenset[str]]
    """The keys of a delta that show that the upstream reads the format itself."""
    names: tuple[str, ...]
    """What it is called: its own name first."""
    hides_tokens: bool = False
    """Whether its markers are special tokens, which servers leave out of the text unless the request says
    ``skip_special_tokens: false`` (spec, parsers, 6)."""
    id_style: IdStyle = "openai"
    """What the ids of calls look like that the model gives none."""

    def readers(self, request: Mapping[str, Any], output: Output) -> Mapping[str, Reader]:
        """Fresh readers for one choice, each for a key of the delta.

        Args:
            request: the parsed request body.
            output: takes what they read.
        """
        raise NotImplementedError

    def concerns(self, request: Mapping[str, Any]) -> bool:  # noqa: ARG002 - for subclasses
        """Whether there can be anything to read in the answer to a request."""
        return True


class CallFormat(Format):
    """A format in which calls are written."""


class ReasoningFormat(Format):
    """A format in which thoughts are written."""


@attrs.frozen(eq=False, kw_only=True)
class MarkedCalls(CallFormat):
    """Calls behind markers, or bare where the text begins with one."""

    structured: ClassVar[frozenset[str]] = frozenset({"tool_calls"})
    bodies: tuple[Body, ...] = ()
    """What may stand behind a start marker."""
    ends: tuple[str, ...] = ()
    """The end markers that each call owes once."""
    block_end: str = ""
    """The one of them behind which inner start markers count no more."""
    bare: Mapping[str, Body] = attrs.field(factory=dict)
    """What may stand bare at the start of the text, by its first character."""
    is_bare_at_lines: bool = False
    """Whether it may stand bare at the start of any line."""
    _markup: CallMarkup = attrs.field(init=False)

    @_markup.default
    def _make_markup(self) -> CallMarkup:
        return CallMarkup(self.bodies, self.ends, self.block_end)

    def concerns(self, request: Mapping[str, Any]) -> bool:
        """Whether the request allows calls."""
        return Tools(request).are_allowed

    def readers(self, request: Mapping[str, Any], output: Output) -> Mapping[str, Reader]:
        """Readers for content and for thoughts."""
        tools = Tools(request)
        own = {} if tools.is_answer_guided else self.bare
        bare = guided_bodies(tools.forced) if tools.is_required else {}
        for first, body in own.items():
            bare[first] = (*bare.get(first, ()), body)
        at_lines = own if self.is_bare_at_lines else {}
        thoughts: list[CallReader] = []

        def begin_thought(key: str) -> CallReader:
            thoughts.append(CallReader(self._markup, tools, output, key))
            return thoughts[-1]

        readers: dict[str, Reader] = {key: DeferredReader(partial(begin_thought, key)) for key in REASONING_KEYS}
        readers["content"] = AnswerReader(self._markup, tools, output, bare, at_lines=at_lines, thoughts=thoughts)
        return readers


@attrs.frozen(eq=False, kw_only=True)
class MarkedThoughts(ReasoningFormat):
    """Thoughts between markers."""

    structured: ClassVar[frozenset[str]] = frozenset(REASONING_KEYS)
    markup: ThoughtMarkup
    is_inside: bool = False
    """Whether the prompt opens the first thought, unless the request switches thinking off."""
    switch: str = ""
    """The request's own switch that makes the prompt do so."""

    def readers(self, request: Mapping[str, Any], output: Output) -> Mapping[str, Reader]:
        """A reader for content."""
        given = request.get("chat_template_kwargs")
        switches = given if isinstance(given, dict) else {}
        is_off = any(switches.get(name) is False for name in ("enable_thinking", "thinking"))
        is_inside = switches.get(self.switch) is True if self.switch else self.is_inside and not is_off
        return {"content": ThoughtReader(self.markup, output, is_inside=is_inside)}


@attrs.frozen(eq=False, kw_only=True)
class Channels(CallFormat, ReasoningFormat):
    """Harmony: thoughts, text and calls in one, so that either kind of parser reads all of it."""

    structured: ClassVar[frozenset[str]] = frozenset({*REASONING_KEYS, "tool_calls"})

    def readers(self, request: Mapping[str, Any], output: Output) -> Mapping[str, Reader]:
        """A reader for content."""
        tools = Tools(request)
        reader: Reader = ChannelReader(tools, output)
        if tools.are_allowed and tools.is_required:
            bare = guided_bodies(tools.forced)
            reader = GuidedReader(AnswerReader(CallMarkup(()), tools, output, bare, at_lines={}, thoughts=()), reader)
        return {"content": reader}
