"""One step of a member towards its target assignment, from every state (`broker.groups.consumer.reconciliation`)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import pytest

from broker.groups.consumer.context import Refused
from broker.groups.consumer.group import UNOWNED
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer.reconciliation import Goal, reconcile
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import TopicPartitions

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState
SAYS_NOTHING: Final = None
Parts = dict[UUID, dict[int, int]]


def parts(*partitions: int, epoch: int = 5, topic: UUID = T) -> Parts:
    return {topic: dict.fromkeys(partitions, epoch)} if partitions else {}


def owns(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=T, partitions=list(partitions))] if partitions else []


def member(state: MemberState, assigned: Parts, pending: Parts | None = None, epoch: int = 5):
    return ConsumerGroupMember(
        member_id="m",
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned=assigned,
        pending_revocation=pending or {},
    )


# member; target (epoch, partitions); owners of other partitions; owned partitions in the heartbeat (SAYS_NOTHING: null);
# then the result: epoch, state, assigned, pending revocation (None: the member is unchanged)
TABLE: Final[dict[str, tuple[Any, ...]]] = {
    "nothing to do": (member(STABLE, parts(0, 1)), (5, {0, 1}), {}, SAYS_NOTHING, None),
    "a new epoch, and the same partitions": (
        member(STABLE, parts(0, 1)),
        (6, {0, 1}),
        {},
        SAYS_NOTHING,
        (6, STABLE, parts(0, 1), {}),
    ),
    "it gets free partitions": (
        member(STABLE, parts(0)),
        (6, {0, 1}),
        {},
        SAYS_NOTHING,
        (6, STABLE, {T: {0: 5, 1: 6}}, {}),
    ),
    "it must revoke first, and stays in its epoch": (
        member(STABLE, parts(0, 1)),
        (6, {0, 2}),
        {},
        SAYS_NOTHING,
        (5, UNREVOKED, parts(0), parts(1)),
    ),
    "it must revoke a partition that it owns": (
        member(STABLE, parts(0, 1)),
        (6, {0}),
        {},
        owns(0, 1),
        (5, UNREVOKED, parts(0), parts(1)),
    ),
    "it no longer owns the partition that it must revoke": (
        member(STABLE, parts(0, 1)),
        (6, {0}),
        {},
        owns(0),
        (6, STABLE, parts(0), {}),
    ),
    "another member owns its target partition": (
        member(STABLE, parts(0)),
        (6, {0, 1}),
        {1: 5},
        SAYS_NOTHING,
        (6, UNRELEASED, parts(0), {}),
    ),
    "some is free, and some another has": (
        member(STABLE, {}),
        (6, {0, 1}),
        {1: 5},
        SAYS_NOTHING,
        (6, UNRELEASED, parts(0, epoch=6), {}),
    ),
    "unrevoked, and silent": (
        member(UNREVOKED, parts(0), parts(1)),
        (6, {0}),
        {},
        SAYS_NOTHING,
        None,
    ),
    "unrevoked, and still owns the partition": (
        member(UNREVOKED, parts(0), parts(1)),
        (6, {0}),
        {},
        owns(0, 1),
        None,
    ),
    "unrevoked, and has revoked": (
        member(UNREVOKED, parts(0), parts(1)),
        (6, {0}),
        {},
        owns(0),
        (6, STABLE, parts(0), {}),
    ),
    "unrevoked, has revoked, and the target is another meanwhile": (
        member(UNREVOKED, parts(0), parts(1)),
        (7, {2}),
        {},
        owns(0),
        (5, UNREVOKED, {}, parts(0)),
    ),
    "unrevoked, has revoked, and gets the partition back": (
        member(UNREVOKED, parts(0), parts(1)),
        (7, {0, 1}),
        {1: 5},
        owns(0),
        (7, STABLE, {T: {0: 5, 1: 7}}, {}),
    ),
    "unreleased, and still not free": (
        member(UNRELEASED, parts(0)),
        (5, {0, 1}),
        {1: 4},
        SAYS_NOTHING,
        (5, UNRELEASED, parts(0), {}),
    ),
    "unreleased, and free by now": (
        member(UNRELEASED, parts(0)),
        (5, {0, 1}),
        {},
        SAYS_NOTHING,
        (5, STABLE, parts(0, 1), {}),
    ),
    "unreleased, and must revoke for the next target": (
        member(UNRELEASED, parts(0)),
        (6, {1}),
        {1: 4},
        SAYS_NOTHING,
        (5, UNREVOKED, {}, parts(0)),
    ),
    "of a state from a newer version, and owns nothing": (
        member(UNKNOWN, parts(0)),
        (6, {0}),
        {},
        owns(),
        (6, STABLE, parts(0), {}),
    ),
}


def goal(
    epoch: int, target: set[int], others: dict[int, int], owned: Any, subscribed: tuple[UUID, ...] = (T,)
):
    wanted = {T: frozenset(target)} if target else {}
    return Goal(epoch, wanted, frozenset(subscribed), lambda topic, index: others.get(index, UNOWNED), owned)


@pytest.mark.parametrize(("before", "target", "others", "said", "expected"), TABLE.values(), ids=TABLE)
def test_a_step(before, target, others, said, expected):
    epoch, wanted, *subscribed = target
    after = reconcile(before, goal(epoch, wanted, others, said, *subscribed), subscription_changed=False)
    if expected is None:
        assert after is before
        return
    found = (after.member_epoch, after.state, after.assigned, after.pending_revocation)
    assert found == expected
    assert after.previous_member_epoch == before.member_epoch


@pytest.mark.parametrize("said", [owns(0), SAYS_NOTHING], ids=["owns", "silent"])
def test_a_member_of_an_unknown_state_that_may_own_something_is_fenced(said):
    with pytest.raises(Refused) as refused:
        reconcile(member(UNKNOWN, parts(0)), goal(6, {0}, {}, said), subscription_changed=False)
    assert refused.value.error is ErrorCode.fenced_member_epoch


@pytest.mark.parametrize(
    ("before", "said", "expected"),
    [
        pytest.param(member(STABLE, parts(0)), SAYS_NOTHING, (UNREVOKED, {}, parts(0)), id="stable"),
        pytest.param(
            member(STABLE, parts(0)), owns(), (STABLE, {}, {}), id="stable, and no longer owns the partition"
        ),
        pytest.param(
            member(UNREVOKED, parts(0), parts(1)),
            owns(0, 1),
            (UNREVOKED, {}, parts(1, 0)),
            id="unrevoked: it has more partitions to revoke",
        ),
        pytest.param(
            member(STABLE, parts(0, topic=U)),
            SAYS_NOTHING,
            (STABLE, parts(0, topic=U), {}),
            id="another topic",
        ),
    ],
)
def test_what_it_does_not_subscribe_to_any_more_goes_before_there_is_a_new_target(before, said, expected):
    after = reconcile(before, goal(5, {0}, {}, said, subscribed=(U,)), subscription_changed=True)
    assert (after.state, after.assigned, after.pending_revocation) == expected
    assert after.member_epoch == before.member_epoch


def test_a_target_of_a_topic_that_it_does_not_subscribe_to_is_no_target():
    """A member is not assigned target partitions of a topic to which it does not subscribe: the target may be older than the
    subscription."""
    after = reconcile(member(STABLE, {}), goal(6, {0}, {}, owns(), subscribed=()), subscription_changed=True)
    assert (after.member_epoch, after.assigned) == (6, {})
