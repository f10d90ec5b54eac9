"""The promises about what a stage gives."""

from __future__ import annotations

import itertools
from typing import Any, Final

import attrs

from pipeline.chunks import encode_json
from pipeline.items import Chunk
from pipeline.stage import Stage
from pipeline.testing.builders import chunk, with_shapes
from pipeline.testing.cuts import random_cuts
from pipeline.testing.fingerprint import fingerprint, fingerprints, marked, marks_of, shown
from pipeline.testing.harness import MakeStage, broken, run_bare, run_step_by_step, run_to_end
from pipeline.testing.odd_payloads import odd_payloads

__all__ = [
    "check_bursts_do_not_matter",
    "check_frames_stay_in_place",
    "check_items_are_not_changed",
    "check_odd_payloads",
    "check_runs_do_not_matter",
]

_RANDOM_CUTS: Final = 20
_REPEATED: Final = 3
"""How often each item comes: a shape is learned from the first and known of the others."""


async def check_odd_payloads(make_stage: MakeStage) -> None:
    """No JSON value crashes a stage, alone or behind others. Checkpoints."""
    chunks = [chunk(payload) for payload in odd_payloads()]
    for odd in chunks:
        await run_bare(make_stage(), [odd])
    await check_items_are_not_changed(make_stage, chunks)


async def check_items_are_not_changed(make_stage: MakeStage, items: list[Any]) -> None:
    """Items are shared: a stage that changes one gives a new one. Checkpoints."""
    before = [fingerprint(item) for item in items]
    stage = make_stage()
    await run_bare(stage, items)
    for item, was in zip(items, before, strict=True):
        if (after := fingerprint(item)) != was:
            raise broken(stage, f"must not change an item in place, but changed {shown(was)} to {shown(after)}")


async def check_bursts_do_not_matter(make_stage: MakeStage, items: list[Any]) -> None:
    """The same items give the same, however they are cut into bursts. Checkpoints."""
    wanted = fingerprints(await run_to_end(make_stage(), [items]))
    one_by_one = [[item] for item in items]
    for bursts in (one_by_one, *random_cuts(items, seed=len(items), n=_RANDOM_CUTS)):
        stage = make_stage()
        given = fingerprints(await run_to_end(stage, bursts))
        for this, that in itertools.zip_longest(given, wanted):
            if this != that:
                sizes = [len(burst) for burst in bursts]
                problem = f"for bursts of {sizes} it gives {shown(this)} where one burst gives {shown(that)}"
                raise broken(stage, f"must give the same however items are cut into bursts, but {problem}")


async def check_runs_do_not_matter(make_stage: MakeStage, items: list[Any]) -> None:
    """``feed_run`` gives what ``feed`` would give, chunk by chunk. Checkpoints."""
    shaped = with_shapes([item for item in items for _ in range(_REPEATED)])
    plain = [attrs.evolve(item, payload=item.payload) if isinstance(item, Chunk) else item for item in shaped]
    wanted = fingerprints(await run_to_end(make_stage(), [plain]))
    for bursts in ([shaped], *random_cuts(shaped, seed=len(items), n=_RANDOM_CUTS)):
        stage = make_stage()
        given = fingerprints(await run_to_end(stage, bursts))
        for this, that in itertools.zip_longest(given, wanted):
            if this != that:
                problem = f"in a run it gives {shown(this)} where chunk by chunk it gives {shown(that)}"
                raise broken(stage, f"must give the same for a run of chunks of one shape, but {problem}")


async def check_frames_stay_in_place(make_stage: MakeStage, items: list[Any], *, may_hold: bool) -> None:
    """Frames are neither reordered nor delayed; they keep unknown keys, and their bytes if not edited. Checkpoints."""
    sent = [marked(item, number) for number, item in enumerate(items)]
    stage = make_stage()
    seen: list[int] = []
    for step, given in enumerate(await run_step_by_step(stage, sent)):
        for item in given:
            marks = marks_of(item)
            if not may_hold:
                _check_is_of_this_step(stage, item, marks, step)
            for mark in marks:
                _check_bytes_are_kept(stage, sent[mark], item)
            seen += marks
    if seen != sorted(seen):
        raise broken(stage, f"must not reorder ordinary frames, but gives what it got in the order {seen}")


def _check_is_of_this_step(stage: Stage, item: Any, marks: list[int], step: int) -> None:
    for mark in marks:
        if mark != step:
            when = f"gives item {mark} only after it got item {step}, or the end"
            raise broken(stage, f"must not delay an ordinary frame until a later one arrives, but {when}")
    if isinstance(item, Chunk) and not marks:
        raise broken(stage, f"must keep keys that it does not know, but gives {shown(item)} without one")


def _check_bytes_are_kept(stage: Stage, was: Any, item: Any) -> None:
    if not (isinstance(was, Chunk) and isinstance(item, Chunk)):
        return
    if item.raw != was.raw and encode_json(item.payload) == encode_json(was.payload):
        raise broken(stage, f"must keep the bytes of a chunk that it does not edit, but loses {shown(was.raw)}")
