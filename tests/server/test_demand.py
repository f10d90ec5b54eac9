"""A source waits for the client: what is under way is one burst, not one for each stage."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio
from harness import DONE, ScriptedUpstream, chunk, gateway_and_upstream
from trio.testing import wait_all_tasks_blocked

from server.burst_gate import new_burst_gate
from server.demand import Demand
from server.response_body import PipelineBody


async def waits(demand: Demand) -> bool:
    """Whether `wait` does not come back by itself."""
    came_back = trio.Event()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await demand.wait()
            came_back.set()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return not came_back.is_set()


async def test_it_waits_while_the_body_is_busy():
    """After a burst was taken the source waits until more is wanted."""
    demand = Demand(3, new_burst_gate())
    demand.taken()
    assert await waits(demand)
    demand.wants_more()
    assert not await waits(demand)


async def test_a_burst_that_no_stage_lets_through_is_not_waited_for():
    """A stage may swallow a whole burst; the source then goes on after a few turns."""
    demand = Demand(3, new_burst_gate())
    demand.sent()
    assert not await waits(demand)


async def test_it_is_woken_by_the_body():
    """A source that waits goes on as soon as the body has written what it had."""
    demand = Demand(3, new_burst_gate())
    demand.taken()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(demand.wait)
        await wait_all_tasks_blocked()
        demand.wants_more()


async def test_a_client_that_stops_and_goes_on_gets_every_byte():
    """Nothing is lost or doubled by the waiting, however the client reads."""
    script = [chunk({"content": f"{n} " + "x" * 500}) * 20 for n in range(100)]
    script += [chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script)) as (gateway, _):
        stream = await gateway.connect(receive_buffer=4096)
        response = await gateway.completion(stream=stream)
        await wait_all_tasks_blocked(0.05)
        with trio.fail_after(20):
            assert await response.read_all() == b"".join(script)


async def test_it_waits_again_where_the_body_was_quicker():
    """A body that takes the next burst before the source had its turn is busy again, and is waited for again."""
    demand = Demand(3, new_burst_gate())
    demand.taken()
    came_back = trio.Event()

    async def wait() -> None:
        await demand.wait()
        came_back.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        demand.wants_more()
        demand.taken()
        await wait_all_tasks_blocked()
        assert not came_back.is_set()
        demand.wants_more()
        await came_back.wait()


async def test_a_keepalive_is_a_write_as_well(autojump_clock):
    """While the body writes a keepalive, which is nothing of the source's, the source waits too."""
    demand = Demand(3, new_burst_gate())
    send, receive = trio.open_memory_channel[list[bytes]](0)

    @asynccontextmanager
    async def silent():
        with send, receive:
            yield receive

    async with PipelineBody(silent(), demand, keepalive_interval=10) as body:
        assert await anext(body) == b": keepalive\n\n"
        assert demand.is_busy
        assert await waits(demand)
