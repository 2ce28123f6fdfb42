"""Heartbeat in every version."""

import pytest

from protocol.errors import ErrorCode as E
from tests.broker.groups.world import World

VERSIONS = range(5)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers(world: World, version: int):
    member = await world.member()
    assert world.heartbeat(member, version=version) is E.none
    assert world.heartbeat(member, 0, version=version) is E.illegal_generation
    assert world.heartbeat(member, 2, version=version) is E.illegal_generation
    assert world.heartbeat("unknown", version=version) is E.unknown_member_id
    assert world.heartbeat(member, group="unknown", version=version) is E.unknown_member_id
    assert world.heartbeat(member, group="", version=version) is E.invalid_group_id
    world.denied.add(("READ", "GROUP", "g"))
    assert world.heartbeat(member, version=version) is E.group_authorization_failed


@pytest.mark.parametrize("version", [3, 4])
async def test_an_instance_with_another_id(world: World, version: int):
    member = await world.member(group_instance_id="i")
    fields = {"group_id": "g", "generation_id": 1, "group_instance_id": "i"}
    assert world.ask("heartbeat", version, member_id=member, **fields).error_code == E.none
    assert world.ask("heartbeat", version, member_id="unknown", **fields).error_code == E.fenced_instance_id


async def test_a_session_times_out_without_heartbeats(world: World):
    member = await world.member()
    world.clock.advance(9_999)
    assert world.heartbeat(member) is E.none
    world.clock.advance(10_000)
    assert world.heartbeat(member) is E.unknown_member_id
