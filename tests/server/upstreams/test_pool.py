"""Places and idle connections, without sockets."""

from __future__ import annotations

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from server.upstreams.pool import Pool, PoolStatistics


@attrs.define(eq=False)
class Fake:
    """A connection that remembers what was done to it."""

    quiet: bool = True
    closed: bool = False

    def is_quiet(self):
        """As it was told."""
        return self.quiet

    def close(self):
        """Remembered."""
        self.closed = True


def counts(pool):
    found = pool.statistics()
    return (found.open, found.idle, found.waiting)


async def used(pool, connection, *, keep=True):
    """Put a connection through one request."""
    place = await pool.acquire()
    place.occupy(connection)
    place.release(keep=keep)


async def test_kept_connection_is_taken_again():
    """The one used last is taken first, and is no longer idle then."""
    pool = Pool(0, 15)
    first, second = Fake(), Fake()
    places = [await pool.acquire(), await pool.acquire()]
    for place, connection in zip(places, (first, second), strict=True):
        place.occupy(connection)
    for place in places:
        place.release(keep=True)
    assert counts(pool) == (2, 2, 0)
    assert pool.take_idle() is second
    assert pool.take_idle() is first
    assert pool.take_idle() is None


async def test_connection_that_is_not_kept_is_closed():
    """A place that is given back without ``keep`` leaves nothing."""
    pool = Pool(0, 15)
    connection = Fake()
    await used(pool, connection, keep=False)
    assert connection.closed
    assert pool.statistics() == PoolStatistics(open=0, idle=0, waiting=0)


async def test_dead_idle_connections_are_passed_over():
    """A connection with something to read, its end for example, is closed and the next one taken."""
    pool = Pool(0, 15)
    alive, dead = Fake(), Fake()
    first, second = await pool.acquire(), await pool.acquire()
    first.occupy(alive)
    second.occupy(dead)
    first.release(keep=True)
    second.release(keep=True)
    dead.quiet = False
    assert pool.take_idle() is alive
    assert dead.closed


async def test_expired_connections_are_closed(autojump_clock):
    """After ``keep_alive_timeout`` a connection is not used again, and is closed when the pool is next used."""
    pool = Pool(0, 15)
    old, young = Fake(), Fake()
    await used(pool, old)
    await trio.sleep(14)
    assert not old.closed
    place = await pool.acquire()
    place.occupy(young)
    await trio.sleep(1)
    place.release(keep=True)
    assert old.closed
    assert pool.take_idle() is young


async def test_keep_alive_timeout_of_zero_keeps_nothing():
    """0 means one request for each connection."""
    pool = Pool(0, 0)
    connection = Fake()
    await used(pool, connection)
    assert connection.closed


async def test_places_are_given_first_come_first_served():
    """With one place, requests have it in the order in which they came."""
    pool = Pool(1, 15)
    order = []

    async def request(number):
        place = await pool.acquire()
        order.append(number)
        await trio.lowlevel.checkpoint()
        place.release()

    with trio.fail_after(5):
        held = await pool.acquire()
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(request, number)
                await wait_all_tasks_blocked()
            assert counts(pool) == (1, 0, 5)
            held.release()
            late = await pool.acquire()  # comes last although it was awake first
            order.append("late")
            late.release()
    assert order == [0, 1, 2, 3, 4, "late"]
    assert counts(pool) == (0, 0, 0)


async def test_cancelled_wait_takes_no_place():
    """Requests that gave up waiting do not stand in the way of those behind them."""
    pool = Pool(1, 15)
    held = await pool.acquire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.acquire)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    held.release()
    with trio.fail_after(1):
        (await pool.acquire()).release()
    assert counts(pool) == (0, 0, 0)


async def test_wait_that_is_cancelled_as_its_turn_comes_loses_no_place():
    """A place that is freed in the same moment as its waiter is cancelled goes to somebody."""
    pool = Pool(1, 15)
    got = []

    async def request():
        got.append(await pool.acquire())

    held = await pool.acquire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(request)
        await wait_all_tasks_blocked()
        held.release()
        nursery.cancel_scope.cancel()
    for place in got:
        place.release()
    with trio.fail_after(1):
        (await pool.acquire()).release()


async def test_release_twice_frees_one_place():
    """Giving back is idempotent, whatever the second call says."""
    pool = Pool(1, 15)
    connection = Fake()
    place = await pool.acquire()
    place.occupy(connection)
    place.release(keep=True)
    place.release()
    assert not connection.closed
    assert counts(pool) == (1, 1, 0)


async def test_occupied_again_closes_the_former():
    """A connection that is replaced on its place is closed."""
    pool = Pool(1, 15)
    stale, fresh = Fake(), Fake()
    place = await pool.acquire()
    place.occupy(stale)
    place.occupy(fresh)
    assert stale.closed
    place.release(keep=True)
    assert pool.take_idle() is fresh


async def test_closed_pool_keeps_nothing():
    """Closing closes the idle connections now and the others when they come back."""
    pool = Pool(0, 15)
    idle, busy = Fake(), Fake()
    place = await pool.acquire()
    place.occupy(busy)
    await used(pool, idle)
    pool.close()
    assert idle.closed
    assert not busy.closed
    place.release(keep=True)
    assert busy.closed
    assert counts(pool) == (0, 0, 0)
