"""Tests to copy: a broker with TLS, users and ACLs, and what your code does when a request is denied.

pip install odradek confluent-kafka pytest
pytest test_rights.py

``pay`` is a placeholder for the code that you want to test. The broker creates its certificates when it starts.
"""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

TIMEOUT_S = 20


@pytest.fixture(scope="session")
def odradek_options():
    return {
        "tls": True,
        "users": {"admin": "admin-secret", "shop": "shop-secret"},
        "topics": ["orders:1"],
        "settings": {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        },
    }


def allow(broker, principal, operation, kind, name):
    """Add an ACL, as `kafka-acls --add --allow-principal` does."""
    acl = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(broker.client_config("admin"))
    for future in admin.create_acls([acl]).values():
        future.result(TIMEOUT_S)


@pytest.fixture
def broker(odradek):
    """A broker where the user shop may write orders in its own transactions, and nothing else."""
    allow(odradek, "User:shop", AclOperation.WRITE, ResourceType.TOPIC, "orders")
    allow(odradek, "User:shop", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "payments")
    return odradek


def pay(config, *values):
    """Write each value in a transaction of its own. Raises ``KafkaException`` for the first value that is denied."""
    producer = Producer({**config, "transactional.id": "payments"})
    producer.init_transactions(TIMEOUT_S)
    for value in values:
        producer.begin_transaction()
        try:
            producer.produce("orders", value)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
            raise


def test_the_shop_may_write_orders(broker):
    pay(broker.client_config("shop", mechanism="SCRAM-SHA-512"), "1", "2")
    broker.assert_exactly_once("orders", ["1", "2"])


def test_a_topic_that_is_not_the_shop_s(broker):
    refused = []
    producer = Producer(broker.client_config("shop"))
    producer.produce("salaries", "1", on_delivery=lambda error, _: refused.append(error.code()))
    producer.flush(TIMEOUT_S)
    assert refused == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_a_right_that_is_taken_away_between_two_transactions(broker, odradek_faults):
    rule = odradek_faults.add("Produce principal=User:shop nth=2 -> remove-acls topic=orders")
    with pytest.raises(KafkaException) as refused:
        pay(broker.client_config("shop"), "1", "2", "3")
    assert refused.value.args[0].txn_requires_abort()
    assert rule.hits == 1
    broker.assert_exactly_once("orders", ["1"])
    broker.assert_no_open_transactions()


def test_a_wrong_password(broker):
    config = broker.client_config("shop", "wrong", mechanism="SCRAM-SHA-512")
    seen = []
    producer = Producer({**config, "log_level": 0, "error_cb": lambda error: seen.append(error.code())})
    while not seen:
        producer.poll(0.1)
    assert seen[0] == KafkaError._AUTHENTICATION


def test_a_certificate_that_has_expired(broker):
    broker.clock.advance("3651d", only=["connections"])
    seen = []
    config = broker.client_config("shop")
    producer = Producer({**config, "log_level": 0, "error_cb": seen.append})
    while not seen:
        producer.poll(0.1)
    assert "certificate verify failed" in seen[0].str()
