"""What stands where a stage, or the source, has the sending end of its channel."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeAlias

import trio

__all__ = ["Send", "SendingEnd"]

Send: TypeAlias = trio.MemorySendChannel[list[Any]]
"""The sending end of a channel of bursts, or a ``SendingEnd``."""


class SendingEnd:
    """The sending end of a channel, as far as ``pipeline.driver`` and the source use one; subclasses do the sending.

    Args:
        send: where it sends to.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Those of the channel that is sent to."""
        return self._send.statistics()

    def close(self) -> None:
        """Close it."""
        self._send.close()

    def __enter__(self) -> Self:
        """Close it at the end."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """See ``__enter__``."""
        self._send.__exit__(exc_type, exc_value, tb)
