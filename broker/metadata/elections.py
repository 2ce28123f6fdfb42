"""Leader elections, in-sync replicas and reassignments: the controller's decisions when brokers start, stop or lag. Pure.

The rules are those of ``ReplicationControlManager`` and ``PartitionChangeBuilder`` without eligible leader replicas
(KIP-966, a feature that this broker does not announce): the last in-sync replica stays in the ISR when its broker stops,
and the partition waits for it without a leader, unless the topic allows an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum

from broker.metadata.creation import check_replicas
from broker.metadata.image import Image
from broker.metadata.results import ApiError
from broker.metadata.topics import TopicPartition
from broker.metadata.values import NO_LEADER, PartitionState, Topic
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord

RECOVERED, RECOVERING = 0, 1
"""Leader recovery states: RECOVERING after an unclean election, until the leader reports that its log is recovered."""

NOT_NEEDED = "Leader election not needed for topic partition."

AllowsUnclean = Callable[[Topic], bool]


class Election(Enum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


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


def records_for_lost_broker(
    image: Image, node_id: int, allows_unclean: AllowsUnclean
) -> Iterator[MetadataRecord]:
    """Yield the records that replace a lost broker as leader, and remove it from each ISR that has other members."""
    live = image.live_brokers - {node_id}
    for topic in image.topics.values():
        for state in topic.partitions:
            record = _change_without(topic, state, node_id, live, allows_unclean)
            if record is not None:
                yield record


def record_for_failed_replica(
    image: Image, topic: Topic, state: PartitionState, node_id: int
) -> MetadataRecord | None:
    """Return the record that removes a replica with failed files from leadership and ISR (KIP-858); None if not needed."""
    return _change_without(topic, state, node_id, image.live_brokers - {node_id}, lambda _: False)


def _change_without(
    topic: Topic, state: PartitionState, node_id: int, live: Collection[int], allows_unclean: AllowsUnclean
) -> MetadataRecord | None:
    """Return the record that removes this broker from the ISR and the leadership; None if nothing changes."""
    if node_id not in state.isr and state.leader != node_id:
        return None
    isr = tuple(one for one in state.isr if one != node_id) or state.isr
    if state.leader == node_id:
        return _new_leader(topic, state, isr, live, allows_unclean)
    return None if isr == state.isr else _change(topic, state, isr=isr)


def records_for_returned_broker(
    image: Image, node_id: int, allows_unclean: AllowsUnclean
) -> Iterator[MetadataRecord]:
    """Yield the records for a broker that has returned.

    Leaders are elected for the leaderless partitions of the broker; partitions that the broker leads get a new epoch.
    """
    live = image.live_brokers | {node_id}
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == node_id:
                yield _change(topic, state, leader=node_id)
            elif state.leader == NO_LEADER and node_id in state.replicas:
                record = _new_leader(topic, state, state.isr, live, allows_unclean)
                if record.leader != NO_LEADER:
                    yield record


def _new_leader(
    topic: Topic,
    state: PartitionState,
    isr: Sequence[int],
    live: Collection[int],
    allows_unclean: AllowsUnclean,
) -> schema.PartitionChangeRecord:
    """Return the record that elects a leader: the first live in-sync replica, else, if allowed, any live replica, else none.

    ``allows_unclean`` is called only if needed: it evaluates a topic's settings, which takes 40 us, and a broker may lead
    thousands of partitions.
    """
    leader = _first(state.replicas, set(isr) & set(live))
    if leader != NO_LEADER:
        return _change(topic, state, leader=leader, isr=tuple(isr))
    chosen = _first(state.replicas, live)
    if chosen == NO_LEADER or not allows_unclean(topic):
        return _change(topic, state, leader=NO_LEADER, isr=tuple(isr))
    return _change(topic, state, leader=chosen, isr=(chosen,), recovery=RECOVERING)


def _first(replicas: Sequence[int], among: Collection[int]) -> int:
    return next((node_id for node_id in replicas if node_id in among), NO_LEADER)


def record_for_election(image: Image, topic: Topic, state: PartitionState, kind: Election) -> MetadataRecord:
    """Return the record of ElectLeaders for one partition. Raises ApiError if no election is possible or needed."""
    live = image.live_brokers
    if kind is Election.PREFERRED:
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise ApiError(ErrorCode.election_not_needed, NOT_NEEDED)
        if preferred not in state.isr or preferred not in live:
            raise ApiError(
                ErrorCode.preferred_leader_not_available, "The preferred leader was not available."
            )
        return _change(topic, state, leader=preferred)
    if state.leader != NO_LEADER:
        raise ApiError(ErrorCode.election_not_needed, NOT_NEEDED)
    record = _new_leader(topic, state, state.isr, live, lambda _: True)
    if record.leader == NO_LEADER:
        raise ApiError(
            ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."
        )
    return record


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
    return _change(topic, state, leader=node_id)


def _listed(nodes: Collection[int]) -> str:
    return f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, sorted(nodes)))}"


def records_for_balance(image: Image) -> Iterator[MetadataRecord]:
    """Yield a record for each partition whose preferred leader is live and in sync, but another replica leads."""
    live = image.live_brokers
    for topic in image.topics.values():
        for state in topic.partitions:
            preferred = state.replicas[0]
            if state.leader not in (preferred, NO_LEADER) and preferred in state.isr and preferred in live:
                yield _change(topic, state, leader=preferred)


def records_for_unclean_elections(image: Image, allows_unclean: AllowsUnclean) -> Iterator[MetadataRecord]:
    """Yield records that elect leaders for partitions without one, after ``unclean.leader.election.enable`` was set."""
    live = image.live_brokers
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == NO_LEADER and not live.isdisjoint(state.replicas):
                record = _new_leader(topic, state, state.isr, live, allows_unclean)
                if record.leader != NO_LEADER:
                    yield record


def record_for_isr(
    image: Image, topic: Topic, state: PartitionState, leader_epoch: int, isr: Sequence[int]
) -> MetadataRecord | None:
    """Return the record of AlterPartition: the ISR becomes what the leader proposes. None if the ISR does not change.

    The record also completes a reassignment if all its target replicas are in sync. Raises ApiError for an outdated leader
    epoch or an ineligible replica.
    """
    if leader_epoch != state.leader_epoch:
        raise ApiError(ErrorCode.fenced_leader_epoch)
    live = image.live_brokers
    if not set(isr) <= set(state.replicas) or not set(isr) <= live or state.leader not in isr:
        raise ApiError(ErrorCode.ineligible_replica)
    done = _completed(image, topic, state, isr)
    if done is not None:
        return done
    recovery = RECOVERED if state.leader_recovery_state == RECOVERING else None
    if set(isr) == set(state.isr) and recovery is None:
        return None
    return _change(topic, state, isr=tuple(isr), recovery=recovery)


# -- reassignment -----------------------------------------------------------------------------------------------


def reassignments(
    image: Image,
    targets: Sequence[Sequence[int] | None],
    allows_unclean: AllowsUnclean,
    *,
    keeps_factor: bool,
) -> Decide:
    """Return a function for `decisions` that decides each partition of an AlterPartitionReassignments request.

    ``targets`` has the requested replicas of each partition; None cancels the partition's reassignment in progress.
    ``allows_unclean`` returns whether a topic allows an unclean election, which a cancellation may need.
    ``keeps_factor``: refuse changes of the replication factor (KIP-860).
    """

    def decide(number: int, topic: Topic, state: PartitionState) -> MetadataRecord | None:
        return record_for_reassignment(
            image,
            topic,
            state,
            targets[number],
            keeps_factor=keeps_factor,
            unclean=allows_unclean(topic),
        )

    return decide


def record_for_reassignment(
    image: Image,
    topic: Topic,
    state: PartitionState,
    target: Sequence[int] | None,
    *,
    keeps_factor: bool = False,
    unclean: bool = False,
) -> MetadataRecord | None:
    """Return the record that moves a partition to the replicas in ``target``.

    If ``target`` is None, the record cancels the reassignment in progress; ApiError is raised if there is none. Returns
    None if the partition has these replicas already. The partition keeps its old replicas until all new ones are in
    sync (KIP-455). ``keeps_factor``: refuse a change of the replication factor (KIP-860). ``unclean``: allow a
    cancellation although no original replica is in sync.
    """
    if target is None:
        return _cancelled(image, topic, state, unclean=unclean)
    check_replicas(image, target, None)
    if keeps_factor:
        _check_factor(state, target)
    # As in Kafka's ``changePartitionReassignment``: the target is compared with all present replicas, including those that a
    # reassignment in progress adds. What that reassignment adds or removes is kept if the new one adds or removes nothing.
    adding = tuple(sorted(set(target).difference(state.replicas))) or state.adding_replicas
    leaving = tuple(sorted(set(state.replicas).difference(target)))
    removing = leaving or state.removing_replicas
    replicas = (*target, *leaving)
    if (replicas, adding, removing) == (state.replicas, state.adding_replicas, state.removing_replicas):
        return None
    moved = PartitionState(
        state.index, replicas, state.isr, state.leader, state.leader_epoch, state.partition_epoch
    )
    moved.adding_replicas, moved.removing_replicas = adding, removing
    done = _completed(image, topic, moved, state.isr)
    if done is not None:
        return done
    return _change(topic, state, replicas=replicas, adding=adding, removing=removing, image=image)


def _original_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the replicas without those that a reassignment in progress adds."""
    return tuple(one for one in state.replicas if one not in state.adding_replicas)


