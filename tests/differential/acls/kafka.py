"""Apache Kafka with an authorizer. python -m tests.differential.acls.kafka records its responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.differential.acls.asking import PASSWORD, Asking, Connection
from tests.differential.acls.cases import ASKERS, CASES, case, save
from tests.support import raw
from tests.support.kafka_oracle import kafka

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@contextmanager
def kafka_with_authorizer() -> Iterator[Asking]:
    """Start Kafka. Its broker and controller use listeners without SASL, so the anonymous principal is the super user."""
    port, sasl_port, controller = raw.free_port(), raw.free_port(), raw.free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    users = " ".join(
        f'user_{user}="{PASSWORD}"' for user in dict.fromkeys(user for user, _ in ASKERS.values())
    )
    properties = AUTHORIZER | {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
    }
    with kafka(properties):
        askers = {asker: Connection(sasl_port, host, user) for asker, (user, host) in ASKERS.items()}
        with Asking(Connection(port, "127.0.0.1"), askers) as asking:
            yield asking


def main() -> None:
    with kafka_with_authorizer() as asking:
        save([asking.answers(case(number)) for number in range(CASES)])


if __name__ == "__main__":
    main()
