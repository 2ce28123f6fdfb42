"""The record that changes one partition: ISR, eligible leader replicas (KIP-966), leader, reassignment. Pure.

The rules are those of Kafka's ``PartitionChangeBuilder``, with and without the feature ``eligible.leader.replicas.version``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Final

from broker.metadata.image import Image
from broker.metadata.values import NO_LEADER, PartitionState, Topic
from protocol.records import cluster_metadata as schema
from protocol.slotted import slotted

RECOVERED, RECOVERING = 0, 1
"""Leader recovery states: RECOVERING after an unclean election, until the leader reports that its log is recovered."""

_NOBODY: Final[frozenset[int]] = frozenset()


class Election(Enum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


@slotted
class Target:
    """The requested state of a partition. A field that is None keeps its value."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovery: int | None = None
    unclean: Collection[int] = _NOBODY
    """Brokers after an unclean shutdown, which are not eligible as leaders: they may have lost records."""
    directories: Mapping[int, uuid.UUID] = field(default_factory=dict)
    """Broker id -> id of the log directory of a new replica."""


def partition_change(
    topic: Topic,
    state: PartitionState,
    target: Target,
    *,
    live: Collection[int],
    min_isr: int,
    is_elr_enabled: bool,
    election: Election | None = None,
) -> schema.PartitionChangeRecord | None:
    """Return the record that changes a partition and, if needed, elects a leader; None if nothing changes.

    ``live`` are the brokers that may lead. ``min_isr`` is the effective ``min.insync.replicas``, at most the replication
    factor. The default ``election`` elects only replicas of the ISR, or eligible ones if the ISR is empty.
    """
    target = _completed(state, target)
    isr = state.isr if target.isr is None else target.isr
    replicas = state.replicas if target.replicas is None else target.replicas
    eligible = state.eligible_leader_replicas
    if is_elr_enabled:
        eligible = _eligible(state, isr, min_isr, target.unclean)
    leader, is_unclean = _elected(
        state, replicas, isr, eligible, live, election, is_elr_enabled=is_elr_enabled
    )
    recovery = target.recovery
    fields: dict[str, object] = {}
    if leader != state.leader:
        fields["leader"] = leader
        if is_unclean:
            isr, eligible, recovery = (leader,), (), RECOVERING
        elif leader in eligible:
            isr, eligible = (leader,), tuple(one for one in eligible if one != leader)
    elif not set(state.replicas).issubset(replicas):
        # Even with the same leader, a new leader epoch fences the removed replicas.
        fields["leader"] = leader
    if is_elr_enabled and "leader" in fields:
        fields.update(_last_known_leader(state, leader))
    # The ISR may be empty only if eligible leader replicas are enabled. Otherwise the last replica stays in the ISR.
    _add(fields, "isr", isr if isr or is_elr_enabled else None, state.isr)
    _add(
        fields, "eligible_leader_replicas", eligible if is_elr_enabled else (), state.eligible_leader_replicas
    )
    _add(fields, "leader_recovery_state", recovery, state.leader_recovery_state)
    _add(fields, "removing_replicas", target.removing, state.removing_replicas)
    _add(fields, "adding_replicas", target.adding, state.adding_replicas)
    if replicas != state.replicas:
        fields.update(_placement(state, replicas, target.directories))
    if not fields:
        return None
    return schema.PartitionChangeRecord(
        partition_id=state.index,
        topic_id=topic.topic_id,
        **fields,  # type: ignore[arg-type]
    )


def _add(fields: dict[str, object], name: str, value: object, now: object) -> None:
    """Add a field of the record, unless its value stays the same. None means the present value."""
    if value is not None and value != now:
        fields[name] = value


def _last_known_leader(state: PartitionState, leader: int) -> dict[str, object]:
    """Return ``last_known_elr`` if it changes: in Kafka too, the last leader while the partition has none."""
    if leader == NO_LEADER:
        return {} if state.last_known_eligible else {"last_known_elr": (state.leader,)}
    return {"last_known_elr": ()} if state.last_known_eligible else {}


def _placement(
    state: PartitionState, replicas: tuple[int, ...], directories: Mapping[int, uuid.UUID]
) -> dict[str, object]:
    """Return the fields of a partition's new replicas, with their log directories if all are known."""
    known = {**dict(zip(state.replicas, state.directories, strict=False)), **directories}
    if any(one not in known for one in replicas):
        return {"replicas": replicas}
    return {"replicas": replicas, "directories": tuple(known[one] for one in replicas)}


def _eligible(
    state: PartitionState, isr: Sequence[int], min_isr: int, unclean: Collection[int]
) -> tuple[int, ...]:
    """Return the eligible leader replicas: those that have left the ISR while it is below ``min_isr``.

    As in Kafka, a replica that a reassignment removes stays eligible.
    """
    if len(isr) >= min_isr:
        return ()
    return tuple(sorted({*state.eligible_leader_replicas, *state.isr}.difference(isr, unclean)))


def _elected(
    state: PartitionState,
    replicas: Sequence[int],
    isr: Sequence[int],
    eligible: Sequence[int],
    live: Collection[int],
    election: Election | None,
    *,
    is_elr_enabled: bool,
) -> tuple[int, bool]:
    """Return (leader or -1, whether the election is unclean)."""
    first = (replicas[0], state.leader) if election is Election.PREFERRED and replicas else (state.leader,)
    allowed = isr or eligible
    for node_id in (*first, *replicas):
        if node_id in allowed and node_id in live:
            return node_id, False
    if is_elr_enabled and not allowed and len(state.last_known_eligible) == 1:
        (last_known_leader,) = state.last_known_eligible
        if last_known_leader in live:
            return last_known_leader, True
    if election is Election.UNCLEAN:
        for node_id in replicas:
            if node_id in live:
                return node_id, True
    return NO_LEADER, False


def _completed(state: PartitionState, target: Target) -> Target:
    """Return the target with the reassignment completed if all new replicas are in the target ISR, else ``target``.

    If the reassignment reduces the number of replicas, all remaining replicas must be in sync, so that the ISR does not
    shrink needlessly.
    """
    adding = state.adding_replicas if target.adding is None else target.adding
    removing = state.removing_replicas if target.removing is None else target.removing
    if not adding and not removing:
        return target
    now = state.replicas if target.replicas is None else target.replicas
    replicas = tuple(one for one in now if one not in removing)
    isr = tuple(one for one in (state.isr if target.isr is None else target.isr) if one not in removing)
    awaited = replicas if len(adding) < len(removing) else adding
    if not replicas or (removing and not isr) or not set(awaited).issubset(isr):
        return target
    return Target(isr, replicas, (), (), target.recovery, target.unclean, target.directories)


def log_directories(image: Image) -> dict[int, uuid.UUID]:
    """Return the log directory of each broker that has registered one."""
    return {broker.node_id: broker.log_dirs[0] for broker in image.brokers.values() if broker.log_dirs}
