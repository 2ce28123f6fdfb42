"""The records that a start of the broker writes into the metadata log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from broker.metadata.changes import (
    record_for_fencing,
    record_for_registration,
    record_for_unfencing,
    records_for_features,
    records_that_enable_elr,
)
from broker.metadata.elections import (
    TopicSettings,
    records_for_lost_brokers,
    records_for_unclean_shutdown,
    records_for_unfenced_brokers,
)
from broker.metadata.features import (
    LOG_DIRECTORIES_FROM,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    initial_levels,
    is_elr_enabled,
    metadata_version,
)
from broker.metadata.framing import BATCH_RECORDS_MAX
from broker.metadata.image import Image
from broker.metadata.values import BrokerRegistration
from protocol.records.cluster_metadata import MetadataRecord


def startup_commits(
    image: Image,
    brokers: Sequence[BrokerRegistration],
    features: Mapping[str, int] | None,
    next_offset: Callable[[], int],
    settings: TopicSettings,
    min_isr: int,
) -> Iterator[list[MetadataRecord]]:
    """Yield the commits (lists of records) of this start. Each must be in the image before the next one is computed.

    ``brokers``: the brokers that start now, each with the broker epoch of its clean shutdown (see `are_clean`);
    ``features``: the requested feature levels; ``next_offset`` returns the offset of the next record; ``min_isr``: the
    controller's static ``min.insync.replicas``.

    Features come first, as Kafka refuses a log that does not begin with its metadata.version. Then all brokers of
    a process that was killed are fenced at once. As in Kafka before a session timeout, one record per partition
    takes them out of the ISR and, after an unclean shutdown, out of the eligible replicas. Then the new brokers
    register (the offset of each record is the broker's epoch) and are unfenced. A partition that loses and gets a
    leader has a new leader epoch, so that batches from before and after the restart differ, and clients do not
    reject the new metadata.
    """
    levels = _levels(image, features)
    if levels:
        is_new = METADATA_VERSION not in image.features
        of_elr = records_that_enable_elr(image, min_isr) if is_elr_enabled(levels) else []
        of_levels = records_for_features(levels)
        yield [*of_levels, *of_elr] if is_new else [*of_elr, *of_levels]
    if is_elr_enabled(image.features):
        # `kafka-storage format` of Kafka 4.4 finalizes the feature in a snapshot, without the setting.
        missing = records_that_enable_elr(image, min_isr)
        if missing:
            yield missing
    clean = are_clean(image, brokers)
    unclean = {broker.node_id for broker in brokers} - clean
    alive = [broker for broker in image.brokers.values() if not broker.fenced]
    also_lost = [one.node_id for one in alive]
    yield from chunks(records_for_unclean_shutdown(image, unclean, settings, also_lost=also_lost))
    yield from chunks(map(record_for_fencing, alive))
    yield from chunks(records_for_lost_brokers(image, clean, settings))
    for broker in brokers:
        yield [record_for_registration(registration(broker, next_offset(), image.features))]
    registered = [image.brokers[broker.node_id] for broker in brokers]
    yield from chunks(map(record_for_unfencing, registered))
    yield from chunks(records_for_unfenced_brokers(image, [one.node_id for one in registered], settings))


def are_clean(image: Image, brokers: Iterable[BrokerRegistration]) -> set[int]:
    """Return the ids of brokers whose previous incarnation was shut down cleanly.

    The ``epoch`` of a broker that is about to register is the broker epoch in its clean shutdown file, or -1.
    """
    stored = {broker.node_id: broker.epoch for broker in image.brokers.values()}
    return {broker.node_id for broker in brokers if stored.get(broker.node_id, -2) == broker.epoch}


def registration(broker: BrokerRegistration, epoch: int, levels: Mapping[str, int]) -> BrokerRegistration:
    """Return ``broker`` with the features that this release supports, and with ``epoch`` (its record's offset).

    ``levels`` are the feature levels of the cluster. Before metadata.version 3.7-IV2 the record has no log
    directories.
    """
    features = tuple((name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())
    log_dirs = broker.log_dirs if metadata_version(levels) >= LOG_DIRECTORIES_FROM else ()
    return replace(broker, epoch=epoch, features=features, log_dirs=log_dirs)


def _levels(image: Image, features: Mapping[str, int] | None) -> dict[str, int]:
    """Return the feature levels to write into the log.

    For a new cluster these are all levels above 0, otherwise the levels in ``features`` that differ from the
    image. ``features`` are the requested levels, or None.
    """
    if METADATA_VERSION not in image.features:
        # Level 0 means that the feature is absent, so a new log has no record for it.
        return {name: level for name, level in initial_levels(features or {}).items() if level > 0}
    return {name: level for name, level in (features or {}).items() if image.features.get(name, 0) != level}


def chunks(records: Iterable[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    remaining = iter(records)
    while chunk := list(islice(remaining, BATCH_RECORDS_MAX)):
        yield chunk
