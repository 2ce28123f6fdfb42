"""Brokers with TLS and SASL as Python objects: the settings for their clients, and no leaks of secrets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import given
from hypothesis import strategies as st

import odradek
from broker.config.definitions import OWN_CONFIGS, kafka_configs
from broker.config.sasl_users import given_users
from broker.config.sources import from_environment
from broker.security.sasl.jaas import parse_config
from odradek.process import BrokerProcess
from odradek.security import LIBRARIES, MECHANISMS, Authority, Client, Login, Security, client_config
from odradek.words import Mechanism
from tests.support.clients import PATIENCE, eventually
from tests.support.deadlines import HANG_S
from tests.support.forked import executed

SECRET = 'hu"nt\\er:2;'
AUTHORITY = Authority(Path("/tls"))
ANY_ACL: tuple[Any, ...] = (
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def nodes_of(config: dict[str, Any]) -> int:
    """Number of nodes in the metadata of a client with this configuration."""
    return len(AdminClient({**config, "log_level": 0}).list_topics(timeout=HANG_S).brokers)


def refused(config: dict[str, Any]) -> KafkaError:
    """librdkafka's error of a client that cannot connect."""
    errors: list[KafkaError] = []
    options: dict[str, Any] = {**config, "log_level": 0, "error_cb": errors.append}
    client = AdminClient(options)
    eventually(lambda: client.poll(0.05) and errors)
    return errors[0]


def refusal(config: dict[str, Any]) -> int:
    return refused(config).code()


def commit(config: dict[str, Any], transactional_id: str) -> None:
    """Commit a record in each partition, so that one node sends markers to the other."""
    producer = Producer({**config, "transactional.id": transactional_id, **PATIENCE})
    producer.init_transactions(HANG_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", b"paid", partition=partition)
    producer.commit_transaction(HANG_S)


# -- settings of clients


def told(library: str, *, certificate: bool = False) -> dict[str, Any]:
    client = Client(
        "host:1",
        "SASL_SSL",
        ca=AUTHORITY.ca,
        login=Login("alice", SECRET, "SCRAM-SHA-512"),
        authority=AUTHORITY if certificate else None,
    )
    return client_config(library, client)


def test_the_settings_are_those_of_the_library():
    assert told("librdkafka", certificate=True) == {
        "bootstrap.servers": "host:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/tls/ca.pem",
        "ssl.certificate.location": "/tls/client.crt",
        "ssl.key.location": "/tls/client.key",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    }
    of_java = told("java", certificate=True)
    (module,) = parse_config(of_java.pop("sasl.jaas.config"))
    assert module.name.endswith(".scram.ScramLoginModule")
    assert module.options == {"username": "alice", "password": SECRET}
    assert of_java == {
        "bootstrap.servers": "host:1",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/tls/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/tls/client.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    of_python = {
        "bootstrap_servers": "host:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }
    assert told("kafka-python") == {**of_python, "ssl_cafile": "/tls/ca.pem"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_tls_and_sasl_there_is_nothing_but_the_address_and_the_protocol(library: str):
    assert set(client_config(library, Client("host:1", "PLAINTEXT")).values()) == {"host:1", "PLAINTEXT"}


def test_a_library_that_is_unknown_is_refused():
    with pytest.raises(ValueError, match="unknown library: 'sarama' \\(known: librdkafka, java, aiokafka"):
        told("sarama")


# -- settings of a broker

PASSWORDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)


@given(PASSWORDS, st.sampled_from([None, *MECHANISMS]))
def test_the_broker_reads_the_users_that_python_names(password: str, mechanism: str | None):
    security = Security(users={"alice": password, "bob": "b"}, mechanism=mechanism)
    (variable,) = security.environment().values()
    users = [(each.name, each.mechanism, each.password) for each in given_users([], variable)]
    mechanisms = MECHANISMS if mechanism is None else (mechanism,)
    assert users == [
        (name, each, text) for name, text in (("alice", password), ("bob", "b")) for each in mechanisms
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"users": {"a:b": "x"}}, "'a:b' is not the name of a user"),
        ({"users": {" ": "x"}}, "is not the name of a user"),
        ({"users": {"a": "hunter2\nx"}}, "the password of a is empty, or has several lines"),
        ({"users": {"a": ""}}, "the password of a is empty"),
        ({"users": {"a": "hunter2"}, "mechanism": "GSSAPI"}, "unknown mechanism: GSSAPI"),
        ({"mechanism": "PLAIN"}, "a mechanism needs users: pass users="),
    ],
)
def test_users_that_cannot_be_are_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message) as error:
        odradek.Broker(**arguments)
    assert "hunter" not in str(error.value)


def test_secrets_of_settings_go_by_variables(tmp_path: Path):
    secret = {
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "x;",
        "delegation.token.secret.key": "k",
        "odradek.control.token": "t",
    }
    process = BrokerProcess(tmp_path, settings={**secret, "num.partitions": 2})
    assert process.arguments == ["--set", "num.partitions=2"]
    assert {each.name: each.raw for each in from_environment(process.environment)} == secret
    public = {"ssl.truststore.certificates"}
    names = {
        key.name
        for key in (*kafka_configs().values(), *OWN_CONFIGS.values())
        if key.config_type == "PASSWORD"
    }
    process = BrokerProcess(tmp_path, settings=dict.fromkeys(names - public, "s"))
    assert process.arguments == []


