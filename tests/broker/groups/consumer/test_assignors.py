"""Properties of each assignor for any group: each partition has one owner, loads are balanced, and few partitions move."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.assignors import ASSIGNORS
from broker.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from protocol.hashing import hash_map_order

TOPICS = [UUID(int=number) for number in range(1, 6)]


@st.composite
def groups(draw, *, homogeneous: bool = False) -> tuple[list[MemberSpec], dict[UUID, int]]:
    """Members with subscriptions, and the number of partitions of each topic."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    size = draw(st.integers(1, 7))
    subsets = st.frozensets(st.sampled_from(TOPICS), min_size=0 if not homogeneous else 1)
    shared = draw(subsets)
    members = []
    for number in range(size):
        instance = f"i{number}" if draw(st.booleans()) else None
        subscribed = shared if homogeneous else draw(subsets)
        members.append(MemberSpec(f"m{number}", subscribed, instance_id=instance))
    return members, counts


def assign(name: str, members: list[MemberSpec], counts: dict[UUID, int]) -> Assignment:
    homogeneous = len({member.subscribed for member in members}) <= 1
    return ASSIGNORS[name](GroupSpec.of(members, counts.__getitem__, homogeneous=homogeneous))


def again(members: list[MemberSpec], assigned: Assignment) -> list[MemberSpec]:
    """The same members, as owners of the partitions that the assignor assigned to them."""
    return [
        MemberSpec(
            each.member_id, each.subscribed, assigned.get(each.member_id, {}), instance_id=each.instance_id
        )
        for each in members
    ]


def owners(assigned: Assignment) -> dict[tuple[UUID, int], str]:
    found: dict[tuple[UUID, int], str] = {}
    for member_id, topics in assigned.items():
        for topic, partitions in topics.items():
            assert partitions, "a topic without partitions in an assignment"
            for partition in partitions:
                assert found.setdefault((topic, partition), member_id) == member_id, "two owners"
    return found


def loads(assigned: Assignment, members: list[MemberSpec]) -> dict[str, int]:
    counted = Counter(owners(assigned).values())
    return {member.member_id: counted[member.member_id] for member in members}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_every_partition_has_one_owner_who_subscribes(name, group):
    members, counts = group
    assigned = assign(name, members, counts)
    wanted = {
        (topic, index)
        for topic in TOPICS
        if any(topic in member.subscribed for member in members)
        for index in range(counts[topic])
    }
    found = owners(assigned)
    assert set(found) == wanted
    by_id = {member.member_id: member for member in members}
    assert all(topic in by_id[owner].subscribed for (topic, _), owner in found.items())
    assert all([*topics] == sorted(topics) for topics in assigned.values()), "the topics are in sorted order"


@given(group=groups(homogeneous=True), gone=st.integers(0, 6))
def test_uniform_loads_differ_by_one_and_only_what_must_moves(group, gone):
    members, counts = group
    first = assign("uniform", members, counts)
    load = loads(first, members)
    assert max(load.values()) - min(load.values()) <= 1
    assert assign("uniform", again(members, first), counts) == first
    left = [each for each in members if each.member_id != f"m{gone}"]
    if not left:
        return
    second = assign("uniform", again(left, first), counts)
    load = loads(second, left)
    assert max(load.values()) - min(load.values()) <= 1
    stayed = {member.member_id for member in left}
    before, after = owners(first), owners(second)
    assert all(after[spot] == owner for spot, owner in before.items() if owner in stayed)


@given(group=groups())
def test_with_different_subscriptions_no_move_would_help(group):
    members, counts = group
    assigned = assign("uniform", members, counts)
    load = loads(assigned, members)
    for (topic, _), owner in owners(assigned).items():
        for member in members:
            if topic in member.subscribed:
                assert load[owner] - load[member.member_id] <= 1, (
                    "moving a partition would improve the balance"
                )


@given(group=groups())
def test_an_even_assignment_stays(group):
    members, counts = group
    first = assign("uniform", members, counts)
    assert assign("uniform", again(members, first), counts) == first


@given(group=groups())
def test_ranges_are_ranges_and_static_members_come_first(group):
    members, counts = group
    assigned = assign("range", members, counts)
    for topic in TOPICS:
        subscribers = [member for member in members if topic in member.subscribed]
        subscribers.sort(
            key=lambda member: (member.instance_id is None, member.instance_id or member.member_id)
        )
        at, sizes = 0, []
        for member in subscribers:
            partitions = sorted(assigned[member.member_id].get(topic, ()))
            assert partitions == list(range(at, at + len(partitions)))
            at += len(partitions)
            sizes.append(len(partitions))
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


def test_members_are_taken_in_the_order_of_a_hash_map():
    """Assignors take members in the iteration order of OpenJDK 17's HashMap. The two examples have 16 and 32 buckets."""
    names = ["static", "m3", "m1", "consumer-1-abc", "consumer-2-xyz", "zz", "é", "𝒳"]
    order = ["zz", "static", "m1", "𝒳", "m3", "consumer-1-abc", "é", "consumer-2-xyz"]
    assert hash_map_order(names) == order
    numbers = [19, 18, 17, 16, 5, 15, 6, 14, 3, 13, 4, 12, 9, 11, 10, 7, 20, 8, 1, 2]
    assert hash_map_order(f"member-{n}" for n in range(1, 21)) == [f"member-{n}" for n in numbers]
