"""Explanations of a share group and of its records: tables with facts and the expected lines, one row for each cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.share.state import Ending
from lab.explain.explanation import Cause
from lab.explain.facts import (
    ClusterContext,
    DeadLetterFacts,
    GroupFacts,
    InFlightFacts,
    Refusal,
    SharePartitionFacts,
    ShareSettingsFacts,
)
from lab.explain.groups import explain_group
from lab.explain.refusals import refusal_troubles
from lab.explain.share_records import explain_record
from tests.lab.explain.staged import (
    around,
    at,
    foreign,
    held,
    in_flight,
    in_log,
    member,
    nodes,
    of_share_group,
    share_partition,
    txn,
)

LOST = DeadLetterFacts(
    first_offset=3, last_offset=4, written_to="", written_offset=-1, failure="topic does not exist"
)
FULL = {"settings": ShareSettingsFacts(partition_max_record_locks=100)}
READS_COMMITTED = {"settings": ShareSettingsFacts(read_committed=True)}
OPEN = at(in_log(txn()))

ROWS: dict[str, tuple[GroupFacts, ClusterContext, Cause, str, str]] = {
    "share groups are disabled": (
        of_share_group(share_partition(), share={"is_enabled": False}),
        around(),
        Cause.SHARE_GROUPS_DISABLED,
        "Share groups are disabled: share.version is 0, so requests of share consumers get UNSUPPORTED_VERSION.",
        "Enable them: kafka-features.sh upgrade --feature share.version=2",
    ),
    "it has no members": (
        of_share_group(share_partition(), members=(), state="Empty"),
        around(),
        Cause.GROUP_EMPTY,
        "Group readers is empty: it has no members.",
        "",
    ),
    "a member has no assignment": (
        of_share_group(share_partition(), members=(member(), member(member_id="m2", assigned=()))),
        around(),
        Cause.NO_ASSIGNMENT,
        "Member m2 (client app-1, 127.0.0.1) has no partition.",
        "Only initialized partitions of subscribed topics are assigned, at most every share.assignment.interval.ms.",
    ),
    "its partition is not initialized": (
        of_share_group(share_partition(initialization="initializing", is_loaded=False, start_offset=None)),
        around(),
        Cause.SHARE_PARTITION_NOT_INITIALIZED,
        "orders-0 is being initialized for group readers: it is not assigned, and a ShareFetch gets an error.",
        "The share coordinator initializes it after a heartbeat of a member that subscribes to the topic.",
    ),
    "a rule refuses to initialize its partition": (
        of_share_group(share_partition(initialization="initializing", is_loaded=False, start_offset=None)),
        around("share.append group=read* -> error COORDINATOR_NOT_AVAILABLE", hits=3),
        Cause.SHARE_PARTITION_NOT_INITIALIZED,
        "Rule 1 (share.append group=read* -> error COORDINATOR_NOT_AVAILABLE) has hit 3 times, and may have refused the "
        "state of orders-0 in group readers.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a rule refuses the states of another group": (
        of_share_group(share_partition(initialization="initializing", is_loaded=False, start_offset=None)),
        around("share.append group=other -> error COORDINATOR_NOT_AVAILABLE", hits=3),
        Cause.SHARE_PARTITION_NOT_INITIALIZED,
        "orders-0 is being initialized for group readers: it is not assigned, and a ShareFetch gets an error.",
        "",
    ),
    "a rule refuses a state": (
        of_share_group(
            share_partition(
                in_flight(5, 5, "Available", member_id="b", in_transition=True, ending="released")
            )
        ),
        around("share.write -> error COORDINATOR_NOT_AVAILABLE"),
        Cause.RECORD_IN_TRANSITION,
        "Rule 1 (share.write -> error COORDINATOR_NOT_AVAILABLE) has hit once, and may have refused the state of orders-0 "
        "in group readers.",
        "The start offset 5 of group readers in orders-0 waits: record 5 is being released by member b, delivered 1 of 5 "
        "times: the new state is being written to the share coordinator.",
    ),
    "its share coordinator has no leader": (
        of_share_group(
            share_partition(coordinator=at(topic="__share_group_state", index=3, leader=None, isr=(2,)))
        ),
        around(nodes=nodes(n2="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The share coordinator of group readers for orders-0 is not available: __share_group_state-3 has no leader: of "
        "its ISR, node 2 is killed.",
        "Until then no acknowledgement is written, and no share partition is loaded.",
    ),
    "its share coordinator is paused": (
        of_share_group(share_partition(coordinator=at(topic="__share_group_state", index=3, leader=2))),
        around(nodes=nodes(n2="paused")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The share coordinator of group readers for orders-0 is not available: node 2, which leads "
        "__share_group_state-3, is paused.",
        "odradek node resume 2",
    ),
    "its share coordinator cannot write": (
        of_share_group(
            share_partition(
                coordinator=at(topic="__share_group_state", index=3, leader=1, isr=(1,), min_isr=2)
            )
        ),
        around(nodes=nodes(n2="killed", n3="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The share coordinator of group readers for orders-0, node 1, cannot write: Writes with acks=all to "
        "__share_group_state-3 are refused (NOT_ENOUGH_REPLICAS): its ISR is node 1, min.insync.replicas is 2, and node 2 "
        "is killed and node 3 is killed.",
        "Until then no acknowledgement is written, and no share partition is loaded.",
    ),
    "all its locks are used": (
        of_share_group(
            share_partition(in_flight(5, 104), next_offset=105, at=at(high_watermark=200)), share=FULL
        ),
        around(),
        Cause.RECORD_LOCKS_FULL,
        "Group readers gets no new record of orders-0: 100 are in flight (share.partition.max.record.locks is 100).",
        "New ones follow when the start offset 5 moves: record 5 is locked by member b for 12.0 s more, delivered 1 of 5 "
        "times.",
    ),
    "a record is locked": (
        of_share_group(share_partition(in_flight(5, 7, count=3), in_flight(8, 9, "Acknowledged"))),
        around(),
        Cause.RECORD_LOCKED,
        "The start offset 5 of group readers in orders-0 waits: record 5 is locked by member b for 12.0 s more, delivered "
        "3 of 5 times.",
        "orders-0: start offset 5, lag 8: 3 acquired and 2 acknowledged.",
    ),
    "a state is being written": (
        of_share_group(
            share_partition(
                in_flight(5, 5, "Available", member_id="b", in_transition=True, ending="released")
            )
        ),
        around(),
        Cause.RECORD_IN_TRANSITION,
        "The start offset 5 of group readers in orders-0 waits: record 5 is being released by member b, delivered 1 of 5 "
        "times: the new state is being written to the share coordinator.",
        "",
    ),
    "records are not fetched": (
        of_share_group(share_partition()),
        around(),
        Cause.LAG,
        "Group readers has 8 records of orders-0 to deliver, from offset 5 on.",
        "",
    ),
    "a member does not fetch": (
        of_share_group(share_partition(), members=(member(fetch_ms=42_000),)),
        around(),
        Cause.MEMBER_STOPPED_POLLING,
        "Member app-1-7f3c (client app-1, 127.0.0.1) has sent no ShareFetch for 42.0 s, though it is behind in orders-0, "
        "and its heartbeats go on, the last 1.2 s ago.",
        "",
    ),
    "its start offset was set above the end": (
        of_share_group(share_partition(start_offset=20, end_offset=20, next_offset=20)),
        around(),
        Cause.LAG,
        "The start offset 20 of group readers in orders-0 is above its high watermark 13: records below 20 are not "
        "delivered.",
        "",
    ),
    "nobody has fetched yet": (
        of_share_group(share_partition(is_loaded=False, start_offset=-1, end_offset=None, next_offset=None)),
        around(),
        Cause.LAG,
        "Group readers has acknowledged nothing in orders-0, and its leader has not loaded it: no member fetches.",
        "The leader applies share.auto.offset.reset (latest) at the first ShareFetch.",
    ),
    "an open transaction hides records": (
        of_share_group(share_partition(at=OPEN), share=READS_COMMITTED),
        around(),
        Cause.OPEN_TRANSACTION,
        "Readers with read_committed of orders-0 stop at offset 12: etl-1 (producer 5 epoch 0) has an open transaction, "
        "for 42.0 s; it times out in 18.0 s.",
        "",
    ),
    "an open transaction hides nothing without read_committed": (
        of_share_group(share_partition(at=OPEN)),
        around(held=(held("Fetch", partitions=("orders-0",)),)),
        Cause.LAG,
        "Group readers has 8 records of orders-0 to deliver, from offset 5 on.",
        "",
    ),
    "a rule holds the ShareFetch of a member": (
        of_share_group(share_partition()),
        around("ShareFetch -> hold", held=(held("ShareFetch", client_id="app-1", partitions=("orders-0",)),)),
        Cause.REQUEST_HELD,
        "Rule 1 (ShareFetch -> hold) holds ShareFetch of app-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "dead letters were lost": (
        of_share_group(share_partition(start_offset=13, end_offset=13, dead_letters=(LOST,))),
        around(),
        Cause.DEAD_LETTER_LOST,
        "2 records of orders-0 archived without a dead letter, the last one at offset 4: topic does not exist.",
        "",
    ),
    "all is done": (
        of_share_group(share_partition(start_offset=13, end_offset=13)),
        around(),
        Cause.NOTHING,
        "Nothing is wrong with group readers: all records from its start offsets on are acknowledged or archived.",
        "orders-0: start offset 13, lag 0, nothing in flight.",
    ),
    "by protocol": (
        of_share_group(
            share_partition(initialization=None, is_loaded=None, end_offset=None, next_offset=None),
            share={"settings": None},
        ),
        foreign(),
        Cause.LAG,
        "Group readers has 8 records of orders-0 not acknowledged and not archived.",
        "orders-0: stored start offset 5, lag 8.",
    ),
    "its leader could not be asked": (
        of_share_group(
            share_partition(at=at(high_watermark=None, last_stable=None), is_loaded=None),
            share={"settings": None},
        ),
        foreign(),
        Cause.UNKNOWN,
        "Which records of orders-0 group readers has is not known: the leader could not be asked.",
        "",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_share_group(row: str) -> None:
    facts, context, cause, first, line = ROWS[row]
    found = explain_group(facts, context)
    assert (found.cause, found.lines[0]) == (cause, first)
    assert not line or line in found.lines, found.lines


def explained(record: InFlightFacts | None, offset: int = 7, **more: Any) -> tuple[Cause, tuple[str, ...]]:
    partition: SharePartitionFacts = replace(share_partition(in_flight(5, 9)), **more)
    found = explain_record(of_share_group(partition), offset, record, around())
    assert found.subject == f"record {offset} of orders-0 in group readers"
    return found.cause, found.lines


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (in_flight(5, 9, count=3), "is locked by member b for 12.0 s more, delivered 3 of 5 times."),
        (
            in_flight(5, 9, member_id="gone", lock_ms=-3),
            "is locked by member gone (not in the group) for 0 ms more, delivered 1 of 5 times.",
        ),
        (
            in_flight(5, 9, "Available", former_member_id="a", ending="released"),
            "is available: released by member a, delivered 1 of 5 times.",
        ),
        (
            in_flight(5, 9, "Available", 2, former_member_id="a", ending="lock expired"),
            "is available: the lock of member a has run out, delivered 2 of 5 times.",
        ),
        (
            in_flight(5, 9, "Available", 2, former_member_id="a", ending="session ended"),
            "is available: the share session of member a has ended, delivered 2 of 5 times.",
        ),
        (in_flight(5, 9, "Available", 0), "is available, not delivered yet."),
        (in_flight(5, 9, "Available", 2), "is available, delivered 2 of 5 times."),
        (
            in_flight(5, 9, "Acknowledged", former_member_id="a", ending="accepted"),
            "is acknowledged by member a.",
        ),
        (in_flight(5, 9, "Acknowledged"), "is acknowledged."),
        (
            in_flight(5, 9, "Archived", former_member_id="a", ending="rejected"),
            "is archived: rejected by member a, delivered 1 of 5 times.",
        ),
        (
            in_flight(5, 9, "Archived", 5, former_member_id="a", ending="lock expired"),
            "is archived: the lock of member a has run out, delivered 5 of 5 times.",
        ),
        (
            in_flight(5, 9, "Archived", former_member_id="a", ending=Ending.ABORTED.value),
            "is archived: its transaction is aborted, and share.isolation.level is read_committed.",
        ),
        (
            in_flight(5, 9, "Archived", former_member_id="a", ending="gap"),
            "is archived: member a has acknowledged it as a gap, delivered 1 of 5 times.",
        ),
        (
            in_flight(5, 9, "Archiving", former_member_id="a", ending="rejected"),
            "is being written to the dead-letter queue dlq.readers: rejected by member a, delivered 1 of 5 times.",
        ),
        (
            in_flight(5, 9, "Acknowledged", member_id="a", in_transition=True, ending="accepted"),
            "is being acknowledged by member a, delivered 1 of 5 times: the new state is being written to the share "
            "coordinator.",
        ),
    ],
)
def test_a_record_in_flight(record: InFlightFacts, text: str) -> None:
    assert explained(record)[1][0] == f"Record 7 of orders-0 {text}"


@pytest.mark.parametrize(
    ("where", "offsets", "is_named"),
    [
        ("ShareAcknowledge", (("orders-0", 7, 7),), True),
        ("ShareAcknowledge", (("orders-0", 5, 6),), False),
        ("ShareAcknowledge", (("orders-1", 7, 7),), False),
        ("share.write", (("orders-0", 5, 9),), True),
        ("ShareFetch", (("orders-0", 7, 7),), True),
        ("ShareFetch", (), False),
    ],
)
def test_a_rule_that_holds_what_concerns_a_record_is_its_cause(
    where: str, offsets: tuple[tuple[str, int, int], ...], is_named: bool
) -> None:
    holds = held(where, group="readers", partitions=("orders-0", "orders-1"), offsets=offsets)
    record = in_flight(5, 9)
    facts = of_share_group(share_partition(record))
    found = explain_record(facts, 7, record, around(f"{where} -> hold", held=(holds,)))
    first = f"Rule 1 ({where} -> hold) holds {where} of readers on node 1, for 2 min 41 s."
    assert (found.cause is Cause.REQUEST_HELD, found.lines[0] == first) == (is_named, is_named)
    assert (
        "Record 7 of orders-0 is locked by member b for 12.0 s more, delivered 1 of 5 times." in found.lines
    )


def test_a_rule_that_refuses_the_state_of_a_record_is_named_first() -> None:
    record = in_flight(5, 9, "Acknowledged", member_id="a", in_transition=True, ending="accepted")
    context = around("share.append -> error NOT_COORDINATOR", hits=2)
    found = explain_record(of_share_group(share_partition(record)), 7, record, context)
    assert found.lines[0].startswith(
        "Rule 1 (share.append -> error NOT_COORDINATOR) has hit 2 times, and may"
    )


def test_no_client_is_said_to_send_an_acknowledgement_again() -> None:
    refused = Refusal(
        api="ShareAcknowledge",
        error="COORDINATOR_NOT_AVAILABLE",
        count=1,
        last_ms=1_000,
        node=1,
        group="readers",
    )
    [found] = refusal_troubles(around(), [refused])
    assert found.lines == (
        "Refused ShareAcknowledge of readers: COORDINATOR_NOT_AVAILABLE, 1.0 s ago on node 1 (no node can coordinate it "
        "now).",
    )


def test_a_rule_that_may_have_refused_an_acknowledgement_is_named() -> None:
    refused = Refusal(
        api="ShareAcknowledge",
        error="COORDINATOR_NOT_AVAILABLE",
        count=1,
        last_ms=1_000,
        node=1,
        group="readers",
        partitions=("orders-0",),
    )
    rules = ("share.write topic=orders -> error NOT_COORDINATOR", "share.write topic=other -> lose")
    [found] = refusal_troubles(around(*rules), [refused])
    assert found.lines[1:] == (
        "Rule 1 (share.write topic=orders -> error NOT_COORDINATOR) has hit once, and may be what refused it.",
        "Remove the rule: odradek fault clear 1",
    )


def test_the_last_delivery_of_a_record_says_so() -> None:
    cause, lines = explained(in_flight(5, 9, count=5))
    assert cause is Cause.RECORD_LOCKED
    assert lines[1] == (
        "That is its last delivery: if it is released, or its lock runs out, it is archived and written to the dead-letter "
        "queue dlq.readers."
    )


def test_the_dead_letter_of_a_record_is_named() -> None:
    written = DeadLetterFacts(
        first_offset=7, last_offset=7, written_to="dlq.readers-0", written_offset=2, failure=""
    )
    archived = in_flight(7, 7, "Archived", former_member_id="a", ending="rejected")
    assert (
        "Its dead letter is in dlq.readers-0 at offset 2." in explained(archived, dead_letters=(written,))[1]
    )
    cause, lines = explained(None, offset=3, dead_letters=(LOST, written))
    assert cause is Cause.RECORD_DONE
    assert lines == (
        "Record 3 of orders-0 is below the start offset 5 of group readers: it is not delivered any more.",
        "It was acknowledged or archived, or the start offset was set above it; which of these is not known any more.",
        "It was not written to the dead-letter queue: topic does not exist.",
    )


@pytest.mark.parametrize(
    ("offset", "more", "cause", "first"),
    [
        (
            11,
            {},
            Cause.RECORD_NOT_DELIVERED,
            "Record 11 of orders-0 was not delivered to group readers yet: the next ShareFetch reads from offset 10 on.",
        ),
        (
            13,
            {},
            Cause.RECORD_NOT_DELIVERED,
            "orders-0 has no record 13 for consumers: its high watermark is 13.",
        ),
        (
            7,
            {"is_loaded": False, "next_offset": None},
            Cause.RECORD_NOT_DELIVERED,
            "Record 7 of orders-0 has no stored state in group readers, and its leader has not loaded the share "
            "partition: no member fetches from it.",
        ),
        (
            7,
            {"at": at(high_watermark=None), "is_loaded": None},
            Cause.UNKNOWN,
            "The state of record 7 of orders-0 in group readers is not known.",
        ),
    ],
)
def test_a_record_that_is_not_in_flight(offset: int, more: dict[str, Any], cause: Cause, first: str) -> None:
    found, lines = explained(None, offset, **more)
    assert (found, lines[0]) == (cause, first)


def test_a_stored_state_is_told_apart_from_one_in_memory() -> None:
    record = in_flight(7, 7, "Available", 2)
    cause, lines = explained(record, is_loaded=False, next_offset=None)
    assert cause is Cause.RECORD_AVAILABLE
    assert lines[1] == (
        "That is the stored state: the leader has not loaded the share partition, so nothing is locked."
    )
