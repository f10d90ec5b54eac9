"""What a config can say of capture: ``[capture]``, one attribute a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import attrs

from server.config_values import Rule
from server.settings import ByteLimit

__all__ = ["CaptureSettings", "sink_tables"]

Share: TypeAlias = Annotated[float, Rule("it must be a number from 0 to 1", lambda found: 0 <= found <= 1)]
Records: TypeAlias = Annotated[int, Rule("it must be an integer, 1 or more", lambda found: found >= 1)]


@attrs.frozen
class CaptureSettings:
    """``[capture]``: which requests are recorded, how, and where."""

    sinks: tuple[str, ...] = ()
    """Where records go, by name; none = capture is off. Each has its options in ``[capture.NAME]``."""
    models: tuple[str, ...] = ("*",)
    """Patterns of models, such as ``qwen*``; one of them must match."""
    sample: Share = 1.0
    """The share of requests, chosen by their ids."""
    max_record_bytes: ByteLimit = 8 * 1024 * 1024
    """A larger record is written without request and response, and says so."""
    redact: tuple[str, ...] = ()
    """JSON paths of what is replaced, such as ``$.messages[*].content`` or ``$..arguments``."""
    headers: tuple[str, ...] = ()
    """Request headers to keep. Credentials, cookies and API keys are refused."""
    queue_records: Records = 1024
    """How many records may wait for a sink."""
    queue_bytes: ByteLimit = 64 * 1024 * 1024
    """How much may wait for a sink; one record of any size always may."""


def sink_tables(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Part ``[capture]`` into the keys of ``CaptureSettings`` and the tables of sinks, ``[capture.NAME]``."""
    known = attrs.fields_dict(CaptureSettings)
    tables = {key: value for key, value in table.items() if isinstance(value, dict) and key not in known}
    return {key: value for key, value in table.items() if key not in tables}, tables
