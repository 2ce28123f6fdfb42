"""Leader elections, in-sync replicas and reassignments: the controller's decisions when brokers start, stop or lag. Pure.

The rules are those of ``ReplicationControlManager``. `partition_change` builds the record of each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from broker.metadata.creation import check_replicas
from broker.metadata.features import is_elr_enabled
from broker.metadata.image import Image
from broker.metadata.partition_change import (
    RECOVERED,
    Election,
    Target,
    log_directories,
    partition_change,
)
from broker.metadata.results import ApiError
from broker.metadata.topics import TopicPartition
from broker.metadata.values import NO_LEADER, PartitionState, Topic
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord

NOT_NEEDED = "Leader election not needed for topic partition."


class TopicSettings(Protocol):
    """The effective settings of topics that elections depend on."""

    def min_insync_replicas(self, topic: Topic) -> int: ...

    def allows_unclean_election(self, topic: Topic) -> bool: ...


class _Event:
    """An event that changes partitions, such as the loss of a broker. `change` builds each partition's record."""

    def __init__(
        self,
        image: Image,
        settings: TopicSettings,
        *,
        without: Collection[int] = (),
        with_: Collection[int] = (),
    ) -> None:
        """``without``: live brokers that may not lead. ``with_``: brokers that may lead, but are not live yet."""
        self._image = image
        self._settings = settings
        self._live = image.live_brokers.union(with_).difference(without)
        self._is_elr_enabled = is_elr_enabled(image.features)

    def change(
        self, topic: Topic, state: PartitionState, target: Target, election: Election | None = None
    ) -> schema.PartitionChangeRecord | None:
        """Return the record that changes a partition, or None if nothing changes."""
        min_isr = 0
        if self._is_elr_enabled:
            min_isr = min(self._settings.min_insync_replicas(topic), topic.replication_factor)
        live = self._live
        if self._image.offline_replicas:
            offline, topic_id, index = self._image.offline_replicas, topic.topic_id, state.index
            live = {one for one in live if (topic_id, index, one) not in offline}
        return partition_change(
            topic,
            state,
            target,
            live=live,
            min_isr=min_isr,
            is_elr_enabled=self._is_elr_enabled,
            election=election,
        )

    def any_election(self, topic: Topic) -> Election | None:
        """Return the election for a change that no client asked for: an unclean one, if the topic allows it."""
        return Election.UNCLEAN if self._settings.allows_unclean_election(topic) else None


Decide = Callable[[int, Topic, PartitionState], MetadataRecord | None]
"""(position in the list, topic, partition) -> the record that changes the partition, or None. Raises ApiError."""


def decisions(
    image: Image, partitions: Sequence[TopicPartition], decide: Decide
) -> tuple[list[ApiError | None], list[MetadataRecord]]:
    """Call ``decide`` for each partition. Returns (None or the error for each partition, in order; all records)."""
    results: list[ApiError | None] = []
    records: list[MetadataRecord] = []
    for number, (name, index) in enumerate(partitions):
        try:
            record = decide(number, *_existing(image, name, index))
        except ApiError as refusal:
            results.append(refusal)
            continue
        results.append(None)
        if record is not None:
            records.append(record)
    return results, records


def _existing(image: Image, name: str, index: int) -> tuple[Topic, PartitionState]:
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    state = topic.partition(index)
    if state is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
    return topic, state


def records_for_lost_brokers(
    image: Image, node_ids: Collection[int], settings: TopicSettings, *, also_eligible: bool = False
) -> Iterator[MetadataRecord]:
    """Yield the records that remove lost brokers from each ISR, and elect other leaders.

    ``also_eligible``: also change partitions for which the brokers are eligible leader replicas, but not in sync.
    """
    return _without(image, frozenset(node_ids), settings, also_eligible=also_eligible)


def records_for_unclean_shutdown(
    image: Image, node_ids: Collection[int], settings: TopicSettings, *, also_lost: Collection[int] = ()
) -> Iterator[MetadataRecord]:
    """Yield the records that remove brokers, which may have lost records, from each ISR and from the eligible replicas.

    If eligible leader replicas are not enabled, the brokers only leave each ISR. ``also_lost``: other lost brokers,
    which may stay eligible.
    """
    unclean = frozenset(node_ids)
    lost = unclean.union(also_lost)
    return _without(image, lost, settings, also_eligible=is_elr_enabled(image.features), unclean=unclean)


