"""Cluster metadata in a temporary directory, with a clock and a random generator that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from broker.client_metrics.exporting import exporter_of
from broker.client_metrics.manager import ClientMetricsManager
from broker.clock import Domain, Unmoved
from broker.config import broker_config
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.metadata import (
    BrokerRegistration,
    ClusterMetadata,
    Endpoint,
    MetadataListener,
    PartitionState,
    Topic,
)
from broker.metadata.configs import Settings
from broker.node import Listener
from broker.node.context import RequestContext
from broker.quotas.client_quotas import ClientQuotas
from protocol.hashing import partition_for
from storage.files import AppendFile

NOW_MS = 1_700_000_000_000
LISTENER = Listener("PLAINTEXT", "0.0.0.0", 9092, "broker.example", 19092)


class FixedClock(Unmoved):
    """A clock that does not move. The metadata sets no timers."""

    def now_ms(self, domain: Domain | None = None) -> int:
        return NOW_MS

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Any:
        raise AssertionError("no timer is expected here")


def open_cluster(
    directory: Path,
    *,
    seed: int = 1,
    features: Mapping[str, int] | None = None,
    previous_epoch: int = -1,
    others: Callable[[ClusterMetadata], Sequence[BrokerRegistration]] = lambda cluster: (),
    sync: Callable[[AppendFile], None] = AppendFile.sync,
    **settings: str,
) -> ClusterMetadata:
    """Open the metadata as a node's start does. ``settings`` are Kafka's settings, with underscores for dots."""
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return ClusterMetadata.open(
        directory,
        config=broker_config(overrides),
        clock=FixedClock(),
        random=Random(seed),
        endpoints=[Endpoint("PLAINTEXT", "broker.example", 19092)],
        features=features,
        previous_epoch=previous_epoch,
        others=others,
        sync=sync,
    )


class Recorder(MetadataListener):
    """A metadata listener that records its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_topic_created(self, topic: Topic) -> None:
        self.events.append(("created", topic.name, len(topic.partitions), dict(topic.configs)))

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self.events.append(("grown", topic.name, first_new, len(topic.partitions)))

    def on_topic_deleted(self, topic: Topic) -> None:
        self.events.append(("deleted", topic.name))

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        self.events.append(("configured", resource_type, resource_name))

    def on_features_changed(self) -> None:
        self.events.append(("features",))

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        self.events.append(("led", topic.name, partition.index, partition.leader, partition.leader_epoch))


class Gate:
    """An fsync that a test can block, count or make fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.failure: Exception | None = None

    def __call__(self, file: AppendFile) -> None:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        file.sync()


def context_of(
    cluster: ClusterMetadata,
    api_version: int,
    *,
    denied: Collection[tuple[str, str, str]] = (),
    **settings: str,
) -> RequestContext:
    """The context of a request. ``denied`` lists the (operation, resource type, name) tuples that the principal
    may not use."""
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    # Without settings of its own, the node is the one whose directory has the metadata.
    settings_of_node = Settings(cluster.image, broker_config(overrides)) if overrides else cluster.settings
    config = settings_of_node.current
    coordinator = SimpleNamespace(partition_for=lambda key: partition_for(key, 50))
    node = SimpleNamespace(
        node_id=cluster.identity.node_id,
        groups=coordinator,
        transactions=coordinator,
        share_coordinator=coordinator,
        metadata=cluster,
        settings=settings_of_node,
        config=config,
        replicas=SimpleNamespace(is_offline=lambda topic, index: False, is_offline_on=lambda *_: False),
        life=NodeLife(),
        slices=Slices(),
        quotas=ClientQuotas(config, FixedClock(), lambda: cluster.image.quotas),
        client_metrics=ClientMetricsManager(
            cluster.image,
            FixedClock(),
            uuid4,
            settings_of_node.current.telemetry_max_bytes,
            exporter_of(settings_of_node.current),
        ),
        authorizer=SimpleNamespace(authorize=lambda principal, host, *what: what not in denied),
    )
    return RequestContext(node, LISTENER, 0, api_version, "test", "/127.0.0.1")  # type: ignore[arg-type]


def away(cluster: ClusterMetadata, node_id: int = 2, *, fenced: bool = True) -> BrokerRegistration:
    """Add another broker to the image, with the endpoint of a host that does not exist. Returns its
    registration."""
    known = cluster.image.brokers[cluster.identity.node_id]
    other = replace(known, node_id=node_id, fenced=fenced, endpoints=(Endpoint("PLAINTEXT", "other", 1),))
    cluster.image.brokers[node_id] = other
    return other
