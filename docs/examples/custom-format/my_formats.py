"""A format of your own: arrows around a name and the arguments."""

from __future__ import annotations

from typing import Final

from stages.formats.format import MarkedCalls
from stages.formats.name_then_json import NameThenJson, name_header

ARROWS: Final = MarkedCalls(
    names=("arrows",),
    bodies=(NameThenJson(call="->>", header=name_header, call_end="<<-"),),
    ends=("<<-",),
)
