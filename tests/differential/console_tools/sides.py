"""The brokers for stories of commands: Apache Kafka and ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.differential.acls.kafka import AUTHORIZER
from tests.differential.cluster import sides as cluster
from tests.differential.cluster.running import Stage
from tests.differential.runner import COMMON, SHARE_GROUPS, UNVERIFIED, warm_up
from tests.support.broker import Broker
from tests.support.in_process import InProcess
from tests.support.kafka_oracle import add_listener, format_directory, kafka, started

NODES = "nodes"
"""Name of the profile (a set of broker settings) with three nodes."""
SASL = "sasl"
"""Name of the profile with a second listener, which is called `SASL`. Its users have the password `PASSWORD`."""
USERS = ("alice", "bob", "carol", "dave", "erin", "frank")
PASSWORD = "the-password"
MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Side:
    host: str
    port: int
    data_dir: Path
    stage: Stage | None = None
    """The cluster of three nodes, None in the other profiles, which have one node."""
    sasl_port: int = 0
    """Port of the SASL listener, 0 without one."""


_USERS = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
SASL_SETTINGS = COMMON | {
    "delegation.token.secret.key": "the-secret-key",
    "listener.name.sasl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {_USERS};",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
}
# Each profile is one broker start: the level of transaction.version, and properties for both sides.
PROFILES: dict[str, tuple[int, dict[str, str]]] = {
    "main": (2, COMMON),
    # A profile of its own, as its stories change feature levels.
    "features": (2, COMMON),
    "unverified": (1, UNVERIFIED),
    NODES: (2, cluster.SETTINGS),
    SASL: (2, SASL_SETTINGS),
    "acls": (2, COMMON | AUTHORIZER),
    "share": (
        2,
        SHARE_GROUPS
        | {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"},
    ),
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
    if profile == SASL:
        settings = format_directory(directory, properties, transaction_version=level)
        sasl_port = add_listener(settings, "SASL")
        with started(settings) as oracle:
            yield Side(oracle.host, oracle.port, directory / "data", sasl_port=sasl_port)
        return
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
    if profile == SASL:
        listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0"}
        with InProcess(directory, settings=properties | listeners) as here:
            plain, sasl = here.cluster.first.listeners
            yield Side(plain.host, plain.port, directory / "data", sasl_port=sasl.port)
        return
    with Broker(directory, "--feature", f"transaction.version={level}", settings=properties) as broker:
        warm_up(broker.host, broker.port)
        yield Side(broker.host, broker.port, broker.data_dir)
