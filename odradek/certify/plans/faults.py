"""The faults, the moments at which each applies, and the rule with which the broker injects it.

A fault is injected by a rule (docs/faults.md). For some faults the rule only holds the request or its response, while the
certifier acts on the job's processes, the clock or the cluster (`Act`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.certify.plans import at_services
from odradek.certify.plans.moments import READS, Moment


class Act(Enum):
    """The certifier's action when the rule of a fault has been hit."""

    NOTHING = ""
    KILL = "SIGKILL for the instance that sent the request"
    KILL_ALL = "SIGKILL for all instances"
    FREEZE = "SIGSTOP for the instance until another one has taken over, then SIGCONT"
    ADD_INSTANCE = "one more instance starts"
    REMOVE_INSTANCE = "SIGTERM for one instance"
    SECOND_COPY = "the same instance is started a second time"
    START_NODE = "the node that was killed starts again"
    MOVE = "another node leads the partition, or coordinates the id or the group"
    CUT = "the links of the node to all others are cut, and come back"
    TIME_OUT_TRANSACTION = "the clock of transactions is advanced past the transaction timeout"
    TIME_OUT_SESSION = "the clock of groups is advanced past the members' session timeout"
    EXPIRE_LOCKS = "the clock of groups is advanced past the duration of record locks"
    DELAY_RECORDS = (
        "SIGSTOP for the instance until the locks of the fetched records have run out, then SIGCONT"
    )
    ABORT_INPUT = "a transaction writes to the input and aborts"
    EXPIRE_IDS = "the clock of transactional ids is advanced past their expiration"


class Reach(Enum):
    """A part of the system that the certifier must control for a fault: requests, the job's processes, or the broker."""

    CALL = "call"
    """A rule on requests, which works in front of any cluster, through the proxy."""
    JOB = "job"
    """The job's processes, which the certifier starts, ends and freezes."""
    BROKER = "broker"
    """Nodes, points inside the broker, or the broker's clock."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault that the certifier can inject."""

    name: str
    sentence: str
    action: str
    """Action of the rule. ``{code}`` is replaced by an error code that fits the API (`CODES`)."""
    act: Act = Act.NOTHING
    reach: Reach = Reach.CALL
    min_nodes: int = 1
    is_slow: bool = False
    """Whether the fault lasts until the client's own timeout. Such faults are tried last."""
    is_between: bool = False
    """Whether the fault happens `Injection.delay_ms` after the response, in the job's code between two requests."""


RETRIABLE: Final = {
    "Produce": "NOT_LEADER_OR_FOLLOWER",
    "Fetch": "NOT_LEADER_OR_FOLLOWER",
    "ListOffsets": "NOT_LEADER_OR_FOLLOWER",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
    "InitProducerId": "CONCURRENT_TRANSACTIONS",
    "AddPartitionsToTxn": "CONCURRENT_TRANSACTIONS",
    "AddOffsetsToTxn": "COORDINATOR_LOAD_IN_PROGRESS",
    "TxnOffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "EndTxn": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetFetch": "COORDINATOR_LOAD_IN_PROGRESS",
    "JoinGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "SyncGroup": "REBALANCE_IN_PROGRESS",
    "Heartbeat": "REBALANCE_IN_PROGRESS",
    "ConsumerGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ShareGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ShareFetch": "SHARE_SESSION_NOT_FOUND",
    "ShareAcknowledge": "SHARE_SESSION_NOT_FOUND",
}
"""Errors that clients also get in a healthy cluster, while leaders and coordinators move."""
ABORTABLE: Final = {
    "Produce": "TOPIC_AUTHORIZATION_FAILED",
    "AddPartitionsToTxn": "TOPIC_AUTHORIZATION_FAILED",
    "AddOffsetsToTxn": "GROUP_AUTHORIZATION_FAILED",
    "TxnOffsetCommit": "ILLEGAL_GENERATION",
}
"""Errors after which a transactional producer must abort, and may then continue."""
FATAL: Final = {
    "Produce": "INVALID_PRODUCER_EPOCH",
    "InitProducerId": "PRODUCER_FENCED",
    "AddPartitionsToTxn": "PRODUCER_FENCED",
    "AddOffsetsToTxn": "PRODUCER_FENCED",
    "TxnOffsetCommit": "INVALID_PRODUCER_EPOCH",
    "EndTxn": "PRODUCER_FENCED",
    "OffsetCommit": "UNKNOWN_MEMBER_ID",
    "SyncGroup": "UNKNOWN_MEMBER_ID",
    "Heartbeat": "UNKNOWN_MEMBER_ID",
    "ConsumerGroupHeartbeat": "UNKNOWN_MEMBER_ID",
    "ShareGroupHeartbeat": "UNKNOWN_MEMBER_ID",
}
"""Errors that mean that the producer is fenced, or that the member has lost its partitions."""
CODES: Final = {"retriable-error": RETRIABLE, "abortable-error": ABORTABLE, "fatal-error": FATAL}

