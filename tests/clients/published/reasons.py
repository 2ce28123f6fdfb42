"""Reasons for different outcomes of published tests with our broker and Apache Kafka, or for failures with both."""

from __future__ import annotations

from typing import Final

TOO_EARLY: Final = (
    "expects records in the first ShareFetch, or partitions in the first heartbeat of a new group: both brokers initialize "
    "share partitions after that heartbeat, kfake before its response"
)
WHOLE_BATCH: Final = (
    "expects a part of a batch at the limit of record locks: both brokers give the whole batch"
)
NO_SASL: Final = "needs a listener with SASL; neither broker was given one, and ours has PLAINTEXT only"
NO_CODEC: Final = "the codec's Python package is not installed: the test skips itself before it asks a broker"
NOT_ITS_OWN: Final = (
    "calls Java in a container of its own: it skips itself where the brokers were there before"
)


REASONS: Final[dict[str, dict[str, str]]] = {
    "franz-go": {
        "TestIssueProduceBrokerTooOldFailsRecords": "skips itself where ApiVersions announces Produce version 2, as both do",
        "TestOAuthAuth": NO_SASL,
        "TestSCRAMAuth": NO_SASL,
    },
    "kfake": {
        "TestShareGroupAcquisitionLockExpiry": TOO_EARLY,
        "TestShareGroupCloseReleasesRecords": TOO_EARLY,
        "TestShareGroupMaxDeliveryCount": TOO_EARLY,
        "TestShareGroupRenewAck": TOO_EARLY,
        "TestShareGroupSessionEpoch": TOO_EARLY,
        "TestShareGroupSessionTimeout": TOO_EARLY,
        "TestShareGroupStandaloneAcknowledge": TOO_EARLY,
        "TestShareHeartbeatAssignmentDelivery": TOO_EARLY,
        "TestShareGroupTypeExclusive": "expects ShareFetch to look at the type of the group, which both brokers ignore",
    },
    "confluent-kafka": {
        "test_share_consumer::test_partition_max_record_locks_caps_in_flight": WHOLE_BATCH,
        "test_share_consumer_deserialization::test_schema_registry": "needs a schema registry",
    },
    "librdkafka": {
        "0190_share_consumer_telemetry": "needs a collector of metrics: it skips itself without its topic",
    },
    "sarama": {
        "TestFuncJavaInteropCooperativeRebalance": NOT_ITS_OWN,
        "TestJava": NOT_ITS_OWN,
        "TestReadOnlyAndAllCommittedMessages": "skips itself always: its authors find it unreliable",
    },
    "kafka-python": {
        "test_admin_integration::test_create_describe_delete_acls": "expects an authorizer; neither broker was given one",
        "test_admin_integration::test_create_partitions": "assigns partitions to broker 0; the one broker is 1 in both runs",
        "test_consumer_integration::test_kafka_consumer_offsets_for_time_old": "for brokers before 0.10.1",
        "test_producer_integration::test_end_to_end": NO_CODEC,
        "test_producer_integration::test_kafka_producer_proper_record_metadata": NO_CODEC,
        "test_sasl_integration": NO_SASL,
    },
}
