"""TLS, SASL and ACLs against Apache Kafka."""

import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from odradek.spark.wire import Authentication, Authorization, ClientSettings, Cluster, TransactionalWriter
from tests.support.clients import values

pytestmark = [pytest.mark.more, pytest.mark.java]

CERTIFICATES = Path(__file__).parent / "certificates"
TRUST = {
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
}
KEYSTORE = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(CERTIFICATES / "client.pem")}
MODULES = {
    "PLAIN": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{password}";',
    "SCRAM": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{password}";',
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="alice";',
}


def sasl(mechanism: str, password: str = "alice-secret") -> dict[str, str]:
    module = MODULES[mechanism.partition("-")[0]].replace("{password}", password)
    return {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": module}


def settings_of(kafka, listener: str, **options: str) -> ClientSettings:
    return ClientSettings.from_options(
        {
            "kafka.bootstrap.servers": kafka.at(listener),
            "kafka.security.protocol": listener,
            "kafka.delivery.timeout.ms": "20000",
            **options,
        }
    )


def create_topic(kafka, name: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    return admin


def write(settings: ClientSettings, topic: str, text: str) -> None:
    with Cluster(settings) as cluster:
        [producer] = cluster.init_producer_ids([topic], 60_000).values()
        writer = TransactionalWriter(cluster, topic, producer)
        writer.write(pa.array([text] * 5_000), topic=topic)
        writer.flush()
        assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("SSL", TRUST | KEYSTORE),
        ("SASL_SSL", TRUST | sasl("PLAIN")),
        ("SASL_SSL", TRUST | sasl("SCRAM-SHA-256")),
        ("SASL_SSL", TRUST | sasl("SCRAM-SHA-512")),
        ("SASL_PLAINTEXT", sasl("SCRAM-SHA-512")),
        ("SASL_PLAINTEXT", sasl("OAUTHBEARER")),
    ],
)
def test_an_authenticated_client_may_write(secured_kafka, listener, options, request):
    topic = f"may-{zlib.crc32(request.node.name.encode())}"
    create_topic(secured_kafka, topic)
    write(settings_of(secured_kafka, listener, **options), topic, "hello " * 20)
    assert set(values(secured_kafka.bootstrap, topic, expected=5_000)) == {"hello " * 20}


@pytest.mark.parametrize(
    ("listener", "options", "code"),
    [
        ("SSL", TRUST, "SSL_HANDSHAKE_FAILED"),
        ("SASL_SSL", TRUST | sasl("PLAIN", "wrong"), "SASL_AUTHENTICATION_FAILED"),
        ("SASL_SSL", TRUST | sasl("SCRAM-SHA-512", "wrong"), "SASL_AUTHENTICATION_FAILED"),
    ],
)
def test_a_failed_login_fails_at_once_and_hides_the_password(secured_kafka, listener, options, code):
    with Cluster(settings_of(secured_kafka, listener, **options)) as cluster:
        with pytest.raises(Authentication) as caught:
            cluster.partitions_of("t")
        assert caught.value.code == code
        assert "wrong" not in str(caught.value)


def test_a_denied_operation_names_its_resource(secured_kafka):
    create_topic(secured_kafka, "open")
    admin = create_topic(secured_kafka, "closed")
    denied = [
        (ResourceType.TOPIC, "closed", AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, "denied-id", AclOperation.WRITE),
    ]
    for kind, name, operation in denied:
        acl = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.DENY
        )
        for future in admin.create_acls([acl]).values():
            future.result()
    with Cluster(settings_of(secured_kafka, "SASL_PLAINTEXT", **sasl("PLAIN"))) as cluster:
        with pytest.raises(Authorization, match="transactional id 'denied-id'"):
            cluster.init_producer_ids(["denied-id"], 60_000)
        [producer] = cluster.init_producer_ids(["granted-id"], 60_000).values()
        with pytest.raises(Authorization, match=r"closed-0.*\(TOPIC_AUTHORIZATION_FAILED\)"):
            cluster.add_partitions("granted-id", producer, [("open", 0), ("closed", 0)])