WRITES: Final = frozenset(
    {
        *("Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"),
        *("EndTxn", "OffsetCommit", "ShareAcknowledge"),
    }
)
"""APIs that change logs, offsets or transactions. ShareFetch is one if it delivers or acknowledges records (`_writes`)."""
_LATE: Final = frozenset({"Produce", "EndTxn", "TxnOffsetCommit", "OffsetCommit", "AddPartitionsToTxn"})
IN_TRANSACTION: Final = frozenset(
    {"Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
)
"""APIs sent within a transaction."""
_OF_GROUP: Final = frozenset(
    {*("TxnOffsetCommit", "OffsetCommit", "EndTxn", "Heartbeat", "Produce"), "ShareGroupHeartbeat"}
)

FAULTS: Final = (
    Fault("lose-answer", "the broker handles the request, and its response is lost", "lose-answer"),
    Fault(
        "abort-input",
        "a transaction of another producer writes to the input and aborts",
        "hold",
        Act.ABORT_INPUT,
        Reach.BROKER,
    ),
    Fault("lose-request", "the request is lost, and the connection with it", "lose-request"),
    Fault(
        "kill-before",
        "the instance is killed before the broker handles the request",
        "lose-request silent",
        Act.KILL,
        Reach.JOB,
    ),
    Fault(
        "kill-after",
        "the instance is killed after the broker has handled the request, before the response",
        "lose-answer silent",
        Act.KILL,
        Reach.JOB,
    ),
    Fault(
        "abortable-error", "the broker rejects the request: the transaction must be aborted", "error {code}"
    ),
    Fault("fatal-error", "the broker rejects the request: the producer is fenced", "error {code}"),
    Fault("retriable-error", "the broker rejects the request with a retriable error", "error {code}"),
    Fault(
        "freeze",
        "the instance is frozen past its timeouts while another one takes over, then thawed",
        "hold",
        Act.FREEZE,
        Reach.JOB,
    ),
    Fault(
        "time-out-transaction",
        "the transaction times out before the broker handles the request",
        "hold",
        Act.TIME_OUT_TRANSACTION,
        Reach.BROKER,
    ),
    Fault(
        "time-out-session",
        "the members' sessions time out before the broker handles the request",
        "hold",
        Act.TIME_OUT_SESSION,
        Reach.BROKER,
    ),
    Fault(
        "expire-locks",
        "the locks of the records run out before the broker handles their acknowledgement",
        "hold",
        Act.EXPIRE_LOCKS,
        Reach.BROKER,
    ),
    Fault(
        "late-records",
        "the response with the records arrives after their locks have run out",
        "hold",
        Act.DELAY_RECORDS,
        Reach.BROKER,
    ),
    Fault(
        "add-instance",
        "one more instance joins before the broker handles the request",
        "hold",
        Act.ADD_INSTANCE,
        Reach.JOB,
    ),
    Fault(
        "second-copy",
        "the same instance is started a second time by mistake",
        "hold",
        Act.SECOND_COPY,
        Reach.JOB,
    ),
    Fault(
        "kill-between",
        "the instance is killed shortly after the response, between two requests",
        "hold",
        Act.KILL,
        Reach.JOB,
        is_between=True,
    ),
    Fault(
        "freeze-between",
        "the instance is frozen shortly after the response, past its timeouts, then thawed",
        "hold",
        Act.FREEZE,
        Reach.JOB,
        is_between=True,
    ),
    Fault("kill-all", "all instances are killed at once", "lose-answer silent", Act.KILL_ALL, Reach.JOB),
    Fault(
        "remove-instance",
        "the instance is asked to end (SIGTERM) before the broker handles the request",
        "hold",
        Act.REMOVE_INSTANCE,
        Reach.JOB,
    ),
    Fault("reset", "the connection is reset before the broker handles the request", "drop"),
    Fault("duplicate", "the broker handles the request twice", "duplicate"),
    Fault("late", "the request arrives after a later one; the client considers it lost", "reorder"),
    Fault(
        "kill-node",
        "the node is killed before it handles the request, and is started again",
        "kill",
        Act.START_NODE,
        Reach.BROKER,
    ),
    Fault(
        "move",
        "the partition or coordinator is moved to another node before the request",
        "hold",
        Act.MOVE,
        Reach.BROKER,
        min_nodes=2,
    ),
    Fault(
        "cut-links",
        "the node is cut off from all other nodes while it handles the request, and for one second",
        "hold",
        Act.CUT,
        Reach.BROKER,
        min_nodes=2,
    ),
    Fault("expire-ids", "transactional ids expire before the request", "hold", Act.EXPIRE_IDS, Reach.BROKER),
    Fault(
        "serialization-failure",
        "PostgreSQL rejects the statement: could not serialize access (SQLSTATE 40001)",
        "error 40001",
    ),
    Fault("deadlock", "PostgreSQL rejects the statement: deadlock detected (SQLSTATE 40P01)", "error 40P01"),
    Fault(
        "admin-shutdown",
        "PostgreSQL ends the session instead of executing the statement (SQLSTATE 57P01)",
        "error 57P01",
    ),
    Fault("too-many-requests", "the service rejects the request: 429 with Retry-After", "error 429"),
    Fault("server-error", "the service rejects the request: 500", "error 500"),
    Fault("unavailable", "the service rejects the request: 503 with Retry-After", "error 503"),
    Fault(
        "late-answer",
        "the service handles the request, and its response comes late, or after the client has given up",
        "late-answer",
    ),
    Fault(
        "restart-service",
        "the service restarts before the request: it ends all sessions, and refuses connections for a moment",
        "restart",
    ),
    Fault(
        "empty-pool",
        "all connections of the job to the service are closed before the request",
        "close-all",
    ),
    Fault(
        "silent-answer",
        "the response never arrives, and the connection stays open",
        "lose-answer silent",
        is_slow=True,
    ),
    Fault(
        "silent-request",
        "the request is lost, and the connection stays open",
        "lose-request silent",
        is_slow=True,
    ),
)
AT_SERVICES: Final = frozenset(
    {
        *("serialization-failure", "deadlock", "admin-shutdown", "too-many-requests", "server-error"),
        *("unavailable", "late-answer", "restart-service", "empty-pool"),
    }
)
"""Names of the faults that only services besides Kafka have."""
BY_NAME: Final = {each.name: each for each in FAULTS}
DELAYS_MS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""Delays after a response, of which a fault between two requests gets a random one.

Most are short, because the code that handles the response runs then.
"""


_WAITED_FOR: Final = WRITES | {"OffsetFetch"}
"""Requests to which the response may be lost: clients wait for it only until their request timeout.

For JoinGroup and SyncGroup clients wait as long as a rebalance may take: at least max.poll.interval.ms, five
minutes by default.
"""
_WHERE: Final[Mapping[str, Collection[str]]] = {
    **CODES,
    "duplicate": WRITES,
    "late": _LATE,
    "silent-answer": _WAITED_FOR,
    "silent-request": _WAITED_FOR,
}
_OF_INSTANCES: Final = (Act.FREEZE, Act.ADD_INSTANCE, Act.SECOND_COPY, Act.REMOVE_INSTANCE, Act.KILL_ALL)
_OF_MEMBERS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"})


def applies(fault: Fault, moment: Moment, nodes: int = 1) -> bool:
    """Whether the fault is meaningful at this moment, in a cluster with this many nodes."""
    if nodes < fault.min_nodes:
        return False
    if moment.service:
        return at_services.applies(fault.name, moment.on, moment.phase)
    if fault.name in AT_SERVICES:
        return False
    if moment.is_step:
        return fault.act is Act.START_NODE
    if _is_of_transactions(fault, moment) and not _is_transactional(moment):
        return False
    if moment.on == "ShareFetch" and moment.phase == "nothing":
        return False
    if fault.name in _WHERE:
        return moment.on in _WHERE[fault.name]
    if fault.is_between:
        return _writes(moment) or (moment.on == "Fetch" and moment.phase == "records")
    return _applies_by_act(fault, moment)


def _writes(moment: Moment) -> bool:
    """Whether the request changes logs, offsets, transactions, or the state of a share group's records."""
    return moment.on in WRITES or moment.on == "ShareFetch"


def _applies_by_act(fault: Fault, moment: Moment) -> bool:
    match fault.act:
        case Act.TIME_OUT_TRANSACTION:
            # The request that opens a transaction has no transaction that could time out.
            return moment.on in IN_TRANSACTION and moment.phase != "opens"
        case Act.TIME_OUT_SESSION:
            return moment.on in _OF_GROUP
        case Act.ABORT_INPUT:
            return moment.on in ("Fetch", "ShareFetch") and moment.phase in ("records", "acknowledges")
        case Act.EXPIRE_LOCKS:
            return moment.on == "ShareAcknowledge" or moment.phase == "acknowledges"
        case Act.DELAY_RECORDS:
            return moment.on == "ShareFetch"
        case Act.EXPIRE_IDS:
            return moment.on in ("InitProducerId", "AddPartitionsToTxn")
    if fault.act is Act.MOVE and moment.on == "ShareGroupHeartbeat":
        return True
    if fault.act in _OF_INSTANCES or fault.act in (Act.MOVE, Act.CUT):
        return _writes(moment)
    return moment.on not in READS or fault.name in ("lose-answer", "kill-before")


def _is_of_transactions(fault: Fault, moment: Moment) -> bool:
    """Whether the fault needs a transactional id.

    A producer without one is never fenced, and has no transaction that could time out.
    """
    is_fenced = fault.name == "fatal-error" and moment.on in WRITES - {"OffsetCommit"}
    return is_fenced or fault.act in (Act.TIME_OUT_TRANSACTION, Act.EXPIRE_IDS)


def _is_transactional(moment: Moment) -> bool:
    return "transactional_id" in dict(moment.matchers)


def rule(fault: Fault, moment: Moment) -> str:
    """The text of the fault rule that injects the fault at the request or step ``moment``."""
    return _rule(moment, moment.ordinal, _action(fault, moment))


_SENT_BY_NODES_TOO: Final = frozenset({"AddPartitionsToTxn"})
"""APIs of moments that brokers send too: AddPartitionsToTxn, to verify a transaction (KIP-890)."""


def holding_rule(moment: Moment) -> str:
    """The text of the fault rule that holds the request or step ``moment`` before a fault is injected."""
    return _rule(moment, moment.ordinal, "hold")


def striking_rule(fault: Fault, moment: Moment) -> str:
    """The text of the fault rule that injects the fault at the request or step that `holding_rule` holds."""
    return _rule(moment, 1, _action(fault, moment))


def _action(fault: Fault, moment: Moment) -> str:
    code = CODES.get(fault.name, {}).get(moment.on, "")
    if code == "CONCURRENT_TRANSACTIONS" and not _is_transactional(moment):
        code = "COORDINATOR_LOAD_IN_PROGRESS"  # as if the broker had no block of producer ids yet
    return "kill" if moment.is_step else fault.action.format(code=code)


def _rule(moment: Moment, ordinal: int, action: str) -> str:
    where = " ".join(
        f'"{name}={value}"' if " " in value else f"{name}={value}" for name, value in moment.matchers
    )
    sender = "sender=client" if moment.on in _SENT_BY_NODES_TOO else ""
    return " ".join(filter(None, [moment.on, where, sender, f"nth={ordinal}", "->", action]))


def applicable(moment: Moment, nodes: int, reaches: Iterable[Reach] = tuple(Reach)) -> list[Fault]:
    """The faults that are meaningful at a moment, in the order in which they are tried."""
    return [each for each in FAULTS if each.reach in reaches and applies(each, moment, nodes)]


def pointless(moments: Iterable[Moment]) -> frozenset[str]:
    """Names of faults without effect on a job with these moments.

    For example, without a group member no session can time out.
    """
    is_member = any(each.on in _OF_MEMBERS for each in moments)
    return frozenset() if is_member else frozenset({"time-out-session"})
