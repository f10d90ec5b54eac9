"""Why a tool call is never dispatched, and which opt-in repair would have cured the usual cause."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

__all__ = ["Refusal"]


class Refusal(enum.StrEnum):
    """The reason of ``Observer.call_refused``; the same word in logs and metrics."""

    IDENTITY_CONFLICT = "identity_conflict"
    """A fragment contradicted the call's id, type or function name."""
    MALFORMED = "malformed"
    """The arguments can never be JSON: something follows the root, or they begin with a closing bracket."""
    NOT_JSON = "not_json"
    """The arguments looked complete but are not RFC 8259 JSON."""
    NOT_TEXT = "not_text"
    """The arguments are no text but an object or another JSON value."""
    CUT_OFF = "cut_off"
    """The stream failed, or it or its choice ended, while the arguments were incomplete."""
    NO_IDENTITY = "no_identity"
    """The choice finished and the call has no id or no function name, as free-form calls have none."""
    NO_INDEX = "no_index"
    """The fragment, or its choice, has no usable index, so nothing says which call it belongs to."""
    FINISH_REASON = "finish_reason"
    """The choice finished for a reason that does not promise whole calls, as ``length``, before this one closed."""
    TOO_LARGE = "too_large"
    """The text of the call is longer than ``max_argument_bytes``."""
    TOO_MANY = "too_many"
    """The request has more calls than ``max_open_calls``; said of the first one only."""

    @property
    def repair(self) -> str | None:
        """The opt-in stage that cures the usual cause, if there is one (spec, repairs, 1)."""
        return _REPAIRS.get(self)


_REPAIRS: Final = MappingProxyType(
    {
        Refusal.IDENTITY_CONFLICT: "tool_call_index",
        Refusal.MALFORMED: "trim_tool_call_arguments",
        Refusal.NOT_JSON: "tool_call_arguments",
        Refusal.NOT_TEXT: "tool_call_arguments",
        Refusal.NO_IDENTITY: "tool_call_id",
        Refusal.NO_INDEX: "tool_call_index",
    }
)
