"""Facts for explanations. Each function has defaults, and a test passes only the facts that differ."""

from __future__ import annotations

from typing import Any

from lab.explain.facts import (
    ClusterContext,
    FaultRule,
    GroupFacts,
    GroupOffsetFacts,
    HeldByRule,
    IdFacts,
    InFlightFacts,
    MemberFacts,
    OpenInLog,
    PartitionFacts,
    Refusal,
    ShareFacts,
    SharePartitionFacts,
    ShareSettingsFacts,
    StateStep,
    Tail,
    Throttle,
    TransactionFacts,
)

NODES = {1: "running", 2: "running", 3: "running"}


def around(*rules: str, hits: int = 1, **more: Any) -> ClusterContext:
    """The context of three running nodes with fault rules, numbered from 1, of which each has ``hits`` hits."""
    known = tuple(
        FaultRule(rule=rule, text=text, hits=hits, spent=False) for rule, text in enumerate(rules, 1)
    )
    usual: dict[str, Any] = {"nodes": NODES, "rules": known, "trace_runs": True}
    return ClusterContext(**usual | more)


def foreign(**more: Any) -> ClusterContext:
    """The context of a cluster without a control port."""
    return ClusterContext(nodes=NODES, **more)


def nodes(**states: str) -> dict[int, str]:
    """Node id -> state, "running" except for the nodes in ``states``: ``nodes(n2="killed")``."""
    return NODES | {int(name[1:]): state for name, state in states.items()}


def held(at: str, **more: Any) -> HeldByRule:
    usual: dict[str, Any] = {"rule": 1, "at": at, "node": 1, "for_ms": 161_000}
    return HeldByRule(**usual | more)


def txn(**more: Any) -> TransactionFacts:
    usual: dict[str, Any] = {
        "transactional_id": "etl-1",
        "state": "Ongoing",
        "producer_id": 5,
        "producer_epoch": 0,
        "coordinator": 1,
        "timeout_ms": 60_000,
        "open_ms": 42_000,
        "decided_ms": None,
        "partitions": ("orders-0",),
    }
    return TransactionFacts(**usual | more)


def decided(decided_ms: int | None = 161_000, **more: Any) -> TransactionFacts:
    return txn(**{"state": "PrepareCommit", "open_ms": None, "decided_ms": decided_ms} | more)


def in_log(owner: TransactionFacts | None = None, **more: Any) -> OpenInLog:
    usual = {
        "producer_id": 5,
        "producer_epoch": 0,
        "first_offset": 12,
        "owner": owner,
        "owner_is_known": True,
    }
    return OpenInLog(**usual | more)


def at(*open_: OpenInLog, **more: Any) -> PartitionFacts:
    """Facts of orders-0 on nodes 1 to 3, with the high watermark 13. If there is an open transaction (``open_``),
    the last stable offset is 12."""
    usual: dict[str, Any] = {
        "topic": "orders",
        "index": 0,
        "leader": 1,
        "leader_epoch": 4,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "min_isr": 2,
        "log_start": 0,
        "last_stable": 12 if open_ else 13,
        "high_watermark": 13,
        "open": open_,
        "tail": Tail(markers=0, aborted=0, reaches_start=False),
    }
    return PartitionFacts(**usual | more)


def refusal(api: str, error: str, **more: Any) -> Refusal:
    usual: dict[str, Any] = {"api": api, "error": error, "count": 1, "last_ms": 12_000, "node": 1}
    return Refusal(**usual | more)


def throttle(**more: Any) -> Throttle:
    usual = {
        "client_id": "app-1",
        "principal": None,
        "api": "Produce",
        "count": 4,
        "last_ms": 3_000,
        "throttle_ms": 900,
    }
    return Throttle(**usual | more)


def step(state: str, epoch: int, time_ms: int = 1_795_000_000_000, **more: Any) -> StateStep:
    usual: dict[str, Any] = {
        "time_ms": time_ms,
        "state": state,
        "producer_id": 5,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "start_ms": -1,
        "partitions": (),
        "version_2": False,
    }
    return StateStep(**usual | more)


def of_id(transaction: TransactionFacts | None = None, **more: Any) -> IdFacts:
    usual: dict[str, Any] = {
        "transactional_id": "etl-1",
        "state_partition": "__transaction_state-12",
        "coordinator": 1,
        "transaction": transaction,
        "history": (),
    }
    return IdFacts(**usual | more)


def member(**more: Any) -> MemberFacts:
    usual: dict[str, Any] = {
        "member_id": "app-1-7f3c",
        "client_id": "app-1",
        "host": "/127.0.0.1",
        "assigned": ("orders-0",),
        "heartbeat_ms": 1_200,
        "session_timeout_ms": 45_000,
        "fetch_ms": 200,
    }
    return MemberFacts(**usual | more)


def offset(place: PartitionFacts | None = None, committed: int | None = 13, **more: Any) -> GroupOffsetFacts:
    usual = {"at": place or at(), "committed": committed, "pending": False, "pending_of": None}
    counts = {"records": 0, "aborted": 0, "markers": 0}
    return GroupOffsetFacts(**usual | counts | more)


def of_group(*offsets: GroupOffsetFacts, **more: Any) -> GroupFacts:
    usual: dict[str, Any] = {
        "group": "readers",
        "offsets_partition": "__consumer_offsets-7",
        "coordinator": 1,
        "type": "classic",
        "state": "Stable",
        "members": (member(),),
        "offsets": offsets,
    }
    return GroupFacts(**usual | more)


def in_flight(first: int, last: int, state: str = "Acquired", count: int = 1, **more: Any) -> InFlightFacts:
    """Records in flight: if acquired, by member b, whose lock has 12 s left."""
    usual: dict[str, Any] = {
        "first_offset": first,
        "last_offset": last,
        "state": state,
        "delivery_count": count,
    }
    if state == "Acquired":
        usual |= {"member_id": "b", "lock_ms": 12_000}
    return InFlightFacts(**usual | more)


def share_partition(*ranges: InFlightFacts, **more: Any) -> SharePartitionFacts:
    """Facts of orders-0 of a share group, as its leader has it in memory: from offset 5 to the high watermark 13."""
    counts: dict[str, int] = {}
    for each in ranges:
        counts[each.state] = counts.get(each.state, 0) + each.last_offset - each.first_offset + 1
    end = max((each.last_offset for each in ranges), default=5)
    usual: dict[str, Any] = {
        "at": at(),
        "initialization": "initialized",
        "is_loaded": True,
        "start_offset": 5,
        "end_offset": end,
        "delivery_complete_count": 0,
        "next_offset": end + bool(ranges),
        "records": counts,
        "in_flight": ranges,
        "coordinator": at(topic="__share_group_state", index=3),
    }
    return SharePartitionFacts(**usual | more)


def of_share_group(
    *partitions: SharePartitionFacts, share: dict[str, Any] | None = None, **more: Any
) -> GroupFacts:
    """Facts of a share group with the members a and b."""
    settings = ShareSettingsFacts(dead_letter_topic="dlq.readers")
    usual: dict[str, Any] = {"settings": settings, "partitions": partitions}
    facts = ShareFacts(**usual | (share or {}))
    members = (member(member_id="a"), member(member_id="b"))
    return of_group(**{"type": "share", "members": members, "share": facts} | more)
