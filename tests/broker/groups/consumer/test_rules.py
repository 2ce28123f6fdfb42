"""The rules of KIP-848: requests, fencing, responses, epochs, offsets, assignors, conversions, records, administration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from broker.groups.consumer.assignors import ASSIGNORS
from broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from broker.groups.consumer.context import Refused
from broker.groups.consumer.epoch_checks import check_commit, check_fetch
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeat import check_request
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.group import ClassicGroup
from protocol.batch import build_batch
from protocol.errors import ErrorCode as E
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.records.group_log import (
    ClassicMemberMetadata,
    ConsumerGroupPartitionMetadataKey,
    UnknownKey,
    decode_key,
)
from tests.broker.groups.consumer.test_consumer_groups import Client, classic_member, join_classic, names
from tests.broker.groups.world import World
from tests.support.deadlines import HANG_S

ROOT: Final = Path(__file__).parents[4]
T, U = UUID(int=1), UUID(int=2)
BOTH: Final = (0, 1)
SINCE_1: Final = (1,)


@pytest.fixture
def world():
    world = World()
    yield world
    world.groups.close()
    assert world.clock.timers == []


# -- requests ------------------------------------------------------------------------------------------------------

JOIN: Final[dict[str, Any]] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}
LEAVING: Final = {"member_epoch": -1, "topic_partitions": None}


@pytest.mark.parametrize(
    ("changes", "versions", "error"),
    [
        ({}, BOTH, None),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}, SINCE_1, None),
        ({"rack_id": "r1", "instance_id": "i", "server_assignor": "range"}, BOTH, None),
        ({"member_epoch": 5, "topic_partitions": None, "subscribed_topic_names": None}, BOTH, None),
        ({"member_epoch": 5, "rebalance_timeout_ms": -1}, BOTH, None),
        (LEAVING, BOTH, None),
        ({"member_epoch": -2, "instance_id": "i"}, BOTH, None),
        ({"member_id": ""}, (0,), None),
        ({"member_id": ""}, SINCE_1, E.invalid_request),
        ({"member_id": "", "member_epoch": 5}, BOTH, E.invalid_request),
        ({"member_id": ""} | LEAVING, BOTH, E.invalid_request),
        ({"member_id": "", "member_epoch": -2, "instance_id": "i"}, SINCE_1, E.invalid_request),
        ({"group_id": ""}, BOTH, E.invalid_request),
        ({"group_id": " "}, BOTH, E.invalid_request),
        ({"instance_id": ""}, BOTH, E.invalid_request),
        ({"rack_id": ""}, BOTH, E.invalid_request),
        ({"rebalance_timeout_ms": -1}, BOTH, E.invalid_request),
        ({"topic_partitions": None}, BOTH, E.invalid_request),
        ({"topic_partitions": [TopicPartitions(topic_id=T, partitions=[0])]}, BOTH, E.invalid_request),
        ({"subscribed_topic_names": None}, BOTH, E.invalid_request),
        ({"member_epoch": -2}, BOTH, E.invalid_request),
        ({"member_epoch": -3}, BOTH, E.invalid_request),
        ({"server_assignor": "sticky"}, BOTH, E.unsupported_assignor),
        ({"server_assignor": ""}, BOTH, E.unsupported_assignor),
    ],
)
def test_a_request_by_itself(changes, versions, error):
    for version in versions:
        try:
            check_request(ConsumerGroupHeartbeatRequest(**JOIN | changes), version, ("uniform", "range"))
            found = None
        except Refused as refusal:
            found = refusal.error
        assert found is error, version


def test_version_0_gives_a_member_its_id(world):
    a = Client(world, "")
    answer = world.ask("consumer_group_heartbeat", 0, **JOIN | {"member_id": ""})
    assert (answer.error_code, names(world)) == (E.none, {answer.member_id})
    assert a.id == ""


# -- fencing -------------------------------------------------------------------------------------------------------


def shared(world: World) -> tuple[Client, Client]:
    """Two reconciled members that share the three partitions of a topic. The second member is static."""
    a, b = Client(world, "a"), Client(world, "b", instance_id="i")
    a.join()
    b.join()
    a.ask()
    a.beat()
    b.beat()
    assert sorted(map(len, (a.partitions, b.partitions))) == [1, 2]
    return a, b


@pytest.mark.parametrize(
    ("who", "changes", "error"),
    [
        ("a", {}, E.none),
        ("a", {"member_epoch": 1}, E.fenced_member_epoch),
        ("a", {"member_epoch": 99}, E.fenced_member_epoch),
        ("a", {"member_id": "x"}, E.unknown_member_id),
        ("a", {"member_id": "x", "member_epoch": -1}, E.unknown_member_id),
        ("a", {"group_id": "other", "member_epoch": 3}, E.group_id_not_found),
        ("a", {"group_id": "other", "member_epoch": -1}, E.group_id_not_found),
        ("a", {"instance_id": "none"}, E.unknown_member_id),
        ("b", {"member_id": "x"}, E.fenced_instance_id),
        ("b", {"member_id": "x", "member_epoch": -1}, E.fenced_instance_id),
        ("b", {"member_id": "x", "member_epoch": -2}, E.fenced_instance_id),
        ("b", {**JOIN, "member_id": "x"}, E.unreleased_instance_id),
        ("b", {"subscribed_topic_regex": "("}, E.invalid_regular_expression),
        ("b", {"server_assignor": "sticky"}, E.unsupported_assignor),
    ],
)
def test_what_a_group_has_against_a_heartbeat(world, who, changes, error):
    client = dict(zip("ab", shared(world), strict=True))[who]
    before = world.groups.memory()
    answer = client.ask(**changes)
    assert answer.error_code == error
    if error != E.none:
        assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
        assert (answer.error_message is None) is (error == E.none)
        assert world.groups.memory() == before


@pytest.mark.parametrize(
    ("owned", "error"),
    [((0,), E.none), ((), E.none), ((0, 2), E.fenced_member_epoch), (None, E.fenced_member_epoch)],
)
def test_a_member_may_be_one_epoch_behind_if_it_owns_no_more_than_it_has(world, owned, error):
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    behind = a.epoch
    b.join()
    a.ask()
    a.beat()
    assert (a.epoch, a.partitions) == (behind + 1, [("t", 0), ("t", 1)])
    rows = None if owned is None else [SimpleNamespace(topic_id=world.topic.topic_id, partitions=list(owned))]
    assert a.ask(member_epoch=behind, topic_partitions=rows).error_code == error


# -- responses -----------------------------------------------------------------------------------------------------


def test_an_assignment_is_told_when_it_is_new_or_asked_for_with_all_that_a_member_has_to_say(world):
    a = Client(world, "a")
    joined = a.join()
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5_000)
    assert joined.assignment is not None, "on joining"
    owned = [SimpleNamespace(topic_id=world.topic.topic_id, partitions=[0, 1, 2])]
    assert a.ask().assignment is None, "unchanged"
    assert a.ask(topic_partitions=owned).assignment is None
    whole = {"topic_partitions": owned, "rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
    assert a.ask(**whole).assignment is not None, "a full request always gets the assignment"
    for left_out in whole:
        assert a.ask(**{name: value for name, value in whole.items() if name != left_out}).assignment is None
    Client(world, "b").join()
    assert a.ask().assignment is not None, "the member must revoke partitions"
    assert a.ask().assignment is None, "the assignment has been sent once"
    left = a.ask(member_epoch=-1)
    assert (left.member_id, left.member_epoch, left.assignment) == ("a", -1, None)


# -- epochs --------------------------------------------------------------------------------------------------------


def says(**fields: Any):
    return lambda world, a, b: a.ask(**fields)


def grows(name: str, partitions: int):
    def act(world: World, a: Client, b: Client) -> None:
        world.metadata.grow(name, partitions)
        a.beat()

    return act


def goes(world: World, a: Client, b: Client) -> None:
    world.metadata.remove("t")
    a.beat()


def expires(world: World, a: Client, b: Client) -> None:
    world.clock.advance(44_000)
    a.beat()
    world.clock.advance(2_000)


@pytest.mark.parametrize(
    ("act", "bumps"),
    [
        pytest.param(lambda world, a, b: Client(world, "c").join(), True, id="a member joins"),
        pytest.param(lambda world, a, b: b.ask(member_epoch=-1), True, id="one leaves"),
        pytest.param(
            lambda world, a, b: b.ask(member_epoch=-2), False, id="a static member leaves temporarily"
        ),
        pytest.param(expires, True, id="a member's session times out"),
        pytest.param(says(subscribed_topic_names=["t", "u"]), True, id="other names"),
        pytest.param(says(subscribed_topic_names=["t"]), False, id="the same names"),
        pytest.param(says(subscribed_topic_regex="u.*"), False, id="an expression that is not resolved yet"),
        pytest.param(says(server_assignor="range"), True, id="another assignor"),
        pytest.param(says(server_assignor="uniform"), False, id="the default assignor"),
        pytest.param(says(rack_id="r"), False, id="another rack"),
        pytest.param(says(rebalance_timeout_ms=1_234), False, id="another rebalance timeout"),
        pytest.param(lambda world, a, b: a.join(), False, id="a member joins again"),
        pytest.param(grows("t", 4), True, id="a topic grows"),
        pytest.param(grows("other", 1), False, id="a topic without subscribers is created"),
        pytest.param(goes, True, id="a topic is deleted"),
    ],
)
def test_the_group_has_a_new_epoch_when(world, act, bumps):
    pair = shared(world)
    before = world.groups.find("g").epoch
    act(world, *pair)
    assert world.groups.find("g").epoch == before + bumps


def test_a_topic_that_comes_is_assigned_to_those_who_wait_for_it(world):
    a = Client(world, "a", subscribed_topic_names=["t", "later"])
    a.join()
    epoch = a.epoch
    world.metadata.grow("later", 1)
    a.beat()
    assert (a.epoch, ("later", 0) in a.partitions) == (epoch + 1, True)


def test_all_of_a_heartbeat_is_written_as_one_batch(world):
    a, b = Client(world, "a"), Client(world, "b")
    for act in (a.join, b.join, a.ask, a.beat, b.beat, lambda: a.ask(member_epoch=-1)):
        before = sum(1 for _ in world.partition.log.batches())
        act()
        assert sum(1 for _ in world.partition.log.batches()) - before <= 1


# -- offsets -------------------------------------------------------------------------------------------------------


def a_group() -> ConsumerGroup:
    """A group with two members in epoch 7. The member m has partition 0 since epoch 5 and partition 1 since epoch 7, and
    must revoke partition 2, which it has since epoch 4. The member c uses the classic protocol."""
    group = ConsumerGroup("g")
    group.update_member(
        ConsumerGroupMember(
            member_id="m",
            instance_id="i",
            member_epoch=7,
            assigned={T: {0: 5, 1: 7}},
            pending_revocation={T: {2: 4}},
        )
    )
    classic = ClassicMemberMetadata(session_timeout_ms=1, supported_protocols=())
    group.update_member(ConsumerGroupMember(member_id="c", member_epoch=7, classic=classic))
    return group


OUTSIDE: Final = ("", -1)


@pytest.mark.parametrize(
    ("who", "transactional", "version", "expected"),
    [
        (("m", 7), False, 9, E.none),
        (("m", 7), True, 5, E.none),
        (("m", 7), False, 8, E.unsupported_version),
        (("m", 8), False, 9, E.stale_member_epoch),
        (("m", 8), True, 5, E.stale_member_epoch),
        (("m", -1), False, 9, [E.stale_member_epoch] * 4),
        (("m", 6), False, 9, [E.none, E.stale_member_epoch, E.none, E.stale_member_epoch]),
        (("m", 5), False, 9, [E.none, E.stale_member_epoch, E.none, E.stale_member_epoch]),
        (("m", 4), False, 9, [E.stale_member_epoch, E.stale_member_epoch, E.none, E.stale_member_epoch]),
        (("m", 6), True, 5, [E.none, E.stale_member_epoch, E.none, E.stale_member_epoch]),
        (("x", 7), False, 9, E.unknown_member_id),
        (("x", 7), True, 5, E.unknown_member_id),
        (OUTSIDE, False, 9, E.unknown_member_id),
        (OUTSIDE, True, 5, E.none),
        (("c", 7), False, 8, E.none),
        (("c", 8), False, 8, E.illegal_generation),
    ],
)
def test_who_may_commit(who, transactional, version, expected):
    """KIP-1251: a commit in an older epoch is accepted for the partitions that the member had in that epoch and still has or
    is revoking."""
    member_id, epoch = who
    try:
        check = check_commit(
            a_group(), member_id, None, epoch, transactional=transactional, api_version=version
        )
        found: Any = E.none if check is None else [check(T, index) for index in range(4)]
        assert check is None or check(None, 0) is E.stale_member_epoch, "an unknown topic"
    except Refused as refusal:
        found = refusal.error
    assert found == expected


def test_an_empty_group_takes_commits_of_clients_outside_of_it_and_of_no_member():
    group = ConsumerGroup("g")
    assert check_commit(group, "", None, -1, transactional=False, api_version=9) is None
    with pytest.raises(Refused) as refused:
        check_commit(group, "m", None, 1, transactional=False, api_version=9)
    assert refused.value.error is E.unknown_member_id


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("m", 7, E.none),
        ("m", 6, E.stale_member_epoch),
        ("m", 8, E.stale_member_epoch),
        ("x", 7, E.unknown_member_id),
        ("", -1, E.unknown_member_id),
        (None, -1, E.none),
        (None, 7, E.unknown_member_id),
        ("c", 6, E.illegal_generation),
    ],
)
def test_who_may_fetch_offsets(member_id, epoch, error):
    assert check_fetch(a_group(), member_id, epoch) is error


def test_offsets_expire_by_their_commit_where_no_member_subscribes(world):
    week_ms = 7 * 86_400_000
    world.config.group_consumer_session_timeout_ms = 2 * week_ms
    world.metadata.grow("u", 1)
    a = Client(world, "a")
    a.join()
    who = {"member_id": "a", "generation_id_or_member_epoch": a.epoch}
    assert world.commit(5, version=9, **who) == E.none
    assert world.commit(6, version=9, topic="u", **who) == E.none
    world.clock.advance(week_ms)
    assert set(world.groups.memory()[0]["committed"]["g"]) == {("t", 0)}
    a.ask(member_epoch=-1)
    world.clock.advance(1_200_000)
    assert world.groups.memory()[0]["committed"] == {}
    assert world.groups.find("g") is E.group_id_not_found, "an empty group is removed with its last offset"


# -- assignors -----------------------------------------------------------------------------------------------------


def test_the_range_assignor_gives_a_member_the_same_ranges_of_topics_that_are_alike():
    members = [MemberSpec(name, frozenset({T, U})) for name in ("a", "b", "c")]
    spec = GroupSpec.of(members, lambda topic: 7, homogeneous=True)
    for assigned in ASSIGNORS["range"](spec).values():
        assert assigned[T] == assigned[U]


def test_a_broker_without_consumer_groups_does_not_load_the_assignors():
    program = (
        "import sys, broker.cluster, broker.groups.coordinator\n"
        "from broker.requests.api import registered; registered()\n"
        "assert 'broker.groups.consumer.heartbeat' in sys.modules\n"
        "loaded = [name for name in sys.modules if 'broker.groups.consumer.assign' in name or name == 're2']\n"
        "assert loaded == ['broker.groups.consumer.assignments'], loaded"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=HANG_S)


def test_the_first_member_loads_them(world):
    Client(world, "a").join()
    assert "broker.groups.consumer.assignors.uniform" in sys.modules


@pytest.mark.parametrize(
    ("votes", "used"),
    [
        ((None, None, None), "uniform"),
        (("range", None, None), "range"),
        (("uniform", "range", "range"), "range"),
        (("uniform", "range", None), "uniform"),
        (("range", "uniform", None), "uniform"),
    ],
)
def test_the_assignor_that_most_members_prefer(world, votes, used):
    for number, vote in enumerate(votes):
        Client(world, f"m{number}", server_assignor=vote).join()
    (group,) = world.ask("consumer_group_describe", 1, group_ids=["g"]).groups
    assert group.assignor_name == used


def test_the_default_assignor_is_the_first_of_the_setting(world):
    world.config.group_consumer_assignors = (
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        "uniform",
    )
    Client(world, "a").join()
    (group,) = world.ask("consumer_group_describe", 1, group_ids=["g"]).groups
    assert group.assignor_name == "range"


# -- conversions ---------------------------------------------------------------------------------------------------


async def test_a_group_that_is_too_large_is_not_upgraded(world):
    await classic_member(world)
    world.config.group_consumer_max_size = 0
    answer = Client(world, "a").join()
    assert answer.error_code == E.group_id_not_found
    assert "exceeds the consumer group maximum size" in answer.error_message
    assert isinstance(world.groups.find("g"), ClassicGroup)


async def test_a_group_that_is_too_large_for_the_classic_protocol_is_not_downgraded(world):
    a = Client(world, "a")
    a.join()
    assert join_classic(world, "c").error_code == E.none
    world.config.group_max_size = 0
    a.ask(member_epoch=-1)
    assert isinstance(world.groups.find("g"), ConsumerGroup)
    assert names(world) == {"c"}


def test_a_member_of_no_common_protocol_may_not_join(world):
    Client(world, "a").join()
    assert join_classic(world, "c").error_code == E.none
    other = world.join("d", protocols=[SimpleNamespace(name="sticky", metadata=b"")])
    assert other.error_code == E.inconsistent_group_protocol
    assert world.join("e", protocol_type="connect").error_code == E.inconsistent_group_protocol


# -- records -------------------------------------------------------------------------------------------------------


def keys(world: World) -> list[Any]:
    records = [each for batch in world.partition.log.batches() for each in batch.records()]
    return [(decode_key(bytes(record.key or b"")), record.value) for record in records]


def test_a_record_of_partition_metadata_is_read_and_tombstoned(world):
    """The coordinator reads a ConsumerGroupPartitionMetadata record and writes its tombstone. No release writes this record
    type (4) any more (KIP-1101)."""
    a = Client(world, "a")
    a.join()
    value = b"\x00\x00\x01\x00"  # version 0, no topics
    obsolete = ConsumerGroupPartitionMetadataKey("g")
    world.partition.append_internal(build_batch([(0, obsolete.encode(), value)]))
    world.groups.close()
    world.restart()
    assert world.groups.find("g").has_obsolete_metadata
    a.beat(subscribed_topic_names=["t", "u"])
    assert (obsolete, None) in keys(world)
    assert not world.groups.find("g").has_obsolete_metadata


def test_records_of_other_kinds_of_groups_are_passed_over(world):
    a = Client(world, "a")
    a.join()
    before = world.groups.memory()
    batch = [(0, bytes([0, kind]) + b"\x00\x01g", b"\x00\x00\x00") for kind in (17, 18, 99)]
    world.partition.append_internal(build_batch(batch))
    world.groups.close()
    world.restart()
    assert world.groups.memory() == before
    assert sum(isinstance(key, UnknownKey) for key, _ in keys(world)) == 3


def test_what_a_member_says_of_itself_is_written_and_read_again(world):
    a = Client(
        world, "a", rack_id="r1", server_assignor="range", subscribed_topic_regex="u.*", instance_id="i"
    )
    a.join()
    before = a.member
    assert (before.rack_id, before.server_assignor, before.regex) == ("r1", "range", "u.*")
    world.groups.close()
    world.restart()
    assert a.member == before


# -- administration ------------------------------------------------------------------------------------------------


def test_states_and_types_are_listed(world):
    world.config.group_consumer_assignment_interval_ms = 1_000
    a, b = Client(world, "a"), Client(world, "b")

    def listed(**filters: Any) -> list[tuple[str, str]]:
        groups = world.ask("list_groups", 5, **{"states_filter": [], "types_filter": []} | filters).groups
        return [(group.group_state, group.group_type) for group in groups]

    a.join()
    assert listed() == [("Stable", "consumer")]
    b.join()
    assert listed() == listed(states_filter=["assigning"]) == [("Assigning", "consumer")]
    world.clock.advance(1_000)
    a.ask()
    assert listed() == listed(states_filter=["Stable", "RECONCILING"]) == [("Reconciling", "consumer")]
    a.beat()
    b.beat()
    assert listed(types_filter=["Consumer"]) == [("Stable", "consumer")]
    assert listed(types_filter=["classic"]) == listed(states_filter=["Empty"]) == []
    a.ask(member_epoch=-1)
    b.ask(member_epoch=-1)
    assert listed(states_filter=["Empty"]) == [("Empty", "consumer")]


def test_a_group_is_deleted_when_it_is_empty(world):
    a = Client(world, "a")
    a.join()

    def delete() -> int:
        (result,) = world.ask("delete_groups", 2, groups_names=["g"]).results
        return result.error_code

    assert delete() == E.non_empty_group
    a.ask(member_epoch=-1)
    assert delete() == E.none
    assert world.groups.find("g") is E.group_id_not_found
    assert delete() == E.group_id_not_found
    world.groups.close()
    world.restart()
    assert world.groups.find("g") is E.group_id_not_found
