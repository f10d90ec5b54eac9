"""Structured logs on stderr: one line an event, JSON or for a console. Never a message's content."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog
import trio

__all__ = ["BodyBroken", "configure_logs", "hypercorn_logger"]

_SHARED: Final[list[Any]] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]


class BodyBroken(Exception):  # noqa: N818 - it is no error of ours, but the way to cut a response
    """Raised inside a response body to cut the client's connection, so that half a body never looks whole."""


def configure_logs(level: str, style: str) -> None:
    """Set up structlog and the standard library's logging for this process.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        style: ``json`` or ``console``.
    """
    if style == "json":
        last: list[Any] = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("event"),
            structlog.processors.JSONRenderer(),
        ]
    else:
        # Not what is prettiest of what is installed: rich would show the variables of each frame, and so what was said.
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[*_SHARED, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *last,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)


def hypercorn_logger() -> logging.Logger:
    """The logger for Hypercorn's errors, without those that are part of a client's leaving."""
    logger = logging.getLogger("hypercorn.error")
    logger.propagate = True
    logger.filters = [_is_news]
    return logger


def _is_news(record: logging.LogRecord) -> bool:
    """Not news: a response that we cut on purpose, and a write that met a connection just closed (traps, H9)."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return True
    if isinstance(error, BaseExceptionGroup):
        return error.split((BodyBroken, trio.BusyResourceError, trio.Cancelled))[1] is not None
    return not isinstance(error, (BodyBroken, trio.BusyResourceError))
