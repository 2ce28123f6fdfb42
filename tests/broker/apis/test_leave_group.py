"""LeaveGroup in every version."""

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.leave_group import MemberIdentity
from tests.broker.groups.world import World


@pytest.fixture
async def world() -> World:
    return World()


def leave(world: World, version: int, member_id: str, group: str = "g", **identity):
    if version < 3:
        return world.ask("leave_group", version, group_id=group, member_id=member_id)
    members = [MemberIdentity(member_id=member_id, **identity)]
    return world.ask("leave_group", version, group_id=group, members=members)


def outcome(answer, version: int) -> tuple[int, int | None]:
    return answer.error_code, answer.members[0].error_code if version >= 3 and answer.members else None


@pytest.mark.parametrize("version", range(6))
async def test_a_member_leaves(world: World, version: int):
    member = await world.member()
    assert outcome(leave(world, version, member), version) == (E.none, E.none if version >= 3 else None)
    assert world.classic_group("g").state == "Empty"


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("group", ["g", "unknown"])
async def test_an_unknown_member_cannot_leave(world: World, version: int, group: str):
    await world.member()
    answer = leave(world, version, "unknown", group)
    unknown = E.unknown_member_id
    assert outcome(answer, version) == ((E.none, unknown) if version >= 3 else (unknown, None))
    if version >= 3:
        assert answer.members[0].member_id == "unknown"


@pytest.mark.parametrize("version", range(6))
async def test_the_empty_group_id(world: World, version: int):
    assert outcome(leave(world, version, "m", ""), version) == (E.invalid_group_id, None)


@pytest.mark.parametrize("version", range(3, 6))
async def test_an_administrator_sends_only_the_instance_id(world: World, version: int):
    await world.member(group_instance_id="i")
    assert (
        outcome(leave(world, version, "unknown", group_instance_id="i"), version)[1] == E.fenced_instance_id
    )
    answer = leave(world, version, "", group_instance_id="i")
    assert outcome(answer, version) == (E.none, E.none)
    assert (answer.members[0].member_id, answer.members[0].group_instance_id) == ("", "i")


async def test_no_member_leaves(world: World):
    await world.member()
    answer = world.ask("leave_group", 5, group_id="g", members=[])
    assert (answer.error_code, tuple(answer.members)) == (E.none, ())


@pytest.mark.parametrize("version", range(6))
async def test_a_client_without_read_permission(world: World, version: int):
    world.denied.add(("READ", "GROUP", "g"))
    assert leave(world, version, "m").error_code == E.group_authorization_failed
