"""Explanations of a transactional id: tables with facts and the expected first line, one row for each cause."""

from __future__ import annotations

import pytest

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, IdFacts
from lab.explain.ids import explain_id
from lab.explain.partitions import explain_partition
from lab.explain.trouble import TRACE_IS_OFF
from tests.lab.explain.staged import (
    around,
    at,
    decided,
    foreign,
    held,
    in_log,
    nodes,
    of_id,
    refusal,
    step,
    txn,
)

ENDED = txn(state="CompleteCommit", open_ms=None, partitions=())
HOME = at(topic="__transaction_state", index=12, leader=None, isr=(2,))
STATE = "etl-1 is CompleteCommit at its coordinator, node 1: producer 5 epoch 0."
FENCED = (step("Empty", 0), step("Ongoing", 0), step("Empty", 1))

ROWS: dict[str, tuple[IdFacts, ClusterContext, Cause, str, str]] = {
    "no coordinator": (
        of_id(coordinator=None, home=HOME),
        around(nodes=nodes(n2="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: __transaction_state-12 has no leader: of its ISR, node 2 "
        "is killed.",
        "odradek node start 2",
    ),
    "no coordinator, its home unread": (
        of_id(coordinator=None),
        around(nodes=nodes(n2="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: __transaction_state-12 has no leader (node 2 is killed).",
        "odradek node start 2",
    ),
    "FindCoordinator is refused": (
        of_id(coordinator_error="COORDINATOR_NOT_AVAILABLE"),
        foreign(),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: node 1, which leads __transaction_state-12, returns "
        "COORDINATOR_NOT_AVAILABLE.",
        "",
    ),
    "a rule answers for another id": (
        of_id(coordinator_error="COORDINATOR_NOT_AVAILABLE"),
        around("FindCoordinator transactional_id=other -> error COORDINATOR_NOT_AVAILABLE"),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: node 1, which leads __transaction_state-12, returns "
        "COORDINATOR_NOT_AVAILABLE.",
        "",
    ),
    "loading by a rule": (
        of_id(coordinator_error="COORDINATOR_LOAD_IN_PROGRESS"),
        around("InitProducerId -> error COORDINATOR_LOAD_IN_PROGRESS"),
        Cause.COORDINATOR_LOADING,
        "Rule 1 (InitProducerId -> error COORDINATOR_LOAD_IN_PROGRESS) responds to InitProducerId for etl-1 with "
        "COORDINATOR_LOAD_IN_PROGRESS.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a rule answers to its clients": (
        of_id(ENDED),
        around("Find* transactional_id=etl-* -> error COORDINATOR_NOT_AVAILABLE"),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: rule 1 (Find* transactional_id=etl-* -> error "
        "COORDINATOR_NOT_AVAILABLE) responds to Find* with COORDINATOR_NOT_AVAILABLE.",
        "Remove the rule: odradek fault clear 1",
    ),
    "a rule answers to clients of groups": (
        of_id(ENDED),
        around("JoinGroup -> error COORDINATOR_NOT_AVAILABLE"),
        Cause.NOTHING,
        "Nothing is wrong with etl-1 (producer 5 epoch 0): it is CompleteCommit, and no transaction of it is open.",
        STATE,
    ),
    "unknown": (
        of_id(),
        foreign(),
        Cause.UNKNOWN_ID,
        "No coordinator knows etl-1: no producer has used this id, or it has expired.",
        "",
    ),
    "misspelt": (
        of_id(near="etl-2"),
        foreign(),
        Cause.UNKNOWN_ID,
        "No coordinator knows etl-1: no producer has used this id, or it has expired; did you mean etl-2?",
        "",
    ),
    "its first request is held": (
        of_id(),
        around("InitProducerId -> hold", held=(held("InitProducerId", transactional_id="etl-1"),)),
        Cause.REQUEST_HELD,
        "Rule 1 (InitProducerId -> hold) holds InitProducerId of etl-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "the log has a marker that was written by hand": (
        of_id(decided(), places=(at(),)),
        around(),
        Cause.MARKER_ON_THE_WAY,
        "etl-1 has no open transaction in orders-0, and holds no reader there; its coordinator, node 1, has not heard of "
        "a marker there, 2 min 41 s after its decision.",
        "Until it has, etl-1 begins no other transaction (CONCURRENT_TRANSACTIONS).",
    ),
    "an EndTxn of an old epoch": (
        of_id(ENDED),
        around(refusals=(refusal("EndTxn", "INVALID_PRODUCER_EPOCH", transactional_id="etl-1"),)),
        Cause.REFUSED_END_TXN,
        "Refused EndTxn of etl-1: INVALID_PRODUCER_EPOCH, 12.0 s ago on node 1 (the request has an older epoch than the "
        "coordinator has given: the producer is fenced).",
        STATE,
    ),
    "refused two minutes ago, and a transaction is open": (
        of_id(txn()),
        around(refusals=(refusal("EndTxn", "INVALID_TXN_STATE", transactional_id="etl-1", last_ms=120_000),)),
        Cause.OPEN_TRANSACTION,
        "etl-1 (producer 5 epoch 0) has an open transaction, for 42.0 s; it times out in 18.0 s.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "expired": (
        of_id(history=(step("Empty", 0), step("CompleteCommit", 0))),
        foreign(),
        Cause.UNKNOWN_ID,
        "The coordinator does not know etl-1 any more: it has expired. Its last state is CompleteCommit.",
        "2026-11-18T11:06:40.000Z  Empty  producer 5 epoch 0",
    ),
    "the log of its coordinator is offline": (
        of_id(
            coordinator_error="NOT_COORDINATOR",
            home=at(topic="__transaction_state", index=12, offline="full"),
        ),
        around(),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1 is not available: __transaction_state-12 is offline, the files of node 1 cannot be used: "
        "full.",
        "When its disk can be written again, start the node again: odradek node stop 1; odradek node start 1",
    ),
    "its coordinator waits for a replica": (
        of_id(txn(), home=at(topic="__transaction_state", index=12)),
        around(nodes=nodes(n2="paused")),
        Cause.REPLICA_AWAY,
        "The coordinator of etl-1, node 1, waits with each state that it writes: writes with acks=all to "
        "__transaction_state-12 wait: node 2, in its ISR, is paused.",
        "odradek node resume 2",
    ),
    "its coordinator cannot write": (
        of_id(txn(), home=at(topic="__transaction_state", index=12, isr=(1,))),
        around(nodes=nodes(n2="killed", n3="killed")),
        Cause.COORDINATOR_NOT_AVAILABLE,
        "The coordinator of etl-1, node 1, cannot write its state: writes with acks=all to __transaction_state-12 are "
        "refused (NOT_ENOUGH_REPLICAS): its ISR is node 1, min.insync.replicas is 2, and node 2 is killed and node 3 is "
        "killed.",
        "odradek node start 2",
    ),
    "a rule refuses what clients send again": (
        of_id(ENDED),
        around(
            "EndTxn -> error CONCURRENT_TRANSACTIONS",
            refusals=(refusal("EndTxn", "CONCURRENT_TRANSACTIONS", rule=1, transactional_id="etl-1"),),
        ),
        Cause.REFUSED_END_TXN,
        "Refused EndTxn of etl-1: CONCURRENT_TRANSACTIONS, 12.0 s ago on node 1: rule 1 (EndTxn -> error "
        "CONCURRENT_TRANSACTIONS) answered.",
        "Remove the rule: odradek fault clear 1",
    ),
    "open": (
        of_id(txn()),
        foreign(),
        Cause.OPEN_TRANSACTION,
        "etl-1 (producer 5 epoch 0) has an open transaction, for 42.0 s; it times out in 18.0 s.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "begins in the future": (
        of_id(txn(open_ms=-10_800_000)),
        around(),
        Cause.BEGINS_IN_THE_FUTURE,
        "etl-1 (producer 5 epoch 0) has an open transaction, which begins 3 h 0 min in the future of the "
        "coordinator's clock.",
        "The client ends it, or: odradek txn abort etl-1",
    ),
    "its EndTxn is held": (
        of_id(txn()),
        around("EndTxn -> hold", held=(held("EndTxn", transactional_id="etl-1"),)),
        Cause.REQUEST_HELD,
        "Rule 1 (EndTxn -> hold) holds EndTxn of etl-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "a held marker": (
        of_id(decided(), places=(at(in_log(decided())),)),
        around(
            "txn.marker -> hold",
            held=(held("txn.marker", transactional_id="etl-1", partitions=("orders-0",)),),
        ),
        Cause.MARKER_HELD,
        "Rule 1 (txn.marker -> hold) holds the COMMIT marker of etl-1 in orders-0 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "a marker without a leader": (
        of_id(decided(), places=(at(leader=None, isr=(2,)),)),
        around(nodes=nodes(n2="killed")),
        Cause.MARKER_LEADER_AWAY,
        "The COMMIT marker of etl-1 in orders-0 cannot be written: orders-0 has no leader (node 2 is killed).",
        "odradek node start 2",
    ),
    "a marker whose leader is paused": (
        of_id(decided(), places=(at(leader=2),)),
        around(nodes=nodes(n2="paused")),
        Cause.MARKER_LEADER_AWAY,
        "The COMMIT marker of etl-1 in orders-0 cannot be written: node 2, which leads orders-0, is paused.",
        "odradek node resume 2",
    ),
    "decided, its partitions unread": (
        of_id(decided()),
        foreign(),
        Cause.MARKER_ON_THE_WAY,
        "The COMMIT marker of etl-1 has not been written for 2 min 41 s.",
        "Only the control port of an Odradek broker knows whether a fault rule holds it: set ODRADEK_CONTROL.",
    ),
    "all markers written": (
        of_id(decided(partitions=())),
        around(),
        Cause.MARKER_ON_THE_WAY,
        "All markers of etl-1 are written, decided 2 min 41 s ago; its coordinator has yet to write CompleteCommit.",
        "Its coordinator, node 1, has decided 2 min 41 s ago (PrepareCommit, producer 5 epoch 0).",
    ),
    "the last record is held": (
        of_id(decided(partitions=())),
        around("txn.complete.append -> hold", held=(held("txn.complete.append", transactional_id="etl-1"),)),
        Cause.REQUEST_HELD,
        "Rule 1 (txn.complete.append -> hold) holds txn.complete.append of etl-1 on node 1, for 2 min 41 s.",
        "Release it: odradek fault release 1",
    ),
    "hanging": (
        of_id(ENDED, places=(at(in_log(ENDED)),)),
        foreign(),
        Cause.HANGING_TRANSACTION,
        "Readers with read_committed of orders-0 stop at offset 12: the transaction of producer 5 epoch 0 hangs: no "
        "coordinator will end it.",
        "Abort it: odradek txn abort --partition orders/0 --start-offset 12",
    ),
    "refused EndTxn": (
        of_id(ENDED),
        around(refusals=(refusal("EndTxn", "INVALID_TXN_STATE", transactional_id="etl-1", count=3),)),
        Cause.REFUSED_END_TXN,
        "Refused EndTxn of etl-1: INVALID_TXN_STATE, 3 times, the newest 12.0 s ago on node 1 (the request "
        "does not fit the "
        "state of the transaction).",
        STATE,
    ),
    "fenced by a newer producer": (
        of_id(ENDED, history=FENCED),
        around(
            refusals=(refusal("Produce", "INVALID_PRODUCER_EPOCH", producer_id=5, producer_epoch=0, count=2),)
        ),
        Cause.FENCED_PRODUCER,
        "Producer 5 epoch 0 is fenced by the InitProducerId of a newer producer.",
        "Refused Produce of producer 5 epoch 0: INVALID_PRODUCER_EPOCH, 2 times, the newest 12.0 s ago on "
        "node 1 (the batch "
        "has an older epoch than the partition has seen: the producer is fenced).",
    ),
    "fenced by its timeout": (
        of_id(
            ENDED,
            history=(
                step("Ongoing", 0, start_ms=1_795_000_000_000),
                step("PrepareAbort", 1, 1_795_000_065_000, start_ms=1_795_000_000_000),
            ),
        ),
        around(
            refusals=(
                refusal(
                    "EndTxn", "PRODUCER_FENCED", transactional_id="etl-1", producer_id=5, producer_epoch=0
                ),
            )
        ),
        Cause.REFUSED_END_TXN,
        "Producer 5 epoch 0 of etl-1 is fenced by the timeout of its transaction, which was open for 1 min 5 s.",
        "Refused EndTxn of etl-1: PRODUCER_FENCED, 12.0 s ago on node 1 (the coordinator has given a newer "
        "epoch: the producer "
        "is fenced).",
    ),
    "out of order": (
        of_id(txn()),
        around(
            refusals=(
                refusal("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER", producer_id=5, partitions=("orders-0",)),
            )
        ),
        Cause.OUT_OF_ORDER_SEQUENCE,
        "Refused Produce of producer 5 to orders-0: OUT_OF_ORDER_SEQUENCE_NUMBER, 12.0 s ago on node 1 (a "
        "sequence is missing: "
        "an earlier batch of the producer did not arrive).",
        "etl-1 (producer 5 epoch 0) has an open transaction, for 42.0 s; it times out in 18.0 s.",
    ),
    "not authorized": (
        of_id(ENDED),
        around(
            refusals=(
                refusal(
                    "InitProducerId",
                    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                    principal="User:alice",
                    transactional_id="etl-1",
                ),
            )
        ),
        Cause.NOT_AUTHORIZED,
        "User:alice is not authorized for WRITE on transactional id etl-1: InitProducerId was refused with "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 12.0 s ago.",
        "Allow it: odradek acl add User:alice --operation WRITE --transactional-id etl-1",
    ),
    "not authorized for two-phase commit": (
        of_id(ENDED),
        around(
            refusals=(
                refusal(
                    "InitProducerId",
                    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                    principal="User:alice",
                    transactional_id="etl-1",
                    two_phase_commit=True,
                ),
            )
        ),
        Cause.NOT_AUTHORIZED,
        "User:alice is not authorized for two-phase commit with transactional id etl-1: InitProducerId was refused with "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 12.0 s ago.",
        "It needs WRITE and TWO_PHASE_COMMIT on transactional id etl-1, and the broker's setting "
        "transaction.two.phase.commit.enable=true.",
    ),
    "nothing": (
        of_id(ENDED),
        around(),
        Cause.NOTHING,
        "Nothing is wrong with etl-1 (producer 5 epoch 0): it is CompleteCommit, and no transaction of it is open.",
        STATE,
    ),
    "not all was asked": (
        of_id(ENDED),
        foreign(not_asked=("Node 2 did not respond.",)),
        Cause.UNKNOWN,
        "As far as could be asked, nothing is wrong with etl-1 (producer 5 epoch 0): it is CompleteCommit.",
        STATE,
    ),
}


@pytest.mark.parametrize(("facts", "context", "cause", "first", "second"), ROWS.values(), ids=ROWS)
def test_the_first_lines(
    facts: IdFacts, context: ClusterContext, cause: Cause, first: str, second: str
) -> None:
    found = explain_id(facts, context)
    assert (found.subject, *(*found.lines, "")[:2]) == ("transactional id etl-1", first, second)
    assert found.cause is cause
    assert found.lines[len(found.lines) - len(context.not_asked) :] == context.not_asked


def test_the_history_says_which_step_fences_and_the_epoch_of_an_end_does_not() -> None:
    lines = explain_id(of_id(ENDED, history=FENCED), around()).lines
    assert lines[-1].endswith("(epoch 0 is fenced by the InitProducerId of a newer producer)")
    raised = (step("Ongoing", 0, version_2=True), step("PrepareCommit", 1, version_2=True))
    assert "fenced" not in "".join(explain_id(of_id(ENDED, history=raised), around()).lines)


def test_a_trace_that_is_off_is_told() -> None:
    assert explain_id(of_id(ENDED), around(trace_runs=False)).lines[-1] == TRACE_IS_OFF
    assert explain_partition(at(), around(trace_runs=False)).lines[-1] == TRACE_IS_OFF
    assert TRACE_IS_OFF not in explain_id(of_id(ENDED), foreign()).lines
    assert TRACE_IS_OFF not in explain_partition(at(in_log(txn())), around(trace_runs=False)).lines
