"""Explains refused requests: the meaning of each error, who is denied what, who fenced a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lab.explain.explanation import Cause
from lab.explain.facts import ClusterContext, Refusal, StateStep, Throttle
from lab.explain.trouble import Trouble
from lab.explain.words import capital, duration_text, listed, producer_text, rule_text, times
from protocol.records.transaction_log import TIMEOUT_NEVER_MS

RECENT_MS: Final = 600_000
"""Age in milliseconds above which a refusal or throttle is shown, but is not the cause of the explanation."""
NOW_MS: Final = 60_000
"""Age in milliseconds above which a refusal is listed after present problems."""
MEANINGS: Final[dict[str | tuple[str, str], str]] = {
    "INVALID_PRODUCER_EPOCH": "the request has an older epoch than the coordinator has given: the producer is fenced",
    (
        "Produce",
        "INVALID_PRODUCER_EPOCH",
    ): "the batch has an older epoch than the partition has seen: the producer is fenced",
    "PRODUCER_FENCED": "the coordinator has given a newer epoch: the producer is fenced",
    "CONCURRENT_TRANSACTIONS": "the transaction before it is still being ended; the client asks again",
    "DUPLICATE_SEQUENCE_NUMBER": "the batch is older than the last five of its producer",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "a sequence is missing: an earlier batch of the producer did not arrive",
    "UNKNOWN_PRODUCER_ID": "the partition has no state of this producer any more",
    "INVALID_TXN_STATE": "the request does not fit the state of the transaction",
    "INVALID_PRODUCER_ID_MAPPING": "the transactional id belongs to another producer id, or has expired",
    "TRANSACTIONAL_ID_NOT_FOUND": "the coordinator does not know the id",
    "NOT_COORDINATOR": "another node coordinates this id; the client looks for it again",
    "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator still reads its log; the client asks again",
    "COORDINATOR_NOT_AVAILABLE": "no node can coordinate it now; the client asks again",
    "NOT_LEADER_OR_FOLLOWER": "another node leads the partition; the client asks for metadata again",
    "NOT_ENOUGH_REPLICAS": "the ISR is smaller than min.insync.replicas: nothing was written",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "the ISR became smaller than min.insync.replicas after the write",
    "MESSAGE_TOO_LARGE": "the batch is larger than max.message.bytes",
    "CORRUPT_MESSAGE": "the CRC of the batch is wrong",
    "INVALID_RECORD": "a record is not what the topic allows: no key in a compacted topic, or a wrong sequence",
    "INVALID_TIMESTAMP": "a timestamp is too far from the broker's time (message.timestamp.before.max.ms, .after.max.ms)",
    "UNSUPPORTED_COMPRESSION_TYPE": "this version of Produce does not allow the codec",
    "REQUEST_TIMED_OUT": "the followers did not have the batch in time; it may be committed all the same",
    "TRANSACTION_ABORTABLE": "the transaction can only be aborted",
    "UNSTABLE_OFFSET_COMMIT": "an open transaction has offsets of the group",
    "KAFKA_STORAGE_ERROR": "the leader cannot use the files of the partition",
    "UNKNOWN_MEMBER_ID": "the group has no such member any more: it was removed, or has left",
    "ILLEGAL_GENERATION": "the group has rebalanced since: the member's partitions may be another's now",
    "REBALANCE_IN_PROGRESS": "the group rebalances; the member joins again",
    "FENCED_INSTANCE_ID": "another member has taken this group.instance.id",
    "OFFSET_OUT_OF_RANGE": "the log does not have this offset (any more)",
}
RETRIED: Final = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "REPLICA_NOT_AVAILABLE",
        "REBALANCE_IN_PROGRESS",
        "MEMBER_ID_REQUIRED",
        "UNSTABLE_OFFSET_COMMIT",
        "NETWORK_EXCEPTION",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "REQUEST_TIMED_OUT",
    }
)
"""Errors that clients retry. They are shown, but are not the cause, unless a rule that still exists returns them."""
_FENCED: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_DENIED: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    }
)
_OPERATIONS: Final = {
    ("Produce", "TOPIC"): "WRITE",
    ("AddPartitionsToTxn", "TOPIC"): "WRITE",
    ("Fetch", "TOPIC"): "READ",
    ("OffsetCommit", "TOPIC"): "READ",
    ("TxnOffsetCommit", "TOPIC"): "READ",
    ("OffsetFetch", "TOPIC"): "DESCRIBE",
    ("Metadata", "TOPIC"): "DESCRIBE",
    ("ListOffsets", "TOPIC"): "DESCRIBE",
    ("FindCoordinator", "GROUP"): "DESCRIBE",
    ("OffsetFetch", "GROUP"): "DESCRIBE",
    ("DescribeGroups", "GROUP"): "DESCRIBE",
    ("DeleteGroups", "GROUP"): "DELETE",
    ("FindCoordinator", "TRANSACTIONAL"): "DESCRIBE",
    ("DescribeTransactions", "TRANSACTIONAL"): "DESCRIBE",
    ("InitProducerId", "CLUSTER"): "IDEMPOTENT_WRITE",
    ("Produce", "CLUSTER"): "IDEMPOTENT_WRITE",
}
SHARE_APIS: Final = ("ShareAcknowledge", "ShareFetch")
_OF_RESOURCE: Final = {"GROUP": "READ", "TRANSACTIONAL": "WRITE"}
"""By resource type: the ACL operation that APIs without an entry in ``_OPERATIONS`` need."""


def refusal_troubles(
    around: ClusterContext, refusals: Sequence[Refusal], history: Sequence[StateStep] = ()
) -> list[Trouble]:
    """One problem for each of ``refusals``, in their order. ``history`` shows what fenced a producer."""
    return [_trouble(around, each, history) for each in refusals]


def refused_elsewhere(around: ClusterContext, refusals: Sequence[Refusal], topic: str) -> Iterator[Trouble]:
    """The problem of each recently denied request that names no topic: its client may have wanted ``topic``.

    Requests that a fault rule has refused are left out.
    """
    for each in refusals:
        is_of_cluster = each.error in _DENIED and not (each.group or each.partitions or each.topics)
        if is_of_cluster and each.rule is None and each.last_ms <= RECENT_MS:
            yield Trouble(Cause.NOT_AUTHORIZED, _denied(each, topic), is_cause=False)


def _trouble(around: ClusterContext, each: Refusal, history: Sequence[StateStep]) -> Trouble:
    by_rule = any(rule.rule == each.rule for rule in around.rules or ())
    cause, is_cause = cause_of(each), (by_rule or each.error not in RETRIED) and each.last_ms <= RECENT_MS
    is_old = each.last_ms > NOW_MS
    if each.rule is not None:
        answered = f"{refused_text(each)}: {rule_text(around, each.rule)} answered."
        return Trouble(cause, (answered, *_clear(around, each.rule)), is_cause, is_old)
    if cause is Cause.NOT_AUTHORIZED:
        return Trouble(cause, _denied(each), is_cause, is_old)
    meaning = MEANINGS.get((each.api, each.error)) or MEANINGS.get(each.error)
    if meaning and each.api in SHARE_APIS:
        meaning = meaning.partition("; the client")[0]  # clients do not send acknowledgements again (KIP-932)
    refused = f"{refused_text(each)}{f' ({meaning})' if meaning else ''}."
    lines = [*_fencing(each, history), refused] if each.error in _FENCED else [refused]
    if each.api in SHARE_APIS and each.group is not None:
        lines += _of_rules(around, each, each.group)
    return Trouble(cause, tuple(lines), is_cause, is_old)


def _of_rules(around: ClusterContext, each: Refusal, group: str) -> Iterator[str]:
    """Sentences that name rules on steps of the share partitions: they may be what refused the request."""
    from lab.explain.share_rules import refusing_rules  # imported with the first share group

    rules = [rule for name in each.partitions for rule in refusing_rules(around, group, name)]
    for rule in dict.fromkeys(rules):
        hits = f"{capital(rule_text(around, rule.rule))} has hit {times(rule.hits)}"
        yield f"{hits}, and may be what refused it."
        if not rule.spent:
            yield from _clear(around, rule.rule)


def _clear(around: ClusterContext, rule: int) -> Iterator[str]:
    """The command that removes a rule; nothing if the rule has been removed."""
    if around.rules is None or any(each.rule == rule for each in around.rules):
        yield f"Remove the rule: odradek fault clear {rule}"


def cause_of(each: Refusal) -> Cause:
    if each.error in _DENIED:
        return Cause.NOT_AUTHORIZED
    if each.error == "OUT_OF_ORDER_SEQUENCE_NUMBER":
        return Cause.OUT_OF_ORDER_SEQUENCE
    if each.api == "EndTxn":
        return Cause.REFUSED_END_TXN
    if each.error in _FENCED:
        return Cause.FENCED_PRODUCER
    return Cause.REFUSED_BATCH if each.api == "Produce" else Cause.REFUSED_REQUEST


def refused_text(each: Refusal) -> str:
    """The refusal as text: ``Refused EndTxn of etl-1: PRODUCER_FENCED, 3 times, the newest 12.0 s ago on node 1``"""
    of = each.transactional_id or each.group
    if of is None and each.producer_id is not None and each.producer_id >= 0:
        of = f"producer {each.producer_id}"
        if each.producer_epoch is not None:
            of += f" epoch {each.producer_epoch}"
    of = of or each.client_id
    what = f"Refused {each.api}{f' of {of}' if of else ''}"
    if each.api == "Produce" and each.partitions:
        what += f" to {listed(each.partitions)}"
    when = f"{duration_text(each.last_ms)} ago on node {each.node}"
    return f"{what}: {each.error}, {f'{times(each.count)}, the newest ' if each.count > 1 else ''}{when}"


def _denied(each: Refusal, wanted: str | None = None) -> tuple[str, ...]:
    """Sentences that say which operation the principal is denied, and the command that allows it. ``wanted``: a topic
    that the client may have meant.
    """
    kind = each.error.split("_", 1)[0]
    operation = _OPERATIONS.get((each.api, kind), _OF_RESOURCE.get(kind))
    topics = sorted({name.rpartition("-")[0] for name in each.partitions} | set(each.topics))
    resource, option = {
        "TOPIC": (f"topic {topics[0]}", f"--topic {topics[0]}") if topics else ("a topic", ""),
        "GROUP": (f"group {each.group}", f"--group {each.group}") if each.group else ("a group", ""),
        "TRANSACTIONAL": (
            f"transactional id {each.transactional_id}",
            f"--transactional-id {each.transactional_id}",
        )
        if each.transactional_id
        else ("a transactional id", ""),
        "CLUSTER": ("the cluster", "--cluster"),
    }[kind]
    principal = each.principal or "A client"
    what = f"{operation} on {resource}" if operation else f"what {each.api} needs on {resource}"
    if each.two_phase_commit:
        what = f"two-phase commit with {resource}"
    first = (
        f"{principal} is not authorized for {what}: {each.api} was refused with {each.error}, "
        f"{f'{times(each.count)}, the newest ' if each.count > 1 else ''}{duration_text(each.last_ms)} ago."
    )
    if each.two_phase_commit:
        setting = "transaction.two.phase.commit.enable=true"
        return (
            first,
            f"It needs WRITE and TWO_PHASE_COMMIT on {resource}, and the broker's setting {setting}.",
        )
    if not (each.principal and operation and option):
        return (first,)
    allow = f"odradek acl add {each.principal} --operation"
    login = "Give the command as an administrator, with --command-config where listeners need a login."
    if operation == "IDEMPOTENT_WRITE":  # KIP-679
        of = f"--topic {wanted or 'TOPIC'}"
        return (first, f"WRITE on a topic that it writes to allows it too: {allow} WRITE {of}", login)
    included = (
        ("READ and WRITE on the topic include DESCRIBE.",) if f"{operation}{kind}" == "DESCRIBETOPIC" else ()
    )
    return (first, f"Allow it: {allow} {operation} {option}", *included, login)


# -- fencing ----------------------------------------------------------------------------------------------------


def _fencing(each: Refusal, history: Sequence[StateStep]) -> Iterator[str]:
    """A sentence that says what fenced the refused epoch, if the history shows it."""
    if each.producer_id is None or each.producer_epoch is None:
        return
    refused = (each.producer_id, each.producer_epoch)
    before: StateStep | None = None
    for step in history:
        is_newer = (step.producer_id, step.producer_epoch) > refused
        if before is not None and is_newer and (by := fence_of(step, before)):
            of = f" of {each.transactional_id}" if each.transactional_id else ""
            yield f"{capital(producer_text(*refused))}{of} is fenced {by}."
            return
        before = step


def fence_of(step: StateStep, before: StateStep) -> str:
    """Clause that says how the record ``step`` fenced the epoch of the record ``before``; empty if it did not, or if
    the records do not show how.

    With KIP-890 each end of a transaction bumps the epoch, which is not a fencing.
    """
    if step.producer_id == before.producer_id and step.producer_epoch <= before.producer_epoch:
        return ""
    if step.state == "PrepareEpochFence" or step.state == "PrepareAbort":
        opened = step.time_ms - before.start_ms
        if (
            before.start_ms >= 0
            and 0 <= before.timeout_ms <= opened
            and before.timeout_ms != TIMEOUT_NEVER_MS
        ):
            return f"by the timeout of its transaction, which was open for {duration_text(opened)}"
        return "" if before.version_2 else "by the InitProducerId of a newer producer or an administrator"
    return "by the InitProducerId of a newer producer" if step.state == "Empty" else ""


# -- throttles --------------------------------------------------------------------------------------------------


def throttle_troubles(around: ClusterContext, throttles: Iterable[Throttle]) -> list[Trouble]:
    return [_throttled(around, each) for each in throttles]


def _throttled(around: ClusterContext, each: Throttle) -> Trouble:
    by = "its quota" if each.rule is None else rule_text(around, each.rule)
    first = (
        f"Client {each.client_id}{f' ({each.principal})' if each.principal else ''} is throttled by {by}: "
        f"a response to {each.api} told it to wait {duration_text(each.throttle_ms)}, "
        f"{duration_text(each.last_ms)} ago{f'; {each.count} responses in all' if each.count > 1 else ''}."
    )
    remedy = () if each.rule is None else _clear(around, each.rule)
    return Trouble(Cause.THROTTLED, (first, *remedy), each.last_ms <= RECENT_MS, is_old=each.last_ms > NOW_MS)
