"""What Kafka and our broker are started with for the matrix."""

from __future__ import annotations

from typing import Final

HOUR_MS: Final = 3_600_000
COMMON: Final = {
    "node.id": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # The groups of the set-up have one heartbeat for all of the matrix.
    "group.consumer.max.session.timeout.ms": str(HOUR_MS),
    "group.consumer.session.timeout.ms": str(HOUR_MS),
    # The records of the matrix are old.
    "log.retention.ms": "-1",
    "transaction.max.timeout.ms": str(HOUR_MS),
}