def _cancelled(image: Image, topic: Topic, state: PartitionState, *, unclean: bool) -> MetadataRecord:
    if not state.adding_replicas and not state.removing_replicas:
        raise ApiError(ErrorCode.no_reassignment_in_progress)
    live = image.live_brokers
    replicas, recovery = _original_replicas(state), None
    isr = tuple(one for one in state.isr if one in replicas)
    if not isr:
        if not unclean:
            words = (
                f"Unable to revert partition assignment for {topic.name}:{state.index} because it would "
                "require an unclean leader election."
            )
            raise ApiError(ErrorCode.invalid_replica_assignment, words)
        first = _first(replicas, live)
        isr = (first,) if first != NO_LEADER else replicas[:1]
        recovery = RECOVERING if isr != replicas[:1] else None
    return _moved(image, topic, state, replicas, isr, live, recovery)


def _completed(
    image: Image, topic: Topic, state: PartitionState, isr: Sequence[int]
) -> MetadataRecord | None:
    """Return the record that completes a reassignment if all its new replicas are in sync, otherwise None.

    If the reassignment reduces the number of replicas, all remaining replicas must be in sync, so that the ISR does not
    shrink needlessly.
    """
    adding, removing = state.adding_replicas, state.removing_replicas
    if not adding and not removing:
        return None
    target = tuple(one for one in state.replicas if one not in removing)
    in_sync = tuple(one for one in isr if one in target)
    awaited = target if len(adding) < len(removing) else adding
    if not in_sync or not set(awaited) <= set(in_sync):
        return None
    live = image.live_brokers
    if state.leader not in in_sync and _first(target, set(in_sync) & live) == NO_LEADER:
        return None
    return _moved(image, topic, state, target, in_sync, live, None)


