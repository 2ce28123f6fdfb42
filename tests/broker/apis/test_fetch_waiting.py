"""Fetch requests that wait: which events end the wait and which do not. No watch and no timer is left behind."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from broker.apis.fetch import fetch as fetch_handler
from broker.metadata.values import Topic
from broker.requests.api import CloseConnection
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from tests.broker.apis.reading_world import World, asked, partitions_of, request, size_of
from tests.support.coroutines import served

fetch = served(fetch_handler)

WAIT_MS = 500


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def ask(world: World, *topics, version: int = 12, min_bytes: int = 1, **more):
    parameters = {"max_wait_ms": WAIT_MS, "min_bytes": min_bytes, **more}
    return fetch(request(*topics, version=version, **parameters), world.context(version))


def park(world: World, *topics, **more) -> asyncio.Future[FetchResponse]:
    waiting = ask(world, *topics, **more)
    assert isinstance(waiting, asyncio.Future), "the Fetch should wait, but has its response"
    assert not waiting.done()
    return waiting


async def turn() -> None:
    """Run the callbacks that are scheduled with ``call_soon``."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def assert_nothing_left(world: World) -> None:
    assert world.watchers == 0
    assert world.clock.timers == []


async def test_data_ends_the_wait_in_the_turn_after_the_append(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]))
    batch = world.produce()
    assert not waiting.done(), "the Produce response comes before the Fetch response"
    await turn()
    assert partitions_of(waiting.result())["t", 0].records == batch
    assert_nothing_left(world)


async def test_a_waiting_fetch_is_one_timer_and_a_watch_on_each_partition(world):
    topic = world.add_topic("t", 3)
    park(world, (topic, [asked(0), asked(1), asked(2)]))
    assert len(world.clock.timers) == 1
    assert world.watchers == 3


async def test_after_max_wait_the_available_data_is_returned(world):
    topic = world.add_topic("t", 2)
    waiting = park(world, (topic, [asked(0), asked(1)]), min_bytes=10_000)
    world.produce(index=1)
    await turn()
    world.clock.advance(WAIT_MS - 1)
    assert not waiting.done()
    world.clock.advance(1)
    assert partitions_of(waiting.result())["t", 1].records
    assert_nothing_left(world)


async def test_bytes_of_all_partitions_count(world):
    topic = world.add_topic("t", 2)
    size = len(world.produce(index=0))
    waiting = park(world, (topic, [asked(0), asked(1)]), min_bytes=2 * size)
    world.produce(index=1)
    await turn()
    assert [size_of(each) for each in partitions_of(waiting.result()).values()] == [size, size]


async def test_bytes_beyond_a_partitions_own_limit_do_not_count(world):
    topic = world.add_topic("t")
    size = len(world.produce())
    waiting = park(world, (topic, [asked(max_bytes=size)]), min_bytes=size + 1)
    world.produce()
    await turn()
    assert not waiting.done()
    world.clock.advance(WAIT_MS)
    assert size_of(partitions_of(waiting.result())["t", 0]) == size


async def test_min_bytes_above_max_bytes_is_capped(world):
    topic = world.add_topic("t")
    size = len(world.produce())
    assert isinstance(ask(world, (topic, [asked()]), min_bytes=1 << 30, max_bytes=size), FetchResponse)


@pytest.mark.parametrize("more", [{"max_wait_ms": 0}, {"max_wait_ms": -1}])
async def test_without_max_wait_the_response_is_immediate(world, more):
    topic = world.add_topic("t")
    response = fetch(request((topic, [asked()]), min_bytes=1, **more), world.context(12))
    assert isinstance(response, FetchResponse)


async def test_without_min_bytes_there_is_no_wait(world):
    topic = world.add_topic("t")
    assert isinstance(ask(world, (topic, [asked()]), min_bytes=0), FetchResponse)


@pytest.mark.parametrize(
    "partition",
    [
        pytest.param({"offset": 9}, id="out of range"),
        pytest.param({"current_leader_epoch": 3}, id="unknown epoch"),
        pytest.param({"last_fetched_epoch": 3}, id="an unknown epoch"),
    ],
)
async def test_errors_never_wait(world, partition):
    topic = world.add_topic("t", 2)
    assert isinstance(ask(world, (topic, [asked(0), asked(1, **partition)])), FetchResponse)


