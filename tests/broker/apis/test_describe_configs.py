"""DescribeConfigs returns values, sources and synonyms as Kafka does."""

from __future__ import annotations

import pytest

from broker.apis.describe_configs import describe_configs as describe_configs_handler
from broker.metadata import NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.metadata.world import context_of, open_cluster
from tests.support.coroutines import served

describe_configs = served(describe_configs_handler)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def ask(cluster, *resources, version=4, keys=None, synonyms=True, documentation=False, **options):
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = describe_configs(request, context_of(cluster, version, **options))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(32, version).encode(response))
    return client_codec(32, version).decode(encoded, 0).results


def settings(cluster, kind, name, **options):
    [result] = ask(cluster, (kind, name), **options)
    assert (result.error_code, result.error_message) == (0, "")
    assert (result.resource_type, result.resource_name) == (kind, name)
    return {one.name: one for one in result.configs}


def places(entry):
    return [(one.name, one.value, one.source) for one in entry.synonyms]


# name: value, type, synonym (None: the setting has no synonym)
DEFAULTS = {
    "cleanup.policy": ("delete", 7, "log.cleanup.policy"),
    "compression.gzip.level": ("-1", 3, "compression.gzip.level"),
    "compression.lz4.level": ("9", 3, "compression.lz4.level"),
    "compression.type": ("producer", 2, "compression.type"),
    "compression.zstd.level": ("3", 3, "compression.zstd.level"),
    "delete.retention.ms": ("86400000", 5, "log.cleaner.delete.retention.ms"),
    "errors.deadletterqueue.group.enable": ("false", 1, None),
    "file.delete.delay.ms": ("60000", 5, "log.segment.delete.delay.ms"),
    "flush.messages": ("9223372036854775807", 5, "log.flush.interval.messages"),
    "flush.ms": ("9223372036854775807", 5, None),
    "follower.replication.throttled.replicas": ("", 7, None),
    "index.interval.bytes": ("4096", 3, "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", 7, None),
    "local.retention.bytes": ("-2", 5, "log.local.retention.bytes"),
    "local.retention.ms": ("-2", 5, "log.local.retention.ms"),
    "max.compaction.lag.ms": ("9223372036854775807", 5, "log.cleaner.max.compaction.lag.ms"),
    "max.decompressed.message.bytes": ("2147483639", 3, "max.decompressed.message.bytes"),
    "max.message.bytes": ("1048588", 3, "message.max.bytes"),
    "message.timestamp.after.max.ms": ("3600000", 5, "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", 2, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", 6, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", 5, "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("1", 3, "min.insync.replicas"),
    "preallocate": ("false", 1, "log.preallocate"),
    "remote.copy.lag.bytes": ("-1", 5, "log.remote.copy.lag.bytes"),
    "remote.copy.lag.ms": ("0", 5, "log.remote.copy.lag.ms"),
    "remote.log.copy.disable": ("false", 1, None),
    "remote.log.delete.on.disable": ("false", 1, None),
    "remote.storage.enable": ("false", 1, None),
    "retention.bytes": ("-1", 5, "log.retention.bytes"),
    "retention.ms": ("604800000", 5, None),
    "segment.bytes": ("1073741824", 3, "log.segment.bytes"),
    "segment.index.bytes": ("10485760", 3, "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", 5, None),
    "segment.ms": ("604800000", 5, None),
    "unclean.leader.election.enable": ("false", 1, "unclean.leader.election.enable"),
}


async def test_all_37_settings_of_a_topic(cluster):
    await cluster.replication_control.create_topics([NewTopic("t")])
    found = settings(cluster, TOPIC, "t")
    assert list(found) == list(DEFAULTS)
    for name, (value, kind, synonym) in DEFAULTS.items():
        one = found[name]
        assert (name, one.value, one.config_type) == (name, value, kind)
        # With eligible leader replicas, min.insync.replicas is set for all brokers.
        of_cluster = [(name, value, 3)] if name == "min.insync.replicas" else []
        source = 3 if of_cluster else 5
        assert (one.config_source, one.read_only, one.is_sensitive) == (source, False, False)
        assert places(one) == of_cluster + ([] if synonym is None else [(synonym, value, 5)])
        assert one.documentation is None


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_s_own_values_take_precedence(cluster, version):
    await cluster.replication_control.create_topics(
        [NewTopic("t", configs={"retention.ms": " 77 ", "cleanup.policy": "compact, delete"})]
    )
    found = settings(cluster, TOPIC, "t", version=version)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("77", 1)
    assert found["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert places(found["retention.ms"]) == [("retention.ms", "77", 1)]
    assert places(found["cleanup.policy"]) == [
        ("cleanup.policy", "compact,delete", 1),
        ("log.cleanup.policy", "delete", 5),
    ]


async def test_internal_settings_are_listed_where_the_broker_was_started_with_them(tmp_path):
    """DescribeConfigs returns an internal setting unparsed, as the user wrote it. Kafka takes the value from
    ``originals``."""
    cluster = open_cluster(
        tmp_path, unstable_api_versions_enable="TRUE", log_initial_task_delay_ms="500", log_retention_ms="7"
    )
    found = settings(cluster, BROKER, "1")
    unstable, delay = found["unstable.api.versions.enable"], found["log.initial.task.delay.ms"]
    assert (unstable.value, unstable.config_source, unstable.config_type) == ("TRUE", 4, 1)
    assert (unstable.read_only, unstable.is_sensitive) == (True, False)
    assert places(unstable) == [
        ("unstable.api.versions.enable", "TRUE", 4),
        ("unstable.api.versions.enable", "false", 5),
    ]
    assert (delay.value, delay.config_source, delay.config_type) == ("500", 4, 5)
    assert "server.max.startup.time.ms" not in found


async def test_internal_settings_are_listed_if_they_are_set_at_run_time(cluster):
    await cluster.change_config(BROKER, "1", {"group.consumer.assignor.offload.enable": "false"})
    found = settings(cluster, BROKER, "1")["group.consumer.assignor.offload.enable"]
    assert places(found) == [
        ("group.consumer.assignor.offload.enable", "false", 2),
        ("group.consumer.assignor.offload.enable", "true", 5),
    ]


async def test_broker_settings_rank_between_topic_settings_and_defaults(tmp_path):
    cluster = open_cluster(
        tmp_path, log_segment_bytes="2000000", log_retention_hours="1", log_flush_interval_ms="9"
    )
    await cluster.replication_control.create_topics([NewTopic("t")])
    found = settings(cluster, TOPIC, "t")
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("2000000", 4)
    assert places(found["segment.bytes"]) == [
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    # log.retention.hours is a synonym of the broker's log.retention.ms but not of the topic's retention.ms, as in Kafka.
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("3600000", 5)
    assert places(found["retention.ms"]) == []
    assert found["flush.ms"].value == "9"
    assert places(found["flush.ms"])[0] == ("log.flush.interval.ms", "9", 4)
    await cluster.close()


async def test_dynamic_settings_of_all_brokers_and_of_one_broker(cluster):
    await cluster.replication_control.create_topics([NewTopic("t")])
    await cluster.change_config(BROKER, "", {"min.insync.replicas": "2", "log.retention.ms": "8"})
    await cluster.change_config(BROKER, "1", {"log.retention.ms": "7"})
    found = settings(cluster, TOPIC, "t")
    assert (found["min.insync.replicas"].value, found["min.insync.replicas"].config_source) == ("2", 3)
    assert places(found["min.insync.replicas"]) == [
        ("min.insync.replicas", "2", 3),
        ("min.insync.replicas", "1", 5),
    ]
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("7", 2)
    # The default is that of log.retention.hours, so this setting comes last in the synonyms.
    retention = [
        ("log.retention.ms", "7", 2),
        ("log.retention.ms", "8", 3),
        ("log.retention.hours", "168", 5),
    ]
    assert places(found["retention.ms"]) == retention
    broker = settings(cluster, BROKER, "1")
    assert places(broker["log.retention.ms"]) == retention
    assert (broker["log.retention.ms"].value, broker["log.retention.ms"].config_source) == ("7", 2)
    every = settings(cluster, BROKER, "")
    assert {name: (one.value, one.config_source) for name, one in every.items()} == {
        "log.retention.ms": ("8", 3),
        "min.insync.replicas": ("2", 3),
    }


async def test_internal_settings_are_listed_if_they_are_set(cluster):
    await cluster.replication_control.create_topics(
        [NewTopic("t", configs={"internal.segment.bytes": "100"})]
    )
    found = settings(cluster, TOPIC, "t")
    assert len(found) == 38
    assert (found["internal.segment.bytes"].value, found["internal.segment.bytes"].config_source) == (
        "100",
        1,
    )


@pytest.mark.parametrize("keys", [None, []])
async def test_without_keys_all_settings_are_returned(cluster, keys):
    await cluster.replication_control.create_topics([NewTopic("t")])
    assert len(settings(cluster, TOPIC, "t", keys=keys)) == 37


async def test_keys_select_settings_and_unknown_ones_are_skipped(cluster):
    await cluster.replication_control.create_topics([NewTopic("t")])
    assert list(settings(cluster, TOPIC, "t", keys=["flush.ms", "nope"])) == ["flush.ms"]
    assert list(settings(cluster, TOPIC, "t", keys=["nope"])) == []


async def test_synonyms_and_documentation_are_returned_on_request(cluster):
    await cluster.replication_control.create_topics([NewTopic("t")])
    plain = settings(cluster, TOPIC, "t", synonyms=False)["cleanup.policy"]
    assert (list(plain.synonyms), plain.documentation) == ([], None)
    told = settings(cluster, TOPIC, "t", documentation=True)
    assert all(one.documentation for one in told.values())


async def test_the_settings_of_a_broker(cluster):
    found = settings(cluster, BROKER, "1", log_retention_minutes="5")
    assert len(found) == 350
    assert not any(name.startswith("odradek.") for name in found)
    roll = found["log.retention.hours"]
    assert (roll.value, roll.config_source, roll.config_type, roll.read_only) == ("168", 5, 3, True)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == (None, False)
    assert places(found["log.retention.ms"]) == []
    factor = found["offsets.topic.replication.factor"]
    assert (factor.value, factor.config_source, factor.config_type) == ("1", 4, 4)
    assert places(factor) == [
        ("offsets.topic.replication.factor", "1", 4),
        ("offsets.topic.replication.factor", "3", 5),
    ]
    secret = found["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)


async def test_secrets_are_shown_to_no_client(tmp_path):
    cluster = open_cluster(tmp_path, ssl_keystore_password="hush")
    secret = settings(cluster, BROKER, "1")["ssl.keystore.password"]
    assert (secret.value, secret.config_source) == (None, 4)
    assert places(secret) == [("ssl.keystore.password", None, 4)]
    await cluster.close()


async def test_the_logger(cluster):
    found = settings(cluster, LOGGER, "1")
    assert {name: (one.value, one.config_source) for name, one in found.items()} == {"root": ("DEBUG", 6)}
    assert (found["root"].documentation, found["root"].config_type) == ("", 0)


async def test_client_metrics(cluster):
    found = settings(cluster, METRICS, "any")
    assert {name: (one.value, one.config_source, one.config_type) for name, one in found.items()} == {
        "interval.ms": ("300000", 5, 3),
        "match": ("", 5, 7),
        "metrics": ("", 5, 7),
    }
    await cluster.change_config(METRICS, "any", {"interval.ms": "1000"})
    entry = settings(cluster, METRICS, "any")["interval.ms"]
    assert (entry.value, entry.config_source, places(entry)) == ("1000", 7, [("interval.ms", "1000", 7)])


async def test_groups(cluster):
    found = settings(cluster, GROUP, "g")
    assert len(found) == 21
    entry = found["consumer.session.timeout.ms"]
    assert (entry.value, entry.config_source, entry.config_type) == ("45000", 5, 3)
    assert places(entry) == [("group.consumer.session.timeout.ms", "45000", 5)]
    assert places(found["share.isolation.level"]) == [("share.isolation.level", "read_uncommitted", 5)]
    await cluster.change_config(GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    entry = settings(cluster, GROUP, "g")["consumer.session.timeout.ms"]
    assert (entry.value, entry.config_source) == ("50000", 8)
    assert places(entry)[1] == ("group.consumer.session.timeout.ms", "45000", 5)


async def test_internal_settings_of_a_group_are_listed_if_they_are_set(cluster):
    assert "streams.num.warmup.replicas" not in settings(cluster, GROUP, "g")
    await cluster.change_config(GROUP, "g", {"streams.num.warmup.replicas": "3"})
    found = settings(cluster, GROUP, "g")["streams.num.warmup.replicas"]
    assert places(found) == [
        ("streams.num.warmup.replicas", "3", 8),
        ("group.streams.num.warmup.replicas", "2", 5),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition, ""),
        (
            TOPIC,
            "",
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            BROKER,
            "2",
            ErrorCode.invalid_request,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", ErrorCode.invalid_request, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", ErrorCode.invalid_request, "Broker id must not be empty"),
        (LOGGER, "2", ErrorCode.invalid_request, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", ErrorCode.invalid_request, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.invalid_request, "Group name must not be empty"),
    ],
)
async def test_resources_that_do_not_exist(cluster, kind, name, error, message):
    await cluster.replication_control.create_topics([NewTopic("t")])
    bad, good = ask(cluster, (kind, name), (TOPIC, "t"))
    assert (bad.error_code, bad.error_message, list(bad.configs)) == (error, message, [])
    assert (bad.resource_type, bad.resource_name) == (kind, name)
    assert good.error_code == 0


async def test_an_unknown_resource_type_fails_the_request(cluster):
    await cluster.replication_control.create_topics([NewTopic("t")])
    results = ask(cluster, (7, "q"), (TOPIC, "t"))
    assert [(one.resource_type, one.error_code) for one in results] == [(7, 42), (TOPIC, 42)]
    assert all(one.error_message.startswith("This most likely occurs because") for one in results)


@pytest.mark.parametrize(
    ("kind", "name", "denied", "error", "message"),
    [
        (TOPIC, "t", ("TOPIC", "t"), ErrorCode.topic_authorization_failed, "Topic authorization failed."),
        (
            BROKER,
            "1",
            ("CLUSTER", "kafka-cluster"),
            ErrorCode.cluster_authorization_failed,
            "Cluster authorization failed.",
        ),
        (
            LOGGER,
            "1",
            ("CLUSTER", "kafka-cluster"),
            ErrorCode.cluster_authorization_failed,
            "Cluster authorization failed.",
        ),
        (GROUP, "g", ("GROUP", "g"), ErrorCode.group_authorization_failed, "Group authorization failed."),
    ],
)
async def test_rights(cluster, kind, name, denied, error, message):
    [result] = ask(cluster, (kind, name), denied={("DESCRIBE_CONFIGS", *denied)})
    assert (result.error_code, result.error_message, list(result.configs)) == (error, message, [])