def _moved(
    image: Image,
    topic: Topic,
    state: PartitionState,
    replicas: Sequence[int],
    isr: Sequence[int],
    live: Collection[int],
    recovery: int | None,
) -> MetadataRecord:
    """Return the record that ends a reassignment: the partition has exactly ``replicas``, and ``isr`` is its ISR.

    If replicas were removed, a new leader epoch begins, even with the same leader, to fence the removed replicas.
    """
    leader: int | None = state.leader
    if state.leader not in isr:
        leader = _first(replicas, set(isr) & set(live))
    elif set(state.replicas) <= set(replicas):
        leader = None
    return _change(
        topic,
        state,
        replicas=replicas,
        isr=isr,
        leader=leader,
        adding=(),
        removing=(),
        recovery=recovery,
        image=image,
    )


def _check_factor(state: PartitionState, target: Sequence[int]) -> None:
    now = len({*state.replicas, *state.adding_replicas}.difference(state.removing_replicas))
    if now != len(target):
        raise ApiError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {now} to {len(target)}",
        )


def _change(
    topic: Topic,
    state: PartitionState,
    *,
    leader: int | None = None,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    recovery: int | None = None,
    image: Image | None = None,
) -> schema.PartitionChangeRecord:
    """Build a PartitionChangeRecord without the fields that are None. A ``leader``, even the same, begins a new epoch."""
    fields: dict[str, object] = {}
    if leader is not None:
        fields["leader"] = leader
    if recovery is not None:
        fields["leader_recovery_state"] = recovery
    if replicas is not None:
        fields["replicas"] = tuple(replicas)
        known = dict(zip(state.replicas, state.directories, strict=False))
        if image is not None:
            known |= {b.node_id: b.log_dirs[0] for b in image.brokers.values() if b.log_dirs}
        if all(one in known for one in replicas):
            fields["directories"] = tuple(known[one] for one in replicas)
    for name, value in (("isr", isr), ("adding_replicas", adding), ("removing_replicas", removing)):
        if value is not None:
            fields[name] = tuple(value)
    return schema.PartitionChangeRecord(
        partition_id=state.index,
        topic_id=topic.topic_id,
        **fields,  # type: ignore[arg-type]
    )
