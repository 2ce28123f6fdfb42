"""Settings that change while a broker runs: which settings may change, and the resulting configuration."""

from __future__ import annotations

import re

import pytest

from broker.config import broker_config
from broker.config.definitions import documentation_of, kafka_configs
from broker.config.dynamic import Layers, check, check_change, follow, with_dynamic
from storage.config_def import ConfigError


@pytest.mark.parametrize(
    ("wanted", "per_broker", "refusal"),
    [
        ({"node.id": "2"}, True, "Cannot update these configs dynamically: [node.id]"),
        (
            {"ssl.keystore.type": "PEM"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.type]",
        ),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            {"listener.name.x.ssl.keystore.type": "PEM"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.x.ssl.keystore.type]",
        ),
        (
            {"log.retention.ms": "x"},
            True,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_settings_that_cannot_change_are_rejected_with_kafka_s_messages(
    wanted: dict[str, str], per_broker: bool, refusal: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check(wanted, per_broker=per_broker)
    assert str(refused.value) == refusal


@pytest.mark.parametrize(
    ("wanted", "per_broker"),
    [
        ({"listeners": "PLAINTEXT://:1"}, True),
        ({"listener.name.x.ssl.keystore.type": "PEM"}, True),
        ({"listener.name.x.max.connections": "5"}, False),
        ({"max.connections": "5", "log.retention.ms": "1"}, False),
        ({"of.a.plugin": "1"}, False),
    ],
)
def test_dynamic_settings_are_accepted(wanted: dict[str, str], per_broker: bool) -> None:
    check(wanted, per_broker=per_broker)


def test_a_broker_s_own_value_wins_over_that_of_all_brokers_and_both_over_the_start() -> None:
    static = broker_config({"log.retention.ms": "1", "message.max.bytes": "2000"})
    both = Layers({"log.retention.ms": "2", "max.connections": "7"}, {"log.retention.ms": "3"})
    config = with_dynamic(static, both)
    assert (config.log_defaults.retention_ms, config.max_connections) == (3, 7)
    assert config.log_defaults.max_message_bytes == 2000
    assert with_dynamic(static, Layers(both.cluster, {})).get("log.retention.ms") == 2
    assert with_dynamic(static, Layers({}, {})) is static


def test_a_later_layer_puts_out_the_synonyms_of_an_earlier_one() -> None:
    static = broker_config({"log.roll.hours": "5"})
    config = with_dynamic(static, Layers({"log.roll.ms": "1000"}, {}))
    assert config.log_defaults.segment_ms == 1000
    assert config.get("log.roll.hours") == kafka_configs()["log.roll.hours"].default


def test_invalid_settings_that_an_earlier_release_accepted_are_ignored() -> None:
    static = broker_config()
    config = with_dynamic(static, Layers({"log.retention.ms": "x", "node.id": "9"}, {"of.a.plugin": "1"}))
    assert config == static


@pytest.mark.parametrize(
    ("threads", "reason"),
    [
        ("0", "value should be at least 1"),
        ("3", "value should be at least half the current value 8"),
        ("17", "value should not be greater than double the current value 8"),
    ],
)
def test_threads_change_by_half_or_double_at_most(threads: str, reason: str) -> None:
    static = broker_config()
    changed = with_dynamic(static, Layers({"num.io.threads": threads}, {}))
    if threads != "0":  # the validator of the setting rejects 0 before
        with pytest.raises(ConfigError, match=reason):
            check_change(static, changed)
    check_change(static, with_dynamic(static, Layers({"num.io.threads": "16"}, {})))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max.connections", "0", "Invalid max.connections 0 for configuration Invalid dynamic configuration"),
        ("max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0 for configuration"),
        ("log.cleaner.threads", "0", "/ by zero"),
        ("log.cleaner.threads", "500", "requirement failed: log.cleaner.dedupe.buffer.size must be at least"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "requirement failed: log.cleaner.dedupe.buffer.size"),
        ("listeners", "PLAINTEXT://:1", "requirement failed: controller.listener.names must contain"),
        ("metric.reporters", "no.such.Class", "Validation of dynamic config update of Set"),
    ],
)
def test_invalid_combinations_are_rejected_with_kafka_s_messages(name: str, value: str, reason: str) -> None:
    static = broker_config({"metric.reporters": "of.the.Users"})
    with pytest.raises(ConfigError, match=re.escape(reason)):
        check_change(static, with_dynamic(static, Layers({name: value}, {})))
    check_change(static, with_dynamic(static, Layers({"listeners": "PLAINTEXT://:1,CONTROLLER://:2"}, {})))


def test_a_configuration_changes_in_place() -> None:
    config = broker_config()
    follow(config, with_dynamic(config, Layers({"max.connections": "7"}, {})))
    assert (config.max_connections, config.get("max.connections")) == (7, 7)


def test_every_setting_has_a_sentence_but_those_that_have_none_in_kafka() -> None:
    sentences = {name: documentation_of(name) for name in kafka_configs()}
    without = ["unstable.api.versions.enable", "unstable.feature.versions.enable"]
    assert [name for name, text in sentences.items() if not text.endswith(".")] == without
    assert documentation_of("no.such.setting") == ""
