"""The error family of the pipeline.

Every message is one line that names the stage, key, file or limit, what was found and what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = [
    "CallaheadError",
    "FrameTooLong",
    "PlanError",
    "RegistryError",
    "StageFailed",
    "StreamCut",
    "StreamFailure",
    "UpstreamReported",
]


class CallaheadError(Exception):
    """Root of all errors that Callahead raises on purpose."""


class RegistryError(CallaheadError):
    """A stage name that leads to no stage: unknown, not importable, or not a stage."""


class PlanError(CallaheadError):
    """A configured order of stages that cannot run."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class StreamFailure(CallaheadError):  # noqa: N818 - a failure is what ends a stream; it is raised only at times
    """Why one request's stream ended badly; becomes the error frame that the client receives.

    Attributes:
        status: the HTTP status, for as long as no response has begun.
        type: OpenAI's coarse class of error.
        code: the exact reason; the same word in logs and metrics.
        param: the request's offending key, or none.
    """

    status: int = 502
    type: str = "upstream_error"
    code: str = "upstream_error"
    param: str | None = None
    logged: str | None = None
    """What a log may hold instead of the message, where that quotes what a model or a client said."""

    @property
    def log_text(self) -> str:
        """The one line for the log: never a message's content."""
        return self.message if self.logged is None else self.logged

    @property
    def message(self) -> str:
        """The one line that client and log are told."""
        return str(self)

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape: ``{"error": {message, type, param, code}}``."""
        return {
            "error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code},
        }


class StreamCut(StreamFailure):
    """The upstream ended cleanly before every choice it opened had finished."""

    code = "upstream_cut"


class FrameTooLong(StreamFailure):
    """One frame of the upstream is longer than the limit."""

    code = "frame_too_long"
    raws: Sequence[bytes] = ()
    """The bytes of the frames that were whole before it."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the upstream sent a frame longer than max_frame_bytes = {limit}")


class StageFailed(StreamFailure):
    """A stage raised. Its own request ends; every other one goes on."""

    status = 500
    type = "internal_server_error"
    code = "stage_failed"

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(f"stage {stage} failed: {type(error).__name__}")
        self.stage = stage


class UpstreamReported(StreamFailure):
    """The upstream's own error frame, as far as it could be read."""

    code = "upstream_reported"
    logged = "the upstream reported an error"
    reported: Mapping[str, Any] = MappingProxyType({})
    """The upstream's error object."""

    def body(self) -> dict[str, Any]:
        """The upstream's error object, with OpenAI's four keys where it lacks them."""
        ours = super().body()["error"]
        return {"error": {**ours, **{key: value for key, value in self.reported.items() if value is not None}}}
