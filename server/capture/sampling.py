"""Which requests are captured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

__all__ = ["Sampler"]

_BYTES: Final = 8


class Sampler:
    """Chooses by model and at random; the same request id always meets the same fate.

    Args:
        models: patterns with ``*``, ``?`` and ``[...]``, of which one must match the model, case and all. A request
            without a model is matched as an empty name.
        sample: the share of requests, from 0 to 1.
    """

    def __init__(self, models: Sequence[str], sample: float) -> None:
        self._models = models
        self._limit = sample * 256.0**_BYTES

    def wants(self, model: str | None, request_id: str) -> bool:
        """Whether a request is to be captured."""
        if not any(fnmatchcase(model or "", pattern) for pattern in self._models):
            return False
        digest = hashlib.blake2b(request_id.encode(errors="replace"), digest_size=_BYTES).digest()
        return int.from_bytes(digest) < self._limit
