"""Dead-letter queues of share groups (KIP-1191): which records go there, into which topic, and with which headers."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from broker.metadata.creation import NewTopic
from broker.metadata.results import ApiError
from broker.share.state import Outcome, RecordState, SharePartitionKey, StoredState
from protocol.batch import batches
from protocol.errors import ErrorCode
from protocol.record import Record
from tests.broker.share.world import GROUP, REJECT, RELEASE, ShareWorld, acquired, turns

QUEUE = "dlq.g"


class Controller:
    """Creates topics in the cluster metadata of a `World`, or refuses to."""

    def __init__(self, world: ShareWorld) -> None:
        self.world = world
        self.asked = 0
        self.refusals: list[ErrorCode] = []

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[object]:
        self.asked += 1
        if self.refusals:
            return [ApiError(self.refusals.pop(0))]
        [new] = wanted
        queue(self.world, new.configs, new.name)
        return [SimpleNamespace(name=new.name)]


def queue(
    world: ShareWorld, configs: Mapping[str, str | None], name: str = QUEUE, partitions: int = 1
) -> None:
    world.world.create(name, partitions, **{key: str(value) for key, value in configs.items()})


ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture
def make(tmp_path):
    def make(**settings):
        world = ShareWorld(tmp_path, **settings)
        vars(world.cluster)["replication_control"] = Controller(world)
        world.create(partitions=3)
        world.initialize(start_offset=0)
        world.configure(errors_deadletterqueue_topic_name=QUEUE)
        return world

    return make


def controller(world: ShareWorld) -> Controller:
    return vars(world.cluster)["replication_control"]


def letters(world: ShareWorld, index: int = 0) -> list[Record]:
    partition = world.world.partition(QUEUE, index)
    found = partition.read(0, 1 << 20, read_committed=False, whole_first_batch=True)
    return [record for batch in batches(found.records) for record in batch.records()]


def states(world: ShareWorld) -> list[tuple[int, int, int]]:
    """(first offset, last offset, state) of each change that was written."""
    return [
        (each.first_offset, each.last_offset, each.state)
        for state in world.persister.written
        for each in state.batches
    ]


async def reject(world: ShareWorld, *offsets: int, index: int = 0) -> None:
    for epoch, offset in enumerate(offsets, 1):
        response = await world.acknowledge(epoch, {index: [(offset, offset, [REJECT])]})
        assert response.responses[0].partitions[0].error_code == 0
    await turns()


async def test_rejected_records_are_archiving_before_and_archived_after_they_are_written(make):
    world = make()
    queue(world, ENABLED)
    world.produce(5)
    await world.fetch(0, 0)
    await reject(world, 1, 2)
    assert [[(name, (value or b"").decode()) for name, value in each.headers] for each in letters(world)] == [
        [
            ("__dlq.errors.topic", "t1"),
            ("__dlq.errors.partition", "0"),
            ("__dlq.errors.offset", str(offset)),
            ("__dlq.errors.group", GROUP),
            ("__dlq.errors.delivery.count", "1"),
            ("__dlq.errors.message", "Offset rejected by client."),
        ]
        for offset in (1, 2)
    ]
    assert [(each.key, each.value) for each in letters(world)] == [(None, None)] * 2
    assert states(world) == [
        (1, 1, RecordState.ARCHIVING),
        (1, 1, RecordState.ARCHIVED),
        (2, 2, RecordState.ARCHIVING),
        (2, 2, RecordState.ARCHIVED),
    ]


async def test_the_share_partition_keeps_where_its_dead_letters_are_and_why_others_were_lost(make):
    world = make(errors_deadletterqueue_topic_name_prefix="dlq.")
    queue(world, ENABLED)
    world.produce(5)
    await world.fetch(0, 0)
    await reject(world, 1, 2)
    world.configure(errors_deadletterqueue_topic_name="letters")
    await world.acknowledge(3, {0: [(3, 4, [REJECT])]})
    await turns()
    [managed] = world.share.loaded().values()
    refused = "topic name does not start with 'dlq.' (errors.deadletterqueue.topic.name.prefix)"
    assert [each[:5] for each in managed.attempts] == [
        (1, 1, "dlq.g-0", 0, ""),
        (2, 2, "dlq.g-0", 1, ""),
        (3, 3, "", -1, refused),
        (4, 4, "", -1, refused),
    ]
    assert (managed.dead_letters, managed.dead_letters_lost) == (2, 2)


async def test_a_record_that_is_delivered_too_often_says_so(make):
    world = make(group_share_delivery_count_limit="2")
    queue(world, ENABLED)
    world.produce(1)
    for epoch in (0, 2):
        assert await world.acquired(epoch, 0) == [(0, 0, epoch // 2 + 1)]
        assert await world.ack(epoch + 1, (0, 0, [RELEASE])) == 0
    await turns()
    [letter] = letters(world)
    assert dict(letter.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"2"


async def test_key_and_value_are_copied_if_the_group_asks_for_it(make):
    world = make()
    world.configure(errors_deadletterqueue_copy_record_enable="true")
    queue(world, {**ENABLED, "max.message.bytes": "400"})
    world.world.produce("t1", 0, b"first", b"x" * 1000)
    await world.fetch(0, 0)
    await reject(world, 0, 1)
    assert [each.value for each in letters(world)] == [b"first", None], "too large for the topic"


async def test_a_large_range_is_written_over_many_turns_of_the_event_loop(make):
    """Other requests are served in between."""
    world = make()
    queue(world, {**ENABLED, "max.message.bytes": "2000"})
    world.produce(200)
    await world.fetch(0, 0)
    await world.acknowledge(1, {0: [(0, 199, [REJECT])]})
    before = len(letters(world))
    await turns()
    assert before < len(letters(world)) < 200
    for _ in range(10):
        await turns()
    assert len(letters(world)) == 200


async def test_the_partition_is_that_of_the_source_modulo_the_partitions_of_the_queue(make):
    world = make()
    queue(world, ENABLED, partitions=2)
    world.produce(1, index=2)
    world.produce(1, index=1)
    await world.fetch(0, 1, 2)
    await world.acknowledge(1, {1: [(0, 0, [REJECT])], 2: [(0, 0, [REJECT])]})
    await turns()
    for index, source in ((0, b"2"), (1, b"1")):
        assert [dict(each.headers)["__dlq.errors.partition"] for each in letters(world, index)] == [source]


async def test_the_topic_is_created_if_that_is_permitted(make):
    world = make(errors_deadletterqueue_auto_create_topics_enable="true")
    controller(world).refusals = [ErrorCode.topic_already_exists, ErrorCode.throttling_quota_exceeded]
    world.produce(1)
    await world.fetch(0, 0)
    await reject(world, 0)
    for delay_ms in (1000, 2000):
        world.clock.advance(delay_ms)
        await turns()
    assert len(letters(world)) == 1
    assert world.cluster.topics[QUEUE].configs == {**ENABLED, "message.timestamp.type": "CreateTime"}
    assert states(world)[-1] == (0, 0, RecordState.ARCHIVED)


@pytest.mark.parametrize(
    ("settings", "configs", "name"),
    [
        ({}, None, QUEUE),
        ({}, {}, QUEUE),
        ({"errors_deadletterqueue_auto_create_topics_enable": "true"}, None, "other"),
    ],
    ids=["no topic", "topic without the flag", "wrong prefix"],
)
async def test_records_that_cannot_be_written_are_archived_all_the_same(
    make, caplog, settings, configs, name
):
    world = make(**settings)
    world.configure(errors_deadletterqueue_topic_name=name)
    if configs is not None:
        queue(world, configs, name)
    world.produce(1)
    await world.fetch(0, 0)
    await reject(world, 0)
    assert controller(world).asked == 0
    assert states(world) == [(0, 0, RecordState.ARCHIVING), (0, 0, RecordState.ARCHIVED)]
    assert name not in world.cluster.topics or not letters(world)


async def test_an_archived_state_that_is_not_written_moves_the_start_and_wakes_fetches(make, monkeypatch):
    world = make(group_share_partition_max_record_locks="100")
    write = world.persister.write

    async def without_archived(key: SharePartitionKey, state: StoredState) -> Outcome:
        if state.batches[0].state == RecordState.ARCHIVED:
            return Outcome(ErrorCode.invalid_request)
        return await write(key, state)

    monkeypatch.setattr(world.persister, "write", without_archived)
    world.produce(100, 1)
    assert await world.acquired(0, 0) == [(0, 99, 1)]
    waiting = world.start_fetch(0, 0, member="m2", max_wait_ms=500, connection=2)
    await world.acknowledge(1, {0: [(0, 99, [REJECT])]})
    await turns()
    assert states(world) == [(0, 99, RecordState.ARCHIVING)]
    assert acquired(waiting.result()) == [(100, 100, 1)]


async def test_without_the_feature_level_records_are_archived_at_once(make):
    world = make(share_version=1)
    queue(world, ENABLED)
    world.produce(1)
    await world.fetch(0, 0)
    await reject(world, 0)
    assert letters(world) == []
    assert states(world) == [(0, 0, RecordState.ARCHIVED)]
