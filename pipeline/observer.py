"""How stages tell the outside what they saw, without knowing of clocks, logs or metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.errors import StreamFailure

__all__ = ["Observer"]


class Observer:
    """Told by stages about what happens in one request; the base class ignores everything.

    Choices and calls are named by the stream's own numbers. No method may raise or await: they run inside a
    stage's ``feed``.
    """

    def call_opened(self, choice_index: int, call_index: int) -> None:
        """The first fragment of a tool call was seen."""

    def call_closed(self, choice_index: int, call_index: int) -> None:
        """The arguments of a call are complete JSON."""

    def call_dispatched(self, choice_index: int, call_index: int) -> None:
        """A ``tool_call_dispatch`` event went out."""

    def call_refused(self, choice_index: int | None, call_index: int | None, reason: str, repair: str | None) -> None:
        """A call will never be dispatched.

        Args:
            choice_index: the choice, or none where it has no usable index.
            call_index: the call, or none where it has no usable index.
            reason: one of ``stages.refusals.Refusal``.
            repair: the opt-in stage that would cure the quirk, if there is one.
        """

    def call_repaired(self, stage: str, choice_index: int | None, call_index: int | None, repair: str) -> None:
        """A repair changed something; said once for each call and repair.

        Args:
            stage: the stage that did it.
            choice_index: the choice, or none where the repair is not of one choice.
            call_index: the call, or none where the repair is not of one call.
            repair: the quirk's name, as ``infer-missing-index``.
        """

    def choice_finished(self, choice_index: int, finish_reason: str) -> None:
        """A choice carried a finish reason."""

    def event_sent(self, name: str) -> None:
        """A side event of any name was produced."""

    def stream_failed(self, failure: StreamFailure, *, reported: bool) -> None:
        """The client was told of a failure.

        Args:
            failure: what it was.
            reported: whether the upstream itself said so; else Callahead noticed it, and the stream is over.
        """

    def stream_ended(self) -> None:
        """The stream is whole: its ``[DONE]`` was passed on or added."""

    def payload_captured(self, response: Mapping[str, Any] | None, drop_reason: str | None) -> None:
        """The capture of the request's payload is settled; said once.

        Args:
            response: the response that was sent, as far as it came; none if nothing did.
            drop_reason: why it is not complete; none if it is.
        """

    def stage_failed(self, stage: str, error: Exception) -> None:
        """A stage raised; its request ends with an error frame. Called while ``error`` is being handled."""

    def warned(self, stage: str, message: str) -> None:
        """A stage met something that an operator should know of."""
