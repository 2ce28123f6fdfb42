"""JoinGroup of a classic group: member ids, errors, the initial delay, the end of the join phase, rejoins and sessions."""

import pytest

from broker.groups.classic import create
from broker.groups.effects import JOIN_TIMER, SYNC_TIMER, Append, Created, Timed, Timer
from broker.groups.group import ClassicGroupState
from protocol.errors import ErrorCode as E
from protocol.messages.leave_group import MemberIdentity
from protocol.records.group_log import GroupMetadataValue
from tests.broker.groups.lab import DELAY_MS, NOW_MS, RANGE, REBALANCE_MS, SESSION_MS, Lab, subscription

BOTH = (("range", b"r"), ("roundrobin", b"rr"))


def test_a_new_group_is_written_empty_and_without_a_protocol_type():
    group, effects = create("g", Lab().config, NOW_MS)
    assert (group.state, group.generation) == (ClassicGroupState.EMPTY, 0)
    (append,) = effects
    assert isinstance(append, Append)
    assert isinstance(append.purpose, Created)
    value = append.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == ("", 0, None, None)
    assert (value.current_state_timestamp_ms, tuple(value.members)) == (NOW_MS, ())


# -- member ids (KIP-394) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_dynamic_member_has_to_come_back_with_its_id(version: int):
    lab = Lab()
    answer = lab.joined(lab.join(api_version=version))
    assert answer.error_code == E.member_id_required
    assert answer.member_id == "c-u1"
    assert (answer.generation_id, tuple(answer.members), answer.leader) == (-1, (), "")
    assert list(lab.group.pending_joins) == ["c-u1"]
    assert lab.session("c-u1") == SESSION_MS
    assert lab.group.state is ClassicGroupState.EMPTY


@pytest.mark.parametrize("version", range(4))
def test_before_v4_it_joins_at_once(version: int):
    lab = Lab()
    token = lab.join(api_version=version)
    assert lab.waits(token)
    assert lab.group.leader == "c-u1"


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_joins_at_once_under_the_name_of_its_instance(version: int):
    lab = Lab()
    lab.join(api_version=version, group_instance_id="i")
    assert "i-u1" in lab.group.members


def test_a_pending_id_expires_after_one_session_timeout():
    lab = Lab()
    pending = lab.joined(lab.join()).member_id
    lab.advance(SESSION_MS)
    assert not lab.group.pending_joins
    assert lab.error(lab.join(pending)) == E.unknown_member_id


def test_a_pending_id_with_an_instance_is_refused():
    lab = Lab()
    pending = lab.joined(lab.join()).member_id
    assert lab.error(lab.join(pending, group_instance_id="i")) == E.unknown_server_error


def test_pending_ids_have_a_bound():
    lab = Lab(pending_members_max=2)
    assert [lab.error(lab.join()) for _ in range(3)] == [E.member_id_required] * 2 + [
        E.group_max_size_reached
    ]


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3, 5, 9])
def test_an_unknown_member_is_unknown(version: int):
    lab = Lab()
    answer = lab.joined(lab.join("unknown", api_version=version))
    assert (answer.error_code, answer.member_id) == (E.unknown_member_id, "unknown")


@pytest.mark.parametrize(
    ("state", "changes", "error"),
    [
        ("empty", {"protocol_type": ""}, E.inconsistent_group_protocol),
        ("empty", {"protocols": ()}, E.inconsistent_group_protocol),
        ("empty", {"protocol_type": "connect"}, E.member_id_required),
        ("empty", {"protocols": (("sticky", b""),)}, E.member_id_required),
        ("stable", {"protocol_type": ""}, E.inconsistent_group_protocol),
        ("stable", {"protocols": ()}, E.inconsistent_group_protocol),
        ("stable", {"protocol_type": "connect"}, E.inconsistent_group_protocol),
        ("stable", {"protocols": (("sticky", b""),)}, E.inconsistent_group_protocol),
        ("stable", {"protocols": (("sticky", b""), *RANGE)}, E.member_id_required),
        ("completing", {"protocols": (("sticky", b""),)}, E.inconsistent_group_protocol),
        ("preparing", {"protocols": (("sticky", b""),)}, E.inconsistent_group_protocol),
    ],
)
def test_a_protocol_must_be_one_that_all_members_support(state: str, changes: dict, error: E):
    lab = Lab()
    if state != "empty":
        getattr(lab, state)()
    assert lab.error(lab.join(**changes)) == error


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_a_full_group_takes_no_member(state: str):
    lab = Lab()
    ids = getattr(lab, state)(2)
    # In PreparingRebalance only members that have rejoined count towards the limit, and one new member has joined.
    lab.group.config = type(lab.config)(group_size_max=1 if state == "preparing" else len(ids))
    answer = lab.joined(lab.join())
    assert (answer.error_code, answer.member_id) == (E.group_max_size_reached, "")


