"""The brokers that stories of commands run on: Apache Kafka's, and ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.differential.cluster import sides as cluster
from tests.differential.cluster.running import Stage
from tests.differential.runner import COMMON, UNVERIFIED, warm_up
from tests.support.broker import Broker
from tests.support.kafka_oracle import kafka

NODES = "nodes"
"""The profile of three nodes."""


@dataclass(frozen=True)
class Side:
    host: str
    port: int
    data_dir: Path
    stage: Stage | None = None
    """Where there are three nodes."""


# One broker start each, with the level of transaction.version; both sides get the same properties.
PROFILES: dict[str, tuple[int, dict[str, str]]] = {
    "main": (2, COMMON),
    # Its levels change.
    "features": (2, COMMON),
    "unverified": (1, UNVERIFIED),
    NODES: (2, cluster.SETTINGS),
    "formatters": (
        2,
        COMMON | {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"},
    ),
}


@contextmanager
def kafka_side(profile: str, directory: Path) -> Iterator[Side]:
    if profile == NODES:
        with cluster.kafka_side(directory) as nodes, Stage(nodes) as stage:
            yield Side(nodes.host, 0, directory, stage)
        return
    level, properties = PROFILES[profile]
    with kafka(properties, transaction_version=level, directory=directory) as oracle:
        warm_up(oracle.host, oracle.port)
        yield Side(oracle.host, oracle.port, directory / "data")


@contextmanager
def our_side(profile: str, directory: Path) -> Iterator[Side]:
    if profile == NODES:
        with cluster.our_side(directory) as nodes, Stage(nodes) as stage:
            yield Side(nodes.host, 0, directory, stage)
        return
    level, properties = PROFILES[profile]
    with Broker(directory, "--feature", f"transaction.version={level}", settings=properties) as broker:
        warm_up(broker.host, broker.port)
        yield Side(broker.host, broker.port, broker.data_dir)
