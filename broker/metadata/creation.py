"""The controller's checks of new topics and new partitions (``ReplicationControlManager``). Pure.

The order of the checks and the messages are Kafka's, so that a request with two mistakes gets the error of Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from broker.metadata.changes import Assignment
from broker.metadata.image import Image
from broker.metadata.placement import Shuffling, Unplaceable, UsableBroker, place
from broker.metadata.results import ApiError
from broker.metadata.topics import CLUSTER_METADATA, invalid_topic_name, unified_name
from broker.metadata.values import Topic
from protocol.errors import ErrorCode
from protocol.slotted import slotted
from storage.config import ConfigError, LogConfig

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
AUTO_CREATED_AT_ONCE: Final = 20
"""Number of auto-created topics per commit. After a commit the event loop serves other work."""


@slotted(frozen=True)
class NewTopic:
    """A topic to create.

    ``assignments`` are (partition, broker ids) for a manual assignment; ``partitions`` and ``replication_factor``
    must then be -1. ``topic_id`` is set for a topic that is imported from another cluster and keeps its id.
    """

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)
    topic_id: uuid.UUID | None = None


@slotted(frozen=True)
class MorePartitions:
    """A request to add partitions to a topic until it has ``count`` partitions in total."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@slotted(frozen=True)
class TopicDefaults:
    """The values of a new topic for fields that the request does not set."""

    partitions: int
    replication_factor: int
    log: LogConfig


def check_total(wanted: Sequence[NewTopic], defaults: TopicDefaults) -> None:
    """Raise `ApiError` if a request creates more partitions than Kafka creates in one commit."""
    total = 0
    for new in wanted:
        if new.assignments:
            total += len(new.assignments)
        else:
            total += defaults.partitions if new.partitions == USE_DEFAULT else max(new.partitions, 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def check_total_of_more(image: Image, wanted: Sequence[MorePartitions]) -> None:
    """Raise `ApiError` if a request adds more partitions in all than Kafka allows for one request."""
    total = 0
    for more in wanted:
        topic = image.topics.get(more.name)
        if topic is not None:
            total += max(more.count - len(topic.partitions), 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.policy_violation, "Excessively large number of additional partitions per request."
        )


def check_new_topic(image: Image, new: NewTopic, defaults: TopicDefaults, random: Shuffling) -> Assignment:
    """Check a new topic. Returns the replicas of each partition, or raises ApiError."""
    _check_name(image, new.name)
    _check_configs(new.configs, defaults.log)
    if new.assignments:
        return _manual(image, new)
    if new.replication_factor < USE_DEFAULT or new.replication_factor == 0:
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partitions < USE_DEFAULT or new.partitions == 0:
        raise ApiError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    partitions = defaults.partitions if new.partitions == USE_DEFAULT else new.partitions
    replication_factor = new.replication_factor
    if replication_factor == USE_DEFAULT:
        replication_factor = defaults.replication_factor
    try:
        return place(usable_brokers(image), partitions, replication_factor, random)
    except Unplaceable as error:
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replication_factor} time(s): {error}",
        ) from None


def check_more_partitions(image: Image, more: MorePartitions, random: Shuffling) -> tuple[Topic, Assignment]:
    """Return (topic, replicas of each new partition). Raises ApiError if the request is invalid."""
    topic = image.topics.get(more.name)
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition)
    existing = len(topic.partitions)
    if more.count == existing:
        raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {existing} partition(s).")
    if more.count < existing:
        raise ApiError(
            ErrorCode.invalid_partitions,
            f"The topic {more.name} currently has {existing} partition(s); "
            f"{more.count} would not be an increase.",
        )
    additional = more.count - existing
    if more.assignments is None:
        return topic, _placed(image, additional, topic.replication_factor, random)
    if len(more.assignments) != additional:
        raise ApiError(
            ErrorCode.invalid_replica_assignment,
            f"Attempted to add {additional} additional partition(s), but only {len(more.assignments)} "
            "assignment(s) were specified.",
        )
    for index, replicas in enumerate(more.assignments, existing):
        check_replicas(image, replicas, topic.replication_factor)
        _check_live(image, index, replicas)
    return topic, more.assignments


def usable_brokers(image: Image) -> list[UsableBroker]:
    """Return the brokers that may get replicas; fenced ones may, too.

    Brokers in controlled shutdown, and those whose log directories are all cordoned, get no replicas.
    """
    return [
        UsableBroker(broker.node_id, broker.rack, broker.fenced)
        for _, broker in sorted(image.brokers.items())
        if (broker.fenced or not broker.in_controlled_shutdown) and not broker.is_cordoned
    ]


def _placed(image: Image, count: int, replication_factor: int, random: Shuffling) -> Assignment:
    try:
        return place(usable_brokers(image), count, replication_factor, random)
    except Unplaceable as error:
        raise ApiError(ErrorCode.invalid_replication_factor, str(error)) from None


def _check_live(image: Image, index: int, replicas: Sequence[int]) -> None:
    if image.live_brokers.isdisjoint(replicas):
        raise ApiError(
            ErrorCode.invalid_replica_assignment,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )


def _check_name(image: Image, name: str) -> None:
    if name == CLUSTER_METADATA:
        raise ApiError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    colliding = image.colliding(unified_name(name)) if "." in name or "_" in name else None
    if colliding is not None:
        raise ApiError(
            ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {colliding}"
        )
    invalid = invalid_topic_name(name)
    if invalid is not None:
        raise ApiError(ErrorCode.invalid_topic_exception, invalid)


def _check_configs(configs: Mapping[str, str | None], defaults: LogConfig) -> None:
    without_value = [name for name, value in configs.items() if value is None]
    if without_value:
        raise ApiError(
            ErrorCode.invalid_config,
            f"Null value not supported for topic configs: {','.join(without_value)}",
        )
    given = {name: value for name, value in configs.items() if value is not None}
    try:
        LogConfig.from_properties(given, defaults)
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from None


def _manual(image: Image, new: NewTopic) -> Assignment:
    if new.replication_factor != USE_DEFAULT:
        raise ApiError(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if new.partitions != USE_DEFAULT:
        raise ApiError(
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    assigned: dict[int, Sequence[int]] = {}
    replication_factor: int | None = None
    for index, replicas in new.assignments:
        if index in assigned:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_replicas(image, replicas, replication_factor)
        replication_factor = len(replicas)
        _check_live(image, index, replicas)
        assigned[index] = replicas
    if set(assigned) != set(range(len(assigned))):
        raise ApiError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [assigned[index] for index in range(len(assigned))]


def check_replicas(image: Image, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Check the replicas of a manual assignment for a new or moved partition (``validateManualPartitionAssignment``)."""
    refused = ErrorCode.invalid_replica_assignment
    if not replicas:
        raise ApiError(refused, "The manual partition assignment includes an empty replica list.")
    previous = None
    for node_id in sorted(replicas):
        if node_id not in image.brokers:
            raise ApiError(
                refused,
                f"The manual partition assignment includes broker {node_id}, but no such broker is registered.",
            )
        if image.brokers[node_id].is_cordoned:
            raise ApiError(
                refused,
                f"The manual partition assignment includes broker {node_id}, but all its log directories are cordoned.",
            )
        if node_id == previous:
            raise ApiError(
                refused, f"The manual partition assignment includes the broker {node_id} more than once."
            )
        previous = node_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise ApiError(
            refused,
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s).",
        )
