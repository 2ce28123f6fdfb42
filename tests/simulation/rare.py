"""Named rare paths of the broker, and the record of the paths that a run has reached.

Paths that no run reaches are untested.

A path is recognised from outside, by a return value of a broker function or by a line of its log. The product has no
code for this. `python -m tests.simulation.nightly` runs 200 seeds and fails if one of the paths was never reached.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from broker.groups.consumer.member import MemberState
from broker.metadata.values import NO_LEADER
from broker.replicas.partition import Partition
from broker.transactions.transaction import AbortFirst, Answer, TransactionState, Transition
from protocol.errors import ErrorCode
from storage.producers import BATCHES_REMEMBERED

When = Callable[..., bool]
"""Predicate on (result, *arguments) of a call."""

DUPLICATES_AT_ONCE: Final = 3


def _error_is(error: ErrorCode) -> When:
    return lambda result, *_: result is not None and result.error is error


def _returns(value: object) -> When:
    return lambda result, *_: bool(result is value)


def _ends_with(error: ErrorCode) -> When:
    return lambda result, *_: isinstance(result, Answer) and result.error is error


def _is_true(result: object, *_: object) -> bool:
    return bool(result)


def _rotates(result: Any, *_: object) -> bool:
    return isinstance(result, Transition) and (
        result.after.next_producer_id >= 0
        or (
            result.after.epoch == 0
            and result.after.previous_producer_id not in (-1, result.after.producer_id)
        )
    )


def _serves_without_leading(found: Any, wanted: Any) -> bool:
    """Whether a replica that does not lead has the data that a consumer requests."""
    return isinstance(found, Partition) and found.leading is None and wanted.offset < found.high_watermark


_PRODUCERS: Final = "storage.producers:ProducerStateManager"
_TXN: Final = "broker.transactions.decisions"
_PARTITION: Final = "broker.replicas.partition.partition:Partition"
_FETCH: Final = "broker.requests.fetch_reading:FetchReading._replica"
_HEARTBEAT: Final = "broker.groups.consumer.heartbeat"
_PARTITION_CHANGE: Final = "broker.metadata.partition_change"

_SHARE: Final = "broker.share.partition.partition:SharePartition"

BY_CALL: Final[dict[str, tuple[str, When]]] = {
    "a repeated batch is answered from the producer state": (f"{_PRODUCERS}.duplicate_of", _is_true),
    "a repeated batch is the oldest of five": (
        f"{_PRODUCERS}.duplicate_of",
        lambda found, producers, batch: (
            found is not None
            and len(known := producers.entries[batch.producer_id].batches) == BATCHES_REMEMBERED
            and found == known[0]
        ),
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (
        f"{_PRODUCERS}.check",
        _error_is(ErrorCode.out_of_order_sequence_number),
    ),
    "a batch of an old epoch is INVALID_PRODUCER_EPOCH": (
        f"{_PRODUCERS}.check",
        _error_is(ErrorCode.invalid_producer_epoch),
    ),
    "an append without its verification guard is INVALID_TXN_STATE": (
        f"{_PRODUCERS}.check",
        _error_is(ErrorCode.invalid_txn_state),
    ),
    "a marker of an old producer epoch is refused": (
        f"{_PRODUCERS}.check_marker",
        _error_is(ErrorCode.invalid_producer_epoch),
    ),
    "a marker of an old coordinator epoch is refused": (
        f"{_PRODUCERS}.check_marker",
        _error_is(ErrorCode.transaction_coordinator_fenced),
    ),
    "a marker above the high watermark holds the LSO": (
        f"{_PRODUCERS}.first_unstable_offset",
        lambda found, producers, *_: found is not None and found != next(iter(producers._open), None),
    ),
    "several transactions are open in one partition": (
        f"{_PRODUCERS}.first_unstable_offset",
        lambda _, producers, *__: len(producers._open) > 1,
    ),
    "a read_committed reader is told of aborted transactions": (
        "storage.reading:ReadableLog.aborted_transactions",
        _is_true,
    ),
    "a follower's log has left its leader's": (
        f"{_PARTITION}.diverging",
        lambda found, *_: found[1] is not None,
    ),
    "a Fetch of an old leader epoch is fenced": (
        f"{_PARTITION}.check_epoch",
        _returns(ErrorCode.fenced_leader_epoch),
    ),
    "a consumer reads from a follower": (
        _FETCH,
        lambda found, _, wanted: _serves_without_leading(found, wanted) and found.following is not None,
    ),
    "a consumer reads from a replica while there is no leader": (
        _FETCH,
        lambda found, _, wanted: _serves_without_leading(found, wanted) and found.leader_id == NO_LEADER,
    ),
    "an fsync ends at a replica that has no leader, and more than is committed": (
        f"{_PARTITION}.note_flushed",
        lambda _, partition: (
            partition.leader_id == NO_LEADER and partition.high_watermark < partition.log_end_offset
        ),
    ),
    "a held write ends at a follower that has more than is committed": (
        f"{_PARTITION}._decided",
        lambda _, partition, held: (
            partition.following is not None and partition.high_watermark < partition.log_end_offset
        ),
    ),
    "acks=all with too few in sync": (
        f"{_PARTITION}.has_enough_replicas",
        lambda enough, *_: not enough,
    ),
    "InitProducerId aborts an open transaction": (
        f"{_TXN}.init_producer_id",
        lambda found, *_: isinstance(found, AbortFirst),
    ),
    "InitProducerId meets a transaction that is being completed": (
        f"{_TXN}.init_producer_id",
        _ends_with(ErrorCode.concurrent_transactions),
    ),
    "InitProducerId of a fenced producer": (
        f"{_TXN}.init_producer_id",
        _ends_with(ErrorCode.producer_fenced),
    ),
    "InitProducerId is repeated: no second bump": (
        f"{_TXN}._bump",
        lambda found, txn, *_: isinstance(found, Transition) and found.after.epoch == txn.epoch,
    ),
    "epochs are exhausted at EndTxn: a new producer id": (f"{_TXN}.end_v2", _rotates),
    "epochs are exhausted at InitProducerId: a new producer id": (f"{_TXN}.init_producer_id", _rotates),
    "EndTxn v5 is repeated after the end": (f"{_TXN}.end_v2", _ends_with(ErrorCode.none)),
    "EndTxn v5 of a fenced producer": (f"{_TXN}.end_v2", _ends_with(ErrorCode.producer_fenced)),
    "EndTxn v4 is repeated after the end": (f"{_TXN}.end_v1", _ends_with(ErrorCode.none)),
    "EndTxn v4 of a fenced producer": (f"{_TXN}.end_v1", _ends_with(ErrorCode.producer_fenced)),
    "EndTxn meets a transaction that is being completed": (
        f"{_TXN}.end_v2",
        _ends_with(ErrorCode.concurrent_transactions),
    ),
    "partitions are added by a fenced producer": (
        f"{_TXN}.add_partitions",
        _ends_with(ErrorCode.producer_fenced),
    ),
    "partitions are added while the last transaction completes": (
        f"{_TXN}.add_partitions",
        _ends_with(ErrorCode.concurrent_transactions),
    ),
    "a late batch is of no open transaction": (
        f"{_TXN}.verify_partitions",
        lambda errors, *_: any(error is not ErrorCode.none for error in errors.values()),
    ),
    "a commit of an old generation": (
        "broker.groups.classic.commit",
        lambda found, *_: found[0] in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id),
    ),
    "UNSTABLE_OFFSET_COMMIT": (
        "broker.groups.offsets:GroupOffsets.find",
        lambda found, *_: found.error is ErrorCode.unstable_offset_commit,
    ),
    "a member of a consumer group must revoke": (
        f"{_HEARTBEAT}.reconcile",
        lambda found, *_: found.state is MemberState.UNREVOKED_PARTITIONS,
    ),
    "a member of a consumer group waits for another to release": (
        f"{_HEARTBEAT}.reconcile",
        lambda found, *_: found.state is MemberState.UNRELEASED_PARTITIONS,
    ),
    "the next incarnation of a static member takes over": (
        f"{_HEARTBEAT}.joining_member",
        lambda _, group, member_id, instance_id, decision, **__: bool(decision.records),
    ),
    "a heartbeat is an epoch behind, as its answer was lost": (
        f"{_HEARTBEAT}.check_epoch",
        lambda _, member, epoch, *__: 0 < epoch < member.member_epoch,
    ),
    "a regular expression is resolved": ("broker.groups.consumer_groups.resolve_regexes", _is_true),
    "a commit in an older epoch, partition by partition": ("broker.groups.commits.check_commit", _is_true),
    "a segment is rolled": ("storage.log:Log.roll", _is_true),
    "compaction replaces segments": ("storage.log:Log.replace", _is_true),
    "recovery begins with a producer snapshot": ("storage.recovery._read_snapshot", _is_true),
    "a log is cut": ("storage.log:Log.truncate_to", _is_true),
    "an id expires": ("broker.transactions.decisions.is_expired", _is_true),
    "a move of replicas is completed": (
        f"{_PARTITION_CHANGE}._completed",
        lambda completed, _, target: completed is not target,
    ),
    "an eligible leader replica is elected": (
        f"{_PARTITION_CHANGE}._elected",
        lambda elected, state, replicas, isr, eligible, *_, **__: not isr and elected[0] in eligible,
    ),
    "the last known leader is elected": (
        f"{_PARTITION_CHANGE}._elected",
        lambda elected, state, *_, **__: elected[1] and (elected[0],) == state.last_known_eligible,
    ),
    "DeleteRecords waits for a follower": (
        f"{_PARTITION}.delete_records",
        lambda result, _, before_offset: result[0] is ErrorCode.none and result[1] < before_offset,
    ),
    "DeleteRecords beyond the high watermark": (
        f"{_PARTITION}.delete_records",
        lambda result, *_: result[0] is ErrorCode.offset_out_of_range,
    ),
    "DeleteRecords moves the log start into an open transaction": (
        f"{_PARTITION}.delete_records",
        lambda result, partition, _: (
            result[0] is ErrorCode.none
            and partition.last_stable_offset <= partition.log_start_offset < partition.high_watermark
        ),
    ),
    "a partition gets a leader because a disk fails": (
        "broker.metadata.replication_control.record_for_failed_replica",
        _is_true,
    ),
    "a new leader finds dead letters of the former one": (
        f"{_SHARE}.load",
        lambda change, *_: change is not None,
    ),
    "a new leader finds records of a share group without a state between others": (
        f"{_SHARE}.load",
        lambda _, partition, *__: partition.first_gap() is not None,
    ),
    "acknowledgements are refused, or not written": (f"{_SHARE}._undo", lambda *_: True),
    "a lock of a share group runs out while its record is being written": (
        f"{_SHARE}.expire",
        lambda change, partition, *_: any(each.in_transition for each in partition.in_flight()),
    ),
    "a record reaches the delivery limit": (
        f"{_SHARE}.expire",
        lambda change, *_: change is not None and bool(change.dead_letters),
    ),
    "records of an aborted transaction are archived": (
        "broker.share.partition.acquiring:Acquisition._without_aborted",
        lambda *_: True,
    ),
    "the log start passes the start offset of a share partition": (
        "broker.share.partition.records:InFlightRecords.advance_start",
        lambda *_: True,
    ),
    "share partitions leave the memory with the last session": (
        "broker.share.manager:SharePartitionManager._drop",
        lambda _, manager, managed: not manager.sessions.has_members(managed.key.group_id),
    ),
    "an administrator moves the offsets of a share group": (
        "broker.share.coordinator.state:ShareCoordinatorState.initialize",
        lambda found, state, key, *_, **__: key in state.offsets and hasattr(found, "key"),
    ),
    "the log of share partitions is pruned": (
        "broker.share.coordinator.state:ShareCoordinatorState.deletable_offset",
        lambda offset, *_: offset > 0,
    ),
}

BY_LOG: Final[dict[str, tuple[str, Callable[[dict[str, Any]], bool]]]] = {
    "a replica leaves the ISR": (
        "in-sync replicas change",
        lambda line: len(line["isr"]) < len(line["before"]),
    ),
    "a replica joins the ISR": (
        "in-sync replicas change",
        lambda line: len(line["isr"]) > len(line["before"]),
    ),
    "the controller refuses an ISR": ("change of in-sync replicas refused", lambda line: True),
    "a follower truncates": ("log truncated", lambda line: True),
    "a follower truncates below its log end with an old high watermark": (
        "log truncated",
        lambda line: line["to_offset"] > line["high_watermark"],
    ),
    "a replica that was not in sync is elected": (
        "unclean leader election: committed records may be lost",
        lambda line: True,
    ),
    "a follower truncates below its high watermark": (
        "log truncated after an unclean leader election: records are lost",
        lambda line: line["to_offset"] < line["high_watermark"],
    ),
    "a follower begins at its leader's log start": (
        "log restarted at the leader's log start",
        lambda line: True,
    ),
    "a follower begins with the batch in which its leader's log starts": (
        "log restarted at the leader's log start",
        lambda line: line["to_offset"] < line["from_offset"],
    ),
    "segments below the log start are deleted": (
        "segments deleted",
        lambda line: line["reason"] == "log start offset",
    ),
    "a node finds the folder of an earlier topic": (
        "folder of an earlier topic set aside",
        lambda line: True,
    ),
    "recovery cuts a damaged batch": ("log cut at the first bad batch", lambda line: True),
    "a partition goes offline": ("partition offline", lambda line: True),
    "a transaction times out": ("transaction timed out", lambda line: True),
    "a new coordinator finishes PREPARE_COMMIT": (
        "finishing a decided transaction",
        lambda line: line["state"] == TransactionState.PREPARE_COMMIT.name,
    ),
    "a new coordinator finishes PREPARE_ABORT": (
        "finishing a decided transaction",
        lambda line: line["state"] == TransactionState.PREPARE_ABORT.name,
    ),
    "a write to a share coordinator is fenced": ("share partition fenced", lambda line: True),
    "a session of a share group's member expires": (
        "session of a share group's member has expired",
        lambda line: True,
    ),
    "a dead letter cannot be written": (
        "records not written to the dead-letter queue",
        lambda line: True,
    ),
    "the end of a lock cannot be written": ("end of record locks not written", lambda line: True),
    "a session expires": ("group has lost members", lambda line: True),
    "a member does not revoke in time": (
        "group has lost members",
        lambda line: line["timer"] == "rebalance",
    ),
}

BY_FAULT: Final = {
    "a node dies with an fsync outstanding": "dies before log.fsync",
    "a coordinator dies before PrepareCommit or PrepareAbort": "dies before txn.prepare.append",
    "a coordinator dies before a marker": "dies before txn.marker",
    "a coordinator dies before CompleteCommit or CompleteAbort": "dies before txn.complete.append",
    "a coordinator dies behind its markers": "is killed behind its markers",
    "a coordinator sends markers again that come late": "are cut behind its markers",
    "a follower dies before it appends": "dies before replica.append",
    "a power cut loses the end of a log": "cut at",
    "a power cut leaves zeros": "zeroed at",
    "a power cut flips a bit": "flipped at",
    "links between nodes are slow": "links are slower",
    "fsync fails": "fsync fails",
    "a write fails": "pwritev fails",
    # Concurrent control calls (``control.py``).
    "a reset comes beside a start": "reset beside start",
    "a reset comes beside a stop": "reset beside stop",
    "a restore comes beside a start": "restore beside start",
    "a restore comes beside a stop": "restore beside stop",
    "a snapshot comes beside a start": "snapshot beside start",
    "a start waits for a reset": "start beside reset",
    "a start waits for a restore": "start beside restore",
    "a start waits for a snapshot": "start beside snapshot",
    "a stop waits for a restore": "stop beside restore",
    "a restore waits for a reset": "restore beside reset",
    "a restore waits for a snapshot": "restore beside snapshot",
    "a rule kills a node that a reset starts": "the broker cannot be reset: node",
    "a rule kills a node that a restore starts": "the snapshot cannot be restored: node",
    "the broker ends beside a reset": "shutdown beside reset",
    "the broker ends beside a restore": "shutdown beside restore",
    "the broker ends beside a snapshot": "shutdown beside snapshot",
}
"""By name of the rare path: text that the trace line of a fault contains."""

BEHIND_LOG_START: Final = "a consumer is behind the log start"
SETTING_CHANGED: Final = "a setting is changed on all nodes"
SETTING_REFUSED: Final = "a change of a setting is refused"
REFUSED_BY_SETTING: Final = "a batch is larger than max.message.bytes has it"
COMPRESSION_BY_SETTING: Final = "a batch is compressed because compression.type was changed"
FLUSHED_BY_SETTING: Final = "a record is flushed because flush.messages was changed"
DELETED_IN_TRANSACTION: Final = "a topic is deleted while a transaction writes to it"
SENT_TO_DELETED: Final = "a batch is sent to a topic id that is no more"
READS_NEXT_TOPIC: Final = "a consumer begins again with the next topic of a name"
NOT_LOGGED_IN: Final = "a request without a login has no response"
LOGIN_REFUSED: Final = "a login with a wrong password is refused"
LOGS_IN_AGAIN: Final = "a client logs in again on its connection"
SESSION_ENDED: Final = "a session ends without another login"
BY_CLIENT: Final = (
    NOT_LOGGED_IN,
    LOGIN_REFUSED,
    LOGS_IN_AGAIN,
    SESSION_ENDED,
    DELETED_IN_TRANSACTION,
    SENT_TO_DELETED,
    READS_NEXT_TOPIC,
    BEHIND_LOG_START,
    SETTING_CHANGED,
    SETTING_REFUSED,
    REFUSED_BY_SETTING,
    COMPRESSION_BY_SETTING,
    FLUSHED_BY_SETTING,
)
"""Rare paths that the clients of a `Reach` report by name (`tests.simulation.reach`)."""

NAMES: Final = (*BY_CALL, *BY_LOG, *BY_FAULT, *BY_CLIENT)


@dataclass(slots=True)
class Reached:
    """The names of the rare paths that one run has reached."""

    names: set[str] = field(default_factory=set)

    def log_line(self, line: dict[str, Any]) -> None:
        for name, (event, when) in BY_LOG.items():
            if name not in self.names and line.get("event") == event and when(line):
                self.names.add(name)

    def client(self, name: str) -> None:
        assert name in BY_CLIENT, name
        self.names.add(name)

    def fault(self, text: str) -> None:
        for name, part in BY_FAULT.items():
            if part in text:
                self.names.add(name)


_reached: Reached | None = None


def _wrapped(call: Any, watched: list[tuple[str, When]]) -> Any:
    @functools.wraps(call)
    def watching(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        if _reached is not None:
            for name, when in watched:
                if name not in _reached.names and when(result, *arguments):
                    _reached.names.add(name)
        return result

    return watching


@functools.cache
def _install() -> None:
    """Wrap each watched function, once per process. The wrapper records the rare paths that calls of the function
    reach."""
    by_target: dict[str, list[tuple[str, When]]] = {}
    for name, (target, when) in BY_CALL.items():
        by_target.setdefault(target, []).append((name, when))
    for target, watched in by_target.items():
        module, _, path = target.partition(":")
        if not path:
            module, _, path = target.rpartition(".")
        owner: Any = importlib.import_module(module)
        *outer, last = path.split(".")
        for each in outer:
            owner = getattr(owner, each)
        setattr(owner, last, _wrapped(getattr(owner, last), watched))


def watch() -> Reached:
    """Start recording; the returned object gets the names of reached paths."""
    global _reached
    _install()
    _reached = Reached()
    return _reached
