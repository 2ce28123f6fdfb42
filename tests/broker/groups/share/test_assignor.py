"""The assignor ``simple`` for any group: counts only, since Kafka's assignments depend on the order of hash maps."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from broker.groups.share.assignor import assign

TOPICS = [UUID(int=number) for number in range(1, 4)]
Group = tuple[list[MemberSpec], dict[UUID, frozenset[int]]]


@st.composite
def groups(draw, *, homogeneous: bool = False) -> Group:
    """Members with subscriptions and former assignments, and the initialized partitions of each topic."""
    partitions = {topic: frozenset(range(draw(st.integers(0, 6)))) for topic in TOPICS}
    subsets = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    shared = draw(subsets)
    former = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 5)))
    members = [
        MemberSpec(f"m{number}", shared if homogeneous else draw(subsets), draw(former))
        for number in range(draw(st.integers(1, 8)))
    ]
    return [
        MemberSpec(
            each.member_id,
            each.subscribed,
            {topic: found & partitions[topic] for topic, found in each.target.items()},
        )
        for each in members
    ], partitions


def assigned(group: Group, *, homogeneous: bool = True) -> Assignment:
    members, partitions = group
    spec = GroupSpec.of(members, lambda topic: len(partitions[topic]), homogeneous=homogeneous)
    return assign(spec, partitions.__getitem__)


def spots(target: Mapping[UUID, frozenset[int]], topics: frozenset[UUID]) -> set[tuple[UUID, int]]:
    return {(topic, index) for topic in topics for index in target.get(topic, ())}


@given(group=groups(homogeneous=True))
def test_members_with_equal_subscriptions_share_all_partitions_evenly(group):
    members, partitions = group
    topics = members[0].subscribed
    found = {member_id: spots(target, topics) for member_id, target in assigned(group).items()}
    every = spots(partitions, topics)
    holders = Counter(spot for of_member in found.values() for spot in of_member)
    assert set(holders) == every, "each partition has a member"
    sharing = -(-len(members) // len(every)) if every else 0
    assert max(holders.values(), default=0) <= sharing
    loads = [len(of_member) for of_member in found.values()]
    if len(members) <= len(every):
        assert max(loads) - min(loads) <= 1
    elif every:
        assert min(loads) >= 1


@given(group=groups())
def test_members_with_different_subscriptions_share_each_topic_evenly(group):
    members, partitions = group
    found = assigned(group, homogeneous=False)
    for topic in {topic for member in members for topic in member.subscribed}:
        subscribers = [each.member_id for each in members if topic in each.subscribed]
        loads = [len(found[member_id].get(topic, ())) for member_id in subscribers]
        holders = Counter(index for member_id in subscribers for index in found[member_id].get(topic, ()))
        assert set(holders) == partitions[topic]
        assert all(not found[each.member_id].get(topic) for each in members if topic not in each.subscribed)
        if len(subscribers) <= len(partitions[topic]):
            assert max(loads) - min(loads) <= 1
            assert max(holders.values()) == 1
        elif partitions[topic]:
            assert min(loads) >= 1
            assert max(holders.values()) <= -(-len(subscribers) // len(partitions[topic]))


@given(group=groups(homogeneous=True))
def test_a_second_assignment_changes_nothing(group):
    members, partitions = group
    before = assigned(group)
    again = [MemberSpec(each.member_id, each.subscribed, before[each.member_id]) for each in members]
    assert assigned((again, partitions)) == before


def test_four_members_share_two_partitions():
    members = [MemberSpec(f"m{number}", frozenset(TOPICS[:1])) for number in range(4)]
    found = assigned((members, {TOPICS[0]: frozenset({0, 1})}))
    assert Counter(index for target in found.values() for index in target[TOPICS[0]]) == {0: 2, 1: 2}
