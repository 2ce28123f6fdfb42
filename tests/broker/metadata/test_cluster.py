"""The cluster metadata across starts, kills and changes: which topics and brokers exist afterwards."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker.metadata import ApiError, CreatedTopic, MorePartitions, NewTopic
from broker.metadata.features import UnsupportedFeature
from broker.metadata.files import LOG_DIRECTORY, WrongDirectory, new_id
from broker.metadata.framing import CorruptMetadata, decoded
from broker.metadata.log import MetadataLogFailed
from broker.metadata.scram_credentials import Upsertion
from broker.metadata.values import Topic
from protocol.batch import batches
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.world import Gate, Recorder, away, open_cluster


def epochs(cluster) -> list[int]:
    return [partition.leader_epoch for topic in cluster.topics.values() for partition in topic.partitions]


def states_but_epochs(cluster):
    return {
        name: (
            topic.topic_id,
            topic.configs,
            [(one.replicas, one.isr, one.leader, one.directories) for one in topic.partitions],
        )
        for name, topic in cluster.topics.items()
    }


def records(directory):
    path = directory / LOG_DIRECTORY / f"{0:020d}.log"
    found = [batch for batch in batches(path.read_bytes()) if not batch.is_control]
    return [record for batch in found for record in decoded(batch)]


async def test_a_directory_reopened_has_the_same_topics_and_higher_epochs(tmp_path):
    cluster = open_cluster(tmp_path)
    await cluster.replication_control.create_topics(
        [NewTopic("a", 3, configs={"retention.ms": "5"}), NewTopic("b.c")]
    )
    await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")
    await cluster.replication_control.create_partitions([MorePartitions("b.c", 2)])
    before, cluster_id, ids = states_but_epochs(cluster), cluster.cluster_id, cluster.identity
    assert set(epochs(cluster)) == {0}
    await cluster.close()
    for restart in (1, 2, 3):
        again = open_cluster(tmp_path, seed=restart)
        assert states_but_epochs(again) == before
        assert set(epochs(again)) == {2 * restart}  # each partition loses its leader, and is led again
        assert (again.cluster_id, again.identity) == (cluster_id, ids)
        found = again.topic_by_id(before["a"][0])
        assert found is not None
        assert found.name == "a"
        again.abandon()  # a kill, not a clean close


async def test_the_first_start_writes_levels_then_the_registration(tmp_path):
    cluster = open_cluster(tmp_path)
    await cluster.close()
    *levels, registration, unfenced = records(tmp_path)
    assert levels == [
        schema.FeatureLevelRecord(name="metadata.version", feature_level=33),
        schema.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        schema.FeatureLevelRecord(name="group.version", feature_level=1),
        schema.FeatureLevelRecord(name="share.version", feature_level=2),
        schema.FeatureLevelRecord(name="transaction.version", feature_level=2),
        schema.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    ]
    assert isinstance(registration, schema.RegisterBrokerRecord)
    # The broker epoch is the offset of the RegisterBrokerRecord, which follows LeaderChange and the feature levels.
    assert registration.broker_epoch == 7
    assert registration.fenced is True
    assert unfenced == schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1)
    assert [(one.name, one.host, one.port) for one in registration.endpoints] == [
        ("PLAINTEXT", "broker.example", 19092)
    ]
    assert cluster.epoch == 8
    assert cluster.brokers[1].epoch == 7


async def test_each_start_registers_the_broker_again(tmp_path):
    first = open_cluster(tmp_path)
    await first.close()
    second = open_cluster(tmp_path, seed=2)
    assert second.brokers[1].epoch > first.brokers[1].epoch
    assert second.brokers[1].incarnation_id != first.brokers[1].incarnation_id
    await second.close()


async def test_a_broker_that_leaves_is_fenced_until_the_next_start(tmp_path):
    """The controller fences a broker after its controlled shutdown at once, without waiting for its session to time out, as
    in Kafka."""
    cluster = open_cluster(tmp_path)
    await cluster.replication_control.create_topics([NewTopic("a")])
    epoch = cluster.brokers[1].epoch
    await cluster.leave()
    await cluster.close()
    shutdown, changed, fenced = records(tmp_path)[-3:]
    assert isinstance(changed, schema.PartitionChangeRecord)
    assert [shutdown, fenced] == [
        schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1),
        schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1),
    ]
    again = open_cluster(tmp_path, seed=2)
    assert (again.brokers[1].fenced, again.brokers[1].in_controlled_shutdown) == (False, False)
    assert topic_of(again, "a").partitions[0].leader == 1
    await again.close()


async def test_a_log_that_has_failed_does_not_keep_its_broker_from_leaving(tmp_path):
    gate = Gate()
    cluster = open_cluster(tmp_path, sync=gate)
    gate.failure = OSError(5, "Input/output error")
    with pytest.raises(MetadataLogFailed):
        await cluster.replication_control.create_topics([NewTopic("a")])
    await cluster.leave()
    await cluster.close()
    assert open_cluster(tmp_path).brokers[1].fenced is False


async def test_a_directory_of_another_node_is_refused(tmp_path):
    await open_cluster(tmp_path).close()
    with pytest.raises(WrongDirectory, match="belongs to node 1, not to node 7"):
        open_cluster(tmp_path, node_id="7")


@pytest.mark.parametrize(("level", "found"), [(0, None), (1, 1), (2, 2)])
async def test_the_transaction_version_is_chosen_at_the_first_start(tmp_path, level, found):
    cluster = open_cluster(tmp_path, features={"transaction.version": level})
    assert cluster.features.get("transaction.version") == found
    await cluster.close()
    again = open_cluster(tmp_path)
    assert again.features.get("transaction.version") == found
    await again.close()


async def test_a_setting_that_only_an_earlier_kafka_accepts_is_refused_with_a_sentence(tmp_path):
    """A start fails at ``segment.bytes`` below 1 MiB, which Kafka 3 allowed (KIP-1030). The failed start writes nothing, so
    the user can change the setting with Kafka 3."""
    cluster = open_cluster(tmp_path)
    await cluster.replication_control.create_topics([NewTopic("t", 1)])
    await cluster.change_config(2, "t", {"segment.bytes": "100000"})
    await cluster.close()
    before = records(tmp_path)
    with pytest.raises(
        CorruptMetadata, match=r"topic t has a setting .*Invalid value 100000 .*segment\.bytes"
    ):
        open_cluster(tmp_path)
    assert records(tmp_path) == before


@pytest.mark.parametrize(("level", "has_directories"), [(7, False), (16, False), (17, True)])
async def test_an_early_metadata_version_has_no_log_directories(tmp_path, level, has_directories):
    """Records contain log directories only since metadata.version 17. Kafka fails at log directories in an earlier version
    (``ImageWriterOptions.handleLoss``)."""
    cluster = open_cluster(tmp_path, features={"metadata.version": level})
    assert cluster.image.features["metadata.version"] == level
    await cluster.replication_control.create_topics([NewTopic("t", 1)])
    await cluster.cluster_control.join(away(cluster))
    await cluster.close()
    again = open_cluster(tmp_path)
    directory = again.identity.directory_id if has_directories else UUID(int=0)
    assert again.brokers[1].log_dirs == ((directory,) if has_directories else ())
    assert again.brokers[2].log_dirs == again.brokers[1].log_dirs
    assert again.topics["t"].partitions[0].directories == (directory,)
    await again.close()


@pytest.mark.parametrize(("level", "error"), [(10, ErrorCode.unsupported_version), (11, None)])
async def test_an_early_metadata_version_has_no_scram_credentials(tmp_path, level, error):
    cluster = open_cluster(tmp_path, features={"metadata.version": level})
    alice = Upsertion("alice", 1, 4096, b"salt", b"password")
    results = await cluster.client_control.alter_credentials((), [alice])
    assert (results["alice"] and results["alice"].error) == error
    assert len(cluster.image.credentials) == (error is None)
    await cluster.close()


async def test_a_level_that_is_asked_for_changes_an_old_cluster(tmp_path):
    await open_cluster(tmp_path).close()
    again = open_cluster(tmp_path, features={"transaction.version": 1})
    others = {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 2,
    }
    assert dict(again.features) == {**others, "transaction.version": 1}
    await again.update_features({"transaction.version": 0})
    assert dict(again.features) == others
    await again.close()


@pytest.mark.parametrize(
    "levels", [{"transaction.version": 3}, {"group.version": 2}, {"metadata.version": 6}]
)
async def test_levels_that_are_not_there_are_refused(tmp_path, levels):
    with pytest.raises(UnsupportedFeature):
        open_cluster(tmp_path, features=levels)
    cluster = open_cluster(tmp_path)
    with pytest.raises(UnsupportedFeature):
        await cluster.update_features(levels)
    await cluster.close()


def topic_of(cluster: Any, name: str) -> Topic:
    topic = cluster.topic(name)
    assert isinstance(topic, Topic)
    return topic


def error_of(result: object) -> ErrorCode:
    assert isinstance(result, ApiError)
    return result.error


async def test_results_come_in_the_order_of_the_request(tmp_path):
    cluster = open_cluster(tmp_path)
    good, bad, again = await cluster.replication_control.create_topics(
        [NewTopic("a", 2), NewTopic("b", 0), NewTopic("a")]
    )
    assert isinstance(good, CreatedTopic)
    assert (good.name, good.partitions, good.replication_factor) == ("a", 2, 1)
    assert good.topic_id == topic_of(cluster, "a").topic_id
    assert error_of(bad) == ErrorCode.invalid_partitions
    assert error_of(again) == ErrorCode.invalid_request
    assert list(cluster.topics) == ["a"]
    await cluster.close()


async def test_validation_alone_creates_nothing(tmp_path):
    cluster = open_cluster(tmp_path)
    epoch = cluster.epoch
    [result] = await cluster.replication_control.create_topics([NewTopic("a")], validate_only=True)
    assert isinstance(result, CreatedTopic)
    assert (dict(cluster.topics), cluster.epoch) == ({}, epoch)
    await cluster.replication_control.create_topics([NewTopic("a")])
    assert await cluster.replication_control.create_partitions(
        [MorePartitions("a", 2)], validate_only=True
    ) == [None]
    assert len(topic_of(cluster, "a").partitions) == 1
    await cluster.close()


async def test_of_two_concurrent_creations_of_a_topic_one_succeeds(tmp_path):
    cluster = open_cluster(tmp_path)
    answers = await asyncio.gather(
        *(
            cluster.replication_control.create_topics([NewTopic(name)])
            for name in ("a.b", "a_b", "a.b", "other")
        )
    )
    errors = [getattr(answer, "error", None) for [answer] in answers]
    assert errors[0] is None
    assert errors[1] == ErrorCode.invalid_topic_exception
    assert errors[2] == ErrorCode.topic_already_exists
    assert errors[3] is None
    assert sorted(cluster.topics) == ["a.b", "other"]
    await cluster.close()


async def test_changes_of_one_topic_follow_each_other(tmp_path):
    cluster = open_cluster(tmp_path)
    await cluster.replication_control.create_topics([NewTopic("a")])
    first = topic_of(cluster, "a").topic_id
    grown, deleted, grown_late, created = await asyncio.gather(
        cluster.replication_control.create_partitions([MorePartitions("a", 2)]),
        cluster.replication_control.delete_topics([first]),
        cluster.replication_control.create_partitions([MorePartitions("a", 3)]),
        cluster.replication_control.create_topics([NewTopic("a")]),
    )
    assert (grown, deleted) == ([None], [None])
    assert error_of(grown_late[0]) == ErrorCode.unknown_topic_or_partition
    assert topic_of(cluster, "a").topic_id == getattr(created[0], "topic_id", None) != first
    await cluster.close()


async def test_changes_of_different_topics_share_a_sync(tmp_path):
    gate, held = Gate(), threading.Event()
    held.set()

    def sync(file):
        held.wait()
        gate(file)

    cluster = open_cluster(tmp_path, sync=sync)
    calls = gate.calls
    held.clear()
    tasks = [
        asyncio.ensure_future(cluster.replication_control.create_topics([NewTopic(f"t{n}")]))
        for n in range(20)
    ]
    await asyncio.sleep(0)
    seen = dict(cluster.topics)
    held.set()
    assert seen == {}
    await asyncio.gather(*tasks)
    assert len(cluster.topics) == 20
    assert gate.calls - calls <= 2
    await cluster.close()


async def test_a_topic_is_deleted_once(tmp_path):
    cluster = open_cluster(tmp_path)
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    topic_id = topic_of(cluster, "a").topic_id
    first, second, unknown = await cluster.replication_control.delete_topics(
        [topic_id, topic_id, UUID(int=77)]
    )
    assert first is None
    assert (error_of(second), error_of(unknown)) == (ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_id)
    assert list(cluster.topics) == ["b"]
    assert cluster.topic_by_id(topic_id) is None
    await cluster.close()
    again = open_cluster(tmp_path)
    assert list(again.topics) == ["b"]
    await again.close()


async def test_an_internal_topic_is_made_once_however_many_ask(tmp_path):
    cluster = open_cluster(tmp_path)
    found = await asyncio.gather(
        *(cluster.auto_topic_creation.ensure_internal_topic("__transaction_state") for _ in range(50))
    )
    topic = topic_of(cluster, "__transaction_state")
    assert all(one is topic for one in found)
    assert len(topic.partitions) == 50
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    offsets = await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    with pytest.raises(ValueError, match="not a topic that a coordinator needs"):
        await cluster.auto_topic_creation.ensure_internal_topic("mine")
    await cluster.close()


async def test_a_cancelled_caller_does_not_fail_the_others(tmp_path):
    cluster = open_cluster(tmp_path)
    first, second = (
        asyncio.ensure_future(cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets"))
        for _ in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    assert (await second) is cluster.topic("__consumer_offsets")
    await cluster.close()


async def test_sizes_of_internal_topics_are_settings(tmp_path):
    cluster = open_cluster(
        tmp_path,
        offsets_topic_num_partitions="7",
        transaction_state_log_num_partitions="3",
        transaction_state_log_min_isr="1",
        transaction_state_log_segment_bytes="2000000",
    )
    assert (
        len((await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")).partitions) == 7
    )
    topic = await cluster.auto_topic_creation.ensure_internal_topic("__transaction_state")
    assert (len(topic.partitions), topic.configs["segment.bytes"]) == (3, "2000000")
    await cluster.close()


async def test_kafkas_own_defaults_need_kafkas_own_cluster(tmp_path):
    cluster = open_cluster(tmp_path, odradek_defaults="kafka")
    with pytest.raises(ApiError) as caught:
        await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")
    assert caught.value.error == ErrorCode.invalid_replication_factor
    await cluster.close()


async def test_listeners_are_called_for_each_commit_after_the_image(tmp_path):
    cluster = open_cluster(tmp_path)
    recorder = Recorder()
    cluster.subscribe(recorder)
    await cluster.replication_control.create_topics(
        [NewTopic("a", 2, configs={"flush.ms": "1"}), NewTopic("b")]
    )
    await cluster.replication_control.create_partitions([MorePartitions("a", 4)])
    await cluster.change_config(2, "a", {"flush.ms": None, "retention.ms": "3"})
    await cluster.change_config(4, "", {"log.retention.ms": "9"})
    await cluster.update_features({"transaction.version": 1})
    await cluster.replication_control.delete_topics([topic_of(cluster, "a").topic_id])
    assert recorder.events == [
        ("created", "a", 2, {"flush.ms": "1"}),
        ("created", "b", 1, {}),
        ("grown", "a", 2, 4),
        ("configured", 2, "a"),
        ("configured", 4, ""),
        ("features",),
        ("deleted", "a"),
    ]
    await cluster.close()


async def test_a_listener_is_called_for_new_leaders(tmp_path):
    cluster = open_cluster(tmp_path)
    recorder = Recorder()
    await cluster.replication_control.create_topics([NewTopic("a", 2)])
    cluster.subscribe(recorder)
    topic_id = topic_of(cluster, "a").topic_id
    await cluster._writer.commit([schema.PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=-1)])
    assert recorder.events == [("led", "a", 1, -1, 1)]
    await cluster.close()


async def test_too_much_for_one_request_is_refused_as_a_whole(tmp_path):
    cluster = open_cluster(tmp_path)
    with pytest.raises(ApiError, match="Excessively large number of partitions"):
        await cluster.replication_control.create_topics([NewTopic("a", 6000), NewTopic("b", 6000)])
    with pytest.raises(ApiError, match="excessively large batch operation"):
        await cluster.replication_control.create_topics([NewTopic("a", 10_000)])
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    more = [MorePartitions("a", 6001), MorePartitions("b", 6001)]
    with pytest.raises(ApiError, match="Excessively large number of additional partitions per request"):
        await cluster.replication_control.create_partitions(more)
    assert [len(topic.partitions) for topic in cluster.topics.values()] == [1, 1]
    await cluster.close()


async def test_topics_without_a_waiting_caller_are_made_before_the_end(tmp_path):
    cluster = open_cluster(tmp_path)
    cluster.auto_topic_creation.create_in_background(["a", "b"])
    cluster.auto_topic_creation.create_in_background(["a"])
    await cluster.close()
    again = open_cluster(tmp_path)
    assert sorted(again.topics) == ["a", "b"]
    await again.close()


async def test_a_caller_that_goes_away_leaves_its_change_behind(tmp_path):
    cluster = open_cluster(tmp_path)
    task = asyncio.ensure_future(cluster.replication_control.create_topics([NewTopic("a")]))
    await asyncio.sleep(0)
    task.cancel()
    [answer] = await cluster.replication_control.create_topics([NewTopic("a")])
    assert error_of(answer) == ErrorCode.topic_already_exists
    await cluster.close()


async def test_no_change_succeeds_when_the_disk_fails(tmp_path):
    gate = Gate()
    cluster = open_cluster(tmp_path, sync=gate)
    gate.failure = OSError(5, "Input/output error")
    with pytest.raises(MetadataLogFailed):
        await cluster.replication_control.create_topics([NewTopic("a")])
    assert dict(cluster.topics) == {}
    with pytest.raises(MetadataLogFailed):
        await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")
    cluster.auto_topic_creation.create_in_background(["a"])
    await cluster.close()


async def test_ten_thousand_partitions_survive_restarts(tmp_path):
    cluster = open_cluster(tmp_path)
    for number in range(2):
        await cluster.replication_control.create_topics([NewTopic(f"t{number}", 5000)])
    await cluster.close()
    for restart in range(1, 5):
        again = open_cluster(tmp_path)
        assert set(epochs(again)) == {2 * restart}
        again.abandon()
    assert list((tmp_path / LOG_DIRECTORY).glob("*.checkpoint"))


def test_generated_ids_do_not_begin_with_a_dash():
    rng = Random(1)
    drawn = iter((0xFB << 120, 0x12 << 120))
    rng.getrandbits = lambda _: next(drawn)
    assert new_id(rng).bytes[0] == 0x12
