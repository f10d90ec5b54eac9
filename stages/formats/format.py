"""What a format is: names, and the readers that it makes for one choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import attrs

from stages.formats.call_reader import Body, CallReader
from stages.formats.channels import ChannelReader
from stages.formats.output import Output
from stages.formats.thought_reader import ThoughtMarkers, ThoughtReader
from stages.formats.tools import Tools
from stages.made_up_id import IdStyle

__all__ = ["CONTENT", "REASONING", "Channels", "Reader", "ReasoningFormat", "ToolCallFormat"]
