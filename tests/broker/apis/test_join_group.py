"""JoinGroup in every version."""

import pytest

from protocol.errors import ErrorCode as E
from tests.broker.groups.world import World, offer, settled, subscription, turn

VERSIONS = range(10)


@pytest.fixture
async def world() -> World:
    return World()


async def enter(world: World, version: int, **changes):
    """Send JoinGroup, again with the assigned member id after MEMBER_ID_REQUIRED, and return the last response."""
    first = world.join(version=version, **changes)
    if version >= 4 and "group_instance_id" not in changes:
        assert first.error_code == E.member_id_required
        first = world.join(first.member_id, version=version, **changes)
    await turn()
    world.clock.advance(0)
    return await settled(first)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_first_member(world: World, version: int):
    answer = await enter(world, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (E.none, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id == "client-u1"
    assert [(each.member_id, each.metadata) for each in answer.members] == [("client-u1", subscription("t"))]


@pytest.mark.parametrize("version", VERSIONS)
async def test_errors_have_no_protocol_which_is_empty_before_v7(world: World, version: int):
    answer = world.join("unknown", version=version)
    assert (answer.error_code, answer.member_id) == (E.unknown_member_id, "unknown")
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.generation_id, answer.leader, tuple(answer.members)) == (-1, "", ())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group": ""}, E.invalid_group_id),
        ({"session_timeout_ms": 5_999}, E.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, E.invalid_session_timeout),
        ({"session_timeout_ms": -1}, E.invalid_session_timeout),
        ({"protocol_type": ""}, E.inconsistent_group_protocol),
        ({"protocols": []}, E.inconsistent_group_protocol),
    ],
)
async def test_bad_requests(world: World, version: int, changes: dict, error: E):
    assert world.join(version=version, **changes).error_code == error


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
async def test_session_timeouts_up_to_the_bounds(world: World, session_timeout_ms: int):
    assert world.join(session_timeout_ms=session_timeout_ms).error_code == E.member_id_required


async def test_in_v0_the_session_timeout_is_the_rebalance_timeout(world: World):
    answer = await enter(world, 0, session_timeout_ms=7_000)
    assert world.classic_group("g").members[answer.member_id].rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("version", range(5, 10))
async def test_a_static_member_that_comes_back(world: World, version: int):
    first = await enter(world, version, group_instance_id="i")
    await settled(world.sync(first.member_id, {first.member_id: b"all"}, group_instance_id="i"))
    again = await enter(world, version, group_instance_id="i")
    assert (again.error_code, again.generation_id) == (E.none, 1)
    assert again.member_id not in ("", first.member_id)
    assert again.leader == (again.member_id if version >= 9 else first.member_id)
    assert again.skip_assignment is (version >= 9)
    assert len(again.members) == (1 if version >= 9 else 0)
    if version >= 9:
        assert again.members[0].group_instance_id == "i"
    old = world.join(first.member_id, version=version, group_instance_id="i")
    assert old.error_code == E.fenced_instance_id


async def test_only_the_leader_gets_the_list_of_members(world: World):
    leader = await world.member()
    pending = world.join().member_id
    joining = world.join(pending)
    await turn()
    assert not joining.done()
    assert world.heartbeat(leader) is E.rebalance_in_progress
    again = await settled(world.join(leader))
    follower = await joining
    assert again.generation_id == follower.generation_id == 2
    assert len(again.members) == 2
    assert tuple(follower.members) == ()


async def test_a_full_group():
    world = World(group_max_size=1)
    await world.member()
    answer = world.join()
    assert (answer.error_code, answer.member_id) == (E.group_max_size_reached, "")


async def test_members_need_a_common_protocol(world: World):
    await world.member()
    assert world.join(protocol_type="connect").error_code == E.inconsistent_group_protocol
    assert world.join(protocols=[offer("sticky", b"")]).error_code == E.inconsistent_group_protocol


@pytest.mark.parametrize("version", [0, 9])
async def test_a_client_without_read_permission(world: World, version: int):
    world.denied.add(("READ", "GROUP", "g"))
    answer = world.join(version=version)
    assert (answer.error_code, answer.protocol_name) == (
        E.group_authorization_failed,
        None if version >= 7 else "",
    )


async def test_the_initial_delay_is_a_setting():
    world = World(group_initial_rebalance_delay_ms=3_000)
    joining = world.join(version=3)
    world.clock.advance(2_999)
    await turn()
    assert not joining.done()
    world.clock.advance(1)
    assert (await joining).generation_id == 1