def _without(
    image: Image,
    lost: frozenset[int],
    settings: TopicSettings,
    *,
    also_eligible: bool,
    unclean: frozenset[int] = frozenset(),
) -> Iterator[MetadataRecord]:
    if not lost:
        return
    event = _Event(image, settings, without=lost)
    for topic in image.topics.values():
        for state in topic.partitions:
            if not lost.isdisjoint(state.isr) or (
                also_eligible and not lost.isdisjoint(state.eligible_leader_replicas)
            ):
                isr = tuple(one for one in state.isr if one not in lost)
                record = event.change(topic, state, Target(isr, unclean=unclean), event.any_election(topic))
                if record is not None:
                    yield record


def records_for_unfenced_brokers(
    image: Image, node_ids: Collection[int], settings: TopicSettings
) -> Iterator[MetadataRecord]:
    """Yield the records that elect leaders for partitions without one, when these brokers are unfenced."""
    event = _Event(image, settings, with_=node_ids)
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == NO_LEADER:
                record = event.change(topic, state, Target(), event.any_election(topic))
                if record is not None:
                    yield record


def record_for_failed_replica(
    image: Image, topic: Topic, state: PartitionState, node_id: int, settings: TopicSettings
) -> MetadataRecord | None:
    """Return the record that removes a replica with failed files from leadership and ISR (KIP-858); None if not needed."""
    event = _Event(image, settings, without=(node_id,))
    isr = tuple(one for one in state.isr if one != node_id)
    return event.change(topic, state, Target(isr), event.any_election(topic))


def record_for_election(
    image: Image, topic: Topic, state: PartitionState, kind: Election, settings: TopicSettings
) -> MetadataRecord:
    """Return the record of ElectLeaders for one partition. Raises ApiError if no election is possible or needed."""
    if state.leader == state.replicas[0] if kind is Election.PREFERRED else state.leader != NO_LEADER:
        raise ApiError(ErrorCode.election_not_needed, NOT_NEEDED)
    record = _Event(image, settings).change(topic, state, Target(), kind)
    if record is not None:
        return record
    if kind is Election.PREFERRED:
        raise ApiError(ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")
    raise ApiError(
        ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."
    )


def record_for_move(image: Image, topic: Topic, state: PartitionState, node_id: int) -> MetadataRecord | None:
    """Return the record that makes ``node_id`` the leader; None if it is already. Raises ApiError if it cannot lead."""
    name = f"{topic.name}-{state.index}"
    if node_id == state.leader:
        return None
    if node_id not in state.replicas:
        raise ApiError(
            ErrorCode.invalid_replica_assignment,
            f"node {node_id} has no replica of {name}; the replicas are on {_listed(state.replicas)}",
        )
    if node_id not in image.live_brokers:
        raise ApiError(ErrorCode.broker_not_available, f"node {node_id} is not running")
    if node_id not in state.isr:
        raise ApiError(
            ErrorCode.ineligible_replica,
            f"node {node_id} is not in sync for {name}, only {_listed(state.isr)}",
        )
    return schema.PartitionChangeRecord(partition_id=state.index, topic_id=topic.topic_id, leader=node_id)


def _listed(nodes: Collection[int]) -> str:
    return f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, sorted(nodes)))}"


def records_for_balance(image: Image, settings: TopicSettings) -> Iterator[MetadataRecord]:
    """Yield a record for each partition that its preferred leader can lead, but does not lead."""
    event = _Event(image, settings)
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader != state.replicas[0]:
                record = event.change(topic, state, Target(), Election.PREFERRED)
                if record is not None:
                    yield record


def records_for_unclean_elections(image: Image, settings: TopicSettings) -> Iterator[MetadataRecord]:
    """Yield records that elect leaders for partitions without one, after ``unclean.leader.election.enable`` was set."""
    event = _Event(image, settings)
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == NO_LEADER and event.any_election(topic) is Election.UNCLEAN:
                record = event.change(topic, state, Target(), Election.UNCLEAN)
                if record is not None:
                    yield record


