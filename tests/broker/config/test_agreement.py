"""A start fails if settings contradict each other, with Kafka's error messages."""

from __future__ import annotations

import pytest

from broker.config import ConfigError, broker_config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"replica.socket.timeout.ms": "499"},
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms"
            " to prevent unnecessary socket timeouts",
        ),
        (
            {"replica.lag.time.max.ms": "499"},
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms"
            " to prevent frequent changes in ISR",
        ),
        (
            {"cordoned.log.dirs": "*,/nope"},
            "When cordoned.log.dirs is set to *, it must not contain other values",
        ),
        (
            {"cordoned.log.dirs": "/a,/nope", "log.dirs": "/a"},
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /nope",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ),
        (
            {"connections.max.idle.ms": "100"},
            "connection.failed.authentication.delay.ms=100 should always be less than"
            " connections.max.idle.ms=100 to prevent failed authentication responses from timing out",
        ),
        (
            {"group.streams.num.warmup.replicas": "21"},
            "group.streams.num.warmup.replicas must be less than or equal to group.streams.max.warmup.replicas",
        ),
        (
            {"group.streams.task.offset.interval.ms": "14999"},
            "group.streams.task.offset.interval.ms must be greater than or equal to"
            " group.streams.min.task.offset.interval.ms",
        ),
        (
            {"group.consumer.session.timeout.ms": "44999"},
            "group.consumer.session.timeout.ms must be greater than or equal to"
            " group.consumer.min.session.timeout.ms",
        ),
        (
            {"group.consumer.heartbeat.interval.ms": "15001"},
            "group.consumer.heartbeat.interval.ms must be less than or equal to"
            " group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"group.share.min.heartbeat.interval.ms": "15001"},
            "group.share.max.heartbeat.interval.ms must be greater than or equal to"
            " group.share.min.heartbeat.interval.ms",
        ),
        (
            {
                "group.streams.min.session.timeout.ms": "1",
                "group.streams.session.timeout.ms": "5000",
            },
            "group.streams.heartbeat.interval.ms must be less than group.streams.session.timeout.ms",
        ),
        (
            {"group.consumer.assignors": "uniform,com.example.Mine"},
            "Class com.example.Mine cannot be found",
        ),
        ({"group.share.assignors": "com.example.Mine"}, "Class com.example.Mine cannot be found"),
        (
            {"group.share.assignors": "simple,org.apache.kafka.coordinator.group.assignor.SimpleAssignor"},
            "group.share.assignors must contain exactly one assignor, but found 2",
        ),
        (
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas must be less than or equal to"
            " group.streams.max.standby.replicas",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], message: str):
    with pytest.raises(ConfigError) as refused:
        broker_config(settings)
    by_scala = "" if message.startswith(("group.", "Class ")) else "requirement failed: "
    assert str(refused.value) == by_scala + message


def test_settings_that_agree_may_be_anything():
    broker_config(
        {
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.session.timeout.ms": "6000",
            "max.connections.per.ip": "0",
            "max.connections.per.ip.overrides": "127.0.0.1:5",
            "connections.max.idle.ms": "-1",
        }
    )