def test_during_a_rebalance_the_last_members_of_a_full_group_are_rejected():
    lab = Lab()
    first, second = lab.stable(2)
    lab.group.config = type(lab.config)(group_size_max=1)
    again = lab.join(first)  # the leader joins again, so a rebalance starts
    assert lab.error(lab.join(second)) == E.group_max_size_reached
    assert second not in lab.group.members
    lab.advance(REBALANCE_MS)
    assert lab.joined(again).generation_id == 2


def test_a_dead_group_sends_its_members_to_look_for_the_coordinator():
    lab = Lab()
    ids = lab.stable()
    lab.group.move_to(ClassicGroupState.DEAD, lab.now_ms)
    assert lab.error(lab.join(ids[0])) == E.coordinator_not_available
    assert lab.error(lab.join()) == E.coordinator_not_available


# -- the initial delay (KIP-134) ------------------------------------------------------------------------------------


def test_a_lone_member_waits_one_delay():
    lab = Lab()
    member, token = lab.enter()
    lab.advance(DELAY_MS - 1)
    assert lab.waits(token)
    lab.advance(1)
    answer = lab.joined(token)
    assert (answer.generation_id, answer.leader, answer.protocol_type, answer.protocol_name) == (
        1,
        member,
        "consumer",
        "range",
    )
    assert [each.member_id for each in answer.members] == [member]


def test_each_period_with_new_members_is_followed_by_another():
    lab = Lab()
    _, token = lab.enter()
    for _ in range(3):
        lab.advance(DELAY_MS - 1)
        lab.enter()
        lab.advance(1)
        assert lab.waits(token)
    lab.advance(DELAY_MS)
    assert len(lab.joined(token).members) == 4


def test_but_not_beyond_the_rebalance_timeout():
    lab = Lab()
    _, token = lab.enter(rebalance_timeout_ms=2 * DELAY_MS + 500)
    waited_ms = 0
    while lab.waits(token):
        lab.advance(100)
        waited_ms += 100
        lab.enter(rebalance_timeout_ms=100)
    assert waited_ms == 2 * DELAY_MS + 500


def test_without_a_delay_the_first_turn_of_the_loop_ends_it():
    lab = Lab(initial_rebalance_delay_ms=0)
    _, token = lab.enter()
    assert lab.timers[JOIN_TIMER] == lab.now_ms
    lab.advance(0)
    assert lab.joined(token).generation_id == 1


def test_a_later_rebalance_has_no_delay():
    lab = Lab()
    ids = lab.stable(1)
    newcomer, token = lab.enter()
    again = lab.join(ids[0])
    assert lab.joined(again).generation_id == lab.joined(token).generation_id == 2
    assert newcomer in lab.group.members


# -- the end of the join phase --------------------------------------------------------------------------------------


def test_only_the_leader_is_told_who_the_members_are():
    lab = Lab()
    first, leader = lab.enter()
    second, follower = lab.enter()
    lab.advance(2 * DELAY_MS)
    assert [each.member_id for each in lab.joined(leader).members] == [first, second]
    assert [each.metadata for each in lab.joined(leader).members] == [RANGE[0][1]] * 2
    assert tuple(lab.joined(follower).members) == ()
    assert lab.joined(follower).leader == lab.joined(leader).leader == first


def test_it_waits_for_pending_ids_too():
    lab = Lab()
    (leader,) = lab.stable(1)
    pending = lab.joined(lab.join()).member_id
    again = lab.join(leader)
    assert lab.waits(again)
    newcomer = lab.join(pending)
    assert lab.joined(again).generation_id == lab.joined(newcomer).generation_id == 2


