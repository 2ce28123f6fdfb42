"""Classic groups: SyncGroup, Heartbeat, LeaveGroup, static members, checks of commits, and failed appends."""

from typing import Any

import pytest

from broker.groups import classic, timeouts
from broker.groups.effects import JOIN_TIMER, SYNC_TIMER, Assigned, Emptied, Replaced, Timer
from broker.groups.group import LEGAL_ORIGINS, ClassicGroup, ClassicGroupState
from protocol.errors import ErrorCode as E
from protocol.messages.leave_group import MemberIdentity
from tests.broker.groups.lab import DELAY_MS, NOW_MS, REBALANCE_MS, SESSION_MS, Lab, subscription

STATES = ["empty", "emptied", "preparing", "completing", "stable"]
BOTH = (("range", b"r"), ("roundrobin", b"rr"))


def lab_in(state: str, **changes: Any) -> tuple[Lab, list[str]]:
    """A group in the given state, and the ids of its present or former members."""
    lab = Lab()
    return lab, [] if state == "empty" else getattr(lab, state)(**changes)


@pytest.mark.parametrize("origin", ClassicGroupState)
@pytest.mark.parametrize("target", ClassicGroupState)
def test_invalid_state_transitions_raise(origin: ClassicGroupState, target: ClassicGroupState):
    group = ClassicGroup("g", Lab().config, state=origin)
    if origin in LEGAL_ORIGINS[target]:
        group.move_to(target, NOW_MS)
        assert (group.previous_state, group.state) == (origin, target)
    else:
        with pytest.raises(AssertionError):
            group.move_to(target, NOW_MS)


# -- SyncGroup ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        ("empty", {}, E.unknown_member_id),
        ("emptied", {}, E.unknown_member_id),
        ("emptied", {"generation_id": 9}, E.unknown_member_id),
        ("completing", {"member_id": "unknown"}, E.unknown_member_id),
        ("completing", {"generation_id": 0}, E.illegal_generation),
        ("completing", {"generation_id": 9}, E.illegal_generation),
        ("completing", {"protocol_type": "connect"}, E.inconsistent_group_protocol),
        ("completing", {"protocol_name": "sticky"}, E.inconsistent_group_protocol),
        ("completing", {"group_instance_id": "i"}, E.unknown_member_id),
        ("preparing", {}, E.rebalance_in_progress),
        ("preparing", {"member_id": "unknown"}, E.unknown_member_id),
        ("stable", {"generation_id": 9}, E.illegal_generation),
        ("stable", {"protocol_name": "sticky"}, E.inconsistent_group_protocol),
        ("stable", {"protocol_type": "consumer", "protocol_name": "range"}, E.none),
    ],
)
def test_sync_group_errors(state: str, changes: dict, error: E):
    lab, ids = lab_in(state)
    member_id = changes.pop("member_id", ids[1] if ids else "m")
    assert lab.error(lab.sync(member_id, **changes)) == error


def test_followers_wait_for_the_leader_s_assignments():
    lab = Lab()
    leader, follower = lab.completing()
    waiting = lab.sync(follower)
    assert lab.waits(waiting)
    token = lab.sync(leader, {leader: b"l", follower: b"f"})
    assert lab.synced(token).assignment == b"l"
    answer = lab.synced(waiting)
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"f", "consumer", "range")
    assert lab.group.state is ClassicGroupState.STABLE
    assert SYNC_TIMER not in lab.timers


def test_assignments_are_written_before_a_member_gets_them():
    lab = Lab()
    leader, follower = lab.completing()
    lab.hold = True
    tokens = [lab.sync(follower), lab.sync(leader, {leader: b"l", follower: b"f"})]
    append = lab.appends[-1]
    assert isinstance(append.purpose, Assigned)
    assert {each.member_id: each.assignment for each in append.value.members} == {
        leader: b"l",
        follower: b"f",
    }
    assert all(lab.waits(token) for token in tokens)
    assert lab.group.state is ClassicGroupState.COMPLETING_REBALANCE
    lab.release()
    assert [lab.synced(token).assignment for token in tokens] == [b"f", b"l"]