async def test_a_divergence_never_waits(world):
    topic = world.add_topic("t", epoch=1)
    partition = world.partitions["t", 0]
    for epoch in (1, 3):
        partition.leader_epoch = epoch
        partition.log.assign_epoch(epoch)
        world.produce()
    response = ask(world, (topic, [asked(offset=2, last_fetched_epoch=1)]))
    assert isinstance(response, FetchResponse)
    assert partitions_of(response)["t", 0].diverging_epoch.end_offset == 1


async def test_a_topic_that_does_not_exist_alone_is_answered_at_once(world):
    assert isinstance(ask(world, (Topic("none", uuid.uuid4()), [asked()])), FetchResponse)


async def test_beside_a_topic_that_does_not_exist_the_others_wait(world):
    """A Fetch with an unknown topic waits for data of its other partitions: Kafka's errorReadingData covers only partitions
    that were read."""
    topic = world.add_topic("t")
    waiting = park(world, (Topic("none", uuid.uuid4()), [asked()]), (topic, [asked()]))
    world.clock.advance(WAIT_MS)
    errors = {name: each.error_code for (name, _), each in partitions_of(waiting.result()).items()}
    assert errors == {"t": 0, "none": ErrorCode.unknown_topic_or_partition}


async def test_read_committed_waits_on_the_last_stable_offset(world):
    topic = world.add_topic("t")
    world.produce_in_transaction(7)
    waiting = park(world, (topic, [asked()]), isolation_level=1)
    world.produce()
    world.produce_in_transaction(7, sequence=1)
    await turn()
    assert not waiting.done(), "appends behind an open transaction do not complete a read_committed Fetch"
    world.end(7, committed=True)
    await turn()
    answer = partitions_of(waiting.result())["t", 0]
    assert answer.last_stable_offset == 4
    assert answer.records
    assert_nothing_left(world)


async def test_read_uncommitted_does_not_wait_for_the_marker(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]))
    world.produce_in_transaction(7)
    await turn()
    assert waiting.done()
    assert partitions_of(waiting.result())["t", 0].records


async def test_an_offset_beyond_what_may_be_read_is_answered_at_once(world):
    """A consumer that fetches beyond the last stable offset gets its response at once, by case F of Kafka's DelayedFetch: a
    truncated leader. Kafka wrote the case for followers, but it covers consumers too."""
    topic = world.add_topic("t")
    world.produce_in_transaction(7)
    world.produce()
    response = ask(world, (topic, [asked(offset=1)]), isolation_level=1)
    assert isinstance(response, FetchResponse)
    assert partitions_of(response)["t", 0].records == b""


async def test_a_read_from_an_older_segment_never_waits(world):
    topic = world.add_topic("t", segment_bytes=1000)
    first = world.produce(size=900)
    world.produce(size=900)
    response = ask(world, (topic, [asked()]), min_bytes=1_000_000)
    assert isinstance(response, FetchResponse)
    assert partitions_of(response)["t", 0].records == first


async def test_a_lost_leader_ends_the_wait(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]))
    world.errors["t", 0] = ErrorCode.not_leader_or_follower
    world.partitions["t", 0].stop_leading(ErrorCode.not_leader_or_follower)
    await turn()
    assert partitions_of(waiting.result())["t", 0].error_code == ErrorCode.not_leader_or_follower
    assert_nothing_left(world)


async def test_a_new_leader_epoch_ends_waits_with_the_old_epoch(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked(current_leader_epoch=0)]))
    partition = world.partitions["t", 0]
    partition.leader_epoch = 1
    partition.delayed.notify()
    await turn()
    assert partitions_of(waiting.result())["t", 0].error_code == ErrorCode.fenced_leader_epoch


