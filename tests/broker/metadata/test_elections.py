"""Leader elections when brokers start, stop or fall behind, and reassignments, on metadata images in memory, without
eligible leader replicas."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import pytest

from broker.metadata import deltas
from broker.metadata.elections import (
    record_for_election,
    record_for_isr,
    record_for_reassignment,
    records_for_balance,
    records_for_lost_brokers,
    records_for_unclean_elections,
    records_for_unfenced_brokers,
)
from broker.metadata.image import Image
from broker.metadata.partition_change import Election
from broker.metadata.results import ApiError
from broker.metadata.values import BrokerRegistration, MetadataDelta, PartitionState, Topic
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import MetadataRecord

T = uuid.UUID(int=77)


def image(
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    *,
    fenced: Iterable[int] = (),
    nodes: int = 4,
) -> Image:
    made = Image()
    for node_id in range(1, nodes + 1):
        made.brokers[node_id] = BrokerRegistration(
            node_id,
            node_id,
            uuid.UUID(int=node_id),
            fenced=node_id in fenced,
            log_dirs=(uuid.UUID(int=node_id),),
        )
    state = PartitionState(0, tuple(replicas), tuple(replicas if isr is None else isr), leader, 5, 9)
    state.directories = tuple(uuid.UUID(int=one) for one in replicas)
    made.topics["t"] = made.topics_by_id[T] = Topic("t", T, [state])
    return made


def state(of: Image) -> PartitionState:
    return of.topics["t"].partitions[0]


def apply(to: Image, records: Iterable[MetadataRecord | None]) -> PartitionState:
    for record in list(records):
        assert record is not None
        deltas.apply(to, record, MetadataDelta())
    return state(to)


class Settings:
    """The settings of every topic."""

    def __init__(self, *, unclean: bool) -> None:
        self.unclean = unclean

    def allows_unclean_election(self, topic: Topic) -> bool:
        return self.unclean

    def min_insync_replicas(self, topic: Topic) -> int:
        return 1


never, always = Settings(unclean=False), Settings(unclean=True)


@pytest.mark.parametrize(
    ("before", "lost", "leader", "isr", "epoch"),
    [
        (image(), 1, 2, (2, 3), 6),
        (image(isr=(1, 3)), 1, 3, (3,), 6),
        (image(), 3, 1, (1, 2), 5),  # the lost broker is a follower: no leader is elected
        (image(fenced=[2]), 1, 3, (2, 3), 6),  # 2 is in the ISR but fenced, so 3 is elected
        (
            image(isr=(1,)),
            1,
            -1,
            (1,),
            6,
        ),  # the last replica stays in the ISR, and the partition has no leader
        (image((4,), leader=4), 1, 4, (4,), 5),  # the lost broker has no replica
    ],
)
def test_a_broker_is_lost(before: Image, lost: int, leader: int, isr: tuple[int, ...], epoch: int) -> None:
    after = apply(before, records_for_lost_brokers(before, [lost], never))
    assert (after.leader, after.isr, after.leader_epoch) == (leader, isr, epoch)


def test_an_unclean_election_makes_the_new_leader_the_only_one_in_sync() -> None:
    before = image(isr=(1,))
    after = apply(before, records_for_lost_brokers(before, [1], always))
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)
    recovered = apply(before, [record_for_isr(before, before.topics["t"], after, 6, [2], never)])
    assert recovered.leader_recovery_state == 0


def test_the_last_replica_in_sync_becomes_leader_when_it_returns() -> None:
    alone = image(isr=(1,), leader=-1, fenced=[1])
    after = apply(alone, records_for_unfenced_brokers(alone, [1], never))
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 6)


def test_a_replica_outside_the_isr_does_not_become_leader_when_it_returns() -> None:
    alone = image(isr=(1,), leader=-1, fenced=[1, 2])
    assert list(records_for_unfenced_brokers(alone, [2], never)) == []
    after = apply(alone, records_for_unfenced_brokers(alone, [2], always))
    assert (after.leader, after.isr) == (2, (2,))


@pytest.mark.parametrize(
    ("before", "kind", "outcome"),
    [
        (image(leader=2), Election.PREFERRED, 1),
        (image(), Election.PREFERRED, ErrorCode.election_not_needed),
        (image(leader=2, isr=(2, 3)), Election.PREFERRED, ErrorCode.preferred_leader_not_available),
        (image(leader=2, fenced=[1]), Election.PREFERRED, ErrorCode.preferred_leader_not_available),
        (image(), Election.UNCLEAN, ErrorCode.election_not_needed),
        (image(leader=-1, isr=(1,), fenced=[1]), Election.UNCLEAN, 2),
        (
            image(leader=-1, isr=(1,), fenced=[1, 2, 3]),
            Election.UNCLEAN,
            ErrorCode.eligible_leaders_not_available,
        ),
    ],
)
def test_elections_that_a_client_asks_for(before: Image, kind: Election, outcome: int | ErrorCode) -> None:
    if isinstance(outcome, ErrorCode):
        with pytest.raises(ApiError) as refused:
            record_for_election(before, before.topics["t"], state(before), kind, never)
        assert refused.value.error is outcome
    else:
        after = apply(before, [record_for_election(before, before.topics["t"], state(before), kind, never)])
        assert (after.leader, after.leader_epoch) == (outcome, 6)


def test_a_partition_without_a_leader_gets_one_when_its_settings_come_to_allow_it() -> None:
    """A partition without a leader gets one when ``unclean.leader.election.enable`` becomes true for its topic."""
    before = image(isr=(1,), leader=-1, fenced=(1,))
    assert not list(records_for_unclean_elections(before, never))
    after = apply(before, records_for_unclean_elections(before, always))
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 6)
    assert not list(records_for_unclean_elections(before, always)), "the partition has a leader"
    for dead in (image(isr=(1,), leader=-1, fenced=(1, 2, 3)), image((1,), leader=-1, fenced=(1,))):
        assert not list(records_for_unclean_elections(dead, always))


def test_leadership_goes_back_only_to_preferred_leaders_that_can_have_it() -> None:
    before = image(leader=3)
    assert apply(before, records_for_balance(before, never)).leader == 1
    for kept in (image(), image(leader=3, isr=(3,)), image(leader=3, fenced=[1])):
        assert list(records_for_balance(kept, never)) == []


def test_a_leader_changes_the_isr() -> None:
    before = image()
    topic = before.topics["t"]
    assert record_for_isr(before, topic, state(before), 5, [1, 2, 3], never) is None
    after = apply(before, [record_for_isr(before, topic, state(before), 5, [1, 2], never)])
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1, 2), 5, 10)


@pytest.mark.parametrize(
    ("epoch", "isr", "error"),
    [
        (4, [1], ErrorCode.fenced_leader_epoch),
        (6, [1], ErrorCode.not_controller),
        (5, [1, 4], ErrorCode.invalid_request),  # 4 is not a replica
        (5, [1, 3], ErrorCode.ineligible_replica),  # 3 is fenced
        (5, [2], ErrorCode.invalid_request),  # the leader is not in the list
        (5, [1, 1], ErrorCode.invalid_request),
        (5, [], ErrorCode.invalid_request),
    ],
)
def test_replicas_that_may_not_join_the_isr(epoch: int, isr: list[int], error: ErrorCode) -> None:
    before = image(fenced=[3])
    with pytest.raises(ApiError) as refused:
        record_for_isr(before, before.topics["t"], state(before), epoch, isr, never)
    assert refused.value.error is error


# -- reassignments ----------------------------------------------------------------------------------------------


def test_a_reassignment_adds_replicas_first() -> None:
    before = image((1, 2))
    topic = before.topics["t"]
    moving = apply(before, [record_for_reassignment(before, topic, state(before), [3, 4], never)])
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == (
        (3, 4, 1, 2),
        (3, 4),
        (1, 2),
    )
    assert (moving.leader, moving.isr, len(moving.directories)) == (1, (1, 2), 4)

    half = apply(before, [record_for_isr(before, topic, moving, 5, [1, 2, 3], never)])
    assert half.adding_replicas == (3, 4)
    done = apply(before, [record_for_isr(before, topic, half, 5, [1, 2, 3, 4], never)])
    assert (done.replicas, done.isr, done.leader) == ((3, 4), (3, 4), 3)
    assert (done.adding_replicas, done.removing_replicas, done.leader_epoch) == ((), (), 6)
    assert done.directories == (uuid.UUID(int=3), uuid.UUID(int=4))


def test_a_reassignment_replaces_one_that_is_under_way() -> None:
    before = image((1, 2))
    topic = before.topics["t"]
    apply(before, [record_for_reassignment(before, topic, state(before), [1, 3], never)])
    onto_another = apply(before, [record_for_reassignment(before, topic, state(before), [1, 4], never)])
    # Kafka treats the replicas that the first reassignment adds like any other replicas, so the second removes them.
    assert (onto_another.replicas, onto_another.adding_replicas, onto_another.removing_replicas) == (
        (1, 4, 2, 3),
        (4,),
        (2, 3),
    )
    assert record_for_reassignment(before, topic, onto_another, [1, 4], never) is None
    both = apply(before, [record_for_reassignment(before, topic, onto_another, [1, 2, 3, 4], never)])
    assert (both.replicas, both.adding_replicas, both.removing_replicas) == ((1, 2, 3, 4), (4,), (2, 3))


def test_a_reassignment_is_cancelled() -> None:
    before = image((1, 2))
    topic = before.topics["t"]
    moving = apply(before, [record_for_reassignment(before, topic, state(before), [2, 3], never)])
    back = apply(before, [record_for_reassignment(before, topic, moving, None, never)])
    assert (set(back.replicas), back.adding_replicas, back.removing_replicas) == ({1, 2}, (), ())
    with pytest.raises(ApiError) as refused:
        record_for_reassignment(before, topic, back, None, never)
    assert refused.value.error is ErrorCode.no_reassignment_in_progress


def test_a_reassignment_to_the_current_replicas_changes_nothing() -> None:
    before = image((1, 2))
    assert record_for_reassignment(before, before.topics["t"], state(before), [1, 2], never) is None


def test_another_order_is_done_at_once() -> None:
    before = image((1, 2))
    after = apply(before, [record_for_reassignment(before, before.topics["t"], state(before), [2, 1], never)])
    assert (after.replicas, after.leader, after.adding_replicas) == ((2, 1), 1, ())


def test_fewer_replicas_are_fewer_at_once() -> None:
    before = image((1, 2, 3))
    after = apply(before, [record_for_reassignment(before, before.topics["t"], state(before), [2], never)])
    assert (after.replicas, after.isr, after.leader) == ((2,), (2,), 2)


@pytest.mark.parametrize("target", [[], [1, 1], [9]])
def test_invalid_targets(target: list[int]) -> None:
    before = image((1, 2))
    with pytest.raises(ApiError) as refused:
        record_for_reassignment(before, before.topics["t"], state(before), target, never)
    assert refused.value.error is ErrorCode.invalid_replica_assignment


def test_removing_a_replica_bumps_the_leader_epoch() -> None:
    """A completed removal of a replica increments the leader epoch, so that the removed replica cannot fetch any more
    (PartitionChangeBuilder)."""
    before = image((1, 2, 3))
    after = apply(before, [record_for_reassignment(before, before.topics["t"], state(before), [1, 3], never)])
    assert (after.replicas, after.leader, after.leader_epoch) == ((1, 3), 1, 6)

    before = image((1, 2))
    topic = before.topics["t"]
    more = apply(before, [record_for_reassignment(before, topic, state(before), [1, 2, 3], never)])
    assert (more.adding_replicas, more.leader_epoch) == ((3,), 5)
    back = apply(before, [record_for_reassignment(before, topic, more, None, never)])
    assert (back.replicas, back.leader, back.leader_epoch) == ((1, 2), 1, 6)


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync() -> None:
    """Replicas are removed only when all remaining ones are in the ISR. A remaining replica outside the ISR gets time to
    catch up, so that the ISR does not become too small."""
    before = image((1, 2, 3), isr=(1, 3))
    topic = before.topics["t"]
    moving = apply(before, [record_for_reassignment(before, topic, state(before), [1, 2], never)])
    assert (moving.replicas, moving.removing_replicas, moving.isr) == ((1, 2, 3), (3,), (1, 3))
    done = apply(before, [record_for_isr(before, topic, moving, 5, [1, 2, 3], never)])
    assert (done.replicas, done.isr, done.removing_replicas) == ((1, 2), (1, 2), ())


def test_adding_and_removing_replicas_are_sorted_by_id() -> None:
    before = image((2, 1), nodes=5)
    moving = apply(
        before, [record_for_reassignment(before, before.topics["t"], state(before), [5, 4], never)]
    )
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == (
        (5, 4, 1, 2),
        (4, 5),
        (1, 2),
    )


def test_an_unclean_cancellation_needs_permission() -> None:
    """The cancellation of a reassignment is refused without ``unclean`` if the ISR has only new replicas: no former replica
    is known to have every record."""
    before = image((1, 2))
    topic = before.topics["t"]
    apply(before, [record_for_reassignment(before, topic, state(before), [3, 4], never)])
    topic.partitions[0].isr, topic.partitions[0].leader = (3,), 3
    with pytest.raises(ApiError) as refused:
        record_for_reassignment(before, topic, state(before), None, never)
    assert refused.value.error is ErrorCode.invalid_replica_assignment
    back = apply(before, [record_for_reassignment(before, topic, state(before), None, always)])
    assert (back.replicas, back.isr, back.leader, back.adding_replicas) == ((1, 2), (1,), 1, ())
