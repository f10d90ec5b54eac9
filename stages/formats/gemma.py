"""Family G: Gemma's calls, JSON with bare keys and tokens for quotes (spec, parsers, 6)."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from stages.formats.body import Body
from stages.formats.bracketed import BracketedArguments
from stages.formats.call_reader import CallReader
from stages.formats.cursor import Steps
from stages.formats.literals import GEMMA, read_key

__all__ = ["GemmaCall"]

_ARGUMENTS: Final = BracketedArguments(GEMMA, "}", partial(read_key, dialect=GEMMA))


@attrs.frozen(eq=False)
class GemmaCall(Body):
    """``call:NAME{KEY:value, ...}``."""

    starts: tuple[str, ...]

    def read(self, reader: CallReader, start: str) -> Steps[None]:  # noqa: ARG002 - there is one start
        """Read one call; the first key, or the bracket of a call without arguments, makes it certain."""
        cursor = reader.cursor
        yield from cursor.expect("call:")
        name = yield from reader.read_name()
        reader.check_name(name)
        yield from cursor.expect("{")
        yield from _ARGUMENTS.read(reader, name)