def test_a_pending_id_that_runs_out_ends_it():
    lab = Lab()
    (leader,) = lab.stable(1)
    lab.join()
    again = lab.join(leader)
    lab.advance(SESSION_MS)
    assert lab.joined(again).generation_id == 2


def test_at_the_end_of_the_rebalance_timeout_dynamic_members_that_did_not_come_are_removed():
    lab = Lab()
    leader, follower = lab.stable(2, session_timeout_ms=2 * REBALANCE_MS)
    newcomer, token = lab.enter()
    lab.advance(REBALANCE_MS)
    answer = lab.joined(token)
    assert (answer.generation_id, answer.leader) == (2, newcomer)
    assert {leader, follower}.isdisjoint(each.member_id for each in lab.group.members)
    assert lab.session(leader) is None


def test_static_members_stay_for_as_long_as_their_session():
    lab = Lab()
    static, _ = lab.enter(group_instance_id="i", session_timeout_ms=3 * REBALANCE_MS)
    lab.advance(DELAY_MS)
    lab.sync(static)
    newcomer, token = lab.enter()
    lab.advance(REBALANCE_MS)
    assert lab.joined(token).leader == newcomer
    assert static in lab.group.members
    assert static in [each.member_id for each in lab.joined(token).members]


def test_with_only_static_members_absent_the_join_phase_continues():
    lab = Lab()
    static, _ = lab.enter(group_instance_id="i", session_timeout_ms=3 * REBALANCE_MS)
    lab.advance(DELAY_MS)
    lab.sync(static)
    newcomer, _ = lab.enter()
    lab.leave(MemberIdentity(member_id=newcomer))
    lab.advance(REBALANCE_MS)
    assert lab.state() is ClassicGroupState.PREPARING_REBALANCE
    assert lab.timers[JOIN_TIMER] == lab.now_ms + REBALANCE_MS
    lab.advance(2 * REBALANCE_MS)
    assert lab.state() is ClassicGroupState.EMPTY


def test_each_member_votes_and_the_most_votes_win():
    lab = Lab()
    lab.enter(protocols=(("a", b""), ("b", b""), ("c", b"")))
    lab.enter(protocols=(("c", b""), ("b", b"")))
    _, token = lab.enter(protocols=(("b", b""), ("c", b"")))
    lab.advance(3 * DELAY_MS)
    # Not all members support "a": the votes are b, c, b.
    assert lab.joined(token).protocol_name == "b"


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        ("range", "roundrobin"),
        ("range", "cooperative-sticky"),
        ("sticky", "range"),
        ("sticky", "roundrobin"),
        ("roundrobin", "cooperative-sticky"),
        ("compatible", "sessioned"),
    ],
)
def test_a_tie_goes_as_in_a_hash_map_of_java(winner: str, loser: str, swapped: bool):
    lab = Lab()
    names = (loser, winner) if swapped else (winner, loser)
    lab.enter(protocols=tuple((name, b"") for name in names))
    _, token = lab.enter(protocols=tuple((name, b"") for name in reversed(names)))
    lab.advance(2 * DELAY_MS)
    assert lab.joined(token).protocol_name == winner


def test_of_two_protocols_with_one_name_the_first_counts():
    from broker.groups.members import protocols_of
    from protocol.messages.join_group import JoinGroupRequestProtocol as Offer

    assert protocols_of([Offer(name="a", metadata=b"1"), Offer(name="a", metadata=b"2")]) == (("a", b"1"),)


# -- rejoining ------------------------------------------------------------------------------------------------------


def test_stable_a_follower_with_unchanged_metadata_changes_nothing():
    lab = Lab()
    leader, follower = lab.stable()
    answer = lab.joined(lab.join(follower))
    assert (answer.error_code, answer.generation_id, answer.leader) == (E.none, 1, leader)
    assert tuple(answer.members) == ()
    assert lab.group.state is ClassicGroupState.STABLE


@pytest.mark.parametrize(("who", "protocols"), [(0, RANGE), (1, (("range", b"other"),))])
def test_stable_the_leader_or_other_metadata_makes_a_rebalance(who: int, protocols: tuple):
    lab = Lab()
    ids = lab.stable()
    token = lab.join(ids[who], protocols=protocols)
    assert lab.waits(token)
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert lab.timers[JOIN_TIMER] == lab.now_ms + REBALANCE_MS


