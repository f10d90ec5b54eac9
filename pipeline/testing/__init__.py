"""What stages are tested with: Callahead's own, and yours.

Nothing here needs a test runner, a server or a network; what is async needs only Trio. A test of a stage reads::

    def test_shouts():
        stage = make_stage(Shout, options={"mark": "!"})
        (chunk,) = run_stage(stage, [text_chunk("hello")])
        assert chunk.payload["choices"][0]["delta"] == {"content": "HELLO!"}

    async def test_keeps_the_promises_of_a_stage():
        await check_conformance(lambda: make_stage(Shout), [text_chunk("hello"), text_chunk("you", finish="stop")])
"""

from pipeline.testing.builders import call_chunk, chunk, frames_of, items_of, text_chunk, with_shapes
from pipeline.testing.conformance import check_conformance
from pipeline.testing.cuts import cut_everywhere, random_cuts
from pipeline.testing.odd_payloads import odd_payloads
from pipeline.testing.running import (
    RecordingObserver,
    make_stage,
    run_stage,
    run_stage_in_channels,
    run_stages,
)

__all__ = [
    "RecordingObserver",
    "call_chunk",
    "check_conformance",
    "chunk",
    "cut_everywhere",
    "frames_of",
    "items_of",
    "make_stage",
    "odd_payloads",
    "random_cuts",
    "run_stage",
    "run_stage_in_channels",
    "run_stages",
    "text_chunk",
    "with_shapes",
]
