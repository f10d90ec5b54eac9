"""Ids for tool calls that came without one."""

from __future__ import annotations

import secrets
import string
from typing import Final, Literal, TypeAlias

__all__ = ["IdStyle", "made_up_id"]

IdStyle: TypeAlias = Literal["openai", "mistral"]
"""``openai``: ``call_`` and 24 lower-case hex digits. ``mistral``: 9 letters and digits, which is all that Mistral's
API accepts back."""

_LETTERS: Final = string.ascii_letters + string.digits


def made_up_id(style: IdStyle = "openai") -> str:
    """A random id, different from every other one."""
    if style == "mistral":
        return "".join(secrets.choice(_LETTERS) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"