@pytest.mark.parametrize("who", [0, 1])
def test_completing_unchanged_metadata_gets_the_answer_again(who: int):
    lab = Lab()
    ids = lab.completing()
    answer = lab.joined(lab.join(ids[who]))
    assert (answer.generation_id, answer.leader) == (1, ids[0])
    assert len(answer.members) == (2 if who == 0 else 0)
    assert lab.group.state is ClassicGroupState.COMPLETING_REBALANCE


def test_completing_other_metadata_makes_a_rebalance_and_frees_those_who_sync():
    lab = Lab()
    leader, follower = lab.completing()
    sync = lab.sync(follower)
    lab.join(leader, protocols=(("range", b"other"),))
    assert lab.error(sync) == E.rebalance_in_progress
    assert lab.session(follower) == SESSION_MS
    assert lab.group.state is ClassicGroupState.PREPARING_REBALANCE
    assert SYNC_TIMER not in lab.timers


def test_preparing_a_second_request_of_a_member_takes_the_place_of_the_first():
    lab = Lab()
    leader, _ = lab.preparing()
    first = lab.join(leader)
    second = lab.join(leader, protocols=(("range", b"newer"),))
    assert lab.error(first) == E.rebalance_in_progress
    assert lab.waits(second)
    assert lab.group.members[leader].metadata("range") == b"newer"


def test_the_next_leader_is_one_who_has_joined():
    lab = Lab()
    leader, second, third = lab.stable(3)
    lab.leave(MemberIdentity(member_id=leader))
    token = lab.join(third)
    lab.advance(REBALANCE_MS)
    assert second not in lab.group.members
    assert lab.joined(token).leader == third


# -- sessions -------------------------------------------------------------------------------------------------------


def test_a_new_member_s_join_times_out():
    """The waiting JoinGroup of a new member times out. The member's client may be gone, and cannot send heartbeats without a
    member id."""
    lab = Lab(new_member_join_timeout_ms=5 * SESSION_MS)
    lab.stable(1, session_timeout_ms=10 * SESSION_MS)
    newcomer, token = lab.enter()
    assert lab.session(newcomer) == 5 * SESSION_MS
    lab.advance(5 * SESSION_MS)
    assert (lab.error(token), lab.joined(token).member_id) == (E.unknown_member_id, "")
    assert newcomer not in lab.group.members


def test_a_member_whose_join_waits_does_not_expire():
    lab = Lab()
    leader, follower = lab.stable(2)
    token = lab.join(follower, protocols=(("range", b"other"),))
    lab.advance(SESSION_MS)  # both sessions would end, but only the leader's does
    assert leader not in lab.group.members
    assert lab.joined(token).leader == follower
    assert lab.session(follower) == SESSION_MS


def test_the_join_phase_restarts_sessions():
    lab = Lab()
    ids = [lab.enter()[0] for _ in range(2)]
    lab.advance(2 * DELAY_MS)
    assert [lab.session(member_id) for member_id in ids] == [SESSION_MS] * 2


def test_timers_of_a_member_that_leaves_are_cancelled():
    lab = Lab()
    lab.emptied()
    assert lab.timers == {}


def test_unknown_timers_do_nothing():
    lab = Lab()
    lab.timers[Timer(Timed.SESSION, "unknown")] = lab.now_ms
    lab.stable()
    assert lab.group.state is ClassicGroupState.STABLE


def test_subscriptions_of_the_generation_are_read_when_asked_for():
    lab = Lab()
    lab.stable(1, protocols=(("range", subscription("t", "u")),))
    assert lab.group.subscribed_topics() == frozenset({"t", "u"})


@pytest.mark.parametrize("garbage", [b"", b"\0", b"changed", b"\0\0\x61\x62\x63\x64", b"\xff\xff\0\0\0\0"])
def test_garbage_in_a_subscription_only_makes_the_topics_unknown(garbage: bytes):
    lab = Lab()
    lab.stable(1, protocols=(("range", garbage),))
    assert lab.group.subscribed_topics() is None
    assert lab.group.is_subscribed_to("anything")
