"""The stage alone, without a server."""

from __future__ import annotations

import pytest
from my_stages import Redact

from pipeline import Chunk, PlanError, Stage
from pipeline.testing import call_chunk, check_conformance, make_stage, run_stage, text_chunk


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

    def make() -> Stage:
        return make_stage(Redact)

    await check_conformance(make, [text_chunk("1 of"), text_chunk(" 2"), text_chunk("", finish="stop")])
