"""The queue that refuses instead of making anybody wait."""

import pytest
import trio

from server.capture.queue import BoundedQueue


async def test_bounded_by_items():
    """It refuses what is over the count, and takes again when there is room."""
    queue = BoundedQueue(2, 1000)
    assert [queue.offer(item, 1) for item in "abc"] == [True, True, False]
    assert await queue.take(1, 1000) == ["a"]
    assert queue.offer("d", 1)
    assert await queue.take(9, 1000) == ["b", "d"]
    assert len(queue) == 0


async def test_bounded_by_bytes():
    """It refuses what is over the bytes; an empty one takes an item of any size."""
    queue = BoundedQueue(100, 10)
    assert queue.offer("a", 6)
    assert queue.offer("b", 4)
    assert not queue.offer("c", 1)
    assert await queue.take(9, 1000) == ["a", "b"]
    assert queue.offer("huge", 5000)
    assert not queue.offer("d", 1)
    assert await queue.take(9, 10) == ["huge"]
    assert [queue.offer("e", 6), queue.offer("f", 4)] == [True, True]
    assert await queue.take(1, 10) == ["e"]
    assert queue.offer("g", 6)
    assert not queue.offer("h", 1)


async def test_a_batch_has_limits():
    """No more items and no more bytes than asked for, but one at least."""
    queue = BoundedQueue(100, 1000)
    for item in "abcde":
        queue.offer(item, 10)
    assert await queue.take(2, 1000) == ["a", "b"]
    assert await queue.take(9, 25) == ["c", "d"]
    assert await queue.take(9, 0) == ["e"]


async def test_taking_waits(autojump_clock):
    """An empty queue makes its consumer wait for the next item; a cancelled wait takes nothing."""
    queue = BoundedQueue(2, 10)
    with trio.move_on_after(1) as scope:
        await queue.take(1, 10)
    assert scope.cancelled_caught
    got = []
    async with trio.open_nursery() as nursery:

        async def consume() -> None:
            got.extend(await queue.take(9, 10))

        nursery.start_soon(consume)
        await trio.testing.wait_all_tasks_blocked()
        queue.offer("a", 1)
    assert got == ["a"]


@pytest.mark.parametrize(("ends", "waited"), [("time", 5), ("items", 2), ("bytes", 2), ("closed", 2)])
async def test_filling(ends, waited, autojump_clock):
    """It is given the time, but no more once it is half full or closed; nothing is taken out."""
    queue = BoundedQueue(4, 100)
    queue.offer("a", 1)

    async def change() -> None:
        await trio.sleep(2)
        match ends:
            case "items":
                queue.offer("b", 1)
            case "bytes":
                queue.offer("b", 49)
            case "closed":
                queue.close()

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await queue.fill(5)
        assert trio.current_time() - began == waited
        await queue.fill(5)
        assert trio.current_time() - began == (10 if ends == "time" else waited)
    assert (await queue.take(9, 100))[0] == "a"


async def test_a_pause_costs_no_item(autojump_clock):
    """What would be too much beside what is in ends the pause instead of being lost; only then is more refused."""
    queue = BoundedQueue(10, 100)
    queue.offer("a", 40)
    got = []

    async def consume() -> None:
        await queue.fill(5)
        got.append((trio.current_time() - began, await queue.take(9, 10_000)))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await trio.sleep(1)
        assert [queue.offer("large", 5000), queue.offer("more", 1)] == [True, False]
    assert got == [(1, ["a", "large"])]


async def test_closing():
    """A closed queue takes nothing more, gives what is in, and then nothing; a waiting consumer is told."""
    queue = BoundedQueue(9, 10)
    queue.offer("a", 1)
    queue.close()
    assert not queue.offer("b", 1)
    assert await queue.take(9, 10) == ["a"]
    assert await queue.take(9, 10) == []
    other = BoundedQueue(9, 10)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.take, 1, 1)
            await trio.testing.wait_all_tasks_blocked()
            other.close()


def test_clearing():
    """What is thrown away is counted, and its room is free again."""
    queue = BoundedQueue(2, 10)
    queue.offer("a", 5)
    queue.offer("b", 5)
    assert queue.clear() == 2
    assert [queue.offer(item, 5) for item in "cd"] == [True, True]
