"""Settings of listeners and plug-ins in DescribeConfigs responses. The rows of the table are responses of Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.config import load_config
from broker.config.definitions import kafka_configs
from broker.metadata.configs import Setting, Settings
from broker.metadata.image import Image
from broker.metadata.sensitive_configs import is_sensitive
from broker.metadata.values import BROKER_RESOURCE
from storage.config_def import ConfigType

STARTED_WITH = {
    "sasl.jaas.config": 'PlainLoginModule required user_a="a secret";',
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": 'ScramLoginModule required x="a secret";',
    "listener.name.plaintext.ssl.key.password": "a secret",
    "listener.name.plaintext.max.connections": "100",
    "listener.name.plaintext.plain.connections.max.reauth.ms": "2000",
    "listener.name.plaintext.foo.max.connections": "3",
    "my.plugin.password": "a secret",
    "super.users": "User:admin",
    "ssl.key.password": "a secret",
}
OWN = {
    "sasl.jaas.config": "a secret",
    "listener.name.plaintext.plain.sasl.jaas.config": "a secret",
    "listener.name.plaintext.ssl.keystore.password": "a secret",
    "listener.name.plaintext.ssl.keystore.type": "PEM",
    "listener.name.plaintext.max.connections": "50",
    "my.dynamic.secret": "a secret",
}
CLUSTER = {"listener.name.plaintext.max.connections": "60", "my.cluster.secret": "a secret"}

ROWS: dict[str, tuple[str | None, int, bool, list[tuple[str, str | None, int]]]] = {
    "listener.name.plaintext.plain.sasl.jaas.config": (
        None,
        9,
        True,
        [
            ("listener.name.plaintext.plain.sasl.jaas.config", None, 2),
            ("sasl.jaas.config", None, 2),
            ("sasl.jaas.config", None, 4),
        ],
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": (
        None,
        9,
        True,
        [
            ("listener.name.plaintext.scram-sha-256.sasl.jaas.config", None, 4),
            ("sasl.jaas.config", None, 4),
        ],
    ),
    "listener.name.plaintext.ssl.key.password": (
        None,
        9,
        True,
        [("listener.name.plaintext.ssl.key.password", None, 4), ("ssl.key.password", None, 4)],
    ),
    "listener.name.plaintext.ssl.keystore.password": (
        None,
        9,
        True,
        [("listener.name.plaintext.ssl.keystore.password", None, 2)],
    ),
    "listener.name.plaintext.ssl.keystore.type": (
        "PEM",
        2,
        False,
        [("listener.name.plaintext.ssl.keystore.type", "PEM", 2), ("ssl.keystore.type", "JKS", 5)],
    ),
    "listener.name.plaintext.max.connections": (
        "50",
        3,
        False,
        [
            ("listener.name.plaintext.max.connections", "50", 2),
            ("listener.name.plaintext.max.connections", "60", 3),
            ("listener.name.plaintext.max.connections", "100", 4),
            ("max.connections", "2147483647", 5),
        ],
    ),
    "listener.name.plaintext.plain.connections.max.reauth.ms": (
        "2000",
        5,
        False,
        [
            ("listener.name.plaintext.plain.connections.max.reauth.ms", "2000", 4),
            ("connections.max.reauth.ms", "0", 5),
        ],
    ),
    "listener.name.plaintext.foo.max.connections": (
        None,
        0,
        True,
        [("listener.name.plaintext.foo.max.connections", None, 4)],
    ),
    "my.plugin.password": (None, 0, True, [("my.plugin.password", None, 4)]),
    "super.users": (None, 0, True, [("super.users", None, 4)]),
    "my.dynamic.secret": (None, 0, True, [("my.dynamic.secret", None, 2)]),
    "my.cluster.secret": (None, 0, True, [("my.cluster.secret", None, 3)]),
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in STARTED_WITH.items()))
    config, _ = load_config(file, {"ODRADEK_CONTROL_TOKEN": "a secret"}, {})
    image: Any = SimpleNamespace(cluster_configs=CLUSTER, broker_configs=lambda node_id: OWN)
    return Settings(cast(Image, image), config)


def row(one: Setting) -> tuple[str | None, int, bool, list[tuple[Any, ...]]]:
    return one.value, one.config_type, one.sensitive, [tuple(each) for each in one.synonyms]


def test_all_that_was_set_is_listed_as_kafka_lists_it(settings: Settings) -> None:
    found = {one.name: one for one in settings.of_broker()}
    others = {name: one for name, one in found.items() if name not in kafka_configs()}
    assert {name: row(one) for name, one in others.items()} == ROWS
    assert all(one.read_only and one.documentation is None for one in others.values())
    assert [one.source for one in others.values()] == [one.synonyms[0].source for one in others.values()]
    assert row(found["sasl.jaas.config"])[:3] == (None, 9, True)


def test_so_is_what_was_set_for_all_brokers(settings: Settings) -> None:
    assert {one.name: row(one) for one in settings.of_all_brokers()} == {
        "listener.name.plaintext.max.connections": (
            "60",
            3,
            False,
            [("listener.name.plaintext.max.connections", "60", 3)],
        ),
        "my.cluster.secret": (None, 0, True, [("my.cluster.secret", None, 3)]),
    }


def test_no_secret_is_in_it(settings: Settings) -> None:
    assert "a secret" not in repr([*settings.of_broker(), *settings.of_all_brokers()])


def test_what_is_sensitive_is_what_kafka_has_as_a_password() -> None:
    found: Mapping[str, bool] = {name: is_sensitive(BROKER_RESOURCE, name) for name in kafka_configs()}
    passwords = {name for name, key in kafka_configs().items() if key.config_type is ConfigType.PASSWORD}
    assert {name for name, sensitive in found.items() if sensitive} == passwords
