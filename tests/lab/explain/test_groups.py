"""Explanations of a group: tables with facts and the expected first line, one row for each cause."""

from __future__ import annotations

import pytest

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, GroupFacts
from lab.explain.groups import FETCHES_UNKNOWN, explain_group
from lab.explain.members import stopped_polling
from tests.lab.explain.staged import (
    around,
    at,
    decided,
    foreign,
    held,
    in_log,
    member,
    nodes,
    of_group,
    offset,
    refusal,
    throttle,
    txn,
)

HOME = at(topic="__consumer_offsets", index=7, leader=None, isr=(2,))

ROWS: dict[str, tuple[GroupFacts, ClusterContext, Cause, str, str]] = {
    "its coordinator is killed": (
        of_group(coordinator=None, state="", members=(), home=HOME),
        around(nodes=nodes(n2="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of group readers is not available: __consumer_offsets-7 has no leader: of its ISR, "
        "node 2 is killed.",
        "odradek node start 2",
    ),
    "its coordinator is paused": (
        of_group(state="", members=()),
        around(nodes=nodes(n1="paused")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of group readers is not available: node 1, which leads __consumer_offsets-7, is paused.",
        "odradek node resume 1",
    ),
    "a rule answers for its coordinator": (
        of_group(state="", members=(), coordinator_error="COORDINATOR_NOT_AVAILABLE"),
        around("FindCoordinator group=readers -> error COORDINATOR_NOT_AVAILABLE"),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of group readers is not available: rule 1 (FindCoordinator group=readers -> error "
        "COORDINATOR_NOT_AVAILABLE) responds to FindCoordinator with COORDINATOR_NOT_AVAILABLE.",
        "Remove the rule: odradek fault clear 1",
    ),
    "its coordinator is loading": (
        of_group(state="", members=(), coordinator_error="COORDINATOR_LOAD_IN_PROGRESS"),
        around(
            "coordinator.load -> hold",
            held=(held("coordinator.load", partitions=("__consumer_offsets-7",), for_ms=3_000),),
        ),
        Cause.COORDINATOR_LOADING,
        "The coordinator of group readers, node 1, is loading __consumer_offsets-7: rule 1 (coordinator.load "
        "-> hold) holds it "
        "for 3.0 s.",
        "Release it: odradek fault release 1",
    ),
    "its coordinator is loading, of a foreign cluster": (
        of_group(state="", members=(), coordinator_error="COORDINATOR_LOAD_IN_PROGRESS"),
        foreign(),
        Cause.COORDINATOR_LOADING,
        "The coordinator of group readers, node 1, is loading __consumer_offsets-7: it returns "
        "COORDINATOR_LOAD_IN_PROGRESS.",
        "Clients ask again until it has read its log.",
    ),
    "unknown": (
        of_group(state="Dead", members=()),
        foreign(),
        Cause.UNKNOWN_GROUP,
        "No coordinator knows group readers: it has no members and no offsets.",
        "",
    ),
    "misspelt": (
        of_group(state="Dead", members=(), near="readers-1"),
        around(),
        Cause.UNKNOWN_GROUP,
        "No coordinator knows group readers: it has no members and no offsets; did you mean readers-1?",
        "",
    ),
    "empty": (
        of_group(offset(committed=9, records=4), state="Empty", members=()),
        foreign(),
        Cause.GROUP_EMPTY,
        "Group readers is empty: it has no members, so its offsets do not change.",
        "Group readers is 4 records behind in orders-0.",
    ),
    "rebalancing, a member is late": (
        of_group(
            state="PreparingRebalance",
            state_ms=12_000,
            members=(
                member(has_joined=True),
                member(member_id="app-2-aa", client_id="app-2", has_joined=False),
            ),
        ),
        around(),
        Cause.GROUP_REBALANCING,
        "Group readers rebalances (PreparingRebalance, for 12.0 s): it waits for member app-2-aa (client "
        "app-2, 127.0.0.1) to join "
        "again.",
        "The last heartbeat of member app-2-aa (client app-2, 127.0.0.1) came 1.2 s ago; its session ends in 43.8 s.",
    ),
    "rebalancing, a rule holds a JoinGroup": (
        of_group(state="PreparingRebalance"),
        around("JoinGroup -> hold", held=(held("JoinGroup", group="readers", client_id="app-1"),)),
        Cause.GROUP_REBALANCING,
        "Group readers rebalances (PreparingRebalance): rule 1 (JoinGroup -> hold) holds JoinGroup of app-1 "
        "on node 1, for "
        "2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "reconciling": (
        of_group(state="Reconciling", members=(member(has_joined=False, heartbeat_ms=None),)),
        foreign(),
        Cause.GROUP_REBALANCING,
        "Group readers rebalances (Reconciling): it waits for member app-1-7f3c (client app-1, 127.0.0.1) to "
        "revoke its partitions.",
        "Only the control port of an Odradek broker knows whether a fault rule holds a request of the group: set "
        "ODRADEK_CONTROL.",
    ),
    "a late member of the consumer protocol": (
        of_group(
            type="consumer", state="Assigning", members=(member(has_joined=False, heartbeat_ms=30_000),)
        ),
        around(),
        Cause.GROUP_REBALANCING,
        "Group readers rebalances (Assigning): it waits for member app-1-7f3c (client app-1, 127.0.0.1) to send a "
        "heartbeat.",
        "The last heartbeat of member app-1-7f3c (client app-1, 127.0.0.1) came 30.0 s ago; its session ends in 15.0 s.",
    ),
    "its first JoinGroup is held": (
        of_group(state="", members=()),
        around("JoinGroup -> hold", held=(held("JoinGroup", group="readers"),)),
        Cause.REQUEST_HELD,
        "Rule 1 (JoinGroup -> hold) holds JoinGroup of readers on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "its first JoinGroup is refused": (
        of_group(state="Dead", members=()),
        around(
            refusals=(
                refusal("JoinGroup", "GROUP_AUTHORIZATION_FAILED", principal="User:bob", group="readers"),
            )
        ),
        Cause.NOT_AUTHORIZED,
        "User:bob is not authorized for READ on group readers: JoinGroup was refused with GROUP_AUTHORIZATION_FAILED, "
        "12.0 s ago.",
        "Allow it: odradek acl add User:bob --operation READ --group readers",
    ),
    "nothing committed": (
        of_group(
            offset(committed=None, records=5),
            offset(at(index=1), committed=None, records=7, is_counted_to_the_end=False),
        ),
        foreign(),
        Cause.LAG,
        "Group readers has committed nothing; 12 records or more are in its partitions (orders-0 and orders-1).",
        "auto.offset.reset decides where a member begins there; only commits show what it has read.",
    ),
    "nothing committed in one of two": (
        of_group(offset(), offset(at(index=1), committed=None, records=1)),
        foreign(),
        Cause.LAG,
        "Group readers has committed nothing in orders-1; 1 record is in orders-1.",
        "auto.offset.reset decides where a member begins there; only commits show what it has read.",
    ),
    "nothing committed, and nothing there": (
        of_group(offset(committed=None, records=0)),
        foreign(),
        Cause.NOTHING,
        "Nothing is wrong with group readers: it has committed nothing, and its partitions hold no record for its members.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "no partitions": (
        of_group(members=(member(assigned=()),)),
        foreign(),
        Cause.NOTHING,
        "Nothing is wrong with group readers: its members have no partitions, and it has committed nothing.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "stopped polling before an open transaction": (
        of_group(
            offset(at(in_log(txn())), committed=9, records=3),
            members=(member(fetch_ms=40_000, heartbeat_ms=None),),
        ),
        around(),
        Cause.MEMBER_STOPPED_POLLING,
        "Member app-1-7f3c (client app-1, 127.0.0.1) has sent no Fetch for 40.0 s, though it is behind in orders-0.",
        "It does not call poll() any more, has paused these partitions, or still works on what it has fetched.",
    ),
    "lag before an open transaction": (
        of_group(offset(at(in_log(txn())), committed=9, records=3)),
        foreign(),
        Cause.LAG,
        "Group readers is 3 records behind in orders-0.",
        "Readers with read_committed of orders-0 stop at offset 12: etl-1 (producer 5 epoch 0) has an open transaction, "
        "for 42.0 s; it times out in 18.0 s.",
    ),
    "a held heartbeat": (
        of_group(offset()),
        around("OffsetCommit -> hold", held=(held("OffsetCommit", group="readers"),)),
        Cause.REQUEST_HELD,
        "Rule 1 (OffsetCommit -> hold) holds OffsetCommit of readers on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "a held Fetch of a member": (
        of_group(offset(), members=(member(assigned=("orders-0",)),)),
        around("Fetch -> hold", held=(held("Fetch", client_id="app-1", partitions=("orders-0",)),)),
        Cause.REQUEST_HELD,
        "Rule 1 (Fetch -> hold) holds Fetch of app-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "not authorized": (
        of_group(offset()),
        around(
            refusals=(
                refusal("JoinGroup", "GROUP_AUTHORIZATION_FAILED", principal="User:bob", group="readers"),
            )
        ),
        Cause.NOT_AUTHORIZED,
        "User:bob is not authorized for READ on group readers: JoinGroup was refused with "
        "GROUP_AUTHORIZATION_FAILED, 12.0 s "
        "ago.",
        "Allow it: odradek acl add User:bob --operation READ --group readers",
    ),
    "a partition without a leader": (
        of_group(offset(at(leader=None, isr=(2,), log_start=None, last_stable=None, high_watermark=None))),
        around(nodes=nodes(n2="killed")),
        Cause.NO_LEADER,
        "orders-0 has no leader: of its ISR, node 2 is killed.",
        "odradek node start 2",
    ),
    "an open transaction": (
        of_group(offset(at(in_log(txn())), committed=12)),
        foreign(),
        Cause.OPEN_TRANSACTION,
        "Readers with read_committed of orders-0 stop at offset 12: etl-1 (producer 5 epoch 0) has an open "
        "transaction, for "
        "42.0 s; it times out in 18.0 s.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "a held marker": (
        of_group(offset(at(in_log(decided())), committed=12)),
        around("txn.marker -> hold", held=(held("txn.marker", transactional_id="etl-1"),)),
        Cause.MARKER_HELD,
        "Readers with read_committed of orders-0 stop at offset 12: rule 1 (txn.marker -> hold) holds the "
        "COMMIT marker of "
        "etl-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "unstable offsets": (
        of_group(offset(pending=True, pending_of="etl-1")),
        around(),
        Cause.UNSTABLE_OFFSETS,
        "The offset of group readers in orders-0 is not stable: the transaction of etl-1 has committed one "
        "and is not ended.",
        "See what that waits for: odradek explain --id etl-1",
    ),
    "a member without heartbeats": (
        of_group(offset(committed=9, records=4), members=(member(heartbeat_ms=30_000),)),
        around(),
        Cause.MEMBER_STOPPED_POLLING,
        "Member app-1-7f3c (client app-1, 127.0.0.1) has sent no heartbeat for 30.0 s; its session ends in 15.0 s.",
        "Its process hangs or is paused, or cannot reach the coordinator.",
    ),
    "a member that does not poll": (
        of_group(offset(committed=9, records=4), members=(member(fetch_ms=40_000),)),
        around(),
        Cause.MEMBER_STOPPED_POLLING,
        "Member app-1-7f3c (client app-1, 127.0.0.1) has sent no Fetch for 40.0 s, though it is behind in "
        "orders-0, and its "
        "heartbeats go on, the last 1.2 s ago.",
        "It does not call poll() any more, has paused these partitions, or still works on what it has fetched.",
    ),
    "throttled": (
        of_group(offset()),
        around(throttles=(throttle(api="Fetch"),)),
        Cause.THROTTLED,
        "Client app-1 is throttled by its quota: a response to Fetch told it to wait 900 ms, 3.0 s ago; 4 "
        "responses in all.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "a deleted offset": (
        of_group(offset(at(log_start=5), committed=3, records=8)),
        foreign(),
        Cause.LAG,
        "Offset 3 of group readers in orders-0 is deleted: the log begins at 5.",
        "auto.offset.reset decides where a member goes on.",
    ),
    "no member has the partition": (
        of_group(offset(committed=9, records=4), members=(member(assigned=("orders-1",)),)),
        foreign(),
        Cause.LAG,
        "No member of group readers has orders-0.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "lag": (
        of_group(offset(committed=9, records=2, aborted=1, markers=1)),
        foreign(),
        Cause.LAG,
        "Group readers is 2 records behind in orders-0.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "aborted records only": (
        of_group(offset(committed=9, aborted=3, markers=1)),
        foreign(),
        Cause.ABORTED_TAIL,
        "Nothing is wrong with group readers: its lag of 4 holds no record, but 3 aborted records and 1 marker.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "markers only": (
        of_group(offset(committed=12, markers=1)),
        foreign(),
        Cause.MARKERS_ONLY,
        "Nothing is wrong with group readers: its lag of 1 holds no record, but 1 marker.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "nothing": (
        of_group(offset()),
        foreign(),
        Cause.NOTHING,
        "Nothing is wrong with group readers: it has no lag.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
    "a partition was not asked": (
        of_group(offset(at(log_start=None, last_stable=None, high_watermark=None), records=None)),
        foreign(not_asked=("Node 1 did not respond.",)),
        Cause.UNKNOWN,
        "How far group readers is behind in orders-0 is not known: the leader could not be asked.",
        "Group readers is Stable with 1 member at its coordinator, node 1.",
    ),
}


@pytest.mark.parametrize(("group", "context", "cause", "first", "second"), ROWS.values(), ids=ROWS)
def test_the_first_lines(
    group: GroupFacts, context: ClusterContext, cause: Cause, first: str, second: str
) -> None:
    found = explain_group(group, context)
    assert (found.subject, *(*found.lines, "")[:2]) == ("group readers", first, second)
    assert found.cause is cause
    assert found.lines[len(found.lines) - len(context.not_asked) :] == context.not_asked


def test_with_the_trace_off_it_is_told_that_fetches_are_not_known() -> None:
    found = explain_group(of_group(offset(committed=9, records=2)), around(trace_runs=False))
    assert FETCHES_UNKNOWN in found.lines


def test_a_late_member_is_told_once() -> None:
    late = member(has_joined=False, heartbeat_ms=30_000)
    lines = explain_group(of_group(state="PreparingRebalance", members=(late,)), around()).lines
    assert sum("30.0 s" in line for line in lines) == 1


def test_the_lag_of_each_partition_is_told_by_what_it_consists_of() -> None:
    second = offset(at(index=1), committed=13)
    found = explain_group(of_group(offset(committed=9, records=2, aborted=1, markers=1), second), foreign())
    assert (
        "orders-0: 4 offsets behind the last stable offset 13: 2 records, 1 aborted record and 1 marker."
        in found.lines
    )
    assert "orders-1: no lag." in found.lines
    compacted = explain_group(of_group(offset(committed=9)), foreign())
    assert compacted.cause is Cause.MARKERS_ONLY
    assert any("compaction has removed what was there" in line for line in compacted.lines)


def test_a_member_is_not_silent_for_the_time_that_the_clock_was_advanced() -> None:
    quiet = of_group(members=(member(heartbeat_ms=33_000, advanced_ms=31_000),))
    assert list(stopped_polling(quiet)) == []
    silent = of_group(members=(member(heartbeat_ms=43_000, advanced_ms=31_000),))
    (trouble,) = stopped_polling(silent)
    assert "has sent no heartbeat for 12.0 s; its session ends in 2.0 s." in trouble.lines[0]
