"""`server.write_timeout` on real sockets: who takes nothing is cut off, who takes little is not (traps, H2)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from harness import DONE, ScriptedUpstream, chunk, gateway_and_upstream

from server import write_limit
from server.write_limit import Outgoing, WriteLimit

PIECE = chunk({"content": "x" * 1000})
FLOOD = [PIECE * 50] * 100_000
LOOKS = 5
"""So many that find nothing changed cut a client off: the first has nothing to compare with."""


@asynccontextmanager
async def outgoing_and_client() -> AsyncIterator[tuple[Outgoing, trio.socket.SocketType, trio.socket.SocketType]]:
    """What is sent to a client, its socket on our side and on the client's; nobody looks but the test."""
    with trio.socket.socket() as listener, trio.socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        await client.connect(listener.getsockname())
        ours, _ = await listener.accept()
        with ours:
            yield Outgoing(ours, WriteLimit(1000)), ours, client


def taken(outgoing: Outgoing, ours: trio.socket.SocketType) -> tuple[int, int | None]:
    """What changes when the client's system takes something."""
    return outgoing._sent, write_limit._unsent_bytes(ours)  # noqa: SLF001 - what the code under test sees


async def send_until_cut(outgoing: Outgoing) -> None:
    """Send what nobody could take in time, and find the connection closed."""
    with pytest.raises((OSError, trio.ClosedResourceError)):
        await outgoing.send_all(bytes(100_000_000))


async def read_to_the_end(stream: trio.SocketStream) -> None:
    """Read what is left, which is little, in a bounded time."""
    with trio.fail_after(5):
        while await stream.receive_some(65536):
            pass


async def half_a_second() -> None:
    await trio.sleep(0.5)


@pytest.mark.parametrize("says", [True, False])
async def test_a_client_that_takes_a_little_is_not_cut_off_and_one_that_takes_nothing_is(says, monkeypatch):
    """A little between any two looks of five is enough; where the system does not say it, as far as sending got on."""
    if not says:
        monkeypatch.setattr(write_limit, "_unsent_bytes", lambda _sock: None)
    async with outgoing_and_client() as (outgoing, ours, client), trio.open_nursery() as nursery:
        nursery.start_soon(send_until_cut, outgoing)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            for _ in range(LOOKS - 1):
                outgoing.look()
            before = taken(outgoing, ours)
            with trio.fail_after(5):
                while taken(outgoing, ours) == before:
                    await client.recv(1000)
        for _ in range(LOOKS):
            assert ours.fileno() >= 0
            outgoing.look()
        assert ours.fileno() < 0


async def test_where_the_system_does_not_say_what_was_taken_nothing_is_said_of_what_was_sent(monkeypatch):
    """It may have been taken: no client is cut off for it."""
    monkeypatch.setattr(write_limit, "_unsent_bytes", lambda _sock: None)
    async with outgoing_and_client() as (outgoing, ours, _):
        await outgoing.send_all(b"x")
        for _ in range(2 * LOOKS):
            outgoing.look()
        assert ours.fileno() >= 0


async def test_a_send_that_is_cancelled_closes_the_connection():
    """Half of what was to be sent has gone out: nothing may follow it."""
    async with outgoing_and_client() as (outgoing, ours, _):
        with trio.move_on_after(0.01):
            await outgoing.send_all(bytes(1_000_000))
        assert ours.fileno() < 0


async def test_a_reader_at_ten_kilobytes_a_second_is_not_cut_off():
    """Its window is shut most of the time, which Linux adds up under `TCP_USER_TIMEOUT`."""
    async with gateway_and_upstream(ScriptedUpstream(FLOOD), server={"write_timeout": 1}) as (gateway, upstream):
        stream = await gateway.connect(receive_buffer=4096)
        await gateway.completion(stream=stream)
        for _ in range(60):
            await trio.sleep(0.05)  # it is slow
            assert await stream.receive_some(500)
        assert not upstream.connection_gone.is_set()


@pytest.mark.parametrize(("script", "stray"), [(FLOOD, b""), (FLOOD, b"\r\n"), ([PIECE * 14, "stall"], b"")])
async def test_a_client_that_takes_nothing_is_cut_off(script, stray):
    """It gets a reset, and the upstream is freed: while more is to be sent, and while nothing is.

    A stray byte behind the request keeps Hypercorn from reading, so that only the send can notice (H3).
    """
    async with gateway_and_upstream(ScriptedUpstream(script), server={"write_timeout": 0.4}) as (gateway, upstream):
        stream = await gateway.connect(receive_buffer=4096)
        started = trio.current_time()
        await gateway.completion(stream=stream)
        await stream.send_all(stray)
        with trio.fail_after(5):
            await upstream.connection_gone.wait()
            assert trio.current_time() - started > 0.4
            with pytest.raises(trio.BrokenResourceError):
                await read_to_the_end(stream)
        in_flight = gateway.gateway.metrics.requests_in_flight._value.get  # noqa: SLF001 - no public reader
        with trio.fail_after(5):
            while in_flight():  # noqa: ASYNC110 - it ends in Hypercorn's tasks
                await trio.sleep(0.005)
        assert gateway.gateway.metrics.client_disconnects._value.get() == 1  # noqa: SLF001 - no public reader


async def test_a_client_that_has_all_may_wait_for_long():
    """Silence of the upstream is not the client's."""
    script = [chunk({"content": "a"}), half_a_second, chunk({}, finish="stop"), DONE]
    async with gateway_and_upstream(ScriptedUpstream(script), server={"write_timeout": 0.1}) as (gateway, _):
        response = await gateway.completion()
        assert len(await response.frames()) == 3


async def test_a_client_that_takes_nothing_does_not_hold_the_process():
    """At the end of the drain time a write is cancelled as anything else, also without a limit."""
    server = {"write_timeout": 0, "drain_timeout": 0.1}
    async with gateway_and_upstream(ScriptedUpstream(FLOOD), server=server) as (gateway, upstream):
        stream = await gateway.connect(receive_buffer=4096)
        await gateway.completion(stream=stream)
        await trio.testing.wait_all_tasks_blocked(0.1)
        gateway.stop.set()
        with trio.fail_after(5):
            await upstream.connection_gone.wait()
            await gateway.ended.wait()
            with contextlib.suppress(trio.BrokenResourceError):
                await read_to_the_end(stream)
