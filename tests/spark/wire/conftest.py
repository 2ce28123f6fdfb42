"""An Apache Kafka with every type of listener that the sink's client supports, started once for all tests that need it."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import raw
from tests.support.kafka_oracle import format_directory, started

CERTIFICATES = Path(__file__).parent / "certificates"
LOGIN = "org.apache.kafka.common.security"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")


@dataclass
class SecuredKafka:
    """A Kafka with one port per listener (``ports``). The user alice has the password "alice-secret" in every mechanism."""

    ports: dict[str, int]

    @property
    def bootstrap(self) -> str:
        return self.at("PLAINTEXT")

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


def listener_settings(ports: dict[str, int]) -> dict[str, str]:
    listeners = ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in PROTOCOLS)
    plain = f'{LOGIN}.plain.PlainLoginModule required user_alice="alice-secret";'
    token = f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    sasl: dict[str, str] = {}
    for listener in ("sasl_ssl", "sasl_plaintext"):
        prefix = f"listener.name.{listener}"
        sasl |= {
            f"{prefix}.plain.sasl.jaas.config": plain,
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": token,
        }
    return sasl | {
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports['CONTROLLER']}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in PROTOCOLS)
        + ",CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CERTIFICATES / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
    }


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    ports = {name: raw.free_port() for name in (*PROTOCOLS, "CONTROLLER")}
    settings = listener_settings(ports) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "false",
        "transaction.state.log.num.partitions": "5",
        "offsets.topic.num.partitions": "5",
    }
    users = [
        f"--add-scram={mechanism}=[name=alice,password=alice-secret]"
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    home = tmp_path_factory.mktemp("secured-kafka")
    try:
        file = format_directory(home, settings, arguments=users)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(
            f"Kafka's directory was not formatted:\n{error.stdout!r}\n{error.stderr!r}"
        ) from None
    with started(file):
        yield SecuredKafka(ports)
