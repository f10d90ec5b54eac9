"""The ids of the calls of one choice (spec, parsers, 2)."""

from __future__ import annotations

import re
from typing import Final

from stages.made_up_id import IdStyle, made_up_id

__all__ = ["CallIds"]

_NUMBERED: Final = re.compile(r"(.*):\d++", re.DOTALL)


class CallIds:
    """Gives each call an id that no other one of the choice has.

    Args:
        style: what made-up ids look like.
    """

    __slots__ = ("_given", "_style")

    def __init__(self, style: IdStyle) -> None:
        self._style = style
        self._given: set[str] = set()

    def give(self, index: int, own: str | None) -> str:
        """The id of a call.

        Args:
            index: the call's.
            own: the id that the model wrote. One that it wrote before gets the call's index as its number, or is
                replaced.
        """
        numbered = own and _NUMBERED.fullmatch(own)
        options = (own, f"{numbered[1]}:{index}" if numbered else None)
        given = next((option for option in options if option and option not in self._given), None)
        if given is None:
            given = made_up_id(self._style)
        self._given.add(given)
        return given
