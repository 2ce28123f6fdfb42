"""The explanation of a whole cluster: all problems, the worst first. Also rules that hold for every explanation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.share.partition import Ending
from lab.explain.cluster import explain_cluster, explain_topic, folded
from lab.explain.explanation import Cause, Explanation
from lab.explain.facts import (
    ClusterContext,
    ClusterFacts,
    InFlightFacts,
    PartitionFacts,
    ShareSettingsFacts,
    Tail,
)
from lab.explain.groups import explain_group
from lab.explain.ids import explain_id
from lab.explain.partitions import explain_partition
from lab.explain.share_records import explain_record
from lab.explain.trouble import TRACE_IS_OFF
from tests.lab.explain.staged import (
    around,
    at,
    decided,
    foreign,
    held,
    in_flight,
    in_log,
    member,
    nodes,
    of_group,
    of_id,
    of_share_group,
    offset,
    refusal,
    share_partition,
    throttle,
    txn,
)


def cluster(*partitions: PartitionFacts, **more: Any) -> ClusterFacts:
    return ClusterFacts(**{"partitions": partitions, "transactions": (), "groups": ()} | more)


def subjects(found: list[Explanation]) -> list[tuple[str, Cause]]:
    return [(each.subject, each.cause) for each in found]


def test_the_worst_comes_first_and_each_is_told_once() -> None:
    context = around(
        "Fetch -> hold",
        nodes=nodes(n2="killed"),
        held=(held("Fetch"), held("Fetch")),
        refusals=(refusal("EndTxn", "INVALID_TXN_STATE", transactional_id="etl-9"),),
        throttles=(throttle(),),
    )
    facts = cluster(
        at(in_log(txn())),
        at(index=1, leader=None, isr=(2,)),
        at(index=2),
        transactions=(txn(), txn(transactional_id="etl-2", producer_id=6, partitions=())),
        groups=(
            of_group(state="PreparingRebalance"),
            of_group(offset(), group="writers", members=(member(client_id="app-2"),)),
        ),
    )
    assert subjects(explain_cluster(facts, context)) == [
        ("node 2", Cause.NODE_AWAY),
        ("orders-1", Cause.NO_LEADER),
        ("rule 1", Cause.REQUEST_HELD),
        ("group readers", Cause.GROUP_REBALANCING),
        ("orders-0", Cause.OPEN_TRANSACTION),
        ("transactional id etl-2", Cause.OPEN_TRANSACTION),
        ("transactional id etl-9", Cause.REFUSED_END_TXN),
        ("client app-1", Cause.THROTTLED),
    ]


def test_transactions_as_there_are_hundreds_under_load_are_not_wrong() -> None:
    young = (at(in_log(txn(open_ms=30))), at(in_log(decided(30, partitions=("orders-1",))), index=1))
    others = (txn(transactional_id="etl-2", open_ms=199), decided(5, transactional_id="etl-3", partitions=()))
    assert subjects(explain_cluster(cluster(*young, transactions=others), around())) == [
        ("the cluster", Cause.NOTHING)
    ]
    old = at(in_log(decided(900)))
    assert subjects(explain_cluster(cluster(old), around())) == [("orders-0", Cause.MARKER_ON_THE_WAY)]


def test_nothing_is_wrong() -> None:
    [found] = explain_cluster(cluster(at()), around())
    assert found.cause is Cause.NOTHING
    assert found.lines == (
        "Nothing is wrong: all 3 nodes run, and no partition, transaction or group waits for anything.",
        "The lag of a group is not looked at here: odradek explain --group GROUP",
    )
    assert TRACE_IS_OFF in explain_cluster(cluster(at()), around(trace_runs=False))[0].lines


def test_a_rule_that_has_hit_is_told_where_nothing_else_names_it() -> None:
    rule = "FindCoordinator transactional_id=pay* -> error COORDINATOR_NOT_AVAILABLE"
    [found] = explain_cluster(cluster(), around(rule, hits=25, trace_runs=False))
    assert (found.subject, found.cause) == ("rule 1", Cause.ACTIVE_RULE)
    assert found.lines == (
        f"Rule 1 ({rule}) exists, and has hit 25 times.",
        "Remove the rule: odradek fault clear 1",
    )
    refused = refusal("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", rule=1, transactional_id="pay-1")
    assert subjects(explain_cluster(cluster(), around(rule, refusals=(refused,)))) == [
        ("transactional id pay-1", Cause.REFUSED_REQUEST)
    ]
    [nothing] = explain_cluster(cluster(), around(rule, hits=0, nodes={1: "running"}))
    assert nothing.lines == (
        "Nothing is wrong: its node runs, and no partition, transaction or group waits for anything.",
        f"1 fault rule is there: rule 1 ({rule}).",
        "The lag of a group is not looked at here: odradek explain --group GROUP",
    )
    line = f"Rule 1 ({rule}) exists, and has hit 25 times."
    places = [at(index=index) for index in range(3)]
    of_topic = explain_topic(places, around(rule, hits=25))
    assert all(line in each.lines for each in of_topic)
    [healthy] = folded("orders", of_topic)
    assert healthy.lines == ("Nothing is wrong with the 3 partitions of orders.", line)
    troubled = explain_partition(at(in_log(txn())), around(rule, hits=25))
    assert line not in troubled.lines


def test_what_was_refused_a_while_ago_comes_behind_what_is_wrong_now() -> None:
    old = refusal("Produce", "CORRUPT_MESSAGE", client_id="app-9", last_ms=120_000)
    assert subjects(explain_cluster(cluster(), around(refusals=(old,), throttles=(throttle(),)))) == [
        ("client app-1", Cause.THROTTLED),
        ("client app-9", Cause.REFUSED_BATCH),
    ]


def test_what_could_not_be_asked_is_told_once_and_last() -> None:
    found = explain_cluster(
        cluster(at(in_log(txn())), left_out=3), foreign(not_asked=("Node 2 did not respond.",))
    )
    assert [each.lines[0] for each in found[1:]] == [
        "Of the partitions, transactions, groups and clients that may be in trouble, 3 more are not shown here.",
        "Node 2 did not respond.",
    ]
    [nothing] = explain_cluster(cluster(), foreign(not_asked=("Node 2 did not respond.",)))
    assert nothing.cause is Cause.UNKNOWN


def test_partitions_with_trouble_come_first_and_healthy_ones_in_one_line() -> None:
    places = [at(index=1), at(index=2), at(in_log(txn()))]
    found = explain_topic(places, around())
    assert [each.subject for each in found] == ["orders-0", "orders-1", "orders-2"]
    assert [each.lines[0] for each in folded("orders", found)[1:]] == [
        "2 more partitions of orders: nothing is wrong."
    ]
    assert folded("orders", found[:2]) == found[:2]
    [healthy] = folded("orders", found[1:])
    assert healthy.lines == ("Nothing is wrong with the 2 partitions of orders.",)


def test_equal_troubles_of_several_partitions_are_told_in_one() -> None:
    lost = [at(index=index, leader=None, isr=(2,)) for index in range(3)]
    context = around(nodes=nodes(n2="killed"))
    [node, found] = explain_cluster(cluster(*lost), context)
    assert (node.subject, found.subject) == ("node 2", "orders-0")
    assert found.lines[-1] == "The same holds for orders-1 and orders-2."
    assert folded("orders", explain_topic(lost, context)) == [found]
    other = at(index=3, leader=None, isr=(3,))
    assert len(folded("orders", explain_topic([*lost, other], context))) == 2


def test_replicas_of_a_node_that_is_away_are_told_with_it() -> None:
    context = around(nodes=nodes(n2="killed"))
    assert subjects(explain_cluster(cluster(at(isr=(1, 3))), context)) == [("node 2", Cause.NODE_AWAY)]
    [found] = explain_cluster(cluster(at(isr=(1, 3))), around())
    assert found.cause is Cause.UNDER_REPLICATED


# -- rules for every explanation --------------------------------------------------------------------------------

TXNS = st.builds(
    txn,
    state=st.sampled_from(["Ongoing", "PrepareCommit", "PrepareAbort", "Empty", "CompleteCommit", "Dead"]),
    producer_id=st.sampled_from([5, 6]),
    open_ms=st.none() | st.integers(-(10**8), 10**8),
    decided_ms=st.none() | st.integers(0, 10**8),
    partitions=st.sampled_from([(), ("orders-0",), ("audit-0", "orders-0")]),
)
OPENS = st.lists(
    st.builds(
        in_log,
        owner=st.none() | TXNS,
        owner_is_known=st.booleans(),
        first_offset=st.integers(12, 99),
        producer_id=st.sampled_from([5, 6]),
    ),
    max_size=3,
)
OFFSETS = st.none() | st.integers(0, 20)


def place(opens: list[Any], **more: Any) -> PartitionFacts:
    return at(*sorted(opens, key=lambda each: each.first_offset), **more)


PLACES = st.builds(
    place,
    OPENS,
    leader=st.sampled_from([None, 1, 2]),
    isr=st.sampled_from([(), (1,), (1, 2, 3)]),
    log_start=OFFSETS,
    last_stable=OFFSETS,
    high_watermark=OFFSETS,
    min_isr=st.none() | st.integers(1, 3),
    advances=st.booleans(),
    tail=st.none()
    | st.builds(Tail, markers=st.integers(0, 3), aborted=st.integers(0, 3), reaches_start=st.booleans()),
)
CONTEXTS = st.builds(
    ClusterContext,
    nodes=st.sampled_from([None, nodes(), nodes(n1="paused", n2="killed")]),
    rules=st.none() | st.just(around("txn.marker -> hold", "cut 1 2").rules),
    held=st.sampled_from(
        [(), (held("txn.marker", transactional_id="etl-1"), held("Fetch", group="readers"))]
    ),
    refusals=st.sampled_from(
        [(), (refusal("Produce", "PRODUCER_FENCED", producer_id=5, partitions=("orders-0",)),)]
    ),
    not_asked=st.sampled_from([(), ("Node 2 did not respond.",)]),
)
GROUPS = st.builds(
    lambda places, **more: of_group(*(offset(each, pending=True) for each in places), **more),
    st.lists(PLACES, max_size=3),
    state=st.sampled_from(["", "Empty", "Stable", "PreparingRebalance", "Dead"]),
    members=st.sampled_from([(), (member(),), (member(has_joined=False, heartbeat_ms=None),)]),
    coordinator=st.sampled_from([None, 1]),
    coordinator_error=st.sampled_from([None, "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"]),
)
RANGES = st.builds(
    in_flight,
    st.just(5),
    st.just(7),
    st.sampled_from(["Available", "Acquired", "Acknowledged", "Archiving", "Archived"]),
    st.integers(0, 6),
    in_transition=st.booleans(),
    former_member_id=st.sampled_from(["", "a", "gone"]),
    ending=st.none() | st.sampled_from([each.value for each in Ending]),
)
SHARE_PARTITIONS = st.builds(
    lambda ranges, **more: share_partition(*ranges, **more),
    st.lists(RANGES, max_size=1),
    at=PLACES,
    coordinator=st.none() | PLACES,
    initialization=st.sampled_from([None, "initialized", "initializing", "not initialized"]),
    is_loaded=st.sampled_from([None, False, True]),
    start_offset=st.none() | st.integers(-1, 20),
).map(lambda each: each if each.is_loaded else replace(each, next_offset=None, end_offset=None))
SHARE_SETTINGS = st.none() | st.builds(
    ShareSettingsFacts, read_committed=st.booleans(), partition_max_record_locks=st.sampled_from([1, 100])
)
SHARE_GROUPS = st.builds(
    lambda partitions, settings, **more: of_share_group(*partitions, share={"settings": settings}, **more),
    st.lists(SHARE_PARTITIONS, min_size=1, max_size=2),
    SHARE_SETTINGS,
    state=st.sampled_from(["Empty", "Stable"]),
    members=st.sampled_from([(), (member(member_id="a"), member(member_id="b", assigned=()))]),
)
IDS = st.builds(of_id, st.none() | TXNS, places=st.lists(PLACES, max_size=2).map(tuple))


def check(found: Explanation, context: ClusterContext) -> None:
    """Check that the lines of an explanation are distinct, well-formed, and do not contradict each other."""
    assert found.lines
    assert len(set(found.lines)) == len(found.lines)
    text = "\n".join(found.lines)
    assert "None" not in text, text
    assert not re.search(r"  (?!Empty|Ongoing|Prepare|Complete)| ,|\.\.|: \.", text), text
    assert "nothing is wrong" not in text.lower() or found.cause in (
        Cause.NOTHING,
        Cause.ABORTED_TAIL,
        Cause.MARKERS_ONLY,
        Cause.UNKNOWN,
    )
    assert not (found.cause is Cause.NOTHING and context.not_asked)
    assert all(line in found.lines for line in context.not_asked)
    # A decided transaction has no timeout any more, so no explanation has both sentences.
    assert not ("has decided" in found.lines[0] and "times out" in found.lines[0])
    assert not ("no transaction of it is open" in text and "has an open transaction" in text)


@settings(max_examples=60)
@given(PLACES, CONTEXTS)
def test_whatever_the_facts_of_a_partition_are(at: PartitionFacts, context: ClusterContext) -> None:
    found = explain_partition(at, context)
    check(found, context)
    stops = (
        at.last_stable is not None and at.high_watermark is not None and at.last_stable < at.high_watermark
    )
    if found.cause in (Cause.OPEN_TRANSACTION, Cause.MARKER_HELD, Cause.HANGING_TRANSACTION):
        assert stops
        assert at.advances or f"stop at offset {at.last_stable}: " in found.lines[0]
    if stops and at.leader is not None and not at.advances:
        assert found.cause not in (Cause.NOTHING, Cause.EMPTY_LOG, Cause.ABORTED_TAIL, Cause.MARKERS_ONLY)
    if at.leader is None:
        assert found.cause is Cause.NO_LEADER


@settings(max_examples=60)
@given(GROUPS, CONTEXTS)
def test_whatever_the_facts_of_a_group_are(group: Any, context: ClusterContext) -> None:
    check(explain_group(group, context), context)


@settings(max_examples=100)
@given(SHARE_GROUPS, st.none() | RANGES, st.integers(0, 20), CONTEXTS)
def test_whatever_the_facts_of_a_share_group_are(
    group: Any, record: InFlightFacts | None, record_offset: int, context: ClusterContext
) -> None:
    check(explain_group(group, context), context)
    one = replace(group, share=replace(group.share, partitions=group.share.partitions[:1]))
    check(explain_record(one, record_offset, record, context), context)


@settings(max_examples=60)
@given(IDS, CONTEXTS)
def test_whatever_the_facts_of_an_id_are(facts: Any, context: ClusterContext) -> None:
    found = explain_id(facts, context)
    check(found, context)
    decided_now = facts.transaction is not None and facts.transaction.state.startswith("Prepare")
    assert not (decided_now and found.cause in (Cause.NOTHING, Cause.OPEN_TRANSACTION))


@settings(max_examples=60)
@given(st.lists(PLACES, max_size=3), st.lists(TXNS, max_size=3), st.lists(GROUPS, max_size=2), CONTEXTS)
def test_whatever_the_facts_of_a_cluster_are(
    places: list[Any], txns: list[Any], groups: list[Any], context: ClusterContext
) -> None:
    facts = cluster(*places, transactions=tuple(txns), groups=tuple(groups))
    found = explain_cluster(facts, context)
    firsts = [each.lines[0] for each in found]
    assert len(set(firsts)) == len(firsts)
