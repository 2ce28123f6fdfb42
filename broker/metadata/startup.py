"""The records that a start of the broker writes into the metadata log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from broker.metadata.changes import record_for_registration, records_for_features, records_for_restart
from broker.metadata.features import (
    INITIAL_LEVELS,
    LOG_DIRECTORIES_FROM,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    metadata_version,
)
from broker.metadata.framing import BATCH_RECORDS_MAX
from broker.metadata.image import Image
from broker.metadata.values import BrokerRegistration
from protocol.records.cluster_metadata import MetadataRecord


def startup_commits(
    image: Image, brokers: Sequence[BrokerRegistration], features: Mapping[str, int] | None, next_offset: int
) -> list[list[MetadataRecord]]:
    """Return the commits (lists of records) of this start, which are synced together.

    ``features``: the requested feature levels; ``next_offset``: the offset that the first record gets.

    Features come first, as Kafka refuses a log that does not begin with its metadata.version. Then come the registrations,
    where the offset of each record is the broker's epoch, and then a new leader epoch for every partition.
    """
    commits = []
    levels = _levels(image, features)
    if levels:
        commits.append(records_for_features(levels))
    for offset, broker in enumerate(brokers, next_offset + len(levels)):
        commits.append([record_for_registration(registration(broker, offset, {**image.features, **levels}))])
    for broker in brokers:
        commits += chunks(records_for_restart(image, broker.node_id))
    return commits


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
        wanted = {**INITIAL_LEVELS, **(features or {})}
        # Level 0 means that the feature is absent, so a new log has no record for it.
        return {name: level for name, level in wanted.items() if level > 0}
    return {name: level for name, level in (features or {}).items() if image.features.get(name, 0) != level}


def chunks(records: Iterator[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    while chunk := list(islice(records, BATCH_RECORDS_MAX)):
        yield chunk
