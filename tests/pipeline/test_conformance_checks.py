"""Each check of ``check_conformance`` finds a stage that breaks its promise, and no other."""

import pytest
from example_stages import (
    ChangesInPlace,
    ClosesTwice,
    CountsBursts,
    Crashes,
    DelayingEncoder,
    DropsErrors,
    Encoder,
    GoesOnWhenFinished,
    Holder,
    LeavesAClone,
    LeavesATask,
    LosesBytes,
    LosesKeys,
    NeverEnds,
    Reverses,
    Shout,
    Slow,
    SpeaksAfterCancelled,
    SpeaksBehindAnError,
    SwallowsCancelled,
    SwallowsItsErrors,
    TakesAll,
    Teller,
    Upper,
)

from pipeline.stage import Stage
from pipeline.testing import call_chunk, check_conformance, chunk, items_of, make_stage, text_chunk

ITEMS = [
    chunk(role="assistant"),
    *items_of(b": comment\n\n"),
    text_chunk("a"),
    call_chunk(0, "c", "f", "{}"),
    text_chunk("b", finish="stop"),
    *items_of(b"data: [DONE]\n\n"),
]


class TestConformance:
    """Stages that keep their promises pass."""

    @pytest.mark.parametrize("stage", [Stage, Encoder, Shout, Teller])
    async def test_good_stages(self, stage):
        """Passing on, encoding, editing, adding and dropping are all right."""
        await check_conformance(lambda: make_stage(stage), ITEMS)

    async def test_holding_back_with_leave(self):
        """A stage that says that it holds frames back may."""
        await check_conformance(lambda: make_stage(Holder), ITEMS[:-1], may_hold=True)

    async def test_stage_of_bytes(self):
        """A stage that takes bytes is checked with bytes."""
        await check_conformance(lambda: make_stage(Upper), [b"a", b"b", b"c"])

    async def test_nothing_to_check_with(self):
        """Without items every stage would pass, so that is a mistake."""
        with pytest.raises(ValueError, match="items is empty"):
            await check_conformance(lambda: make_stage(Stage), [])


BROKEN = [
    (Crashes, "must not raise for any item, but raises KeyError('content') for chunk {"),
    (ChangesInPlace, "must not change an item in place, but changed "),
    (
        CountsBursts,
        "must give the same however items are cut into bursts, but for bursts of [1, 1, 1, 1, 1, 1] it gives ",
    ),
    (NeverEnds, "must close its send end once its source has ended, but has not after 30.0 s"),
    (SwallowsItsErrors, "must let pass what its feed raises, so that the client is told, but swallows it"),
    (SwallowsCancelled, "must let trio.Cancelled pass, but swallows it"),
    (SpeaksAfterCancelled, "must send nothing once it is cancelled, but does"),
    (LeavesAClone, "must leave no clone of its channels open, but does"),
    (LeavesATask, "must leave no task behind, but does"),
    (GoesOnWhenFinished, "must be left alone once it is finished or closed, but its run calls feed after that"),
    (ClosesTwice, "must be left alone once it is finished or closed, but its run calls close after that"),
    (TakesAll, "must stop taking while nobody takes what it gives, but took 18 of 18 bursts, though burst 1 made"),
    (DropsErrors, "must pass a StreamError on, but drops it"),
    (SpeaksBehindAnError, "must give nothing behind a StreamError without bytes, but gives chunk {"),
    (Holder, "must not delay an ordinary frame until a later one arrives, but gives item 0 only after it got item 1"),
    (
        DelayingEncoder,
        "must not delay an ordinary frame until a later one arrives, but gives item 0 only after it got item 1",
    ),
    (LosesKeys, "must keep keys that it does not know, but gives chunk {"),
    (LosesBytes, "must keep the bytes of a chunk that it does not edit, but loses data: {"),
]


@pytest.mark.parametrize(("stage", "message"), BROKEN, ids=[stage.__name__ for stage, _ in BROKEN])
async def test_broken_promise(stage, message, autojump_clock):
    """Each promise that a stage breaks is named in one line, with the stage and what was seen."""
    LeavesAClone.clones.clear()
    with pytest.raises(AssertionError) as caught:
        await check_conformance(lambda: make_stage(stage), ITEMS)
    assert str(caught.value).startswith(f"{stage.__name__} {message}")
    assert "\n" not in str(caught.value)
    for clone in LeavesAClone.clones:
        clone.close()


async def test_reordering_is_found_although_it_may_hold():
    """Leave to hold frames back is no leave to reorder them."""
    with pytest.raises(AssertionError, match=r"Reverses must not reorder ordinary frames, but gives .* in the order"):
        await check_conformance(lambda: make_stage(Reverses), ITEMS[:-1], may_hold=True)


async def test_awaiting_stage(autojump_clock):
    """A stage that takes its time may, if it holds frames back openly."""
    await check_conformance(lambda: make_stage(Slow), ITEMS, may_hold=True)