def record_for_isr(
    image: Image,
    topic: Topic,
    state: PartitionState,
    leader_epoch: int,
    isr: Sequence[int],
    settings: TopicSettings,
) -> MetadataRecord | None:
    """Return the record of AlterPartition: the ISR becomes what the leader proposes. None if the ISR does not change.

    The record also completes a reassignment if all its target replicas are in sync, and sets the leader recovery
    state to RECOVERED. Raises ApiError for another leader epoch, for an invalid ISR, and for a replica that is not
    live (``validateAlterPartitionData``).
    """
    if leader_epoch > state.leader_epoch:
        raise ApiError(ErrorCode.not_controller)
    if leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.fenced_leader_epoch)
    members = set(isr)
    if len(members) < len(isr) or not members.issubset(state.replicas) or state.leader not in members:
        raise ApiError(ErrorCode.invalid_request)
    if not members.issubset(image.live_brokers):
        raise ApiError(ErrorCode.ineligible_replica)
    event = _Event(image, settings)
    target = Target(tuple(isr), recovery=RECOVERED, directories=log_directories(image))
    return event.change(topic, state, target, event.any_election(topic))


# -- reassignment -----------------------------------------------------------------------------------------------


def reassignments(
    image: Image,
    targets: Sequence[Sequence[int] | None],
    settings: TopicSettings,
    *,
    keeps_factor: bool,
) -> Decide:
    """Return a function for `decisions` that decides each partition of an AlterPartitionReassignments request.

    ``targets`` has the requested replicas of each partition; None cancels the partition's reassignment in progress.
    ``keeps_factor``: refuse changes of the replication factor (KIP-860).
    """

    def decide(number: int, topic: Topic, state: PartitionState) -> MetadataRecord | None:
        return record_for_reassignment(
            image, topic, state, targets[number], settings, keeps_factor=keeps_factor
        )

    return decide


def record_for_reassignment(
    image: Image,
    topic: Topic,
    state: PartitionState,
    target: Sequence[int] | None,
    settings: TopicSettings,
    *,
    keeps_factor: bool = False,
) -> MetadataRecord | None:
    """Return the record that moves a partition to the replicas in ``target``.

    If ``target`` is None, the record cancels the reassignment in progress; ApiError is raised if there is none. Returns
    None if the partition has these replicas already. The partition keeps its old replicas until all new ones are in
    sync (KIP-455). ``keeps_factor``: refuse a change of the replication factor (KIP-860).
    """
    event = _Event(image, settings)
    if target is None:
        return _cancelled(image, topic, state, event)
    check_replicas(image, target, None)
    if keeps_factor:
        _check_factor(state, target)
    # As in Kafka's ``changePartitionReassignment``: the target is compared with all present replicas, including those that a
    # reassignment in progress adds. What that reassignment adds or removes is kept if the new one adds or removes nothing.
    leaving = tuple(sorted(set(state.replicas).difference(target)))
    wanted = Target(
        replicas=(*target, *leaving),
        adding=tuple(sorted(set(target).difference(state.replicas))) or None,
        removing=leaving or None,
        directories=log_directories(image),
    )
    return event.change(topic, state, wanted)


def _original_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the replicas without those that a reassignment in progress adds."""
    return tuple(one for one in state.replicas if one not in state.adding_replicas)


def _cancelled(image: Image, topic: Topic, state: PartitionState, event: _Event) -> MetadataRecord | None:
    if not state.adding_replicas and not state.removing_replicas:
        raise ApiError(ErrorCode.no_reassignment_in_progress)
    election = event.any_election(topic)
    replicas = _original_replicas(state)
    isr = tuple(one for one in state.isr if one in replicas)
    if not isr:
        if election is not Election.UNCLEAN:
            words = (
                f"Unable to revert partition assignment for {topic.name}:{state.index} because it would "
                "require an unclean leader election."
            )
            raise ApiError(ErrorCode.invalid_replica_assignment, words)
        isr = replicas[:1]
    target = Target(isr, replicas, (), (), directories=log_directories(image))
    return event.change(topic, state, target, election)


def _check_factor(state: PartitionState, target: Sequence[int]) -> None:
    now = len({*state.replicas, *state.adding_replicas}.difference(state.removing_replicas))
    if now != len(target):
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {now} to {len(target)}",
        )
