"""Clients that leave: nothing of their request is left within 100 ms."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from harness import ScriptedUpstream, chunk, gateway_and_upstream

PIECE = chunk({"content": "x" * 50})
LINGER_RST = b"\x01\x00\x00\x00\x00\x00\x00\x00"


async def a_moment() -> None:
    await trio.sleep(0.001)


def script_for(moment: str) -> dict[str, Any]:
    match moment:
        case "silence":
            return {"script": [PIECE, "stall"]}
        case "flow":
            return {"script": [step for _ in range(20_000) for step in (PIECE, a_moment)]}
        case "flood":
            return {"script": [PIECE * 100] * 100_000}
        case "before_headers":
            return {"before_headers": ["stall"]}
    raise AssertionError(moment)


def tasks_of_requests() -> list[str]:
    """The names of the tasks that requests run in."""
    names = []
    pending = [trio.lowlevel.current_root_task()]
    while pending:
        task = pending.pop()
        for nursery in task.child_nurseries:
            pending += nursery.child_tasks
        if task.name.startswith(("stage ", "source")):
            names.append(task.name)
    return names


@pytest.mark.parametrize("way", ["fin", "rst"])
@pytest.mark.parametrize("moment", ["silence", "flow", "flood", "before_headers"])
async def test_a_client_that_leaves_takes_its_upstream_connection_along(moment, way):
    """While chunks flow, in a silence, in a flood, before the upstream's headers; by FIN or by RST."""
    async with gateway_and_upstream(ScriptedUpstream(**script_for(moment))) as (gateway, upstream):
        stream = await gateway.connect()
        if moment == "before_headers":
            head = b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 32\r\n\r\n{"stream": true, "messages": []}'
            await stream.send_all(head)
            with trio.fail_after(5):
                await upstream.got_request.wait()
        else:
            response = await gateway.completion(stream=stream)
            await response.frame()
        if way == "rst":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RST)
        with trio.fail_after(5):
            await trio.aclose_forcefully(stream)
            left = trio.current_time()
            await upstream.connection_gone.wait()
            taken = trio.current_time() - left
            in_flight = gateway.gateway.metrics.requests_in_flight._value.get  # noqa: SLF001 - no public reader
            while tasks_of_requests() or in_flight():  # noqa: ASYNC110 - they end in Hypercorn's tasks
                await trio.sleep(0.005)
        assert taken < 0.1
        assert not gateway.gateway.streams
        disconnects = gateway.gateway.metrics.client_disconnects._value.get()  # noqa: SLF001 - no public reader
        assert disconnects == 1


async def test_a_slow_reader_slows_the_upstream():
    """A client that stops reading stops the upstream: what is under way stays bounded."""
    scripted = ScriptedUpstream(script=[PIECE * 100] * 100_000)
    async with gateway_and_upstream(scripted) as (gateway, upstream):
        stream = await gateway.connect(receive_buffer=4096)
        await gateway.completion(stream=stream)
        before = -1
        with trio.fail_after(10):
            while upstream.sent != before:
                before = upstream.sent
                await trio.sleep(0.2)
        assert upstream.sent < 8_000_000  # the kernel's buffers between upstream and gateway are most of it
        await trio.aclose_forcefully(stream)