async def test_a_log_start_that_passes_the_reader_ends_the_wait(world):
    topic = world.add_topic("t")
    for _ in range(3):
        world.produce()
    partition = world.partitions["t", 0]
    waiting = park(world, (topic, [asked(offset=1, last_fetched_epoch=0)]), min_bytes=10_000)
    partition.delete_records(2)
    await turn()
    assert partitions_of(waiting.result())["t", 0].error_code == ErrorCode.offset_out_of_range


async def test_many_appends_in_one_turn_cause_one_read(world):
    topic = world.add_topic("t")
    park(world, (topic, [asked()]), min_bytes=100_000)
    looks = 0
    partition = world.partitions["t", 0]
    readable = partition.readable_bytes

    def counting(*arguments, **more):
        nonlocal looks
        looks += 1
        return readable(*arguments, **more)

    partition.readable_bytes = counting
    for _ in range(50):
        world.produce()
    await turn()
    assert looks == 1


def parked(world: World):
    """What the node's only suspended coroutine, a Fetch in purgatory, waits for."""
    (suspended,) = world.node.life.suspended_coroutines
    return suspended.waits_at


@pytest.mark.parametrize("moved", [False, True])
async def test_a_disconnected_client_leaves_no_watch_and_no_timer(world, moved):
    topic = world.add_topic("t", 2)
    waiting = park(world, (topic, [asked(0), asked(1)]))
    if moved:
        world.produce()
    parked(world).client_gone()
    assert_nothing_left(world)
    await turn()
    with pytest.raises(CloseConnection):
        waiting.result()


@pytest.mark.parametrize("looks", [0, 1, 2])
@pytest.mark.parametrize("moved", [False, True])
async def test_a_node_that_dies_leaves_no_watch_and_no_timer(world, looks, moved):
    """A node that is killed while a Fetch waits leaves no watch and no timer: before the first read, after reads that found
    too little data, or between an append and the read after it."""
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]), min_bytes=100_000)
    for _ in range(looks):
        world.produce()
        await turn()
    if moved:
        world.produce()
    world.node.life.end()
    assert_nothing_left(world)
    await turn()
    assert not waiting.done(), "the client of a dead node gets no response"


@pytest.mark.parametrize("gives_way", [False, True])
async def test_a_fetch_that_gives_way_returns_the_available_data(world, gives_way):
    topic = world.add_topic("t")
    world.node.config.fetch_gives_way = gives_way
    waiting = park(world, (topic, [asked()]), min_bytes=100_000)
    world.produce()
    parked(world).give_way()
    assert waiting.done() == gives_way
    if gives_way:
        assert partitions_of(waiting.result())["t", 0].records
        assert_nothing_left(world)


async def test_a_failed_read_fails_the_fetch_and_not_the_append(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]))
    world.partitions["t", 0].check_epoch = None
    world.partitions["t", 0].readable_bytes = None
    world.produce()
    await turn()
    with pytest.raises(TypeError):
        waiting.result()
    assert_nothing_left(world)


async def test_a_timeout_and_data_in_one_turn_cause_one_response(world):
    topic = world.add_topic("t")
    waiting = park(world, (topic, [asked()]))
    world.produce()
    world.clock.advance(WAIT_MS)
    assert waiting.done()
    await turn()
    assert_nothing_left(world)


async def test_a_session_waits_for_all_its_partitions(world):
    topic = world.add_topic("t", 2)
    first = fetch(request((topic, [asked(0), asked(1)]), session_epoch=0), world.context(12))
    assert isinstance(first, FetchResponse)
    waiting = park(world, session_id=first.session_id, session_epoch=1)
    world.produce(index=1)
    await turn()
    assert list(partitions_of(waiting.result())) == [("t", 1)]


async def test_of_two_waiting_fetches_of_one_session_the_first_is_refused(world):
    topic = world.add_topic("t")
    session_id = fetch(request((topic, [asked()]), session_epoch=0), world.context(12)).session_id
    waiting = park(world, session_id=session_id, session_epoch=1)
    newer = park(world, session_id=session_id, session_epoch=2)
    world.produce()
    await turn()
    assert waiting.result().error_code == ErrorCode.invalid_fetch_session_epoch
    assert partitions_of(newer.result())["t", 0].records
