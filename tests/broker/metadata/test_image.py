"""The metadata image applies records as Kafka's images do."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from broker.metadata.acls import Acl
from broker.metadata.changes import (
    records_for_config_change,
    records_for_new_partitions,
    records_for_new_topic,
    records_for_removed_topic,
    records_of,
)
from broker.metadata.deltas import apply
from broker.metadata.image import Image
from broker.metadata.values import InconsistentMetadata, MetadataDelta, PartitionState
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import (
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)

T, U, D = UUID(int=7), UUID(int=8), UUID(int=9)


def fold(*records: MetadataRecord, image: Image | None = None) -> tuple[Image, MetadataDelta]:
    """Apply records to an image after encoding and decoding them, as they come from the log."""
    image = image or Image()
    changes = MetadataDelta()
    for record in records:
        apply(image, decode_metadata_record(encode_metadata_record(record)), changes)
    return image, changes


def topic(name: str = "t", topic_id: UUID = T, partitions: int = 2, **configs: str) -> list[MetadataRecord]:
    assignment = [(1,)] * partitions
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return records_for_new_topic(topic_id, name, assignment, named, {1: D}, {1})


def test_a_topic_comes_with_its_partitions_and_settings():
    image, changes = fold(*topic(retention_ms="5"))
    created = image.topics["t"]
    assert created is image.topics_by_id[T]
    assert created.configs == {"retention.ms": "5"}
    assert created.partitions == [
        PartitionState(index, (1,), (1,), 1, 0, 0, directories=(D,)) for index in (0, 1)
    ]
    assert created.replication_factor == 1
    assert (list(changes.created), changes.grown, changes.configs, changes.leaders) == ([T], {}, set(), set())


def test_the_records_of_a_topic_are_in_the_order_of_kafka():
    kinds = [type(record).__name__ for record in topic(retention_ms="5")]
    assert kinds == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]


def test_partitions_may_come_in_any_order():
    first, second, third = topic(partitions=3)[1:]
    image, _ = fold(topic()[0], third, first, second)
    assert [partition.index for partition in image.topics["t"].partitions] == [0, 1, 2]
    assert image.topics["t"].partition(3) is None
    assert image.topics["t"].partition(-1) is None


def test_a_topic_grows():
    image, _ = fold(*topic())
    _, changes = fold(*records_for_new_partitions(image.topics["t"], [(1,), (1,)], {1: D}, {1}), image=image)
    assert len(image.topics["t"].partitions) == 4
    assert changes.grown == {T: 2}


def test_a_removed_topic_takes_everything_with_it():
    image, _ = fold(*topic(retention_ms="5"))
    _, changes = fold(*records_for_removed_topic(image.topics["t"]), image=image)
    assert image == Image()
    assert list(changes.deleted) == [T]


def test_a_topic_that_was_made_and_removed_in_one_commit_never_was():
    image, changes = fold(*topic(), schema.RemoveTopicRecord(topic_id=T))
    assert image.topics == {}
    assert (changes.created, changes.deleted) == ({}, {})


def test_a_name_can_be_used_again_in_one_commit():
    image, _ = fold(*topic())
    _, changes = fold(schema.RemoveTopicRecord(topic_id=T), *topic(topic_id=U), image=image)
    assert image.topics["t"].topic_id == U
    assert (list(changes.created), list(changes.deleted)) == ([U], [T])


def values_of(state: PartitionState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"leader": 1}, {"leader": 1, "leader_epoch": 1}),
        ({"leader": 2}, {"leader": 2, "leader_epoch": 1}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 1}),
        ({"isr": (1,)}, {"isr": (1,), "leader_epoch": 0}),
        ({"isr": ()}, {"isr": ()}),
        ({"replicas": (2, 1)}, {"replicas": (2, 1)}),
        ({"directories": (D,)}, {"directories": (D,)}),
        ({"eligible_leader_replicas": (1,)}, {"eligible_leader_replicas": (1,)}),
        ({"last_known_elr": (1,)}, {"last_known_eligible": (1,)}),
        ({"leader_recovery_state": 1}, {"leader_recovery_state": 1}),
        (
            {"adding_replicas": (3,), "removing_replicas": (1,)},
            {"adding_replicas": (3,), "removing_replicas": (1,)},
        ),
    ],
)
def test_a_partition_changes_only_in_what_the_record_names(change, expected):
    image, _ = fold(*records_for_new_topic(T, "t", [(1, 2)], {}, {1: D, 2: D}, {1, 2}))
    before = image.topics["t"].partitions[0]
    kept = values_of(before)
    _, changes = fold(schema.PartitionChangeRecord(partition_id=0, topic_id=T, **change), image=image)
    after = image.topics["t"].partitions[0]
    assert values_of(after) == {
        **kept,
        "partition_epoch": 1,
        **expected,
    }
    assert changes.leaders == {(T, 0)}
    assert before.partition_epoch == 0


def test_settings_are_set_and_unset():
    image, _ = fold(*topic(retention_ms="5"))
    _, changes = fold(
        *records_for_config_change(2, "t", {"retention.ms": None, "flush.ms": "1"}), image=image
    )
    assert image.topics["t"].configs == {"flush.ms": "1"}
    assert changes.configs == {(2, "t")}
    fold(*records_for_config_change(4, "", {"min.insync.replicas": "2"}), image=image)
    fold(*records_for_config_change(4, "1", {"log.retention.ms": "3"}), image=image)
    assert image.cluster_configs == {"min.insync.replicas": "2"}
    assert image.broker_configs(1) == {"log.retention.ms": "3"}
    fold(*records_for_config_change(4, "1", {"log.retention.ms": None}), image=image)
    assert image.broker_configs(1) == {}
    assert set(image.configs) == {(4, "")}


def test_settings_may_come_before_their_topic():
    """A topic's settings may precede its TopicRecord, as Kafka 3.3 writes them. The image does not check that the topic
    exists."""
    record, *partitions = topic()
    settings = records_for_config_change(2, "t", {"retention.ms": "5", "flush.ms": "1"})
    image, changes = fold(*settings, record, *partitions)
    assert image.topics["t"].configs == {"retention.ms": "5", "flush.ms": "1"}
    assert (image.configs, changes.configs, list(changes.created)) == ({}, set(), [T])
    fold(*records_for_config_change(2, "t", {"flush.ms": None}), image=image)
    assert image.topics["t"].configs == {"retention.ms": "5"}


def test_settings_of_a_topic_that_does_not_exist_wait_for_it():
    image, changes = fold(*records_for_config_change(2, "t", {"retention.ms": "5", "flush.ms": "1"}))
    fold(*records_for_config_change(2, "t", {"flush.ms": None}), image=image)
    assert changes.configs == set()
    again, _ = fold(*records_of(image))
    for each in (image, again):
        assert each.topics == {}
        fold(*topic(), image=each)
        assert each.topics["t"].configs == {"retention.ms": "5"}


def test_settings_that_follow_a_removal_are_those_of_the_next_topic():
    image, _ = fold(*topic(flush_ms="1"))
    removed = records_for_removed_topic(image.topics["t"])
    settings = records_for_config_change(2, "t", {"retention.ms": "5"})
    fold(*removed, *settings, *topic(topic_id=U), image=image)
    assert image.topics["t"].configs == {"retention.ms": "5"}


def test_settings_that_kafka_has_removed_are_skipped():
    """The image skips settings that Kafka has removed, except for those of brokers, which may have any name
    (``DefaultSupportedConfigChecker``)."""
    old = {"message.format.version": "2.8", "message.downconversion.enable": "false"}
    image, changes = fold(
        *topic(retention_ms="5"),
        *records_for_config_change(2, "t", old),
        *records_for_config_change(4, "", old),
        *records_for_config_change(16, "subscription", old),
        *records_for_config_change(32, "group", old),
        *records_for_config_change(99, "", old),
    )
    assert image.topics["t"].configs == {"retention.ms": "5"}
    assert image.configs == {(4, ""): old}
    assert changes.configs == {(4, "")}


@pytest.mark.parametrize(("name", "cleared"), [("t", ["t"]), ("", ["t", "u"])])
def test_eligible_leader_replicas_are_cleared(name: str, cleared: list[str]):
    """The image clears eligible leader replicas at a ClearElrRecord, which Kafka writes when min.insync.replicas changes,
    for one topic or (empty name) for all (KIP-966)."""
    eligible: dict[str, Any] = {"isr": (1,), "eligible_leader_replicas": (2,), "last_known_elr": (3,)}
    image, _ = fold(
        *topic(partitions=1),
        *topic(name="u", topic_id=U, partitions=1),
        *(schema.PartitionChangeRecord(partition_id=0, topic_id=each, **eligible) for each in (T, U)),
    )
    before = image.topics["t"].partitions[0]
    fold(schema.ClearElrRecord(topic_name=name), image=image)
    after = {each: image.topics[each].partitions[0] for each in ("t", "u")}
    assert {each for each, state in after.items() if not state.eligible_leader_replicas} == set(cleared)
    assert {each for each, state in after.items() if not state.last_known_eligible} == set(cleared)
    assert (after["t"].partition_epoch, after["t"].isr) == (before.partition_epoch + 1, (1,))


def test_a_feature_at_level_zero_is_none():
    image, _ = fold(schema.FeatureLevelRecord(name="transaction.version", feature_level=2))
    assert image.features == {"transaction.version": 2}
    fold(schema.FeatureLevelRecord(name="transaction.version", feature_level=0), image=image)
    assert image.features == {}


def test_the_version_of_the_quorum_is_no_feature_of_the_image():
    """The image ignores a feature record of kraft.version: some releases wrote one, but the version belongs in a control
    record (KAFKA-18979)."""
    image, _ = fold(schema.FeatureLevelRecord(name="kraft.version", feature_level=1))
    assert image.features == {}


def test_brokers_register_change_and_leave():
    image, _ = fold(
        schema.RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=5,
            incarnation_id=U,
            endpoints=(schema.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092),),
            features=(schema.BrokerFeature(name="f", min_supported_version=1, max_supported_version=2),),
            rack="r",
            log_dirs=(D,),
        )
    )
    broker = image.brokers[1]
    assert (broker.fenced, broker.rack, broker.log_dirs, broker.features) == (True, "r", (D,), (("f", 1, 2),))
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert endpoint.port == 9092
    assert broker.endpoint("SSL") is None
    fold(schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1), image=image)
    assert image.brokers[1].fenced is False
    fold(
        schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1),
        image=image,
    )
    assert (image.brokers[1].in_controlled_shutdown, image.brokers[1].fenced) == (True, False)
    fold(schema.FenceBrokerRecord(id=1), image=image)
    assert image.brokers[1].fenced is True
    fold(schema.UnfenceBrokerRecord(id=1), image=image)
    assert image.brokers[1].fenced is False
    fold(schema.UnregisterBrokerRecord(broker_id=1), image=image)
    assert image.brokers == {}


def test_producer_ids_only_rise():
    image, _ = fold(schema.ProducerIdsRecord(next_producer_id=1000))
    assert image.next_producer_id == 1000
    with pytest.raises(InconsistentMetadata, match="decreases the next producer id from 1000 to 999"):
        fold(schema.ProducerIdsRecord(next_producer_id=999), image=image)


@pytest.mark.parametrize(
    "record",
    [
        schema.RemoveTopicRecord(topic_id=U),
        schema.PartitionRecord(partition_id=0, topic_id=U),
        schema.PartitionChangeRecord(partition_id=0, topic_id=U),
        schema.PartitionChangeRecord(partition_id=5, topic_id=T),
        schema.TopicRecord(name="t", topic_id=U),
        schema.FenceBrokerRecord(id=4),
        schema.UnregisterBrokerRecord(broker_id=4),
        schema.ClearElrRecord(topic_name="u"),
    ],
)
def test_a_record_about_nothing_is_refused(record):
    image, _ = fold(*topic())
    with pytest.raises(InconsistentMetadata):
        fold(record, image=image)


def test_quotas_and_credentials_come_and_go():
    quota = schema.ClientQuotaRecord(
        entity=(schema.EntityData(entity_type="user", entity_name="a"),), key="producer_byte_rate", value=1.0
    )
    removed = schema.ClientQuotaRecord(entity=quota.entity, key=quota.key, remove=True)
    scram = schema.UserScramCredentialRecord(name="u", mechanism=1, iterations=4096)
    image, changes = fold(quota, scram)
    assert image.quotas == {(("user", "a"),): {"producer_byte_rate": 1.0}}
    assert image.credentials == {("u", 1): scram}
    assert changes.quotas
    fold(removed, schema.RemoveUserScramCredentialRecord(name="u", mechanism=1), image=image)
    assert (image.quotas, image.credentials) == ({}, {})


def test_acls_come_and_go():
    record = schema.AccessControlEntryRecord(U, 2, "t", 3, "User:a", "*", 3, 3)
    acl = Acl(2, "t", 3, "User:a", "*", 3, 3)
    image, changes = fold(record)
    assert (image.acls, changes.acls_added, changes.acls_removed) == ({U: acl}, {U: acl}, {})
    _, changes = fold(schema.RemoveAccessControlEntryRecord(id=U), image=image)
    assert (image.acls, changes.acls_added, changes.acls_removed) == ({}, {}, {U: acl})
    _, changes = fold(record, schema.RemoveAccessControlEntryRecord(id=U), image=image)
    assert (image.acls, changes.acls_added, changes.acls_removed) == ({}, {}, {})


def test_delegation_tokens_come_change_and_go():
    token = schema.DelegationTokenRecord("User:a", "User:b", ("User:c", "User:d"), 1, 2, 3, "t")
    later = schema.DelegationTokenRecord("User:a", "User:b", ("User:c", "User:d"), 1, 2, 9, "t")
    image, _ = fold(token)
    assert image.tokens == {"t": token}
    fold(later, image=image)
    assert image.tokens == {"t": later}
    fold(schema.RemoveDelegationTokenRecord(token_id="t"), image=image)
    assert image.tokens == {}


def test_what_is_not_served_is_kept_by_identity():
    controller = schema.RegisterControllerRecord(controller_id=1, zk_migration_ready=False)
    image, _ = fold(controller, schema.NoOpRecord(), schema.ZkMigrationStateRecord())
    assert list(image.kept.values()) == [controller]


def test_names_that_differ_in_dot_and_underscore_are_found():
    image, _ = fold(*topic("a.b_c"), *topic("plain", U))
    assert image.colliding("a_b_c") == "a.b_c"
    assert image.colliding("plain") is None
    fold(schema.RemoveTopicRecord(topic_id=T), image=image)
    assert image.names_by_unified == {}


def test_an_image_written_as_records_is_the_same_image():
    image, _ = fold(
        *(schema.FeatureLevelRecord(name="metadata.version", feature_level=30),),
        schema.RegisterBrokerRecord(broker_id=1, incarnation_id=U, log_dirs=(D,), cordoned_log_dirs=()),
        *topic("a.b", retention_ms="5"),
        *topic("u", U, partitions=3),
        schema.PartitionChangeRecord(partition_id=1, topic_id=U, leader=1, eligible_leader_replicas=(1,)),
        *records_for_config_change(4, "", {"min.insync.replicas": "1"}),
        *records_for_config_change(32, "g", {"consumer.session.timeout.ms": "1"}),
        schema.ProducerIdsRecord(next_producer_id=3000),
        schema.AccessControlEntryRecord(id=D),
        schema.ClientQuotaRecord((schema.EntityData("user", None),), "request_percentage", 1.5),
        schema.UserScramCredentialRecord(name="u", mechanism=2, iterations=4096),
        schema.DelegationTokenRecord(owner="User:a", requester="User:a", token_id="t"),
    )
    again, _ = fold(*records_of(image))
    assert again == image
