"""Whether a stage keeps the promises of ``pipeline.stage``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.stage import Flow, Stage
from pipeline.testing.content import (
    check_bursts_do_not_matter,
    check_frames_stay_in_place,
    check_items_are_not_changed,
    check_odd_payloads,
    check_runs_do_not_matter,
)
from pipeline.testing.lifetime import (
    check_backpressure,
    check_cancellation,
    check_crash_is_told,
    check_failure_is_passed_on,
    check_silence_after_the_end,
)

__all__ = ["check_conformance"]


async def check_conformance(make_stage: Callable[[], Stage], items: Sequence[Any], *, may_hold: bool = False) -> None:
    """Run stages through all that a request may bring, and see that each promise is kept.

    Checkpoints. It waits until all tasks are blocked, so nothing else should run in the same Trio loop.

    Args:
        make_stage: makes a fresh stage, with options and events under which it has something to do.
        items: an ordinary stream, in which the stage does as much as possible of what it can do. Bytes, where
            the stage takes bytes.
        may_hold: the stage keeps ordinary frames back for a reason, or makes chunks of its own. It must still not
            reorder them.

    Raises:
        AssertionError: the stage breaks a promise. One line that names the stage, the promise, and what was seen.
        ValueError: there are no items.

    Example::

        async def test_redact_keeps_the_promises_of_a_stage():
            await check_conformance(lambda: make_stage(Redact, options={"words": ["x"]}), [text_chunk("a x b")])
    """
    if not items:
        raise ValueError("items is empty; without any, every stage keeps its promises")
    items = list(items)
    takes_items = make_stage().takes is Flow.ITEMS
    if takes_items:
        await check_odd_payloads(make_stage)
    await check_items_are_not_changed(make_stage, items)
    await check_bursts_do_not_matter(make_stage, items)
    await check_crash_is_told(make_stage, items)
    await check_cancellation(make_stage, items)
    await check_silence_after_the_end(make_stage, items)
    await check_backpressure(make_stage, items)
    if takes_items:
        await check_runs_do_not_matter(make_stage, items)
        await check_failure_is_passed_on(make_stage, items)
        await check_frames_stay_in_place(make_stage, items, may_hold=may_hold)