def test_members_without_an_assignment_get_none_and_unknown_members_are_ignored():
    lab = Lab()
    leader, follower = lab.completing()
    waiting = lab.sync(follower)
    lab.sync(leader, {leader: b"l", "stranger": b"s"})
    answer = lab.synced(waiting)
    assert (answer.error_code, answer.assignment) == (E.none, b"")
    assert {each.member_id for each in lab.appends[-1].value.members} == {leader, follower}


def test_a_stable_group_gives_the_stored_assignment_again_and_takes_no_other():
    lab = Lab()
    leader, follower = lab.stable()
    assert lab.synced(lab.sync(leader, {leader: b"other"})).assignment == b"of 0"
    assert lab.synced(lab.sync(follower)).assignment == b"of 1"


def test_a_member_that_syncs_twice_is_answered_once_for_each():
    lab = Lab()
    leader, follower = lab.completing()
    first, second = lab.sync(follower), lab.sync(follower)
    assert lab.error(first) == E.rebalance_in_progress
    lab.sync(leader, {follower: b"f"})
    assert lab.synced(second).assignment == b"f"


def test_members_that_do_not_sync_are_removed_and_the_others_rebalance():
    lab = Lab()
    leader, follower = lab.completing(session_timeout_ms=3 * REBALANCE_MS)
    sync = lab.sync(leader, {leader: b"l"})
    assert lab.error(sync) == E.none
    lab.advance(REBALANCE_MS)
    assert follower not in lab.group.members
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert lab.heartbeat(leader, 1) == E.rebalance_in_progress


def test_if_no_member_syncs_the_group_is_empty():
    lab = Lab()
    lab.completing(session_timeout_ms=3 * REBALANCE_MS)
    lab.advance(REBALANCE_MS)
    assert (lab.group.state, lab.group.generation) == (ClassicGroupState.EMPTY, 2)
    assert isinstance(lab.appends[-1].purpose, Emptied)


def test_a_follower_whose_sync_waits_does_not_expire_and_then_starts_a_new_session():
    lab = Lab()
    leader, follower = lab.completing(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=10 * SESSION_MS)
    waiting = lab.sync(follower)
    for _ in range(5):
        lab.heartbeat(leader)
        lab.advance(SESSION_MS // 2)
    assert follower in lab.group.members
    lab.sync(leader, {})
    assert lab.error(waiting) == E.none
    assert lab.session(follower) == SESSION_MS


# -- Heartbeat ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "member", "generation", "error"),
    [
        ("empty", "unknown", 0, E.unknown_member_id),
        ("emptied", 0, 2, E.unknown_member_id),
        ("stable", "unknown", 1, E.unknown_member_id),
        ("stable", 1, 0, E.illegal_generation),
        ("stable", 1, 2, E.illegal_generation),
        ("preparing", 1, 1, E.rebalance_in_progress),
        ("preparing", 1, 0, E.illegal_generation),
        ("completing", 1, 1, E.none),
        ("completing", 1, 2, E.illegal_generation),
        ("stable", 1, 1, E.none),
    ],
)
def test_heartbeat(state: str, member: int | str, generation: int, error: E):
    lab, ids = lab_in(state)
    assert lab.heartbeat(member if isinstance(member, str) else ids[member], generation) == error


def test_a_pending_member_has_no_heartbeat():
    lab = Lab()
    pending = lab.joined(lab.join()).member_id
    assert lab.heartbeat(pending, 0) == E.unknown_member_id


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_every_heartbeat_restarts_the_session(state: str):
    lab, ids = lab_in(state)
    lab.advance(500)
    lab.heartbeat(ids[1])
    assert lab.session(ids[1]) == SESSION_MS


