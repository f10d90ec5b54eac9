"""Whether a stream that ended is whole: every choice that it opened has finished."""

from __future__ import annotations

from pipeline.chunks import MAX_CHOICES, choice_key, reports_error
from pipeline.errors import StreamCut
from pipeline.items import Payload

__all__ = ["Completeness"]


class Completeness:
    """Watches the chunks of one response.

    ``[DONE]`` is no test for it: several providers never send it, and some send it after a cut
    (spec, real-streams, 6).
    """

    def __init__(self) -> None:
        self._open: set[int | str] = set()
        self._finished: set[int | str] = set()
        self.failed = False
        """The upstream itself reported an error."""

    def see(self, payload: Payload) -> None:
        """Note what a chunk opens and finishes."""
        if reports_error(payload):
            self.failed = True
        choices = payload.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            key = choice_key(choice)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._open.discard(key)
                if len(self._finished) < MAX_CHOICES:
                    self._finished.add(key)
            elif key not in self._finished and len(self._open) < MAX_CHOICES:
                self._open.add(key)

    def is_open(self, key: int | str) -> bool:
        """Whether a choice has begun and not finished."""
        return key in self._open

    def cut(self) -> StreamCut | None:
        """What a clean end without ``[DONE]`` means now: a failure, or none if all is well."""
        if self._open:
            # An index that is a text is the upstream's, and no business of a log.
            names = ", ".join(sorted(str(key) if isinstance(key, int) else "?" for key in self._open))
            return StreamCut(f"the upstream ended the stream before choice {names} had finished")
        if not self._finished:
            return StreamCut("the upstream ended the stream before it sent any choice")
        return None