# -- a running broker


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    users = {"alice": SECRET, "bob": "of bob"}
    with executed(), odradek.Broker(nodes=2, topics=["orders:2"], tls=True, users=users) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_each_user_logs_in_by_each_mechanism(broker: odradek.Broker, mechanism: Mechanism | None):
    for user in (None, "alice", "bob"):
        assert nodes_of(broker.client_config(user, mechanism=mechanism)) == 2


def test_what_is_wrong_is_refused(broker: odradek.Broker, tmp_path: Path):
    for config in (
        broker.client_config("alice", "wrong", mechanism="SCRAM-SHA-256"),
        broker.client_config("carol", "of carol"),
    ):
        assert refusal(config) == KafkaError._AUTHENTICATION
    without_authority = broker.client_config("alice")
    del without_authority["ssl.ca.location"]
    # librdkafka has two codes for an untrusted broker, depending on whether the broker's certificate has arrived.
    untrusted = refused(without_authority)
    assert untrusted.code() in (KafkaError._SSL, KafkaError._TRANSPORT)
    assert "certificate verify failed" in untrusted.str()
    with pytest.raises(ValueError, match="no password for"):
        broker.client_config("carol")


def test_a_transaction_over_two_nodes_is_committed(broker: odradek.Broker):
    with broker.trace as trace:
        commit(broker.client_config("alice"), "payments")
        broker.assert_exactly_once("orders", ["paid", "paid"])
        assert SECRET not in str(list(trace.entries()))


def test_a_running_broker_tells_all_but_the_password(broker: odradek.Broker):
    running = odradek.connect(broker.control_url)
    config = running.client_config("alice", SECRET, mechanism="PLAIN")
    assert config == {
        **broker.client_config("alice", mechanism="PLAIN"),
        "bootstrap.servers": running.bootstrap_servers,
    }
    assert running.client_config("alice", "x", ca="/copied/ca.pem")["ssl.ca.location"] == "/copied/ca.pem"
    with pytest.raises(ValueError, match="a SASL_SSL listener requires a user and a password"):
        running.client_config()


def test_no_password_is_where_others_read_it(broker: odradek.Broker):
    command_line = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes()
    for secret in (SECRET, "of bob"):
        assert secret.encode() not in command_line
        assert secret not in "".join(broker.log)
        assert secret not in repr(vars(broker)["_security"])


def test_clients_trust_the_broker_after_a_restart():
    with odradek.Broker(tls=True) as broker:
        ca = broker.authority.ca.read_bytes()
        config = broker.client_config()
        broker.restart()
        assert broker.authority.ca.read_bytes() == ca
        assert nodes_of(config) == 1
        assert broker.client_config(library="aiokafka")["ssl_context"].verify_mode is ssl.CERT_REQUIRED


def test_brokers_may_share_an_authority_and_ask_for_certificates(tmp_path: Path):
    settings = {"ssl.client.auth": "required"}
    with (
        odradek.Broker(tls=tmp_path / "tls", settings=settings, nodes=2) as first,
        odradek.Broker(tls=str(tmp_path / "tls"), users={"alice": "a"}, mechanism="SCRAM-SHA-512") as second,
    ):
        assert first.authority.directory == second.authority.directory == tmp_path / "tls"
        eventually(lambda: nodes_of(first.client_config()) == 2)
        without = first.client_config()
        del without["ssl.certificate.location"], without["ssl.key.location"]
        assert refusal(without) in (KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
        assert second.client_config()["sasl.mechanism"] == "SCRAM-SHA-512"
        assert nodes_of(second.client_config()) == 1


def test_with_an_authorizer_the_nodes_may_write_markers_and_a_user_what_it_is_allowed():
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    users = {"admin": "of admin", "alice": "of alice"}
    with odradek.Broker(nodes=2, topics=["orders:2"], users=users, settings=settings) as broker:
        allow: dict[str, Any] = {
            "host": "*",
            "operation": AclOperation.ALL,
            "permission_type": AclPermissionType.ALLOW,
        }
        resources = [(ResourceType.TOPIC, "orders"), (ResourceType.TRANSACTIONAL_ID, "payments")]
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", **allow)
            for kind, name in resources
        ]
        admin = AdminClient(broker.client_config("admin"))
        for created in admin.create_acls(bindings).values():
            created.result(HANG_S)
        commit(broker.client_config("alice"), "payments")
        broker.assert_exactly_once("orders", ["paid", "paid"])
        with pytest.raises(KafkaException) as error:
            Producer({**broker.client_config("alice"), "transactional.id": "of others"}).init_transactions(
                HANG_S
            )
        assert error.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "of alice" not in "".join(broker.reset().log)
        assert admin.list_topics(timeout=HANG_S).topics.keys() == {"orders"}
        acls = admin.describe_acls(AclBindingFilter(*ANY_ACL)).result(HANG_S)
        assert acls == []


def test_a_broker_without_tls_and_sasl_has_no_certificates_and_no_users():
    broker = odradek.Broker()
    with pytest.raises(odradek.OdradekError, match="start it with tls=True"):
        _ = broker.authority
    with pytest.raises(odradek.BrokerFailed, match="has not been started"):
        broker.client_config()
    broker.close()