def test_a_silent_member_is_removed_and_the_others_rebalance():
    lab = Lab()
    leader, follower = lab.stable()
    lab.advance(SESSION_MS // 2)
    lab.heartbeat(leader)
    lab.advance(SESSION_MS // 2)
    assert follower not in lab.group.members
    assert lab.heartbeat(leader, 1) == E.rebalance_in_progress


def test_the_last_silent_member_leaves_an_empty_group_of_a_new_generation():
    lab = Lab()
    lab.stable(1)
    lab.advance(SESSION_MS)
    assert (lab.group.state, lab.group.generation, lab.group.leader) == (ClassicGroupState.EMPTY, 2, None)
    value = lab.appends[-1].value
    assert (value.generation, value.protocol_type, value.protocol, tuple(value.members)) == (
        2,
        "consumer",
        None,
        (),
    )
    assert value.current_state_timestamp_ms == lab.group.state_since_ms


# -- LeaveGroup -----------------------------------------------------------------------------------------------------


def test_each_leaving_member_has_a_result_of_its_own():
    lab = Lab()
    _, follower = lab.stable()
    static, _ = lab.enter(group_instance_id="i")
    response = lab.leave(
        MemberIdentity(member_id=follower),
        MemberIdentity(member_id="unknown"),
        MemberIdentity(member_id="unknown", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="j"),
        MemberIdentity(member_id=""),
        MemberIdentity(member_id="", group_instance_id="i"),
    )
    assert [each.error_code for each in response.members] == [
        E.none,
        E.unknown_member_id,
        E.fenced_instance_id,
        E.unknown_member_id,
        E.unknown_member_id,
        E.none,
    ]
    assert [each.member_id for each in response.members] == [follower, "unknown", "unknown", "", "", ""]
    assert {follower, static}.isdisjoint(each.member_id for each in lab.group.members)


def test_leaving_makes_the_others_rejoin():
    lab = Lab()
    leader, follower = lab.stable()
    lab.leave(MemberIdentity(member_id=leader))
    assert lab.heartbeat(follower, 1) == E.rebalance_in_progress
    assert lab.group.leader == follower


def test_a_failed_leave_changes_nothing():
    lab = Lab()
    lab.stable()
    lab.leave(MemberIdentity(member_id="unknown"))
    assert lab.group.state is ClassicGroupState.STABLE


def test_the_last_one_s_leave_is_answered_when_the_empty_group_is_written():
    lab = Lab()
    (member,) = lab.stable(1)
    lab.hold = True
    effects = classic.leave(lab.group, [MemberIdentity(member_id=member)], "leave", lab.now_ms)
    lab.do(effects)
    assert lab.waits("leave")
    lab.release()
    assert lab.error("leave") == E.none
    assert (lab.group.state, lab.group.generation) == (ClassicGroupState.EMPTY, 2)


def test_a_pending_id_may_leave():
    lab = Lab()
    pending = lab.joined(lab.join()).member_id
    assert lab.leave(MemberIdentity(member_id=pending)).members[0].error_code == E.none
    assert not lab.group.pending_joins
    assert lab.timers == {}


@pytest.mark.parametrize("state", ["preparing", "completing"])
def test_waiting_requests_of_a_leaving_member_get_a_response(state: str):
    lab, ids = lab_in(state)
    token = lab.join(ids[1]) if state == "preparing" else lab.sync(ids[1])
    lab.leave(MemberIdentity(member_id=ids[1]))
    assert lab.error(token) == E.unknown_member_id


def test_leaving_during_the_join_phase_may_complete_it():
    lab = Lab()
    leader, follower, third = lab.stable(3)
    again = [lab.join(leader), lab.join(third)]
    lab.leave(MemberIdentity(member_id=follower))
    assert [lab.joined(token).generation_id for token in again] == [2, 2]


def test_a_dead_group_cannot_be_left():
    lab = Lab()
    ids = lab.stable()
    lab.group.move_to(ClassicGroupState.DEAD, lab.now_ms)
    assert lab.leave(MemberIdentity(member_id=ids[0])).error_code == E.coordinator_not_available


# -- static members (KIP-345, KIP-814) ------------------------------------------------------------------------------


def static_pair(version: int = 9) -> tuple[Lab, str, str]:
    """A Stable group of two static members with the instance ids ``il`` and ``if``. Returns the lab and the member ids of
    leader and follower."""
    lab = Lab()
    leader, _ = lab.enter(group_instance_id="il", api_version=version, protocols=BOTH)
    follower, _ = lab.enter(group_instance_id="if", api_version=version, protocols=BOTH)
    lab.advance(2 * DELAY_MS)
    lab.sync(follower)
    lab.sync(leader, {leader: b"l", follower: b"f"})
    return lab, leader, follower


@pytest.mark.parametrize("version", [5, 8, 9])
def test_stable_a_follower_comes_back_without_a_rebalance(version: int):
    lab, leader, follower = static_pair(version)
    token = lab.join(group_instance_id="if", api_version=version, protocols=BOTH)
    answer = lab.joined(token)
    assert (answer.error_code, answer.generation_id, answer.leader) == (E.none, 1, leader)
    assert (answer.skip_assignment, tuple(answer.members)) == (False, ())
    assert answer.member_id != follower
    assert lab.group.state is ClassicGroupState.STABLE
    assert lab.synced(lab.sync(answer.member_id)).assignment == b"f"


def test_stable_a_leader_comes_back_as_leader_and_skips_the_assignment():
    lab, leader, follower = static_pair()
    answer = lab.joined(lab.join(group_instance_id="il", api_version=9, protocols=BOTH))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert [each.member_id for each in answer.members] == [answer.member_id, follower]
    assert lab.group.leader == answer.member_id != leader


@pytest.mark.parametrize("version", [5, 8])
def test_before_v9_it_is_told_the_old_leader_s_name_so_that_it_assigns_nothing(version: int):
    lab, leader, _ = static_pair(version)
    answer = lab.joined(lab.join(group_instance_id="il", api_version=version, protocols=BOTH))
    assert (answer.leader, answer.skip_assignment, tuple(answer.members)) == (leader, False, ())
    assert lab.group.leader == answer.member_id


def test_the_new_id_is_written_before_it_is_answered():
    lab, _, follower = static_pair()
    lab.hold = True
    token = lab.join(group_instance_id="if", api_version=9, protocols=BOTH)
    append = lab.appends[-1]
    assert isinstance(append.purpose, Replaced)
    assert follower not in {each.member_id for each in append.value.members}
    assert {each.assignment for each in append.value.members} == {b"l", b"f"}
    assert lab.waits(token)
    lab.release()
    assert lab.error(token) == E.none


def test_changed_metadata_causes_no_rebalance_but_another_protocol_does():
    lab, *_ = static_pair()
    other = (("range", b"other"), ("roundrobin", b"rr"))
    assert lab.error(lab.join(group_instance_id="if", api_version=9, protocols=other)) == E.none
    assert lab.state() is ClassicGroupState.STABLE
    only_other = (("roundrobin", b"rr"),)
    token = lab.join(group_instance_id="if", api_version=9, protocols=only_other)
    assert lab.waits(token)
    assert lab.state() is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(("instance", "error"), [("if", E.fenced_instance_id), (None, E.unknown_member_id)])
def test_the_old_incarnation_is_fenced(instance: str | None, error: E):
    lab, _, follower = static_pair()
    lab.join(group_instance_id="if", api_version=9, protocols=BOTH)
    assert lab.heartbeat(follower, 1, instance) == error
    assert lab.error(lab.sync(follower, group_instance_id=instance)) == error
    assert lab.commit(follower, 1, instance) == error
    assert lab.error(lab.join(follower, group_instance_id=instance, protocols=BOTH)) == error
    identity = MemberIdentity(member_id=follower, group_instance_id=instance)
    assert lab.leave(identity).members[0].error_code == error


def test_completing_a_replacement_makes_a_rebalance():
    lab = Lab()
    leader, _ = lab.enter(group_instance_id="il")
    follower, _ = lab.enter(group_instance_id="if")
    lab.advance(2 * DELAY_MS)
    old = lab.sync(follower, group_instance_id="if")
    token = lab.join(group_instance_id="if")
    assert lab.error(old) == E.fenced_instance_id
    assert lab.waits(token)
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    again = lab.join(leader, group_instance_id="il")
    assert lab.joined(again).generation_id == lab.joined(token).generation_id == 2


def test_preparing_a_replacement_takes_the_place_of_the_old_request():
    lab, leader, follower = static_pair()
    lab.join(leader, group_instance_id="il", protocols=BOTH)
    lab.enter(protocols=BOTH)
    # All members but the follower have rejoined.
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    token = lab.join(group_instance_id="if", protocols=BOTH)
    assert lab.joined(token).generation_id == 2
    assert follower not in lab.group.members


def test_a_waiting_old_incarnation_is_told_that_it_is_fenced():
    lab, leader, follower = static_pair()
    waiting = lab.join(leader, group_instance_id="il", protocols=BOTH)
    token = lab.join(group_instance_id="il", protocols=BOTH)
    answer = lab.joined(waiting)
    assert (answer.error_code, answer.member_id, answer.leader) == (E.fenced_instance_id, leader, "")
    lab.join(follower, group_instance_id="if", protocols=BOTH)
    assert lab.joined(token).generation_id == 2


def test_the_order_of_members_outlives_a_replacement():
    lab, *_ = static_pair()
    lab.join(group_instance_id="il", protocols=BOTH)
    assert [each.group_instance_id for each in lab.group.members] == ["il", "if"]


def test_a_replacement_of_a_member_that_has_not_synced_has_to_sync():
    lab = Lab()
    leader, _ = lab.enter(group_instance_id="il")
    lab.enter(group_instance_id="if")
    lab.advance(2 * DELAY_MS)
    lab.sync(leader, {}, group_instance_id="il")
    assert lab.group.state is ClassicGroupState.STABLE
    answer = lab.joined(lab.join(group_instance_id="if"))
    assert lab.group.pending_syncs == {answer.member_id}
    lab.sync(answer.member_id, group_instance_id="if")
    assert SYNC_TIMER not in lab.timers


# -- checks of commits ----------------------------------------------------------------------------------------------

MEMBER = object()


@pytest.mark.parametrize(
    ("state", "member", "generation", "instance", "plain", "transactional"),
    [
        ("empty", "", -1, None, E.none, E.none),
        ("empty", "x", -1, None, E.none, E.none),
        ("empty", "x", -1, "i", E.none, E.none),
        ("empty", "x", 0, None, E.unknown_member_id, E.unknown_member_id),
        ("empty", "", 0, None, E.unknown_member_id, E.unknown_member_id),
        ("emptied", "", -1, None, E.none, E.none),
        ("emptied", MEMBER, 1, None, E.unknown_member_id, E.unknown_member_id),
        ("stable", "", -1, None, E.unknown_member_id, E.none),
        ("stable", "x", 1, None, E.unknown_member_id, E.unknown_member_id),
        ("stable", MEMBER, 0, None, E.illegal_generation, E.illegal_generation),
        ("stable", MEMBER, 2, None, E.illegal_generation, E.illegal_generation),
        ("stable", MEMBER, -1, None, E.illegal_generation, E.illegal_generation),
        ("stable", MEMBER, 1, "j", E.unknown_member_id, E.unknown_member_id),
        ("stable", MEMBER, 1, None, E.none, E.none),
        ("completing", MEMBER, 1, None, E.rebalance_in_progress, E.none),
        ("completing", MEMBER, 0, None, E.illegal_generation, E.illegal_generation),
        ("completing", "", -1, None, E.unknown_member_id, E.none),
        ("preparing", MEMBER, 1, None, E.none, E.none),
        ("preparing", MEMBER, 0, None, E.illegal_generation, E.illegal_generation),
        ("preparing", "", -1, None, E.unknown_member_id, E.none),
    ],
)
def test_commit(
    state: str, member: object, generation: int, instance: str | None, plain: E, transactional: E
):
    lab, ids = lab_in(state)
    member_id = ids[1] if member is MEMBER else str(member)
    assert lab.commit(member_id, generation, instance) == plain
    assert lab.commit(member_id, generation, instance, transactional=True) == transactional


def test_commit_with_another_member_s_instance_is_fenced():
    lab, leader, _ = static_pair()
    assert lab.commit(leader, 1, "if") == E.fenced_instance_id
    assert lab.commit(leader, 1, "il") == E.none


@pytest.mark.parametrize(("state", "kept"), [("stable", True), ("preparing", True), ("completing", False)])
def test_a_commit_keeps_the_session_alive(state: str, kept: bool):
    lab, ids = lab_in(state)
    lab.advance(500)
    before = lab.session(ids[1])
    lab.commit(ids[1], 1)
    assert lab.session(ids[1]) == (SESSION_MS if kept else before)


def test_a_dead_group_rejects_commits():
    lab = Lab()
    lab.group.move_to(ClassicGroupState.DEAD, NOW_MS)
    assert lab.commit("", -1) == E.coordinator_not_available


# -- deletion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_only_an_empty_group_can_be_deleted(state: str):
    lab, _ = lab_in(state)
    empty = state in ("empty", "emptied")
    assert classic.deletable(lab.group) == (E.none if empty else E.non_empty_group)
    assert classic.offsets_deletable(lab.group) == E.none


@pytest.mark.parametrize("state", STATES)
def test_offsets_of_a_group_of_another_kind_with_members_cannot_be_deleted(state: str):
    lab, _ = lab_in(state) if state in ("empty", "emptied") else lab_in(state, protocol_type="connect")
    empty = state in ("empty", "emptied")
    assert classic.offsets_deletable(lab.group) == (E.none if empty else E.non_empty_group)


def test_a_dead_group_is_not_there():
    lab = Lab()
    lab.group.move_to(ClassicGroupState.DEAD, NOW_MS)
    assert classic.deletable(lab.group) == classic.offsets_deletable(lab.group) == E.group_id_not_found


@pytest.mark.parametrize("state", STATES)
def test_a_removed_group_leaves_no_timer_and_no_waiting_request(state: str):
    lab, ids = lab_in(state)
    waiting = [lab.join()] if state == "empty" else []
    if state == "preparing":
        waiting = [lab.join(ids[0])]
    elif state == "completing":
        waiting = [lab.sync(ids[1])]
    lab.do(classic.fail_and_unload(lab.group, E.not_coordinator, lab.now_ms))
    assert lab.timers == {}
    assert lab.group.state is ClassicGroupState.DEAD
    assert all(not lab.waits(token) for token in waiting)
    if state in ("preparing", "completing"):
        assert lab.error(waiting[0]) == E.not_coordinator


@pytest.mark.parametrize("timer", [JOIN_TIMER, SYNC_TIMER])
def test_a_timer_that_comes_too_late_does_nothing(timer: Timer):
    lab = Lab()
    lab.stable()
    assert timeouts.expired(lab.group, timer, lab.now_ms) == []
    lab.group.move_to(ClassicGroupState.DEAD, lab.now_ms)
    assert timeouts.expired(lab.group, timer, lab.now_ms) == []


# -- loading --------------------------------------------------------------------------------------------------------


def rebuilt(lab: Lab) -> Lab:
    """The group as a new coordinator loads it from its last record."""
    other = Lab()
    other.now_ms = lab.now_ms
    other.group = ClassicGroup.from_record("g", lab.group.config, lab.appends[-1].value)
    other.do(timeouts.loaded(other.group, other.now_ms))
    return other


def test_a_loaded_group_is_stable_and_its_members_have_a_whole_session():
    lab = Lab()
    ids = lab.stable(protocols=(("range", subscription("t")),))
    lab.advance(SESSION_MS - 1)
    again = rebuilt(lab)
    assert (again.group.state, again.group.generation, again.group.leader) == (
        ClassicGroupState.STABLE,
        1,
        ids[0],
    )
    assert [again.session(member_id) for member_id in ids] == [SESSION_MS] * 2
    assert again.heartbeat(ids[1], 1) == E.none
    assert again.synced(again.sync(ids[1])).assignment == b"of 1"
    assert again.group.subscribed_topics() == frozenset({"t"})


def test_a_loaded_group_without_members_is_empty_since_it_was_written():
    lab = Lab()
    lab.emptied()
    again = rebuilt(lab)
    assert again.group.state is ClassicGroupState.EMPTY
    assert again.group.state_since_ms == lab.group.state_since_ms
    assert again.group.subscribed_topics() == frozenset()


def test_a_loaded_group_that_is_too_large_rebalances():
    lab = Lab()
    lab.stable(3)
    lab.group.config = type(lab.config)(group_size_max=2)
    assert rebuilt(lab).group.state is ClassicGroupState.PREPARING_REBALANCE


# -- failed appends -------------------------------------------------------------------------------------------------


def test_assignments_that_cannot_be_written_are_an_error_for_all_and_a_rebalance():
    lab = Lab()
    leader, follower = lab.completing()
    lab.append_error = E.coordinator_not_available
    tokens = [lab.sync(follower), lab.sync(leader, {leader: b"l"})]
    assert [lab.error(token) for token in tokens] == [E.coordinator_not_available] * 2
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert lab.group.members[leader].assignment == b""


def test_assignments_that_come_too_late_are_forgotten():
    lab = Lab()
    leader, follower = lab.completing()
    lab.hold = True
    token = lab.sync(leader, {leader: b"l"})
    lab.leave(MemberIdentity(member_id=follower))
    assert lab.error(token) == E.rebalance_in_progress
    lab.release()
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert lab.group.members[leader].assignment == b""


def test_a_replacement_that_cannot_be_written_is_taken_back():
    lab, leader, follower = static_pair()
    lab.append_error = E.not_coordinator
    answer = lab.joined(lab.join(group_instance_id="if", api_version=9, protocols=BOTH))
    assert (answer.error_code, answer.member_id, answer.leader) == (E.not_coordinator, "", leader)
    assert lab.heartbeat(follower, 1, "if") == E.none
    assert lab.group.members.awaiting_join == 0


def test_a_replacement_that_a_rebalance_overtakes_joins_it():
    lab, leader, _ = static_pair()
    lab.hold = True
    token = lab.join(group_instance_id="if", api_version=9, protocols=BOTH)
    again = lab.join(leader, group_instance_id="il", protocols=BOTH)
    assert lab.joined(again).generation_id == lab.joined(token).generation_id == 2
    lab.release()
    assert lab.group.state is ClassicGroupState.COMPLETING_REBALANCE


def test_a_group_whose_first_record_cannot_be_written_does_not_exist():
    lab = Lab()
    lab.append_error = E.not_coordinator
    group, effects = classic.create("g", lab.config, lab.now_ms)
    lab.group = group
    lab.hold = True
    lab.do([*effects, *classic.join(group, lab.joiner(api_version=3), "join", lab.now_ms)])
    lab.release()
    assert group.state is ClassicGroupState.DEAD
    assert lab.error("join") == E.not_coordinator
    assert lab.timers == {}
