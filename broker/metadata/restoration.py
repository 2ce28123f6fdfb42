"""Restores an earlier image: computes the records that lead from the current image to a saved one. Pure.

The metadata log continues: offsets, epochs, topic ids and producer ids are never used twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import UUID

from broker.metadata import client_quotas, scram_credentials
from broker.metadata.changes import (
    record_of_partition,
    records_for_config_change,
    records_for_features,
    records_for_removed_topic,
    records_of,
)
from broker.metadata.deltas import apply
from broker.metadata.image import Image
from broker.metadata.values import TOPIC_RESOURCE, MetadataDelta, PartitionState, Topic
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord

Epochs = Mapping[tuple[UUID, int], tuple[int, int]]
"""(leader epoch, partition epoch) by topic id and partition index."""


def copy_of(image: Image) -> Image:
    """Copy an image, so that changes of the original do not affect the copy."""
    copy = Image()
    changes = MetadataDelta()
    for record in records_of(image):
        apply(copy, record, changes)
    copy.offset = image.offset
    return copy


def epochs_of(image: Image) -> Epochs:
    return {
        (topic.topic_id, state.index): (state.leader_epoch, state.partition_epoch)
        for topic in image.topics.values()
        for state in topic.partitions
    }


def records_for_removal(image: Image, saved: Image) -> list[MetadataRecord]:
    """Return the records that remove topics that ``saved`` does not have, or has with fewer partitions."""
    return [
        record
        for topic in image.topics.values()
        if not _can_be_restored(topic, saved)
        for record in records_for_removed_topic(topic)
    ]


def _can_be_restored(topic: Topic, saved: Image) -> bool:
    before = saved.topics_by_id.get(topic.topic_id)
    return before is not None and len(topic.partitions) <= len(before.partitions)


def records_for_restoring(image: Image, saved: Image, epochs: Epochs) -> Iterator[MetadataRecord]:
    """Yield the records that restore the saved image, after the records of `records_for_removal` were applied.

    ``epochs`` are the epochs before the removal. The new epochs are higher, so that clients do not reject the metadata as
    outdated.
    """
    yield from records_for_features(_levels(image, saved))
    for topic in saved.topics.values():
        now = image.topics_by_id.get(topic.topic_id)
        if now is None:
            yield schema.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        changed = _difference({} if now is None else now.configs, topic.configs)
        yield from records_for_config_change(TOPIC_RESOURCE, topic.name, changed)
        for state in topic.partitions:
            leader_epoch, partition_epoch = epochs.get((topic.topic_id, state.index), (-1, -1))
            yield record_of_partition(topic.topic_id, _later(state, leader_epoch, partition_epoch))
    yield from records_for_configs(image, saved)
    yield from records_for_clients(image, saved)


def records_for_configs(image: Image, saved: Image) -> Iterator[MetadataRecord]:
    """Yield the records that restore the settings of ``saved`` of all resources but topics."""
    for resource_type, name in {**image.configs, **saved.configs}:
        changed = _difference(
            image.configs.get((resource_type, name), {}), saved.configs.get((resource_type, name), {})
        )
        yield from records_for_config_change(resource_type, name, changed)


def records_for_clients(image: Image, saved: Image) -> Iterator[MetadataRecord]:
    """Yield the records that restore the quotas, credentials, tokens and ACLs of ``saved``."""
    yield from client_quotas.records_between(image.quotas, saved.quotas)
    yield from scram_credentials.records_between(image.credentials, saved.credentials)
    if image.tokens or saved.tokens:
        from broker.metadata import delegation_tokens

        yield from delegation_tokens.records_between(image.tokens, saved.tokens)
    if image.acls or saved.acls:
        from broker.metadata import acls

        yield from acls.records_between(image.acls, saved.acls)


def _later(state: PartitionState, leader_epoch: int, partition_epoch: int) -> PartitionState:
    return replace(
        state,
        leader_epoch=max(state.leader_epoch, leader_epoch) + 1,
        partition_epoch=max(state.partition_epoch, partition_epoch) + 1,
    )


def _levels(image: Image, saved: Image) -> dict[str, int]:
    """Return the feature levels that differ; level 0 removes a feature."""
    names = {**image.features, **saved.features}
    return {
        name: saved.features.get(name, 0)
        for name in names
        if image.features.get(name, 0) != saved.features.get(name, 0)
    }


def _difference(now: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str | None]:
    gone: dict[str, str | None] = dict.fromkeys(name for name in now if name not in then)
    return gone | {name: value for name, value in then.items() if now.get(name) != value}
