"""The settings with which Kafka and our broker are started for the matrix."""

from __future__ import annotations

from typing import Final

from tests.broker.security.refusals.principals import ADMIN, USERS

HOUR_MS: Final = 3_600_000
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS: Final = (
    f'{_PLAIN} required username="{ADMIN}" password="{ADMIN}" '
    + " ".join(f'user_{name}="{name}"' for name in USERS)
    + ";"
)
"""The PLAIN users. Each user's password is its name."""
COMMON: Final = {
    "node.id": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "delegation.token.secret.key": "secret",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # Members that are made at the set-up send one heartbeat for the whole matrix.
    "group.consumer.max.session.timeout.ms": str(HOUR_MS),
    "group.consumer.session.timeout.ms": str(HOUR_MS),
    "group.share.assignment.interval.ms": "0",
    "group.share.max.session.timeout.ms": str(HOUR_MS),
    "group.share.session.timeout.ms": str(HOUR_MS),
    # The batches of the matrix have old timestamps.
    "log.retention.ms": "-1",
    "transaction.max.timeout.ms": str(HOUR_MS),
}
