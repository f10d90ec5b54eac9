"""Large bursts go through their stages a few at a time, and nobody waits for another request's client or stage."""

from __future__ import annotations

import trio
from harness import DONE, ScriptedUpstream, chunk, gateway_and_upstream
from trio.testing import wait_all_tasks_blocked

from pipeline import Stage
from server.burst_gate import LARGE_BURST_BYTES, new_burst_gate
from server.demand import Demand

LARGE = [chunk({"content": "x" * 2000}) * 40, chunk({}, finish="stop"), DONE]


async def test_a_place_is_given_back_when_the_burst_is_swallowed():
    """A burst that never comes out holds its place for a few turns of the scheduler only."""
    gate = new_burst_gate()
    places = gate.value
    demand = Demand(3, gate)
    async with gate:
        demand.sent()
        await demand.wait_until_taken()
    assert gate.value == places


async def test_cancellation_gives_the_place_back():
    """A request that ends in the middle of a burst leaves its place to others."""
    gate = new_burst_gate()
    places = gate.value
    with trio.CancelScope() as scope:
        async with gate:
            scope.cancel()
            await Demand(3, gate).wait_until_taken()
            await trio.lowlevel.checkpoint()
    assert gate.value == places


class Stuck(Stage):
    """Takes one burst, and gives nothing; it is there for one model."""

    @classmethod
    def is_idle(cls, options, context):  # noqa: ARG003 - it has none
        """Whether it is another model's request."""
        return context.request["model"] != "stuck"

    async def run(self, receive, send):  # noqa: ARG002 - it gives nothing
        """Wait for ever. Checkpoints."""
        await receive.receive()
        await trio.sleep_forever()


async def test_a_stage_that_waits_holds_up_nobody():
    """Stages that take no more of their large bursts leave the gate to other requests."""
    script = [LARGE[0]] * 5 + LARGE[1:]
    async with gateway_and_upstream(ScriptedUpstream(script), [f"{__name__}:Stuck", "sse_encoder"]) as (gateway, _):
        stuck = [await gateway.completion(model="stuck") for _ in range(8)]
        await wait_all_tasks_blocked(0.05)
        with trio.fail_after(10):
            assert await (await gateway.completion()).read_all() == b"".join(script)
        for response in stuck:
            await response.stream.aclose()


async def test_clients_that_do_not_read_hold_up_nobody():
    """More clients than there are places stop reading in the middle of large bursts; another one gets all of its own."""
    assert len(LARGE[0]) > LARGE_BURST_BYTES
    async with gateway_and_upstream(ScriptedUpstream(LARGE)) as (gateway, _):
        stopped = [await gateway.connect(receive_buffer=4096) for _ in range(8)]
        for stream in stopped:
            await gateway.completion(stream=stream)
        await wait_all_tasks_blocked(0.05)
        with trio.fail_after(10):
            response = await gateway.completion()
            assert await response.read_all() == b"".join(LARGE)
        for stream in stopped:
            await stream.aclose()
