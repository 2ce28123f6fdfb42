"""SyncGroup in every version."""

import pytest

from protocol.errors import ErrorCode as E
from tests.broker.groups.world import World, settled, turn

VERSIONS = range(6)


@pytest.fixture
async def world() -> World:
    return World()


def names(version: int, **changes) -> dict:
    return ({"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}) | changes


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_stored_assignment(world: World, version: int):
    member = await world.member()
    answer = world.sync(member, version=version, **names(version))
    assert (answer.error_code, answer.assignment) == (E.none, b"all")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group": ""}, E.invalid_group_id),
        ({"group": "unknown"}, E.unknown_member_id),
        ({"generation": 0}, E.illegal_generation),
        ({"generation": 2}, E.illegal_generation),
    ],
)
async def test_errors(world: World, version: int, changes: dict, error: E):
    member = await world.member()
    answer = world.sync(member, version=version, **names(version), **changes)
    assert (answer.error_code, answer.assignment) == (error, b"")
    assert world.sync("unknown", version=version, **names(version)).error_code == E.unknown_member_id


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ],
)
async def test_since_v5_the_request_must_have_the_group_s_protocol(world: World, changes: dict):
    member = await world.member()
    answer = world.sync(member, version=5, **names(5, **changes))
    assert answer.error_code == E.inconsistent_group_protocol


@pytest.mark.parametrize("version", range(3, 6))
async def test_a_fenced_instance_id(world: World, version: int):
    member = await world.member(group_instance_id="i")
    answer = world.sync("unknown", version=version, group_instance_id="i", **names(version))
    assert answer.error_code == E.fenced_instance_id
    answer = world.sync(member, version=version, group_instance_id="j", **names(version))
    assert answer.error_code == E.unknown_member_id


async def test_followers_wait_for_the_leader(world: World):
    leader = await world.member()
    joining = world.join(world.join().member_id)
    await settled(world.join(leader))
    follower = (await joining).member_id
    waiting = world.sync(follower, generation=2)
    await turn()
    assert not waiting.done()
    own = await settled(world.sync(leader, {leader: b"l", follower: b"f"}, generation=2))
    assert (own.assignment, (await waiting).assignment) == (b"l", b"f")


async def test_a_client_without_read_permission(world: World):
    world.denied.add(("READ", "GROUP", "g"))
    assert world.sync("m").error_code == E.group_authorization_failed
