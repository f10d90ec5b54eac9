"""The reasons for which records are lost, the same words in metrics and documentation."""

from __future__ import annotations

import enum

__all__ = ["Loss"]


class Loss(enum.StrEnum):
    """Why a sink did not get a record, or not all of it; the values of ``reason``. A sink may have more of its own."""

    QUEUE_FULL = "queue_full"
    """The sink is too slow."""
    SINK_ERROR = "sink_error"
    """The sink failed."""
    DISK_FULL = "disk_full"
    """The sink has no room left on its disk, or no quota."""
    ENCODE_ERROR = "encode_error"
    """The record could not be encoded."""
    RECORD_TOO_LARGE = "record_too_large"
    """Only the request and the response were lost: the record's envelope goes on."""
    SHUTDOWN = "shutdown"
    """The process ended before the record's turn came."""
