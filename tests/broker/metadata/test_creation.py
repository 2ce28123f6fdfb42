"""Every reason to reject a new topic, with Kafka's error code and message (recorded on 4.3.1)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from broker.metadata.changes import records_for_new_topic
from broker.metadata.creation import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    check_more_partitions,
    check_new_topic,
    check_replicas,
    check_total,
)
from broker.metadata.deltas import apply
from broker.metadata.image import Image
from broker.metadata.placement import Unplaceable, UsableBroker, place
from broker.metadata.results import ApiError
from broker.metadata.values import BrokerRegistration, MetadataDelta
from protocol.errors import ErrorCode as E
from protocol.records.cluster_metadata import PartitionRecord
from storage.config import LogConfig

DEFAULTS = TopicDefaults(partitions=3, replication_factor=1, log=LogConfig())
TOO_FEW = (
    "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered "
    "or some brokers have all their log directories cordoned."
)


def image_of(*names: str, brokers: int = 1, replicas: tuple[int, ...] = (1,), partitions: int = 3) -> Image:
    image = Image()
    for node_id in range(1, brokers + 1):
        image.brokers[node_id] = BrokerRegistration(
            node_id, 0, UUID(int=node_id), fenced=False, log_dirs=(UUID(int=9),)
        )
    directories = {node_id: UUID(int=9) for node_id in replicas}
    for number, name in enumerate(names, 100):
        records = records_for_new_topic(
            UUID(int=number), name, [replicas] * partitions, {}, directories, directories
        )
        for record in records:
            apply(image, record, MetadataDelta())
    return image


def refusal(new: NewTopic, image: Image) -> tuple[E, str | None]:
    with pytest.raises(ApiError) as caught:
        check_new_topic(image, new, DEFAULTS, Random(1))
    return caught.value.error, caught.value.message


@pytest.mark.parametrize(
    ("new", "assignment"),
    [
        (NewTopic("t"), [(1,)] * 3),
        (NewTopic("t", 2, 1), [(1,)] * 2),
        (NewTopic("t", -1, 1), [(1,)] * 3),
        (NewTopic("t", 2, -1), [(1,)] * 2),
        (NewTopic("t", assignments=[(1, [1]), (0, [1])]), [[1], [1]]),
        (NewTopic("t", configs={"retention.ms": " 77 ", "cleanup.policy": "compact, delete"}), [(1,)] * 3),
        (NewTopic("t", configs={"cleanup.policy": ""}), [(1,)] * 3),
        (NewTopic("x" * 249), [(1,)] * 3),
        (NewTopic("__consumer_offsets"), [(1,)] * 3),
        (NewTopic("exist.s"), [(1,)] * 3),
    ],
)
def test_a_good_topic_gets_its_replicas(new, assignment):
    assert list(check_new_topic(image_of("exists"), new, DEFAULTS, Random(1))) == assignment


NAME = "Topic name is invalid: "


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_a_bad_name(name, reason):
    assert refusal(NewTopic(name), image_of()) == (E.invalid_topic_exception, NAME + reason)


def test_a_name_that_collides():
    message = "Topic 'q_1' collides with existing topic: q.1"
    assert refusal(NewTopic("q_1"), image_of("q.1")) == (E.invalid_topic_exception, message)


def test_a_name_that_is_taken():
    for name in ("q.1", "q"):
        expected = (E.topic_already_exists, f"Topic '{name}' already exists.")
        assert refusal(NewTopic(name, 0, 0), image_of("q.1", "q")) == expected


@pytest.mark.parametrize(
    ("partitions", "replicas", "error", "message"),
    [
        (0, 1, E.invalid_partitions, "Number of partitions was set to an invalid non-positive value."),
        (-2, 1, E.invalid_partitions, "Number of partitions was set to an invalid non-positive value."),
        (
            1,
            0,
            E.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            0,
            -2,
            E.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (1, 2, E.invalid_replication_factor, f"Unable to replicate the partition 2 time(s): {TOO_FEW}"),
    ],
)
def test_bad_numbers(partitions, replicas, error, message):
    assert refusal(NewTopic("t", partitions, replicas), image_of()) == (error, message)


def test_fenced_brokers_lead_nothing_new():
    image = image_of(brokers=2)
    image.brokers[2] = BrokerRegistration(2, 0, UUID(int=2), fenced=True)
    assert check_new_topic(image, NewTopic("t", 2, 2), DEFAULTS, Random(1)) == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ({"nope": "x"}, "Unknown topic config name: nope"),
        ({"a": None, "retention.ms": None}, "Null value not supported for topic configs: a,retention.ms"),
        (
            {"segment.bytes": "1000"},
            "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_bad_settings(configs, message):
    assert refusal(NewTopic("t", 0, 0, configs=configs), image_of()) == (E.invalid_config, message)


MANUAL = "The manual partition assignment includes "


@pytest.mark.parametrize(
    ("new", "error", "message"),
    [
        (
            NewTopic("t", 1, 1, [(0, [1])]),
            E.invalid_request,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", 1, -1, [(0, [1])]),
            E.invalid_request,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(0, [3])]),
            E.invalid_replica_assignment,
            f"{MANUAL}broker 3, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=[(1, [1])]),
            E.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 1])]),
            E.invalid_replica_assignment,
            f"{MANUAL}the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=[(0, [])]),
            E.invalid_replica_assignment,
            f"{MANUAL}an empty replica list.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [1])]),
            E.invalid_replica_assignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]),
            E.invalid_replica_assignment,
            f"{MANUAL}a partition with 2 replica(s), but this is not consistent with previous partitions, "
            "which have 1 replica(s).",
        ),
    ],
)
def test_bad_assignments(new, error, message):
    assert refusal(new, image_of(brokers=2)) == (error, message)


@pytest.mark.parametrize(
    ("wanted", "too_many"),
    [
        ([NewTopic("a", 10_000)], False),
        ([NewTopic("a", 10_001)], True),
        ([NewTopic("a", 5_000), NewTopic("b", 5_001)], True),
        ([NewTopic("a", 9_998), NewTopic("b")], True),
        ([NewTopic("a", 9_999), NewTopic("b", -5)], False),
        ([NewTopic("a", assignments=[(0, [1])]), NewTopic("b", 10_000)], True),
    ],
)
def test_one_request_has_its_limit(wanted, too_many):
    if not too_many:
        check_total(wanted, DEFAULTS)
        return
    with pytest.raises(ApiError, match="Excessively large number of partitions per request") as caught:
        check_total(wanted, DEFAULTS)
    assert caught.value.error == E.policy_violation


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (MorePartitions("nope", 9), E.unknown_topic_or_partition, None),
        (MorePartitions("t", 3), E.invalid_partitions, "Topic already has 3 partition(s)."),
        (
            MorePartitions("t", 2),
            E.invalid_partitions,
            "The topic t currently has 3 partition(s); 2 would not be an increase.",
        ),
        (
            MorePartitions("t", 4, [[1], [1]]),
            E.invalid_replica_assignment,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 4, []),
            E.invalid_replica_assignment,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 4, [[2]]),
            E.invalid_replica_assignment,
            f"{MANUAL}broker 2, but no such broker is registered.",
        ),
    ],
)
def test_bad_growth(more, error, message):
    with pytest.raises(ApiError) as caught:
        check_more_partitions(image_of("t"), more, Random(1))
    assert (caught.value.error, caught.value.message) == (error, message)


def test_growth_keeps_the_replication_factor():
    image = image_of("t", brokers=3, replicas=(1, 2))
    topic, assignment = check_more_partitions(image, MorePartitions("t", 7), Random(1))
    assert topic.name == "t"
    assert [len(set(replicas)) for replicas in assignment] == [2] * 4


def brokers(*live: int, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [*map(UsableBroker, live), *(UsableBroker(each, fenced=True) for each in fenced)]


def test_leaders_are_spread_over_the_brokers():
    placed = place(brokers(1, 2, 3), 9, 2, Random(1))
    assert sorted(replicas[0] for replicas in placed) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert all(len(set(replicas)) == 2 for replicas in placed)


def test_no_brokers_hold_no_replicas():
    with pytest.raises(Unplaceable, match="All brokers are currently fenced"):
        place([], 1, 1, Random(1))
    with pytest.raises(Unplaceable, match="must be positive"):
        place(brokers(1), 1, 0, Random(1))


def test_a_fenced_broker_follows_where_no_other_can_and_leads_nothing():
    placed = place(brokers(1, 2, fenced=(3,)), 8, 3, Random(1))
    assert sorted(replicas[0] for replicas in placed) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all(sorted(replicas) == [1, 2, 3] for replicas in placed)
    assert all(3 not in replicas for replicas in place(brokers(1, 2, fenced=(3,)), 8, 2, Random(1)))
    with pytest.raises(Unplaceable, match="All brokers are currently fenced"):
        place(brokers(fenced=(1, 2)), 1, 1, Random(1))
    with pytest.raises(Unplaceable, match="only 3 broker"):
        place(brokers(1, 2, fenced=(3,)), 1, 4, Random(1))


def test_a_partition_is_not_created_with_a_dead_replica_in_sync():
    image = image_of(brokers=3)
    image.brokers[1] = replace(image.brokers[1], fenced=True)
    image.brokers[3] = replace(image.brokers[3], in_controlled_shutdown=True)
    directories = dict.fromkeys(image.brokers, UUID(int=9))
    records = records_for_new_topic(UUID(int=1), "t", [(1, 2, 3)], {}, directories, image.live_brokers)
    (record,) = [each for each in records if isinstance(each, PartitionRecord)]
    assert (record.replicas, record.isr, record.leader) == ((1, 2, 3), (2,), 2)
    dead = NewTopic("t", assignments=[(0, [2]), (1, [3])])
    assert refusal(dead, image) == (
        E.invalid_replica_assignment,
        "All brokers specified in the manual partition assignment for partition 1 are fenced or in controlled "
        "shutdown.",
    )


def with_cordoned(*node_ids: int) -> Image:
    """An image with brokers 1 to 3. All log directories of these brokers are cordoned."""
    image = image_of("t", brokers=3, partitions=1)
    for node_id in node_ids:
        broker = image.brokers[node_id]
        image.brokers[node_id] = replace(broker, cordoned_log_dirs=broker.log_dirs)
    return image


def test_new_replicas_avoid_brokers_whose_log_directories_are_all_cordoned():
    """The messages are those of Apache Kafka 4.4.0 (KIP-1066)."""
    image = with_cordoned(3)
    placed = check_new_topic(image, NewTopic("new", 8, 2), DEFAULTS, Random(1))
    assert {node_id for replicas in placed for node_id in replicas} == {1, 2}
    assert refusal(NewTopic("new", 1, 3), image) == (
        E.invalid_replication_factor,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
    )
    image = with_cordoned(1, 2, 3)
    nobody = "All brokers are currently fenced, or have all their log directories cordoned."
    assert refusal(NewTopic("new", 1, 1), image) == (
        E.invalid_replication_factor,
        f"Unable to replicate the partition 1 time(s): {nobody}",
    )
    with pytest.raises(ApiError) as refused:
        check_more_partitions(image, MorePartitions("t", 2), Random(1))
    assert (refused.value.error, refused.value.message) == (E.invalid_replication_factor, nobody)


def test_a_broker_with_a_directory_that_is_not_cordoned_gets_replicas():
    image = with_cordoned(1, 2, 3)
    image.brokers[2] = replace(image.brokers[2], log_dirs=(UUID(int=9), UUID(int=8)))
    assert list(check_new_topic(image, NewTopic("new", 2, 1), DEFAULTS, Random(1))) == [(2,)] * 2


def test_a_manual_assignment_to_a_cordoned_broker_is_refused():
    """From Apache Kafka 4.4.0 on, also for a broker that is a replica already. Replicas are checked by ascending id."""
    image, cordoned = with_cordoned(1, 2), "but all its log directories are cordoned."
    for replicas, message in (
        ([3, 2], f"{MANUAL}broker 2, {cordoned}"),
        ([2, 2, 1], f"{MANUAL}broker 1, {cordoned}"),
        ([2, 2], f"{MANUAL}broker 2, {cordoned}"),
        ([0, 1], f"{MANUAL}broker 0, but no such broker is registered."),
    ):
        assert refusal(NewTopic("new", assignments=[(0, replicas)]), image) == (
            E.invalid_replica_assignment,
            message,
        )
    with pytest.raises(ApiError, match=cordoned):
        check_more_partitions(image, MorePartitions("t", 2, [[1]]), Random(1))
    with pytest.raises(ApiError, match=cordoned):
        check_replicas(image, [1], None)
