"""Explanations of a partition whose readers stop: tables with facts and the expected first line, one row for each cause."""

from __future__ import annotations

import pytest

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, PartitionFacts, Tail
from lab.explain.partitions import explain_partition
from tests.lab.explain.staged import (
    around,
    at,
    decided,
    foreign,
    held,
    in_log,
    nodes,
    refusal,
    throttle,
    txn,
)

STOP = "Readers with read_committed of orders-0 stop at offset 12: "
AWAY = nodes(n2="killed", n3="stopped")

ROWS: dict[str, tuple[PartitionFacts, ClusterContext, Cause, str, str]] = {
    "open": (
        at(in_log(txn())),
        around(),
        Cause.OPEN_TRANSACTION,
        f"{STOP}etl-1 (producer 5 epoch 0) has an open transaction, for 42.0 s; it times out in 18.0 s.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "open for longer than its timeout": (
        at(in_log(txn(open_ms=70_000))),
        around(),
        Cause.OPEN_TRANSACTION,
        f"{STOP}etl-1 (producer 5 epoch 0) has an open transaction, for 1 min 10 s, which is longer than its timeout of "
        "1 min 0 s: the coordinator aborts it at its next check.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "open with two-phase commit": (
        at(in_log(txn(open_ms=3_000_000_000, timeout_ms=2**31 - 1))),
        around(),
        Cause.OPEN_TRANSACTION,
        f"{STOP}etl-1 (producer 5 epoch 0) has an open transaction, for 833 h 20 min; it does not time out "
        "(two-phase commit).",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "begins in the future": (
        at(in_log(txn(open_ms=-10_800_000))),
        around(),
        Cause.BEGINS_IN_THE_FUTURE,
        f"{STOP}etl-1 (producer 5 epoch 0) has an open transaction, which begins 3 h 0 min in the future of the "
        "coordinator's clock.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "its EndTxn is held": (
        at(in_log(txn())),
        around("EndTxn -> hold", held=(held("EndTxn", transactional_id="etl-1", for_ms=12_000),)),
        Cause.REQUEST_HELD,
        f"{STOP}etl-1 (producer 5 epoch 0) has an open transaction, and rule 1 (EndTxn -> hold) holds EndTxn of etl-1 on "
        "node 1, for 12.0 s.",
        "Release it: odradek fault release 1",
    ),
    "marker held at the point": (
        at(in_log(decided())),
        around(
            "txn.marker -> hold",
            held=(held("txn.marker", transactional_id="etl-1", partitions=("orders-0",)),),
        ),
        Cause.MARKER_HELD,
        f"{STOP}rule 1 (txn.marker -> hold) holds the COMMIT marker of etl-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "marker held in its request": (
        at(in_log(decided(state="PrepareAbort"))),
        around("WriteTxnMarkers -> hold", held=(held("WriteTxnMarkers", node=2, partitions=("orders-0",)),)),
        Cause.MARKER_HELD,
        f"{STOP}rule 1 (WriteTxnMarkers -> hold) holds the ABORT marker of etl-1 on node 2, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "the marker of another partition is held": (
        at(in_log(decided())),
        around(
            "txn.marker -> hold",
            held=(held("txn.marker", transactional_id="etl-1", partitions=("audit-1",)),),
        ),
        Cause.MARKER_HELD,
        f"{STOP}rule 1 (txn.marker -> hold) holds the COMMIT marker of etl-1 in audit-1 on node 1, for 2 min 41 s, and "
        "that of orders-0 comes after it.",
        "Release it: odradek fault release 1",
    ),
    "a cut link": (
        at(in_log(decided(coordinator=2))),
        around("cut 1 2"),
        Cause.MARKER_HELD,
        f"{STOP}the COMMIT marker of etl-1 cannot reach node 1, which leads orders-0: rule 1 (cut 1 2) cuts the link to its "
        "coordinator, node 2.",
        "Remove the rule: odradek fault clear 1",
    ),
    "marker on the way": (
        at(in_log(decided(40))),
        around(),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 is on the way, for 40 ms.",
        "Its coordinator, node 1, has decided 40 ms ago (PrepareCommit, producer 5 epoch 0).",
    ),
    "marker not written for long": (
        at(in_log(decided())),
        around(),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 has not been written for 2 min 41 s.",
        "If it was lost, the coordinator's next start writes it again: odradek node kill 1; odradek node start 1",
    ),
    "a lost marker": (
        at(in_log(decided())),
        around("txn.marker nth=1 -> lose"),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 has not been written for 2 min 41 s: rule 1 (txn.marker nth=1 -> lose) has hit "
        "once, and may have taken it.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a marker lost a moment ago": (
        at(in_log(decided(169))),
        around("txn.marker topic=ord* -> lose"),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 has not been written for 169 ms: rule 1 (txn.marker topic=ord* -> lose) has hit "
        "once, and may have taken it.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a rule for markers of another topic": (
        at(in_log(decided(169))),
        around("txn.marker topic=audit -> lose"),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 is on the way, for 169 ms.",
        "Its coordinator, node 1, has decided 169 ms ago (PrepareCommit, producer 5 epoch 0).",
    ),
    "marker held in a request that was sent again": (
        at(in_log(decided())),
        around(
            "WriteTxnMarkers -> hold", held=(held("WriteTxnMarkers", partitions=("orders-0",), for_ms=6_200),)
        ),
        Cause.MARKER_HELD,
        f"{STOP}rule 1 (WriteTxnMarkers -> hold) holds the COMMIT marker of etl-1 on node 1, for 6.2 s this time, "
        "2 min 41 s after the decision.",
        "Release it: odradek fault release 1",
    ),
    "a held Fetch, and an open transaction": (
        at(in_log(txn())),
        around("Fetch -> hold", held=(held("Fetch", client_id="app-1", partitions=("orders-0",)),)),
        Cause.REQUEST_HELD,
        "Rule 1 (Fetch -> hold) holds Fetch of app-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "throttled by a rule": (
        at(),
        around(
            "Produce -> answer throttle_time_ms=3000",
            throttles=(throttle(partitions=("orders-0",), rule=1, count=1),),
        ),
        Cause.THROTTLED,
        "Client app-1 is throttled by rule 1 (Produce -> answer throttle_time_ms=3000): a response to Produce told it to "
        "wait 900 ms, 3.0 s ago.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a refusal of two minutes ago, and a throttle of now": (
        at(),
        around(
            refusals=(refusal("Produce", "CORRUPT_MESSAGE", partitions=("orders-0",), last_ms=120_000),),
            throttles=(throttle(partitions=("orders-0",), count=1),),
        ),
        Cause.THROTTLED,
        "Client app-1 is throttled by its quota: a response to Produce told it to wait 900 ms, 3.0 s ago.",
        "Refused Produce to orders-0: CORRUPT_MESSAGE, 2 min 0 s ago on node 1 (the CRC of the batch is wrong).",
    ),
    "the coordinator's node is dead": (
        at(in_log(owner_is_known=False)),
        around(nodes=nodes(n2="killed")),
        Cause.UNKNOWN,
        f"{STOP}producer 5 epoch 0 has records without a marker from there on.",
        "Whether a coordinator will end its transaction is not known: not every coordinator could be asked.",
    ),
    "decided, of a foreign cluster": (
        at(in_log(decided(None))),
        foreign(),
        Cause.MARKER_ON_THE_WAY,
        f"{STOP}the COMMIT marker of etl-1 is not written yet, though the transaction is decided.",
        "Only the control port of an Odradek broker knows whether a fault rule holds it: set ODRADEK_CONTROL.",
    ),
    "hanging, its producer unknown": (
        at(in_log()),
        foreign(),
        Cause.HANGING_TRANSACTION,
        f"{STOP}the transaction of producer 5 epoch 0 hangs: no coordinator will end it.",
        "Abort it: odradek txn abort --partition orders/0 --start-offset 12",
    ),
    "hanging, its id Empty": (
        at(in_log(txn(state="Empty", open_ms=None, partitions=()))),
        foreign(),
        Cause.HANGING_TRANSACTION,
        f"{STOP}the transaction of producer 5 epoch 0 hangs: no coordinator will end it.",
        "Abort it: odradek txn abort --partition orders/0 --start-offset 12",
    ),
    "hanging, its id has another transaction": (
        at(in_log(txn(partitions=("audit-0",)))),
        foreign(),
        Cause.HANGING_TRANSACTION,
        f"{STOP}the transaction of producer 5 epoch 0 hangs: no coordinator will end it.",
        "Abort it: odradek txn abort --partition orders/0 --start-offset 12",
    ),
    "open, and a coordinator was not asked": (
        at(in_log(owner_is_known=False)),
        foreign(not_asked=("Node 2 did not respond.",)),
        Cause.UNKNOWN,
        f"{STOP}producer 5 epoch 0 has records without a marker from there on.",
        "Whether a coordinator will end its transaction is not known: not every coordinator could be asked.",
    ),
    "no leader": (
        at(leader=None, isr=(2, 3), log_start=None, last_stable=None, high_watermark=None),
        around(nodes=AWAY),
        Cause.NO_LEADER,
        "orders-0 has no leader: of its ISR, node 2 is killed and node 3 is stopped.",
        "odradek node start 2",
    ),
    "no leader, but eligible leader replicas": (
        at(leader=None, isr=(), eligible=(2, 3), log_start=None, last_stable=None, high_watermark=None),
        around(nodes=AWAY),
        Cause.NO_LEADER,
        "orders-0 has no leader: of its eligible leader replicas, node 2 is killed and node 3 is stopped.",
        "odradek node start 2",
    ),
    "no leader, and only the last one may lead": (
        at(
            leader=None, isr=(), last_known_leader=(2,), log_start=None, last_stable=None, high_watermark=None
        ),
        around(nodes=AWAY),
        Cause.NO_LEADER,
        "orders-0 has no leader: it waits for its last known leader: node 2 is killed.",
        "odradek node start 2",
    ),
    "no leader, of a foreign cluster": (
        at(leader=None, isr=(2,), log_start=None, last_stable=None, high_watermark=None),
        ClusterContext(),
        Cause.NO_LEADER,
        "orders-0 has no leader: of its ISR, node 2, none leads it.",
        "Its replicas are on nodes 1, 2 and 3.",
    ),
    "its leader is paused": (
        at(log_start=None, last_stable=None, high_watermark=None),
        around(nodes=nodes(n1="paused")),
        Cause.LEADER_AWAY,
        "No client can read or write orders-0: node 1, its leader, is paused.",
        "odradek node resume 1",
    ),
    "a full disk": (
        at(offline="KAFKA_STORAGE_ERROR"),
        around("full-disk node=1"),
        Cause.OFFLINE,
        "orders-0 is offline, the files of node 1 cannot be used: KAFKA_STORAGE_ERROR.",
        "Rule 1 (full-disk node=1) fills a disk. Remove it: odradek fault clear 1",
    ),
    "a full disk of the last node in sync": (
        at(leader=None, isr=(2,), offline="KAFKA_STORAGE_ERROR"),
        around(),
        Cause.OFFLINE,
        "orders-0 is offline, the files of node 2 cannot be used: KAFKA_STORAGE_ERROR.",
        "When its disk can be written again, start the node again: odradek node stop 2; odradek node start 2",
    ),
    "below min ISR": (
        at(isr=(1,)),
        around(nodes=AWAY),
        Cause.BELOW_MIN_ISR,
        "Writes with acks=all to orders-0 are refused (NOT_ENOUGH_REPLICAS): its ISR is node 1, min.insync.replicas is 2, "
        "and node 2 is killed and node 3 is stopped.",
        "odradek node start 2",
    ),
    "a follower is paused by a rule": (
        at(isr=(1, 3)),
        around("pause node=2"),
        Cause.UNDER_REPLICATED,
        "Rule 1 (pause node=2) stops the replicas of node 2; the ISR of orders-0 is nodes 1 and 3, and its clients go on.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "a follower of this partition is paused by a rule": (
        at(isr=(1, 3)),
        around("pause node=2 topic=orders partition=0"),
        Cause.UNDER_REPLICATED,
        "Rule 1 (pause node=2 topic=orders partition=0) stops the replicas of node 2; the ISR of orders-0 is nodes 1 and 3, "
        "and its clients go on.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "a follower of another partition is paused by a rule": (
        at(isr=(1, 3)),
        around("pause node=2 topic=orders partition=1"),
        Cause.UNDER_REPLICATED,
        "Node 2 is not in sync; the ISR of orders-0 is nodes 1 and 3, and its clients go on.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "a held Fetch": (
        at(),
        around("Fetch -> hold", held=(held("Fetch", client_id="app-1", partitions=("orders-0",)),)),
        Cause.REQUEST_HELD,
        "Rule 1 (Fetch -> hold) holds Fetch of app-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "open, its coordinator paused": (
        at(in_log(txn(coordinator=2))),
        around(nodes=nodes(n2="paused")),
        Cause.OPEN_TRANSACTION,
        "Readers with read_committed of orders-0 stop at offset 12: etl-1 (producer 5 epoch 0) has an open transaction, for "
        "42.0 s; it times out in 18.0 s.",
        "Node 2, its coordinator, is paused: nothing ends the transaction before that node runs again.",
    ),
    "a follower is paused": (
        at(log_end=15),
        around(nodes=nodes(n2="paused")),
        Cause.REPLICA_AWAY,
        "Writes with acks=all to orders-0 wait: node 2, in its ISR, is paused.",
        "odradek node resume 2",
    ),
    "a follower is cut off": (
        at(),
        around("cut 1 3"),
        Cause.REPLICA_AWAY,
        "Writes with acks=all to orders-0 wait: rule 1 (cut 1 3) keeps node 3, in its ISR, from its leader.",
        "They continue once it fetches again, or has fallen out of the ISR (replica.lag.time.max.ms).",
    ),
    "nothing is committed yet": (
        at(last_stable=0, high_watermark=0, log_end=1),
        around(),
        Cause.NOTHING,
        "Nothing is wrong with orders-0: readers with read_committed read to its end, offset 0.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 0.",
    ),
    "a held write": (
        at(),
        around("log.write -> hold", held=(held("log.write", partitions=("orders-0",)),)),
        Cause.REQUEST_HELD,
        "Rule 1 (log.write -> hold) holds log.write on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "a refused commit of a group": (
        at(),
        around(
            refusals=(
                refusal("OffsetCommit", "UNKNOWN_MEMBER_ID", group="readers", partitions=("orders-0",)),
            )
        ),
        Cause.NOTHING,
        "Nothing is wrong with orders-0: readers with read_committed read to its end, offset 13.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "refused batches": (
        at(),
        around(refusals=(refusal("Produce", "MESSAGE_TOO_LARGE", count=3, partitions=("orders-0",)),)),
        Cause.REFUSED_BATCH,
        "Refused Produce to orders-0: MESSAGE_TOO_LARGE, 3 times, the newest 12.0 s ago on node 1 (the batch is larger than "
        "max.message.bytes).",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "out of order": (
        at(),
        around(
            refusals=(
                refusal(
                    "Produce",
                    "OUT_OF_ORDER_SEQUENCE_NUMBER",
                    partitions=("orders-0",),
                    producer_id=5,
                    producer_epoch=0,
                ),
            )
        ),
        Cause.OUT_OF_ORDER_SEQUENCE,
        "Refused Produce of producer 5 epoch 0 to orders-0: OUT_OF_ORDER_SEQUENCE_NUMBER, 12.0 s ago on node 1 (a sequence "
        "is missing: an earlier batch of the producer did not arrive).",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "a rule refuses": (
        at(),
        around(
            "Produce -> error NOT_LEADER_OR_FOLLOWER",
            refusals=(refusal("Produce", "MESSAGE_TOO_LARGE", rule=1, partitions=("orders-0",)),),
        ),
        Cause.REFUSED_BATCH,
        "Refused Produce to orders-0: MESSAGE_TOO_LARGE, 12.0 s ago on node 1: rule 1 (Produce -> error "
        "NOT_LEADER_OR_FOLLOWER) answered.",
        "Remove the rule: odradek fault clear 1",
    ),
    "not authorized": (
        at(),
        around(
            refusals=(
                refusal(
                    "Produce", "TOPIC_AUTHORIZATION_FAILED", principal="User:alice", partitions=("orders-0",)
                ),
            )
        ),
        Cause.NOT_AUTHORIZED,
        "User:alice is not authorized for WRITE on topic orders: Produce was refused with TOPIC_AUTHORIZATION_FAILED, "
        "12.0 s ago.",
        "Allow it: odradek acl add User:alice --operation WRITE --topic orders",
    ),
    "a producer may not write anywhere": (
        at(),
        around(
            refusals=(refusal("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", principal="User:alice"),),
        ),
        Cause.NOTHING,
        "Nothing is wrong with orders-0: readers with read_committed read to its end, offset 13.",
        "User:alice is not authorized for IDEMPOTENT_WRITE on the cluster: InitProducerId was refused with "
        "CLUSTER_AUTHORIZATION_FAILED, 12.0 s ago.",
    ),
    "not authorized to see the topic": (
        at(),
        around(refusals=(refusal("Metadata", "TOPIC_AUTHORIZATION_FAILED", topics=("orders",)),)),
        Cause.NOT_AUTHORIZED,
        "A client is not authorized for DESCRIBE on topic orders: Metadata was refused with TOPIC_AUTHORIZATION_FAILED, "
        "12.0 s ago.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "throttled": (
        at(),
        around(throttles=(throttle(partitions=("orders-0",)),)),
        Cause.THROTTLED,
        "Client app-1 is throttled by its quota: a response to Produce told it to wait 900 ms, 3.0 s ago; "
        "4 responses in all.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "empty": (
        at(last_stable=0, high_watermark=0, tail=None),
        around(),
        Cause.EMPTY_LOG,
        "orders-0 is empty: no record has been written, its log begins and ends at offset 0.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 0.",
    ),
    "all deleted": (
        at(log_start=10, last_stable=10, high_watermark=10),
        around(),
        Cause.EMPTY_LOG,
        "orders-0 is empty: its log begins and ends at offset 10, all records below were deleted.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 10 and ends at 10.",
    ),
    "aborted tail": (
        at(tail=Tail(markers=1, aborted=4, reaches_start=False)),
        around(),
        Cause.ABORTED_TAIL,
        "Nothing is wrong with orders-0, but its last 5 offsets hold no record for readers with read_committed: 4 aborted "
        "records and 1 marker.",
        "A group whose lag here is 5 or less has nothing left to read.",
    ),
    "no record at all": (
        at(tail=Tail(markers=1, aborted=12, reaches_start=True)),
        around(),
        Cause.ABORTED_TAIL,
        "Nothing is wrong with orders-0, but its log has no record for readers with read_committed: 12 aborted records and "
        "1 marker.",
        "A group whose lag here is 13 or less has nothing left to read.",
    ),
    "a marker at the end": (
        at(tail=Tail(markers=1, aborted=0, reaches_start=False)),
        around(),
        Cause.MARKERS_ONLY,
        "Nothing is wrong with orders-0: its last offset, 12, is a marker.",
        "A group whose lag here is 1 or less has nothing left to read.",
    ),
    "readers go on": (
        at(last_stable=12, advances=True),
        foreign(),
        Cause.NOTHING,
        "Nothing is wrong with orders-0: readers with read_committed go on, and the transactions before them end within "
        "moments.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "readers go on, up to a transaction that hangs": (
        at(in_log(first_offset=14), last_stable=12, high_watermark=20, advances=True),
        foreign(),
        Cause.HANGING_TRANSACTION,
        "A transaction begins at offset 14 of orders-0: the transaction of producer 5 epoch 0 hangs: no coordinator will "
        "end it.",
        "Abort it: odradek txn abort --partition orders/0 --start-offset 14",
    ),
    "nothing": (
        at(),
        around(),
        Cause.NOTHING,
        "Nothing is wrong with orders-0: readers with read_committed read to its end, offset 13.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "nothing, and not all was asked": (
        at(),
        foreign(not_asked=("Node 2 did not respond.",)),
        Cause.UNKNOWN,
        "As far as could be asked, nothing is wrong with orders-0: readers with read_committed read to its end, offset 13.",
        "Node 1 leads orders-0 in leader epoch 4; its log begins at offset 0 and ends at 13.",
    ),
    "not asked": (
        at(log_start=None, last_stable=None, high_watermark=None),
        ClusterContext(not_asked=("Node 1 did not respond.",)),
        Cause.UNKNOWN,
        "Whether readers of orders-0 stop is not known: its leader could not be asked.",
        "Node 1 leads orders-0 in leader epoch 4.",
    ),
}


@pytest.mark.parametrize(("place", "context", "cause", "first", "second"), ROWS.values(), ids=ROWS)
def test_the_first_lines(
    place: PartitionFacts, context: ClusterContext, cause: Cause, first: str, second: str
) -> None:
    found = explain_partition(place, context)
    assert (found.subject, found.lines[0], found.lines[1]) == ("orders-0", first, second)
    assert found.cause is cause
    assert found.lines[len(found.lines) - len(context.not_asked) :] == context.not_asked


def test_what_helps_where_a_marker_was_lost() -> None:
    lines = explain_partition(at(in_log(decided())), around("txn.marker -> lose")).lines
    assert lines[2:4] == (
        "If it was lost, the coordinator's next start writes it again: odradek node kill 1; odradek node start 1",
        "Or write it yourself, which the coordinator does not notice: odradek txn commit --partition orders/0 "
        "--start-offset 12",
    )
    foreign_lines = explain_partition(at(in_log(decided(state="PrepareAbort"))), foreign()).lines
    by_hand = "odradek txn abort --partition orders/0 --start-offset 12"
    assert f"Write it yourself, which the coordinator does not notice: {by_hand}" in foreign_lines
    assert not any("odradek node" in line for line in foreign_lines)


def test_a_node_that_may_be_the_coordinator_is_named() -> None:
    lines = explain_partition(at(in_log(owner_is_known=False)), around(nodes=nodes(n2="killed"))).lines
    assert lines[2:4] == ("Node 2 is killed.", "odradek node start 2")


def test_what_allows_an_idempotent_producer() -> None:
    refused = refusal("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", principal="User:alice")
    assert explain_partition(at(), around(refusals=(refused,))).lines[2] == (
        "WRITE on a topic that it writes to allows it too: odradek acl add User:alice --operation WRITE --topic orders"
    )


def test_a_rule_that_was_removed_is_not_to_be_removed() -> None:
    refused = refusal("Produce", "MESSAGE_TOO_LARGE", partitions=("orders-0",), rule=7)
    assert "fault clear" not in "".join(explain_partition(at(), around(refusals=(refused,))).lines)


def test_what_was_refused_long_ago_or_is_sent_again_is_told_and_is_no_cause() -> None:
    old = refusal("Produce", "MESSAGE_TOO_LARGE", last_ms=7_200_000, partitions=("orders-0",))
    retried = refusal("Produce", "NOT_LEADER_OR_FOLLOWER", partitions=("orders-0",))
    found = explain_partition(at(), around(refusals=(retried, old)))
    assert found.cause is Cause.NOTHING
    assert sum("Refused Produce" in line for line in found.lines) == 2


def test_what_belongs_to_others_is_not_told() -> None:
    context = around(
        "Fetch -> hold",
        held=(held("Fetch", partitions=("audit-0",)), held("txn.marker", transactional_id="etl-2")),
        refusals=(refusal("Produce", "MESSAGE_TOO_LARGE", partitions=("audit-0",)),),
        throttles=(throttle(),),
    )
    assert explain_partition(at(), context).cause is Cause.NOTHING
    assert explain_partition(at(in_log(decided())), context).cause is Cause.MARKER_ON_THE_WAY


def test_other_transactions_come_behind_the_one_that_holds_readers() -> None:
    second = in_log(txn(transactional_id="etl-2", producer_id=6), producer_id=6, first_offset=14)
    found = explain_partition(at(in_log(txn()), second, high_watermark=20), around())
    assert found.lines[2] == "Hidden from them: 8 offsets, up to the end at 20."
    assert found.lines[3].startswith(
        "Another transaction begins at offset 14: etl-2 (producer 6 epoch 0) has"
    )
    many = [in_log(txn(), first_offset=12 + each) for each in range(9)]
    lines = explain_partition(at(*many, high_watermark=40), around()).lines
    assert "orders-0 has 3 more open transactions." in lines
