"""Create hanging transactions for practice, by writing batches of transactions that no coordinator has started."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from protocol.batch import RecordLike
from protocol.errors import ErrorCode
from tools.client.cluster import RETRY_PAUSE_S, RETRY_S, Cluster
from tools.client.configs import BROKER, alter_configs, describe_configs
from tools.client.errors import KafkaError
from tools.client.producing import Producer

VERIFICATION: Final = "transaction.partition.verification.enable"
_CLUSTER_WIDE: Final = ""
_UNVERIFIED: Final = frozenset({ErrorCode.invalid_txn_state, ErrorCode.transaction_abortable})


@contextmanager
def without_verification(cluster: Cluster, node_id: int) -> Iterator[None]:
    """Context manager in which leaders accept batches without verification by the coordinator (KIP-890).

    It changes a dynamic setting of the whole cluster, and restores the setting at the end. Brokers before Kafka 3.6 have
    no such setting, and never verify.
    """
    found = [each for each in describe_configs(cluster, BROKER, str(node_id)) if each.name == VERIFICATION]
    if not found or found[0].value == "false":
        yield
        return
    alter_configs(cluster, BROKER, _CLUSTER_WIDE, {VERIFICATION: "false"})
    try:
        yield
    finally:
        if found[0].source == "DYNAMIC_DEFAULT_BROKER_CONFIG":
            alter_configs(cluster, BROKER, _CLUSTER_WIDE, {VERIFICATION: "true"})
        else:
            alter_configs(cluster, BROKER, _CLUSTER_WIDE, {}, [VERIFICATION])


def send_unverified(producer: Producer, topic: str, partition: int, records: Sequence[RecordLike]) -> int:
    """Write a batch of a transaction that the coordinator does not know of. Returns the base offset of the batch."""
    cluster = producer.cluster
    producer.adds_partitions = False
    with without_verification(cluster, cluster.leader(topic, partition)):
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return producer.send(topic, partition, records)
            except KafkaError as error:
                # The leader may apply the setting a moment later.
                if error.code not in _UNVERIFIED or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_PAUSE_S)
