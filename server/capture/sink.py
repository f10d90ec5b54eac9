"""What a sink is: where the lines of captured records end up."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

import attrs

from server.capture.loss import Loss

__all__ = ["NoSinkOptions", "Sink", "SinkError"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class SinkError(Exception):
    """A batch was not written, or not all of it. The rest of it is lost: no batch is offered twice.

    Args:
        message: one line for the log.
        written: how many lines from the start of the batch are safe all the same.
        reason: the word under which the loss is counted.
    """

    def __init__(self, message: str, *, written: int = 0, reason: str = Loss.SINK_ERROR) -> None:
        super().__init__(message)
        self.written = written
        self.reason = reason

    @classmethod
    def from_os(cls, error: OSError, message: str = "", *, written: int = 0) -> Self:
        """The same for an error of the operating system, which is told from others where a disk is full."""
        reason = Loss.DISK_FULL if error.errno in _FULL else Loss.SINK_ERROR
        what = error.strerror or str(error)
        return cls(f"{message}: {what}" if message else what, written=written, reason=reason)


@attrs.frozen
class NoSinkOptions:
    """The options of a sink that has none."""


class Sink:
    """Where captured records go. Subclass it, set ``Options`` if it has any, and override ``write``.

    There is one for each process. It is made while the process starts and may do blocking work then, such as opening a
    file; an ``Exception`` there stops the start. From then on it is called by one task, its own: a call at a time.

    The first line of the subclass's docstring is its description.
    """

    Options: ClassVar[type[Any]] = NoSinkOptions
    """An attrs class: every attribute has a default and is a key of ``[capture.NAME]``. Paths are made relative to the
    config file."""

    def __init__(self, options: Any) -> None:
        self.options = options

    async def write(self, lines: Sequence[bytes]) -> None:
        """Write a batch, and return once it is as safe as the sink makes it: what returns is counted as written.

        It may take its time: other sinks and all requests go on, and what comes meanwhile waits in a queue. It must not
        block the event loop; blocking work belongs in ``trio.to_thread.run_sync``. It may be cancelled while the
        process ends; the batch then counts as lost.

        Args:
            lines: one or more records in order, each a JSON object in UTF-8 without a line end.

        Raises:
            SinkError: some or all of it was not written.
            OSError: none of it was written; any other ``Exception`` is taken for a bug, and means the same.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Finish: nothing is written after it. Called once; bounded by what is left of the drain time."""
