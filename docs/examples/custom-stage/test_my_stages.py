"""The stages alone, without a server."""

from __future__ import annotations

import pytest
import trio
from my_stages import Measure, Pace, Redact
from trio.testing import MockClock

from pipeline import Chunk, PlanError
from pipeline.testing import (
    RecordingObserver,
    call_chunk,
    check_conformance,
    make_stage,
    run_stage,
    run_stage_in_channels,
    text_chunk,
)

SPEECH = [text_chunk("1 of"), text_chunk(" 2"), text_chunk("", finish="stop")]


def text_of(chunk: Chunk) -> str:
    """What the first choice says."""
    text: str = chunk.payload["choices"][0]["delta"]["content"]
    return text


def test_digits_are_hidden() -> None:
    """Each digit becomes the mask."""
    (chunk,) = run_stage(make_stage(Redact, options={"mask": "*"}), [text_chunk("Call 555-0199.")])
    assert text_of(chunk) == "Call ***-****."
    assert chunk.raw is None  # it will be encoded anew


def test_other_items_go_on_as_they_came() -> None:
    """A chunk without digits, or with digits in a tool call only, is the very same object afterwards."""
    items = [text_chunk("Hello."), call_chunk(0, "call_1", "add", '{"a": 1}')]
    given = run_stage(make_stage(Redact), items)
    assert all(before is after for before, after in zip(items, given, strict=True))


def test_an_empty_mask_is_refused() -> None:
    """Bad options are refused as the gateway refuses them, before any request."""
    with pytest.raises(PlanError, match="mask"):
        make_stage(Redact, options={"mask": ""})


async def test_redact_keeps_the_promises_of_a_stage() -> None:
    """Any cut, any JSON value, any end, cancellation, a slow client: see ``check_conformance``."""
    await check_conformance(lambda: make_stage(Redact), SPEECH)


async def test_pace_takes_its_time(autojump_clock: MockClock) -> None:
    """Three chunks at 50 a second take 0.06 s, of which the clock makes none."""
    stage = make_stage(Pace)
    before = trio.current_time()
    assert await run_stage_in_channels(stage, [SPEECH]) == SPEECH
    assert trio.current_time() - before == pytest.approx(0.06)


async def test_pace_keeps_the_promises_of_a_stage(autojump_clock: MockClock) -> None:
    """It holds frames back on purpose; all else it keeps."""
    await check_conformance(lambda: make_stage(Pace), SPEECH, may_hold=True)


async def test_measure_says_how_much_it_was() -> None:
    """The text of all chunks counts, and is told of when the request is over."""
    observer = RecordingObserver()
    stage = make_stage(Measure, observer=observer)
    assert await run_stage_in_channels(stage, [SPEECH]) == SPEECH
    assert observer.records == [("warned", "Measure", "6 characters")]


async def test_measure_keeps_the_promises_of_a_stage() -> None:
    """As any stage."""
    await check_conformance(lambda: make_stage(Measure), SPEECH)
