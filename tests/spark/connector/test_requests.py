"""The requests that Spark's connector sends, as recorded by the broker's trace."""

import pytest

from odradek import Broker
from odradek.spark.testing.kafka import Kafka

pytestmark = pytest.mark.spark

# As measured against Apache Kafka 4.3.1: the highest versions that the connector's client (3.9.2) and the broker share.
# The admin client sends Metadata too. The driver lists partitions with DescribeTopicPartitions.
VERSIONS = {
    "ApiVersions": {4},
    "DescribeCluster": {1},
    "DescribeTopicPartitions": {0},
    "Fetch": {17},
    "InitProducerId": {5},
    "ListOffsets": {9},
    "Metadata": {12},
    "Produce": {11},
}


def test_the_connector_uses_the_same_versions_as_with_kafka(spark):
    # This test needs its own broker: Spark caches a producer for each address, and its first requests occur only once.
    with Broker() as broker, broker.trace as trace:
        kafka = Kafka(broker.bootstrap_servers, broker, prefix="requests")
        topic = kafka.topic()
        frame = spark.range(3).selectExpr("cast(id as string) value")
        frame.write.format("kafka").options(**kafka.options, topic=topic).save()
        read = spark.read.format("kafka").options(**kafka.options, subscribe=topic, minPartitions=2).load()
        assert read.count() == 3
        seen: dict[str, set[int]] = {}
        for each in trace.entries(limit=10_000):
            if each["client_id"] != "rdkafka":
                seen.setdefault(each["api"], set()).add(each["version"])
    assert seen == VERSIONS
