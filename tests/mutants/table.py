"""The mutants: each breaks one rule of Kafka or of this project, by patches that contain the text to replace.

A patch whose text is not in its file exactly once fails `test_table.py`, so the table follows the code. ``tests`` are
the tests of the changed package, which must kill the mutant if the simulation does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Patch:
    """Replace ``old``, which occurs once in the file, by ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect. ``rule`` is the correct behaviour, which the mutant breaks."""

    name: str
    rule: str
    tests: tuple[str, ...]
    patches: tuple[Patch, ...]
    simulated: bool = True
    """Whether the simulation runs the changed code in a way that shows the defect."""


PRODUCERS: Final = "storage/producers.py"
LOG: Final = "storage/log.py"
RECOVERY: Final = "storage/recovery.py"
LEADING: Final = "broker/replicas/replication/leading.py"
FOLLOWING: Final = "broker/replicas/replication/replica_fetcher.py"
PARTITION: Final = "broker/replicas/partition/partition.py"
READING: Final = "broker/replicas/partition/partition.py"
TXN_STATE: Final = "broker/transactions/decisions.py"
COORDINATOR: Final = "broker/transactions/coordinator.py"
SNAPSHOT_FILES: Final = "broker/cluster/snapshot_files.py"
ENTRY: Final = "broker/transactions/entry.py"
MARKERS: Final = "broker/transactions/markers.py"
OFFSETS: Final = "broker/groups/offsets.py"
CLASSIC: Final = "broker/groups/classic.py"
SHARD: Final = "broker/groups/shard.py"
REPLAYED_SHARD: Final = "broker/coordinator_runtime/replayed_shard.py"
COURSE: Final = "broker/clock/course.py"
VIRTUAL_CLOCK: Final = "broker/clock/virtual.py"
PARTITION_CHANGE: Final = "broker/metadata/partition_change.py"

_PRODUCERS = ("tests/storage/test_producers.py",)
_LOG = ("tests/storage/test_log.py", "tests/storage/test_replicated.py")
_RECOVERY = ("tests/storage/test_recovery.py", "tests/storage/test_log_machine.py")
_REPLICATION = ("tests/broker/replicas/replication",)
_PARTITION = ("tests/broker/replicas/partition", "tests/broker/replicas/replication")
_TXN_STATE = ("tests/broker/transactions/test_states.py", "tests/broker/transactions")
_TXN = ("tests/broker/transactions",)
_GROUPS = ("tests/broker/groups",)
_IMAGE = ("tests/broker/metadata/test_image.py",)
_ELR = "tests/broker/metadata/test_eligible_leader_replicas.py"
_CLOCK = ("tests/broker/clock",)
_LIFECYCLE = ("tests/broker/cluster/test_lifecycle.py",)
_COMPACTION = ("tests/storage/test_compaction.py", "tests/storage/test_compaction_machine.py")


def _one(
    name: str, rule: str, tests: tuple[str, ...], file: str, old: str, new: str, *more: tuple[str, str, str]
) -> Mutant:
    return Mutant(name, rule, tests, (Patch(file, old, new), *(Patch(*each) for each in more)))


IDEMPOTENCE: Final = (
    _one(
        "sequence-gap-accepted",
        "a batch whose sequence does not follow the last one is OUT_OF_ORDER_SEQUENCE_NUMBER",
        _PRODUCERS,
        PRODUCERS,
        "return sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX)",
        "return True",
    ),
    _one(
        "first-sequence-of-an-epoch-not-checked",
        "the first batch of a new epoch has sequence 0",
        _PRODUCERS,
        PRODUCERS,
        "if batch.producer_epoch != entry.epoch:\n            return sequence == 0",
        "if batch.producer_epoch != entry.epoch:\n            return True",
    ),
    _one(
        "duplicate-window-of-one",
        "the last five batches of a producer are recognised as duplicates",
        _PRODUCERS,
        PRODUCERS,
        "BATCHES_REMEMBERED = 5",
        "BATCHES_REMEMBERED = 1",
    ),
    _one(
        "duplicates-not-known-again",
        "the response to a duplicate batch has the offset of the first one, and the batch is not appended again",
        (*_PRODUCERS, "tests/broker/replicas/partition"),
        PRODUCERS,
        "if known.first_sequence == first and known.last_sequence == last:\n                return known",
        "if known.first_sequence == first and known.last_sequence == last:\n                return None",
        (
            PRODUCERS,
            "return sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX)",
            "return sequence <= last + 1",
        ),
    ),
    _one(
        "duplicate-of-another-epoch",
        "a batch of a newer epoch is no duplicate of a batch of an older epoch",
        _PRODUCERS,
        PRODUCERS,
        "if entry is None or entry.epoch != batch.producer_epoch:\n            return None",
        "if entry is None:\n            return None",
    ),
    _one(
        "stale-epoch-appended",
        "a batch of an older epoch is INVALID_PRODUCER_EPOCH",
        _PRODUCERS,
        PRODUCERS,
        "        if entry is not None and batch.producer_epoch < entry.epoch:\n"
        "            return _stale_epoch(batch, entry)\n"
        "        if origin is CLIENT and",
        "        if origin is CLIENT and",
        (
            PRODUCERS,
            "            if entry is not None and batch.producer_epoch < entry.epoch:\n"
            "                return _stale_epoch(batch, entry)\n",
            "",
        ),
        (
            PRODUCERS,
            "if batch.producer_epoch != entry.epoch:\n            return sequence == 0",
            "if 0:\n            return True",
        ),
    ),
    _one(
        "verification-guard-ignored",
        "a transactional batch is appended only with the guard of its verification (KIP-890)",
        _PRODUCERS,
        PRODUCERS,
        "return guard is not None and verification is not None and verification.guard is guard",
        "return True",
    ),
)

READING_COMMITTED: Final = (
    _one(
        "lso-before-markers-are-replicated",
        "a transaction whose marker is above the high watermark still holds the LSO",
        _PRODUCERS,
        PRODUCERS,
        "        if not self._unreplicated:\n            return first_open",
        "        if True:\n            return first_open",
    ),
    _one(
        "lso-at-the-last-open-transaction",
        "the LSO is the first offset of the first open transaction",
        _PRODUCERS,
        PRODUCERS,
        "first_open = next(iter(self._open), None)",
        "first_open = next(reversed(self._open), None)",
    ),
    _one(
        "read-committed-reads-to-the-high-watermark",
        "a read_committed Fetch ends at the LSO",
        ("tests/broker/replicas/partition", "tests/broker/apis/test_fetch.py"),
        READING,
        "end_offset = last_stable_offset if read_committed else high_watermark",
        "end_offset = high_watermark",
    ),
    _one(
        "aborted-transaction-begins-too-late",
        "an aborted transaction's index entry has the offset of its first record",
        _PRODUCERS,
        PRODUCERS,
        "return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)",
        "return AbortedTransaction(producer_id, offset, offset, last_stable_offset)",
    ),
    _one(
        "followers-index-no-aborted-transactions",
        "a follower indexes aborted transactions too: it may lead next",
        _LOG,
        LOG,
        "            aborted = self.producers.replay(batch)\n            if aborted is not None:",
        "            aborted = self.producers.replay(batch)\n            if False:",
    ),
    _one(
        "recovery-indexes-no-aborted-transactions",
        "recovery after a crash indexes the aborted transactions again",
        _RECOVERY,
        RECOVERY,
        "if aborted is not None and aborted.last_offset not in indexed:",
        "if False:",
    ),
    _one(
        "recovery-forgets-markers-above-the-high-watermark",
        "after recovery a transaction whose marker is above the high watermark still holds the LSO",
        _RECOVERY,
        RECOVERY,
        "        log.producers.expire(options.now_ms, options.producer_id_expiration_ms)\n\n\ndef _forget_aborted",
        "        log.producers.forget_replicated(log.log_end_offset)\n"
        "        log.producers.expire(options.now_ms, options.producer_id_expiration_ms)\n\n\ndef _forget_aborted",
    ),
    _one(
        "snapshot-forgets-open-transactions",
        "a producer snapshot has the first offset of an open transaction",
        _PRODUCERS,
        PRODUCERS,
        "                current_txn_first_offset=entry.current_txn_first_offset,\n            )\n            for entry",
        "                current_txn_first_offset=NO_OFFSET,\n            )\n            for entry",
    ),
)

REPLICATION: Final = (
    _one(
        "high-watermark-ignores-followers",
        "the high watermark is the smallest log end offset of the ISR",
        _REPLICATION,
        LEADING,
        "if progress.log_end_offset < end_offset and (",
        "if False and (",
    ),
    _one(
        "min-insync-replicas-moves-the-high-watermark",
        "a change of min.insync.replicas does not move the high watermark, the next append does",
        _REPLICATION,
        "broker/replicas/manager.py",
        "                    self._listeners.configured(partition)\n",
        "                    self._listeners.configured(partition)\n"
        "                partition.advance_high_watermark()\n",
    ),
    _one(
        "time-moves-the-high-watermark",
        "the check for followers that lag moves no high watermark",
        _REPLICATION,
        LEADING,
        "        return any(\n            node_id in partition.isr and progress.log_end_offset != end_offset\n",
        "        partition.advance_high_watermark()\n"
        "        return partition.high_watermark < end_offset or any(\n"
        "            node_id in partition.isr and progress.log_end_offset != end_offset\n",
    ),
    _one(
        "duplicate-moves-no-high-watermark",
        "a duplicate batch moves the high watermark as an append does (Partition.appendRecordsToLeader)",
        _REPLICATION,
        PARTITION,
        "                self.advance_high_watermark()  # as after each append (``Partition.appendRecordsToLeader``)\n",
        "",
    ),
    _one(
        "follower-learns-the-high-watermark-at-once",
        "a new high watermark alone ends no follower's fetch before replica.fetch.wait.max.ms",
        _REPLICATION,
        LEADING,
        "        if self._ends_waits:\n            self.wake()",
        "        if True:\n            self.wake()",
    ),
    _one(
        "follower-never-learns-the-last-high-watermark",
        "a follower's fetch that waited replica.fetch.wait.max.ms gets the high watermark",
        _REPLICATION,
        LEADING,
        "        self._wait = None\n        self.wake()",
        "        self._wait = None",
    ),
    _one(
        "records-come-with-the-high-watermark-after-the-fetch",
        "the response to a follower has the high watermark as of the read, before its progress is noted",
        _REPLICATION,
        LEADING,
        "        high_watermark = partition.high_watermark\n        self._note_fetch(asked, progress)\n",
        "        self._note_fetch(asked, progress)\n        high_watermark = partition.high_watermark\n",
    ),
    _one(
        "fsync-commits-without-a-leader",
        "an fsync does not move the high watermark while the partition has no leader",
        _REPLICATION,
        PARTITION,
        "            self.following.pull()\n            return\n        self.advance_high_watermark()",
        "            self.following.pull()\n            return\n"
        "        if self.leading is None:\n"
        "            self.high_watermark = max(self.high_watermark, self.log.log_end_offset)\n"
        "            self.delayed.committed(self.high_watermark)\n"
        "        self.advance_high_watermark()",
    ),
    _one(
        "held-write-commits-at-a-follower",
        "a follower's high watermark is that of its leader's response",
        _REPLICATION,
        PARTITION,
        "        self.advance_high_watermark()\n        if self.following is not None:",
        "        if self.leading is None:\n"
        "            self.high_watermark = max(self.high_watermark, self.unconfirmed.written_end_offset)\n"
        "            self.delayed.committed(self.high_watermark)\n"
        "        self.advance_high_watermark()\n        if self.following is not None:",
    ),
    _one(
        "high-watermark-below-the-log-start",
        "a follower's high watermark is not below its own log start, whatever its leader sends",
        _REPLICATION,
        PARTITION,
        "high_watermark = clamped(self.log, high_watermark)\n        moved",
        "high_watermark = min(high_watermark, self.log.log_end_offset)\n        moved",
    ),
    _one(
        "acks-all-answered-before-the-high-watermark",
        "the response to acks=all is sent once the batch is below the high watermark",
        (*_PARTITION, "tests/broker/apis/test_produce.py"),
        "broker/requests/producing.py",
        "            if waiting:\n                await self._await_commit(waiting)",
        "            del waiting",
    ),
    _one(
        "plain-batch-without-its-crc",
        "a batch is stored only if its CRC matches",
        ("tests/storage/test_as_sent.py", "tests/broker/apis/test_produce.py"),
        "storage/validation.py",
        "        and not limits.reads_all\n        and batch.has_valid_crc()",
        "        and not limits.reads_all",
    ),
    _one(
        "plain-batch-of-an-older-epoch",
        "a producer of an older epoch is fenced, whatever its sequence",
        ("tests/storage/test_as_sent.py", *_PRODUCERS),
        PRODUCERS,
        "            entry.epoch == batch.producer_epoch\n            and last.",
        "            last.",
    ),
    _one(
        "plain-batch-without-its-transaction",
        "a batch outside a transaction is refused while its producer has one open, and a transactional one otherwise",
        ("tests/storage/test_as_sent.py", *_PRODUCERS),
        PRODUCERS,
        "            and (entry.current_txn_first_offset == NO_OFFSET) is (batch.attributes & TRANSACTIONAL == 0)\n",
        "",
    ),
    _one(
        "segment-takes-more-than-its-size",
        "a segment rolls before a batch that would take it beyond segment.bytes",
        ("tests/storage/test_log.py", "tests/storage/test_log_machine.py"),
        LOG,
        "            and segment.size_now() + size <= room.bytes\n",
        "",
    ),
    _one(
        "segment-takes-what-is-too-late",
        "a segment rolls before a batch whose timestamp is segment.ms later than that of its first batch",
        ("tests/storage/test_log.py", "tests/storage/test_log_machine.py"),
        LOG,
        "            and max_timestamp_ms <= room.timestamp_ms\n",
        "",
    ),
    _one(
        "log-forgets-a-new-leader-epoch",
        "the first batch of a leader epoch begins it in leader-epoch-checkpoint (KIP-101)",
        ("tests/storage/test_log.py", "tests/storage/test_replicated.py", "tests/storage/test_epochs.py"),
        LOG,
        "            and leader_epoch == room.leader_epoch\n",
        "",
    ),
    replace(
        _one(
            "preview-takes-an-emptied-partition-for-new",
            "with KAFKA-15591 only a partition that was never written requires first sequence 0",
            _PARTITION,
            PARTITION,
            "or self.log.log_end_offset or not",
            "or self.log.log_end_offset > self.log.log_start_offset or not",
        ),
        simulated=False,
    ),
    _one(
        "acks-all-with-too-few-in-sync",
        "acks=all with an ISR smaller than min.insync.replicas is NOT_ENOUGH_REPLICAS",
        _PARTITION,
        PARTITION,
        "return len(self.isr) >= wanted",
        "return True",
    ),
    _one(
        "follower-joins-below-the-epoch-start",
        "a follower joins the ISR at or above the start of the leader's epoch (Partition.isFollowerInSync)",
        _REPLICATION,
        LEADING,
        "max(partition.high_watermark, self.epoch_start_offset)",
        "partition.high_watermark",
    ),
    _one(
        "follower-joins-below-the-high-watermark",
        "a follower joins the ISR at or above the high watermark",
        _REPLICATION,
        LEADING,
        "progress.log_end_offset >= max(partition.high_watermark, self.epoch_start_offset)",
        "progress.log_end_offset >= 0",
    ),
    _one(
        "leader-ignores-the-followers-epoch",
        "a follower's Fetch with another leader epoch is fenced (KIP-320)",
        _REPLICATION,
        LEADING,
        "error = partition.check_epoch(asked.leader_epoch)",
        "error = ErrorCode.none",
    ),
    _one(
        "leader-sees-no-divergence",
        "the leader compares the follower's last epoch with its own log (KIP-595)",
        _REPLICATION,
        LEADING,
        "error, diverging = partition.diverging(asked.last_fetched_epoch, asked.fetch_offset)",
        "error, diverging = ErrorCode.none, None",
    ),
    _one(
        "follower-truncates-to-its-high-watermark",
        "a follower truncates to the offset where its leader epochs diverge from the leader's (KIP-101)",
        _REPLICATION,
        FOLLOWING,
        "target = min(known_end, end_offset)",
        "target = partition.high_watermark",
    ),
    _one(
        "follower-does-not-truncate",
        "a follower truncates records that its leader does not have",
        _REPLICATION,
        FOLLOWING,
        "        truncate(partition, min(target, log.log_end_offset), self._context)\n",
        "        truncate(partition, log.log_end_offset, self._context)\n",
    ),
    _one(
        "followers-high-watermark-beyond-its-log",
        "a follower's high watermark is never above its log end",
        _REPLICATION,
        PARTITION,
        "        high_watermark = clamped(self.log, high_watermark)\n        moved",
        "        high_watermark = max(high_watermark, self.log.log_start_offset)\n        moved",
    ),
    _one(
        "truncation-keeps-producers",
        "after a truncation the producer state is that of the remaining log",
        (*_LOG, *_RECOVERY, *_REPLICATION),
        RECOVERY,
        '        _load_producers(log, options, {}, folder.offsets("snapshot"))\n    else:',
        "        pass\n    else:",
    ),
    _one(
        "truncation-keeps-epochs",
        "leader epochs that begin above the truncation offset are removed",
        ("tests/storage/test_replicated.py", "tests/storage/test_log.py", *_REPLICATION),
        LOG,
        "        self.epochs.truncate_from_end(offset)\n        was_active",
        "        was_active",
    ),
    _one(
        "epoch-ends-at-the-log-end",
        "an epoch ends where the next one begins (OffsetForLeaderEpoch)",
        ("tests/storage/test_epochs.py",),
        "storage/epochs.py",
        "return self._epochs[index - 1], self._starts[index]",
        "return self._epochs[index - 1], log_end_offset",
    ),
    _one(
        "leader-elected-out-of-sync",
        "only an in-sync replica is elected, unless unclean election is allowed",
        ("tests/broker/metadata", "tests/broker/replicas/replication"),
        PARTITION_CHANGE,
        "        if node_id in allowed and node_id in live:",
        "        if node_id in live:",
    ),
)

SINGLE_REPLICAS: Final = tuple(
    # With a single replica there is no other leader, so no client of the simulation sees a difference.
    replace(each, simulated=False)
    for each in (
        _one(
            "single-replica-commits-without-leading",
            "a single replica, too, moves its high watermark only while it leads",
            _REPLICATION,
            PARTITION,
            "self.leads_alone = state.leader == self._node_id and len(state.replicas) == 1",
            "self.leads_alone = len(state.replicas) == 1",
        ),
    )
)

TRANSACTIONS: Final = (
    _one(
        "markers-before-prepare-is-committed",
        "no marker is written before PrepareCommit or PrepareAbort is committed",
        _TXN,
        COORDINATOR,
        "        error = await self._persist(shard, entry, transition, PREPARE_APPEND)\n"
        '        if error is not NONE:\n            return Answer(error)\n        crash_point("txn.prepare.after")\n',
        "        shard.install(entry, transition.after)\n"
        "        records = state_batch(transition.after, self._value_version, transition.after.last_update_ms)\n"
        "        self._clock.call_later_ms(0, lambda: shard.append(records), Domain.TRANSACTIONS)\n",
    ),
    _one(
        "complete-after-the-first-marker",
        "CompleteCommit is written when all partitions have their marker",
        _TXN,
        ENTRY,
        "        self.remaining.discard(partition)\n",
        "        self.remaining.clear()\n",
    ),
    _one(
        "refused-marker-not-repeated",
        "a marker that could not be written is sent again until it is written",
        _TXN,
        MARKERS,
        "        if again:\n            await sleep_ms",
        "        if False:\n            await sleep_ms",
    ),
    _one(
        "commit-answered-before-it-is-written",
        "the response to EndTxn is sent when the decision is committed",
        _TXN,
        COORDINATOR,
        "        return await self._end(shard, entry, decision)\n",
        "        start_in_background(self._end(shard, entry, decision), self._life)\n"
        "        return decision.answer\n",
    ),
    _one(
        "marker-of-an-old-epoch-written",
        "a marker of an older producer epoch is INVALID_PRODUCER_EPOCH",
        _PRODUCERS,
        PRODUCERS,
        "if epoch < entry.epoch or (strict and epoch == entry.epoch and not repeated):",
        "if False:",
    ),
    _one(
        "marker-of-an-old-coordinator-written",
        "a marker of an older coordinator epoch is TRANSACTION_COORDINATOR_FENCED",
        _PRODUCERS,
        PRODUCERS,
        "if marker.coordinator_epoch < entry.coordinator_epoch:",
        "if False:",
    ),
    _one(
        "new-coordinator-reads-to-the-high-watermark",
        "a new coordinator reads its log to the end: a new leader commits all records that it has",
        (*_TXN, *_GROUPS),
        "broker/coordinator_runtime/loader.py",
        "    while offset < log.log_end_offset:\n        before",
        "    while offset < partition.high_watermark:\n        before",
    ),
    _one(
        "new-coordinator-finishes-nothing",
        "a coordinator that takes over writes the markers of decided transactions",
        _TXN,
        COORDINATOR,
        "        self._markers.start(*completions)\n",
        "",
    ),
    _one(
        "init-producer-id-keeps-the-epoch",
        "InitProducerId bumps the epoch, which fences the earlier instance",
        _TXN_STATE,
        TXN_STATE,
        "epoch, last_epoch = txn.epoch + 1, NO_EPOCH",
        "epoch, last_epoch = max(txn.epoch, 0), NO_EPOCH",
    ),
    _one(
        "init-producer-id-over-an-open-transaction",
        "InitProducerId aborts the open transaction of the earlier instance",
        _TXN_STATE,
        TXN_STATE,
        "    if txn.state is ONGOING:\n"
        "        return AbortFirst(Answer(ErrorCode.concurrent_transactions))\n"
        "    if txn.state not in SETTLED:",
        "    if txn.state is ONGOING:\n        return _bump(txn, timeout_ms, None, now_ms)\n"
        "    if txn.state not in SETTLED:",
        (
            "broker/transactions/transaction.py",
            "    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),",
            "    EMPTY: frozenset(TransactionState),",
        ),
    ),
    _one(
        "timeout-does-not-fence",
        "a coordinator that aborts an open transaction bumps the epoch",
        _TXN_STATE,
        TXN_STATE,
        "epoch = txn.epoch if failed_fence or txn.epoch >= EPOCH_MAX else txn.epoch + 1",
        "epoch = txn.epoch",
    ),
    _one(
        "end-txn-ignores-the-epoch",
        "EndTxn of an older epoch is PRODUCER_FENCED",
        _TXN_STATE,
        TXN_STATE,
        "    if epoch != txn.epoch:\n        return Answer(ErrorCode.producer_fenced)\n    if pending is not None and",
        "    if pending is not None and",
    ),
    _one(
        "adding-partitions-ignores-the-epoch",
        "AddPartitionsToTxn of an older epoch is PRODUCER_FENCED",
        _TXN_STATE,
        TXN_STATE,
        "    if epoch != txn.epoch:\n        return ErrorCode.producer_fenced\n",
        "",
    ),
    _one(
        "added-partitions-replace-the-others",
        "AddPartitionsToTxn adds to the partitions of an open transaction",
        _TXN_STATE,
        TXN_STATE,
        "partitions=txn.partitions.union(partitions) if is_open else frozenset(partitions)",
        "partitions=frozenset(partitions)",
    ),
    _one(
        "timeout-from-the-last-update",
        "the timeout of a transaction counts from its first partition",
        _TXN_STATE,
        TXN_STATE,
        "and txn.start_ms + txn.timeout_ms < now_ms",
        "and txn.last_update_ms + txn.timeout_ms < now_ms",
    ),
)

GROUPS: Final = (
    _one(
        "aborted-offsets-partly-committed",
        "no offset of an aborted transaction is committed",
        _GROUPS,
        OFFSETS,
        "            if committed:\n                of_group",
        "            if committed or len(pending) > 1:\n                of_group",
    ),
    _one(
        "older-offset-wins",
        "of a pending and a committed offset the one with the higher log offset counts",
        _GROUPS,
        OFFSETS,
        "if current is None or offset.record_offset > current.record_offset:",
        "if True:",
    ),
    _one(
        "unstable-offsets-are-served",
        "require_stable: no offset is returned that an open transaction may change (KIP-447)",
        _GROUPS,
        OFFSETS,
        "if require_stable and self.is_unstable(group_id, spot):",
        "if False:",
    ),
    _one(
        "generation-not-checked",
        "OffsetCommit of an older generation is ILLEGAL_GENERATION",
        _GROUPS,
        CLASSIC,
        "if error is NONE and generation != group.generation:",
        "if False:",
    ),
    _one(
        "markers-do-not-reach-the-group",
        "a marker in __consumer_offsets commits or drops the offsets of its transaction",
        (*_GROUPS, *_TXN),
        MARKERS,
        "if partition.topic == CONSUMER_OFFSETS:",
        "if False:",
    ),
    _one(
        "offset-commit-answered-before-the-high-watermark",
        "the response to OffsetCommit is sent once its batch is below the high watermark",
        _GROUPS,
        SHARD,
        "        return await self.committed(end_offset) if error is NONE else self.client_error(error)",
        "        return self.client_error(error)",
    ),
    _one(
        "group-record-answered-before-the-high-watermark",
        "responses that depend on a record of a classic group are sent once it is below the high watermark",
        _GROUPS,
        SHARD,
        "            if error is NONE and self.partition.high_watermark < end_offset:",
        "            if error is NONE and not end_offset:",
    ),
    _one(
        "commit-seen-before-the-records-that-brought-it",
        "an append that commits earlier records is applied before a coroutine that waits for these decides",
        _GROUPS,
        REPLAYED_SHARD,
        "        if self._depth:\n",
        "        if False:\n",
    ),
)

ABORTED_BY_HAND: Final = (
    _one(
        "coordinator-epoch-of-one-producer-epoch",
        "the coordinator epoch of a producer's last marker also counts for later producer epochs",
        (*_PRODUCERS, "tests/storage/test_log_machine.py", "tests/broker/cluster/test_aborting_by_hand.py"),
        PRODUCERS,
        "            self.batches.clear()\n            self.epoch = epoch\n",
        "            self.batches.clear()\n            self.epoch = epoch\n            self.coordinator_epoch = -1\n",
    ),
    _one(
        "coordinator-epoch-lost-in-snapshots",
        "the coordinator epoch of the last marker survives a restart",
        ("tests/storage/test_log_machine.py",),
        PRODUCERS,
        "                coordinator_epoch=stored.coordinator_epoch,\n",
        "",
    ),
    replace(
        _one(
            "first-blocks-of-producer-ids-by-node",
            "the producer that is initialized first gets the lowest id, on whichever node",
            ("tests/broker/cluster/test_aborting_by_hand.py",),
            "broker/metadata/producer_id_control.py",
            "        first = max(self._image.next_producer_id, self._claimed_to)\n",
            "        first = max(self._image.next_producer_id, self._claimed_to, 2 * BLOCK_SIZE)\n"
            "        if node_id < 3 and not self._by_node[node_id]._end:\n"
            "            return (node_id - 1) * BLOCK_SIZE\n",
        ),
        simulated=False,
    ),
)

TWO_PHASE_COMMIT: Final = tuple(
    # The clients of the simulation do not use InitProducerId v6.
    replace(each, simulated=False)
    for each in (
        _one(
            "two-phase-commit-times-out",
            "a transaction with two-phase commit does not time out (KIP-939)",
            ("tests/broker/transactions/test_time.py",),
            TXN_STATE,
            "        and txn.timeout_ms != TIMEOUT_NEVER_MS\n",
            "",
        ),
        _one(
            "two-phase-commit-has-the-requested-timeout",
            "the timeout of a producer with two-phase commit is stored as 2147483647, whatever it sent",
            ("tests/broker/apis/test_init_producer_id.py",),
            "broker/apis/init_producer_id.py",
            "TIMEOUT_NEVER_MS if request.enable2_pc else request.transaction_timeout_ms",
            "request.transaction_timeout_ms",
        ),
        _one(
            "two-phase-commit-without-its-operation",
            "two-phase commit needs the operation TWO_PHASE_COMMIT on the transactional id",
            ("tests/broker/apis/test_init_producer_id.py",),
            "broker/apis/init_producer_id.py",
            '("WRITE", "TWO_PHASE_COMMIT") if request.enable2_pc else ("WRITE",)',
            '("WRITE",)',
        ),
        _one(
            "two-phase-commit-is-checked-late",
            "a broker without two-phase commit refuses it before it looks at keep_prepared_txn",
            ("tests/broker/apis/test_init_producer_id.py",),
            "broker/apis/init_producer_id.py",
            "if request.enable2_pc and not config.transaction_two_phase_commit_enable:",
            "if request.enable2_pc and not (config.transaction_two_phase_commit_enable or request.keep_prepared_txn):",
        ),
    )
)

INTERNAL_TOPICS: Final = tuple(
    # The simulation finds coordinators by FindCoordinator, and does not change their topics.
    replace(each, simulated=False)
    for each in (
        _one(
            "internal-topic-by-metadata-is-ordinary",
            "an internal topic that a Metadata request creates has its own partitions and settings",
            ("tests/broker/apis/test_metadata.py",),
            "broker/metadata/auto_topic_creation.py",
            "creatable_topic(NewTopic(name), self._config)",
            "NewTopic(name)",
        ),
        _one(
            "metadata-log-created-as-a-topic",
            "no topic may have the name of the cluster metadata log",
            ("tests/broker/cluster/test_internal_topic_warnings.py",),
            "broker/metadata/creation.py",
            "    if name == CLUSTER_METADATA:",
            "    if not name:",
        ),
        _one(
            "groups-follow-new-partitions",
            "the group coordinator uses the number of partitions that the topic had at its start",
            _GROUPS,
            "broker/groups/coordinator.py",
            "        return partition_for(group_id, self._partitions)",
            "        topic = self._metadata.topic(CONSUMER_OFFSETS)\n"
            "        return partition_for(group_id, len(topic.partitions) if topic else self._partitions)",
        ),
        _one(
            "ids-loaded-after-more-partitions",
            "the transaction coordinator loads no partition after their number has changed",
            _TXN,
            COORDINATOR,
            "        return topic is None or len(topic.partitions) == self._partitions",
            "        return True",
        ),
        _one(
            "uncompacted-offsets-without-a-warning",
            "the broker warns at its start of an internal topic that is not compacted",
            ("tests/broker/cluster/test_internal_topic_warnings.py",),
            "broker/cluster/internal_topic_warnings.py",
            "        for name in _RETENTION:\n            self._check_compaction",
            "        for name in ():\n            self._check_compaction",
        ),
    )
)

FILES: Final = (
    _one(
        "recovery-believes-every-batch",
        "recovery ends the log before the first batch whose CRC does not match",
        ("tests/storage/test_checking.py", *_RECOVERY),
        "storage/checking.py",
        "sound = crc32c(chunk[at + _CRC_FROM : stop]) == crc",
        "sound = True",
        (
            "storage/checking.py",
            'if not batch.has_valid_crc():\n            return f"the CRC',
            'if False:\n            return f"the CRC',
        ),
    ),
    _one(
        "recovery-cuts-nothing",
        "recovery removes the bytes after the last valid batch",
        _RECOVERY,
        RECOVERY,
        "        segment.log.truncate(check.position)\n",
        "        pass\n",
    ),
    _one(
        "compaction-passes-the-lso",
        "compaction stops at the LSO",
        _COMPACTION,
        "storage/compaction/choice.py",
        "    if last_stable_offset < bound:",
        "    if False:",
    ),
    _one(
        "compaction-keeps-aborted-records",
        "compaction removes the records of aborted transactions before their marker",
        _COMPACTION,
        "storage/compaction/transactions.py",
        "            self._aborted_with_data.add(batch.producer_id)\n            return True",
        "            return False",
    ),
    _one(
        "compaction-forgets-the-last-batch",
        "the last batch of an active producer is kept, empty if all its records are removed",
        _COMPACTION,
        "storage/compaction/filtering.py",
        "            return batch.last_offset == last.last_data_offset",
        "            return False",
    ),
    _one(
        "retention-passes-the-high-watermark",
        "retention removes nothing above the high watermark",
        ("tests/storage/test_retention.py",),
        "storage/retention.py",
        "return self._end_of(index) <= self.high_watermark and not self._is_empty_end(index)",
        "return not self._is_empty_end(index)",
    ),
)

_SNAPSHOTS: Final = ("tests/lab/cluster/test_snapshots.py",)
_RESET: Final = ("tests/lab/cluster/test_reset.py", "tests/odradek/test_reset.py")

SNAPSHOTS: Final = tuple(
    replace(each, simulated=False)
    for each in (
        _one(
            "snapshot-shares-what-grows",
            "a snapshot copies the last segment instead of linking it",
            _SNAPSHOTS,
            SNAPSHOT_FILES,
            "            if path in files.lengths:",
            "            if False:",
        ),
        _one(
            "reset-keeps-settings",
            "a reset takes back changes of dynamic settings",
            ("tests/lab/cluster/test_reset.py",),
            "broker/metadata/client_control.py",
            "            *restoration.records_for_configs(self._image, saved),\n",
            "",
        ),
        _one(
            "snapshot-forgets-unwritten-epochs",
            "a snapshot contains leader epochs that the node has only in memory",
            _SNAPSHOTS,
            SNAPSHOT_FILES,
            "            files.epochs[folder] = format_rows(log.epochs.entries())\n",
            "",
        ),
        _one(
            "restore-keeps-changed-folders",
            "a restore keeps only folders in which no file has changed",
            _SNAPSHOTS,
            SNAPSHOT_FILES,
            "    return name, status.st_ino, status.st_size, status.st_mtime_ns",
            "    return name, status.st_ino, 0, 0",
        ),
        _one(
            "restore-repeats-leader-epochs",
            "no leader epoch is used twice, even after a restore",
            _SNAPSHOTS,
            "broker/metadata/cluster_control.py",
            "records_for_restoring(self._image, saved, epochs)",
            "records_for_restoring(self._image, saved, {})",
        ),
        _one(
            "restore-keeps-the-time",
            "a restore resets the clock to the snapshot's time",
            _SNAPSHOTS,
            "lab/cluster/snapshots.py",
            "            await cluster.clock.restore(snapshot.time)\n",
            "",
        ),
        _one(
            "reset-keeps-checkpoints",
            "after a reset a topic of the same name ignores earlier checkpoints",
            _RESET,
            "lab/cluster/reset.py",
            "            remove(data_dir / name)",
            "            pass",
        ),
    )
)

METADATA: Final = tuple(
    replace(each, simulated=False)
    for each in (
        _one(
            "settings-before-their-topic-lost",
            "a ConfigRecord may come before the TopicRecord of its topic",
            _IMAGE,
            "broker/metadata/deltas.py",
            "    topic.configs = image.configs.pop((TOPIC_RESOURCE, record.name), topic.configs)\n",
            "",
        ),
        _one(
            "removed-settings-replayed",
            "a ConfigRecord of a setting that Kafka has removed is skipped",
            _IMAGE,
            "broker/metadata/deltas.py",
            "    if not is_supported(record.resource_type, record.name):\n        return\n",
            "",
        ),
        _one(
            "cleared-replicas-stay-eligible",
            "a ClearElrRecord removes the eligible leader replicas",
            _IMAGE,
            "broker/metadata/deltas.py",
            "    schema.ClearElrRecord: _clear_eligible_replicas,\n",
            "",
        ),
        *(
            _one(name, rule, (_ELR, "tests/broker/metadata/test_cluster.py"), path, before, after)
            for name, rule, path, before, after in (
                (
                    "in-sync-replicas-lost-without-eligibility",
                    "a replica that leaves the ISR below min.insync.replicas is eligible (KIP-966)",
                    PARTITION_CHANGE,
                    "sorted({*state.eligible_leader_replicas, *state.isr}.difference(isr, unclean))",
                    "sorted({*state.eligible_leader_replicas}.difference(isr, unclean))",
                ),
                (
                    "eligible-although-enough-are-in-sync",
                    "no replica is eligible while the ISR has min.insync.replicas members (KIP-966)",
                    PARTITION_CHANGE,
                    "    if len(isr) >= min_isr:\n        return ()\n",
                    "",
                ),
                (
                    "unclean-replicas-stay-eligible",
                    "a replica is not eligible after an unclean shutdown (KIP-966)",
                    PARTITION_CHANGE,
                    ".difference(isr, unclean)",
                    ".difference(isr)",
                ),
                (
                    "last-known-leader-waits",
                    "the last known leader is elected if no replica is eligible",
                    PARTITION_CHANGE,
                    "        if last_known_leader in live:",
                    "        if False:",
                ),
                (
                    "eligible-leader-brings-its-isr",
                    "an eligible leader replica that is elected is the only one in sync",
                    PARTITION_CHANGE,
                    "            isr, eligible = (leader,), tuple(one for one in eligible if one != leader)",
                    "            isr, eligible = eligible, ()",
                ),
                (
                    "every-return-is-clean",
                    "a broker without a clean shutdown file has had an unclean shutdown",
                    "broker/metadata/startup.py",
                    "stored.get(broker.node_id, -2) == broker.epoch",
                    "stored.get(broker.node_id, broker.epoch) > 0",
                ),
                (
                    "killed-brokers-stay-live",
                    "a start fences the brokers of a process that was killed",
                    "broker/metadata/startup.py",
                    "for broker in image.brokers.values() if not broker.fenced]",
                    "for broker in image.brokers.values() if broker.fenced]",
                ),
                (
                    "min-insync-replicas-changed-without-clearing",
                    "a change of min.insync.replicas clears the eligible leader replicas",
                    "broker/metadata/config_control.py",
                    "            records += records_that_clear_elr(records)",
                    "            pass",
                ),
                (
                    "failed-replicas-may-lead",
                    "a replica with failed files is not elected before its broker registers again",
                    "broker/metadata/elections.py",
                    "if (topic_id, index, one) not in offline}",
                    "}",
                ),
            )
        ),
        _one(
            "log-directories-at-every-level",
            "below metadata.version 3.7-IV2 the log has no log directories",
            ("tests/broker/metadata/test_cluster.py",),
            "broker/metadata/startup.py",
            "metadata_version(levels) >= LOG_DIRECTORIES_FROM",
            "levels",
        ),
        _one(
            "producer-ids-by-node",
            "nodes get blocks of producer ids in the order of their first requests",
            ("tests/broker/metadata/test_producer_ids.py",),
            "broker/metadata/producer_id_control.py",
            "        first = max(self._image.next_producer_id, self._claimed_to)\n",
            "        first = max(self._image.next_producer_id, self._claimed_to, (node_id - 1) * BLOCK_SIZE)\n",
        ),
        _one(
            "internal-settings-left-out",
            "DescribeConfigs lists an internal setting that was set at the start",
            ("tests/broker/apis/test_describe_configs.py",),
            "broker/metadata/configs.py",
            "            elif name in given:",
            "            elif False:",
        ),
    )
)

CLOCK: Final = tuple(
    replace(each, simulated=False)
    for each in (
        _one(
            "advance-runs-each-round-of-the-flush",
            "work in the real-time domain runs once in an advance, whatever clients write meanwhile",
            _CLOCK,
            COURSE,
            'float("inf") if periodic_of(timer.callback) in self._ran else timer.idle_until_ms()',
            "timer.idle_until_ms()",
        ),
        _one(
            "advance-stops-for-each-wait-of-a-request",
            "an advance stops for a bounded number of timers that clients set meanwhile",
            _CLOCK,
            COURSE,
            "                heap = self._patient\n",
            "                pass\n",
        ),
        _one(
            "drain-waits-for-clients",
            "a drain ends, however much work in threads clients cause",
            _CLOCK,
            VIRTUAL_CLOCK,
            "        for _ in range(DRAIN_ROUNDS_MAX):\n",
            "        while True:\n",
        ),
        _one(
            "rule-pattern-tries-one-place",
            "a star in a rule's pattern matches any characters: all positions of the next part are tried",
            ("tests/lab/faults/test_language.py",),
            "lab/faults/rules.py",
            "    end = len(name) - len(last)\n",
            "    end = len(name)\n",
        ),
        _one(
            "advance-outlives-its-caller",
            "an advance ends early when its caller has hung up",
            ("tests/lab/control/test_clock.py",),
            "lab/control/routes/clock.py",
            "    ends_with_caller=True,\n",
            "",
        ),
    )
)

LIFECYCLE: Final = (
    _one(
        "calls-in-no-order",
        "a call on one node waits for an earlier reset or restore",
        _LIFECYCLE,
        "broker/cluster/lifecycle.py",
        "        async with self._in_turn():\n            self.check()\n            self._calls += 1",
        "        if True:\n            self.check()\n            self._calls += 1",
    ),
    _one(
        "calls-after-the-end",
        "no call begins once the broker is shutting down",
        _LIFECYCLE,
        "broker/cluster/lifecycle.py",
        "        self._is_ending = True\n",
        "",
    ),
    _one(
        "killed-node-stops-the-others",
        "a reset or a restore continues with the other nodes if one is killed while it starts",
        _LIFECYCLE,
        "lab/cluster/restarting.py",
        "                self._starting.remove((runtime, before))\n",
        "                raise\n",
    ),
    _one(
        "deleted-folders-of-one-name",
        "the folder of a deleted partition gets a new name each time",
        ("tests/storage/test_directory.py",),
        "storage/directory.py",
        "{uuid4().hex}",
        "{uuid4().hex[:0]}",
    ),
    *(
        replace(each, simulated=False)
        for each in (
            _one(
                "end-beside-a-stop",
                "the shutdown of the broker waits for a node that is stopping",
                ("tests/broker/cluster/test_deaths_at_a_start.py", *_LIFECYCLE),
                "broker/cluster/lifecycle.py",
                "            await self.calls_ended()\n            yield",
                "            yield",
            ),
            _one(
                "topics-of-the-start-not-due",
                "a start creates the topics of the command line if a reset could not",
                _LIFECYCLE,
                "broker/cluster/cluster.py",
                "        with suppress(StartError):  # too few nodes: the next start creates the topics\n"
                "            await self.startup_topics.create(self.metadata)\n",
                "",
            ),
            _one(
                "kills-before-it-has-the-directories",
                "a reset or a restore changes nothing if another process uses the directory of a dead node",
                _LIFECYCLE,
                "lab/cluster/restarting.py",
                "                with locked(runtime.data_dir):\n                    pass\n",
                "                pass\n",
            ),
            _one(
                "pause-beside-a-stop",
                "a node that is about to stop cannot be paused",
                _LIFECYCLE,
                "broker/cluster/cluster.py",
                "        if runtime.lifecycle_lock.locked():",
                "        if False:",
            ),
            _one(
                "a-check-of-the-control-port-loads-it",
                "a connection to the control port without a request does not load the control port's modules",
                ("tests/lab/control/test_listener.py",),
                "lab/control/listener.py",
                "        if has_sent:\n",
                "        if True:\n",
            ),
            _one(
                "silent-callers-are-dropped",
                "the HTTP server of the control port takes over the connections that were accepted before it was loaded",
                ("tests/lab/control/test_listener.py",),
                "lab/control/listener.py",
                "serve(self._listening, [*self._accepted])",
                "serve(self._listening, [])",
            ),
            _one(
                "the-loop-loads-the-control-port",
                "clients of the broker are served while the control port's modules are loaded",
                ("tests/lab/control/test_listener.py",),
                "lab/control/listener.py",
                "await asyncio.to_thread(load, self._modules)",
                "load(self._modules)",
            ),
            _one(
                "openssl-for-a-plain-control-port",
                "a control port without TLS loads no OpenSSL",
                ("tests/lab/control/test_listener.py", "tests/server/test_start.py"),
                "lab/control/http_library.py",
                "late_modules.import_without_tls(SERVER)",
                "import_module(SERVER)",
            ),
            _one(
                "elections-from-the-first-call-on",
                "timelines show elections from before the first call to the control port",
                ("tests/lab/control/test_listener.py",),
                "lab/control/opening.py",
                "    ElectionWatcher(cluster.metadata, cluster.injection.happenings, cluster.clock)\n",
                "",
            ),
            _one(
                "refusal-without-a-reader",
                "an error response to a control call whose caller has hung up is not logged as a failure",
                ("tests/lab/control/test_calls_at_once.py",),
                "lab/control/server.py",
                "        task.add_done_callback(_note_failure)\n",
                "",
            ),
            _one(
                "chaos-ends-at-a-refusal",
                "odradek chaos continues after another caller has reset the broker",
                ("tests/odradek/test_chaos.py",),
                "odradek/chaos.py",
                "CHANGED_BY_OTHERS: Final = (404, 409)",
                "CHANGED_BY_OTHERS: Final = ()",
            ),
        )
    ),
)

_FREED = ("tests/broker/net/test_freed_bytes.py",)
_RELAY = ("tests/proxy/test_relay.py",)
_BOUNDED = ("tests/proxy/test_bounded.py",)

BOUNDS: Final = tuple(
    replace(mutant, simulated=False)
    for mutant in (
        _one(
            "proxy-asks-for-everything",
            "a Fetch through the proxy requests at most its share of the response budget",
            _BOUNDED,
            "proxy/bounded.py",
            "    granted = max(1, UNSENT.room_bytes // SHARE)",
            "    granted = max(1, asked)",
        ),
        _one(
            "proxy-does-not-charge",
            "the bytes that a Fetch through the proxy requests are charged to the budget until its response is there",
            _BOUNDED,
            "proxy/bounded.py",
            "    UNSENT.bytes += size\n",
            "    size = 0\n",
        ),
        _one(
            "large-responses-all-at-once",
            "the proxy reads one megabyte of large responses in a turn of the event loop",
            ("tests/proxy/test_wire.py",),
            "proxy/wire.py",
            "            if nbytes >= LARGE_READ_BYTES:",
            "            if False:",
        ),
        _one(
            "proxy-takes-garbage-for-a-defect",
            "an unreadable response of the upstream closes the connection with one log line, without a traceback",
            _RELAY,
            "proxy/link.py",
            "        if isinstance(error, MalformedRequest):",
            "        if False:",
        ),
        _one(
            "login-outlasts-its-connection",
            "a login in progress ends when its client disconnects",
            ("tests/lab/faults/test_login_rules.py",),
            "broker/net/connection.py",
            "            self.authentication.end()\n",
            "            pass\n",
        ),
        _one(
            "login-leaves-the-contexts-before-it",
            "a request after the login has the principal, in every request context",
            ("tests/lab/faults/test_login_rules.py",),
            "broker/net/connection.py",
            "        is_known = self.authentication is None or self.authentication.is_complete\n        if is_known and",
            "        if",
        ),
        _one(
            "half-login-waits-for-the-collector",
            "the tokens of an unfinished login are freed with its connection",
            _FREED,
            "broker/security/sasl/authenticator.py",
            "        self.mechanism, self._server = mechanism, chosen.server()\n",
            "        self.mechanism, self._server = mechanism, chosen.server()\n        self.kept = self\n",
        ),
        _one(
            "refusal-keeps-the-token",
            "a refused token is freed before the client has confirmed the refusal",
            _FREED,
            "broker/security/sasl/oauthbearer.py",
            "        self._refusal = _Refusal(error.json(), str(error))\n",
            "        self._refusal = _Refusal(error.json(), str(error))\n        self.kept = error\n",
        ),
        _one(
            "frame-keeps-the-error-of-a-handler",
            "a request whose handler raised an exception is freed without the garbage collector",
            _FREED,
            "broker/net/connection.py",
            "            self._answer(route, correlation_id, error, call)\n",
            "            outcome = error\n            self._answer(route, correlation_id, outcome, call)\n",
        ),
        _one(
            "timer-keeps-its-callback",
            "a waiting Fetch is freed when its client has disconnected",
            _FREED,
            "broker/clock/virtual.py",
            "        self.callback = _over\n        if self.base",
            "        if self.base",
        ),
        _one(
            "large-tokens-all-at-once",
            "only one of many large SASL tokens is evaluated in a turn of the event loop",
            ("tests/broker/net/test_authentication.py",),
            "broker/security/sasl/authenticator.py",
            "        if len(token) > TOKEN_BYTES_AT_ONCE:",
            "        if not token:",
        ),
    )
)

PROGRAM: Final = tuple(
    replace(each, simulated=False)
    for each in (
        _one(
            "signals-are-not-held-before-the-start",
            "SIGTERM before the server has its signal handlers ends it with exit code 0",
            ("tests/odradek/test_program.py",),
            "odradek/program.py",
            "    hold_signals()\n",
            "",
        ),
        _one(
            "closed-descriptors-stay-closed",
            "a broker with closed standard descriptors starts and stops normally",
            ("tests/odradek/test_program.py",),
            "odradek/_server/__main__.py",
            "    open_standard_descriptors()\n    take_options",
            "    take_options",
        ),
        _one(
            "stdin-that-no-loop-waits-for",
            "a broker with --ends-with-stdin stops cleanly at the end of any kind of standard input",
            ("tests/server/test_ends_with_stdin.py",),
            "server/process.py",
            '    threading.Thread(target=read, name="stdin", daemon=True).start()\n',
            "    loop.add_reader(0, read)\n",
        ),
        _one(
            "defaults-of-the-image-win-over-a-file",
            "the image's defaults have a lower priority than files, variables and options",
            ("tests/broker/config/test_config.py",),
            "broker/config/sources.py",
            'Rank.START, "the option --default"',
            'Rank.COMMAND_LINE, "the option --default"',
        ),
        _one(
            "brokers-of-a-quorum-that-do-not-know-each-other",
            "a broker whose quorum has nodes in other processes does not start",
            ("tests/server/test_quorum.py",),
            "broker/config/quorum.py",
            "if number.isdecimal() and int(number) not in node_ids:",
            "if False:",
        ),
        _one(
            "health-of-a-kernel",
            "a hanging broker is unhealthy: the health check needs a response of the event loop, not only of the kernel",
            ("tests/server/test_health.py",),
            "server/health.py",
            "        self._loop.add_reader(self._socket, self._answer)\n",
            "        import threading\n\n        forever = lambda: [self._answer() for _ in iter(int, 1)]\n"
            "        threading.Thread(target=forever, daemon=True).start()\n",
        ),
    )
)

DELETIONS: Final = (
    _one(
        "a-log-cannot-begin-inside-a-batch",
        "an empty follower begins with the whole batch in which its leader's log starts (UnexpectedAppendOffsetException)",
        _REPLICATION,
        FOLLOWING,
        "if first.base_offset < partition.log_end_offset <= first.last_offset:",
        "if False:",
    ),
    _one(
        "followers-do-not-hear-of-deleted-records",
        "a follower takes over its leader's log start",
        _REPLICATION,
        PARTITION,
        "if log_start_offset > self.log.log_start_offset:",
        "if False:",
    ),
    _one(
        "delete-records-does-not-wait",
        "the response to DeleteRecords is sent when all live replicas have the new log start",
        ("tests/broker/apis/test_delete_records.py", *_REPLICATION),
        LEADING,
        "        return min([self._partition.log_start_offset, *starts])",
        "        return self._partition.log_start_offset",
    ),
    _one(
        "checkpoints-of-an-earlier-topic-are-taken",
        "a new topic ignores the checkpoints of an earlier topic, whose deletion the node missed",
        ("tests/broker/replicas/test_stray_partitions.py",),
        "broker/replicas/log_manager.py",
        "            if not path.is_dir():",
        "            if False:",
    ),
    _one(
        "checkpoints-of-a-deleted-topic-stay-in-the-files",
        "a deletion rewrites the checkpoint files: after a crash the old rows would be loaded (LogManager.asyncDelete)",
        ("tests/broker/replicas/test_stray_partitions.py",),
        "broker/replicas/maintenance/checkpoints.py",
        "        if self.is_changed:\n            self.write_all(_nothing)",
        "",
    ),
    _one(
        "a-failed-replica-counts-for-the-next-topic",
        "a failed replica belongs to its topic id, not to a new topic with the same name",
        ("tests/broker/cluster/test_replication.py",),
        "broker/metadata/replication_control.py",
        "            if known.topic_id != topic_id:\n                return None\n",
        "",
    ),
    _one(
        "open-logs-keep-their-settings",
        "a changed topic setting applies to the logs that are open",
        ("tests/broker/replicas",),
        "broker/replicas/manager.py",
        "                partition.log.config = config\n",
        "",
    ),
)

_SINK_PROTOCOL: Final = "tests/spark/sink/test_protocol.py"
_SINK_CALLS: Final = "tests/spark/sink/test_sink_source.py"

SINK: Final = tuple(
    # The simulation has no Spark. The model-based test of the sink's protocol replaces it.
    replace(each, simulated=False)
    for each in (
        _one(
            "decided-batch-passed-over-by-its-number",
            "a decided batch is skipped only if Spark has planned the decided rows",
            (f"{_SINK_PROTOCOL}::TestLostFiles",),
            "odradek/spark/sink/decision.py",
            "            _check_content(plan, reports, batch)\n",
            "            pass\n",
        ),
        _one(
            "decided-batch-known-by-its-count",
            "the same number of other rows is not taken for the decided rows",
            (f"{_SINK_PROTOCOL}::TestLostFiles",),
            "odradek/spark/sink/decision.py",
            "    same_sum = summed and decided.digest == now.digest\n",
            "    same_sum = summed\n",
        ),
        _one(
            "any-other-rows-are-not-deterministic",
            "different rows are excused as non-deterministic only if they come from the decided offsets",
            (f"{_SINK_PROTOCOL}::TestLostFiles",),
            "odradek/spark/sink/decision.py",
            "    same_offsets = located and decided.offsets == now.offsets\n",
            "    same_offsets = located\n",
        ),
        _one(
            "rows-only-counted-although-offsets-are-known",
            "without a checksum of rows, the same number of rows from other offsets is not taken for the decided rows",
            (f"{_SINK_PROTOCOL}::TestLostFiles",),
            "odradek/spark/sink/decision.py",
            "or not (summed or located)):\n",
            "or not summed):\n",
        ),
        _one(
            "topics-of-a-batch-not-compared",
            "writing a batch to another topic is not a repetition of it",
            (f"{_SINK_CALLS}::TestBatchWrites",),
            "odradek/spark/sink/decision.py",
            "    if plan.topics and (other := ",
            "    if not plan.topics and (other := ",
        ),
        _one(
            "missing-record-is-a-new-query",
            "a sink without a decision record counts as new only if nothing shows that it had one",
            (f"{_SINK_PROTOCOL}::TestLostRecords",),
            "odradek/spark/sink/task.py",
            "            _check_new(cluster, plan, batch, query_id)\n",
            "            pass\n",
        ),
        _one(
            "first-decision-binds-no-query",
            "a query with a changed name is recognised by its id",
            (f"{_SINK_PROTOCOL}::TestLostRecords",),
            "odradek/spark/sink/decision.py",
            "            store.bind(plan.driver, query_id)\n",
            "            pass\n",
        ),
        _one(
            "committed-ids-are-no-evidence",
            "if the decision record is lost, committed transactions show that there was one",
            (f"{_SINK_PROTOCOL}::TestLostRecords",),
            "odradek/spark/sink/evidence.py",
            "    if committed := committed_tasks(store.name, known):\n",
            "    if committed := []:\n",
        ),
        _one(
            "checkpoint-mark-not-read",
            "after seven days only the checkpoint shows that there was a decision record",
            (f"{_SINK_PROTOCOL}::TestLostRecords",),
            "odradek/spark/sink/evidence.py",
            "    if mark is not None:\n        return",
            "    if False:\n        return",
        ),
        _one(
            "copies-of-attempts-left-open",
            "open transactions of attempts that lost are aborted after the batch, also if the first attempt won",
            (f"{_SINK_PROTOCOL}::test_a_copy_that_lost_against_the_first_attempt_holds_no_reader_back",),
            "odradek/spark/sink/decision.py",
            "    sweep(cluster, plan.settings, _own(cluster, name, plan.number) - won)\n",
            "",
        ),
        _one(
            "one-partition-read-without-a-write",
            "a write precedes each read, also if the decision topic has one partition",
            (f"{_SINK_PROTOCOL}::TestOneDecisionPartition",),
            "odradek/spark/sink/store.py",
            '        self.cluster.commit_offsets(driver_id(self.name), driver, self.name, {(self.topic, place): (0, "")})\n'
            "        if not apart:\n"
            "            self.end(driver, commit=False)\n",
            "        if apart:\n"
            "            self.cluster.commit_offsets(\n"
            '                driver_id(self.name), driver, self.name, {(self.topic, place): (0, "")}\n'
            "            )\n",
        ),
    )
)

_AUDIT: Final = "odradek/spark/audit"

AUDIT: Final = tuple(
    # The audit of partition directories. The simulation does not run this code, as it has its own checks.
    replace(each, simulated=False)
    for each in (
        _one(
            "audit-takes-an-undecided-abort-for-decided",
            "an abort marker right after a commit marker of its epoch is explained only by a decision or an operator",
            ("tests/spark/audit/test_audit_queries.py",),
            f"{_AUDIT}/atomicity.py",
            "        last_is_abort & ~aborted,\n",
            "        F.lit(False),\n",
        ),
        _one(
            "audit-takes-all-zeros-for-preallocated",
            "only the last segment of a broker that was not stopped cleanly ends in preallocated zeros",
            ("tests/spark/audit/test_audit_queries.py",),
            f"{_AUDIT}/tables.py",
            'if not scratch.holds("batches", "zeros"):',
            "if scratch:",
        ),
        _one(
            "audit-waits-for-folders-of-all-coordinators",
            "the folder of an internal topic's partition is created only when it is first used",
            ("tests/spark/audit/test_cluster_metadata.py",),
            f"{_AUDIT}/presence.py",
            "return existing <= found or (names_disks and all_here(metadata, directories))",
            "return existing <= found",
        ),
        _one(
            "audit-forgets-disks-that-a-broker-does-not-name",
            "before Kafka 3.7 a broker may have partitions on a disk that is not in the metadata",
            ("tests/spark/audit/test_cluster_metadata.py",),
            f"{_AUDIT}/presence.py",
            "(names_disks and all_here(metadata, directories))",
            "all_here(metadata, directories)",
        ),
        _one(
            "audit-judges-indexes-of-the-active-segment",
            "the index of the active segment may end in entries that are half written, or older than a truncation",
            ("tests/spark/audit/test_audit_deep.py",),
            f"{_AUDIT}/two_looks.py",
            ' | ~F.col("last")',
            " | F.lit(True)",
        ),
        _one(
            "audit-holds-entries-against-a-compacted-segment",
            "compaction writes a segment and its indexes again under the same names",
            ("tests/spark/audit/test_audit_deep.py",),
            f"{_AUDIT}/two_looks.py",
            "before.inode = after.inode and ",
            "",
        ),
    )
)

COROUTINES: Final = (
    _one(
        "walk-goes-on-after-a-kill",
        "a coroutine that waits in a killed node is never resumed: no line after the await runs",
        ("tests/broker/loop/test_coroutines.py",),
        "broker/loop/coroutines.py",
        "        if self._life.suspended_coroutines.pop(self, self) is self:\n"
        '            misused("a coroutine was resumed after its node\'s life", self._coroutine)\n'
        "            return\n",
        "        self._life.suspended_coroutines.pop(self, None)\n",
        (
            "broker/loop/life.py",
            "        for coroutine in suspended:\n            coroutine.close()\n",
            "        del suspended\n",
        ),
    ),
    _one(
        "waiter-takes-the-last-of-several-values",
        "the first wake of a waiter counts: a commit after the timeout changes nothing",
        ("tests/broker/loop/test_coroutines.py",),
        "broker/loop/coroutines.py",
        "        if self._value is not MISSING:\n            return\n        self._value = value\n",
        "        self._value = value\n",
    ),
    _one(
        "walk-goes-on-in-another-turn",
        "a coroutine is resumed in the turn in which it is woken, before anything that arrives later",
        ("tests/broker/loop/test_coroutines.py",),
        "broker/loop/coroutines.py",
        "            suspended.resume()\n",
        "            asyncio.get_running_loop().call_soon(suspended.resume)\n",
    ),
    _one(
        "group-decision-kept-while-a-rule-held-it",
        "a group decision is made again after a wait, as the group may have changed",
        ("tests/broker/groups/test_points.py",),
        "broker/groups/modern_groups.py",
        "            decision = decide(self.context(group_id))\n        end_offset",
        "        end_offset",
    ),
    _one(
        "consumer-group-answered-before-the-high-watermark",
        "the response to a consumer group member is sent once the records of it are committed",
        ("tests/broker/groups/consumer",),
        "broker/groups/modern_groups.py",
        "        _check(await shard.committed(end_offset))\n",
        "        del end_offset\n",
    ),
    _one(
        "waiting-commits-are-taken-for-committed",
        "a request that waits for a commit gets an error when another node becomes the coordinator",
        ("tests/broker/groups/test_points.py", "tests/broker/groups/test_coordinator.py"),
        REPLAYED_SHARD,
        "            verdict.wake(error)\n",
        "            verdict.wake(NONE)\n",
    ),
    _one(
        "init-producer-id-answered-before-it-is-written",
        "the response to InitProducerId is sent when the new epoch is committed",
        ("tests/broker/transactions/test_killed_while_waiting.py",),
        COORDINATOR,
        "                    error = await self._persist(shard, entry, decision)\n"
        "                    return decision.answer if error is NONE else Answer(error)\n",
        "                    start_in_background(self._persist(shard, entry, decision), self._life)\n"
        "                    return decision.answer\n",
    ),
    _one(
        "added-partitions-answered-before-they-are-written",
        "the response to AddPartitionsToTxn is sent when the partitions are in the committed state",
        ("tests/broker/transactions/test_killed_while_waiting.py",),
        COORDINATOR,
        "        error = await self._persist(shard, entry, decision)\n"
        "        return decision.answer if error is NONE else Answer(error)\n\n    def verify_partitions",
        "        start_in_background(self._persist(shard, entry, decision), self._life)\n"
        "        return decision.answer\n\n    def verify_partitions",
    ),
    _one(
        "two-walks-of-one-id-at-once",
        "while a state of a transactional id is being written, other requests for it get CONCURRENT_TRANSACTIONS",
        ("tests/broker/transactions/test_ending.py", "tests/broker/transactions/test_coordinator.py"),
        COORDINATOR,
        "        entry.pending = after.state\n",
        "        entry.pending = None\n",
    ),
    _one(
        "ids-finished-one-after-the-other",
        "a new coordinator finishes its transactional ids concurrently: one that waits for a marker delays no other",
        ("tests/broker/transactions/test_coordinator.py",),
        COORDINATOR,
        "        for completion in completions:\n"
        "            start_in_background(self._complete(shard, completion), self._life)\n"
        "        self._markers.start(*completions)\n",
        "        async def finish() -> None:\n"
        "            for completion in completions:\n"
        "                self._markers.start(completion)\n"
        "                await self._complete(shard, completion)\n\n"
        "        start_in_background(finish(), self._life)\n",
    ),
    _one(
        "id-not-looked-for-again",
        "a transactional id is looked up again after a wait: another node may coordinate it by then",
        ("tests/broker/transactions/test_fresh_ids.py", "tests/broker/transactions/test_init_producer_id.py"),
        COORDINATOR,
        'abort it first."""\n        fresh: int | None = None\n        while True:\n'
        "            found = self._find(transactional_id)\n",
        'abort it first."""\n        fresh: int | None = None\n'
        "        found = self._find(transactional_id)\n        while True:\n",
    ),
    _one(
        "batch-appended-before-its-partition-is-added",
        "a transactional batch is appended once its partition is in the transaction",
        ("tests/broker/transactions/test_killed_while_waiting.py",),
        "broker/requests/producing.py",
        "            self._copy_batches()\n            await verified\n",
        "            self._copy_batches()\n",
    ),
    _one(
        "batch-of-a-waiting-request-is-read-from-the-next-frame",
        "the bytes of a request stay unchanged, however long it waits",
        ("tests/broker/transactions/test_adding.py", "tests/broker/apis/test_produce.py"),
        "broker/requests/producing.py",
        "            self._copy_batches()\n            await verified\n",
        "            await verified\n",
    ),
    _one(
        "queued-batch-appended-by-a-former-leader",
        "a queued batch is refused when the leader has changed by its turn",
        ("tests/broker/replicas/test_append_queues.py",),
        "broker/requests/producing.py",
        "        if leader is partition:\n",
        "        if leader is not None:\n",
    ),
    _one(
        "marker-counts-before-it-is-committed",
        "CompleteCommit is written only when each marker is committed",
        (
            "tests/broker/transactions/test_killed_while_waiting.py",
            "tests/broker/transactions/test_ending.py",
        ),
        MARKERS,
        "    if partition.high_watermark <= result.last_offset:\n",
        "    if partition.high_watermark < 0:\n",
    ),
    _one(
        "state-installed-by-a-former-coordinator",
        "a state that is committed after a change of the coordinator is not installed, and its client gets an error",
        ("tests/broker/transactions/test_coordinator.py",),
        "broker/coordinator_runtime/shard.py",
        "        if error is NONE and not self.is_current():\n",
        "        if error is NONE and self.partition is None:\n",
    ),
    _one(
        "completed-in-spite-of-a-newer-owner",
        "a coordinator whose marker was fenced by a newer producer epoch writes no CompleteCommit",
        ("tests/broker/transactions/test_ending.py", "tests/broker/transactions/test_marker_channel.py"),
        ENTRY,
        "            await self._ended\n        return self.is_wanted()\n",
        "            await self._ended\n        return True\n",
    ),
)


_SHARE_PARTITION: Final = ("tests/broker/share/partition",)
_SHARE_FETCH: Final = ("tests/broker/share/test_share_fetch.py",)
_SHARE: Final = "broker/share/partition"
_BY_SIMULATION: Final = frozenset(
    {
        "share-record-delivered-once-too-often",
        "share-start-offset-passes-a-gap",
        "share-refused-acknowledgements-half-done",
        "share-session-releases-records-of-others",
        "share-aborted-records-stay-acquired",
        "share-start-offset-goes-back",
        "share-snapshot-without-earlier-batches",
        "share-pruning-beyond-a-snapshot",
    }
)
"""The others change what members have to wait for, or need two faults at once."""

SHARE_PARTITIONS: Final = tuple(
    replace(each, simulated=each.name in _BY_SIMULATION)
    for each in (
        _one(
            "share-record-delivered-once-too-often",
            "a record whose delivery count has reached the limit is archived when it is released",
            _SHARE_PARTITION,
            f"{_SHARE}/in_flight.py",
            "self.delivery_count >= delivery_count_limit",
            "self.delivery_count > delivery_count_limit",
        ),
        _one(
            "share-record-acquired-in-transition",
            "a record whose release is being written is not acquired",
            _SHARE_PARTITION,
            f"{_SHARE}/in_flight.py",
            "self.state is RecordState.AVAILABLE and self.rollback is None",
            "self.state is RecordState.AVAILABLE",
        ),
        _one(
            "share-start-offset-passes-what-is-not-written",
            "the start offset waits for the write of an acknowledgement",
            _SHARE_PARTITION,
            f"{_SHARE}/in_flight.py",
            "return self.state in TERMINAL and self.rollback is None",
            "return self.state in TERMINAL",
        ),
        _one(
            "share-start-offset-passes-a-gap",
            "records without a stored state are delivered before the start offset passes them",
            _SHARE_PARTITION,
            f"{_SHARE}/records.py",
            "if self.gap is not None and batch.last_offset >= self.gap:",
            "if False:",
        ),
        _one(
            "share-records-of-another-member-acknowledged",
            "only the member that has acquired a record acknowledges it",
            _SHARE_PARTITION,
            f"{_SHARE}/partition.py",
            "if state.member_id != by.member_id:\n                raise",
            "if False:\n                raise",
        ),
        _one(
            "share-refused-acknowledgements-half-done",
            "if one batch of a partition is refused, no batch has an effect",
            _SHARE_PARTITION,
            f"{_SHARE}/partition.py",
            "            self._undo(change)\n            raise",
            "            raise",
        ),
        _one(
            "share-expired-lock-back-after-a-failed-write",
            "a record whose lock ran out while its write failed is available, and not acquired without a lock",
            _SHARE_PARTITION,
            f"{_SHARE}/partition.py",
            "if state.lock is None or not state.lock.has_expired:",
            "if True:",
        ),
        _one(
            "share-session-releases-records-of-others",
            "the end of a session, or a lock that runs out, releases only the records with that lock",
            _SHARE_PARTITION,
            f"{_SHARE}/partition.py",
            "if state.lock is lock and state.state is RecordState.ACQUIRED:",
            "if state.state is RecordState.ACQUIRED:",
        ),
        _one(
            "share-poison-record-not-alone",
            "a record that is delivered for the last time is delivered alone",
            _SHARE_PARTITION,
            f"{_SHARE}/acquiring.py",
            "if is_last and chosen:",
            "if False:",
        ),
        _one(
            "share-locks-without-limit",
            "without room for more locks only records up to the end offset are delivered again",
            _SHARE_PARTITION,
            f"{_SHARE}/acquiring.py",
            "self._last_offset = min(self._last_offset, records.end_offset)",
            "pass",
        ),
        _one(
            "share-aborted-records-stay-acquired",
            "records of aborted transactions are archived when they are read",
            _SHARE_PARTITION,
            f"{_SHARE}/acquiring.py",
            "self._records.archive_range(first, last, RecordState.ACQUIRED, Ending.ABORTED)",
            "pass",
        ),
        _one(
            "share-fetch-sees-the-release-that-it-carries",
            "a record that is released in a ShareFetch is not acquired by the same ShareFetch",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "        await sleep(0)\n",
            "",
        ),
        _one(
            "share-release-wakes-fetches",
            "a release that is written wakes no waiting ShareFetch, a start offset that moves does",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "        if managed.state.commit(change):\n            managed.notify()",
            "        managed.state.commit(change)\n        managed.notify()",
        ),
        _one(
            "share-write-error-not-rolled-back",
            "records whose acknowledgement could not be written are acquired as before",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "managed.state.roll_back(change)",
            "managed.state.commit(change)",
        ),
        _one(
            "share-fenced-partition-stays",
            "a leader whose write was fenced drops the share partition",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "if outcome.error in FENCING:",
            "if False:",
        ),
        _one(
            "share-session-without-its-connection",
            "a session ends with the connection of its first request",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "if self.sessions.is_current(session):",
            "if False:",
        ),
        _one(
            "share-partitions-stay-after-the-last-session",
            "the share partitions of a group leave the memory with its last connection",
            _SHARE_FETCH,
            "broker/share/manager.py",
            "if not self.sessions.has_members(session.key.group_id):",
            "if False:",
        ),
        _one(
            "share-fetch-without-a-budget",
            "MaxRecords counts the records of all partitions of a ShareFetch",
            _SHARE_FETCH,
            "broker/requests/share_fetching.py",
            "records_left -= sum(",
            "records_left -= 0 * sum(",
        ),
        _one(
            "share-fetch-partitions-in-one-order",
            "each ShareFetch of a session begins with another partition",
            _SHARE_FETCH,
            "broker/requests/share_fetching.py",
            "at = epoch % len(partitions) if partitions and epoch > 0 else 0",
            "at = 0",
        ),
    )
)


_SHARE_GROUP: Final = ("tests/broker/groups/share",)
_IN_GROUP: Final = "broker/groups/share"

SHARE_GROUPS: Final = tuple(
    replace(each, simulated=False)
    for each in (
        _one(
            "share-group-without-an-epoch-for-initialized-partitions",
            "a share group has a new epoch when initialized partitions are not assigned",
            _SHARE_GROUP,
            f"{_IN_GROUP}/heartbeat.py",
            "topic.name in group.subscriptions.topics and assigned.get(topic_id) != topic.partitions",
            "False",
        ),
        _one(
            "share-group-assigned-at-once",
            "the target assignment of a share group is computed at most once in the assignment interval",
            _SHARE_GROUP,
            f"{_IN_GROUP}/targets.py",
            "context.assignment_interval_ms, group",
            "0, group",
        ),
        _one(
            "share-group-refuses-the-previous-epoch",
            "a member of a share group may send its previous epoch",
            _SHARE_GROUP,
            f"{_IN_GROUP}/heartbeat.py",
            "if epoch not in (member.member_epoch, member.previous_member_epoch):",
            "if epoch != member.member_epoch:",
        ),
        _one(
            "share-group-skips-what-is-in-added-partitions",
            "partitions that are added to a topic of a share group are delivered from offset 0",
            _SHARE_GROUP,
            f"{_IN_GROUP}/initializing.py",
            "ADDED_START_OFFSET if topic_id in known else NO_START_OFFSET",
            "NO_START_OFFSET",
        ),
        _one(
            "share-group-initializes-again-and-again",
            "partitions that are being initialized are not initialized again before the retry interval is over",
            _SHARE_GROUP,
            f"{_IN_GROUP}/initializing.py",
            "        known = joined(known, group.partitions.initializing)\n",
            "        pass\n",
        ),
        _one(
            "share-group-empty-with-an-older-assignment-epoch",
            "the last member of a share group leaves the assignment epoch equal to the group epoch",
            _SHARE_GROUP,
            f"{_IN_GROUP}/fencing.py",
            "if len(group.members) == 1:",
            "if False:",
        ),
        _one(
            "share-assignor-leaves-members-idle",
            "more members than partitions: each member has a partition",
            _SHARE_GROUP,
            f"{_IN_GROUP}/assignor.py",
            "-(-len(members) // count) if count else 0",
            "1 if count else 0",
        ),
        _one(
            "share-group-deleted-with-its-states",
            "a share group stays if the states of its share partitions cannot be deleted",
            _SHARE_GROUP,
            "broker/groups/coordinator.py",
            "            if error is not NONE:\n                return error\n        return await commits.delete_group",
            "        return await commits.delete_group",
        ),
    )
)


_SHARE_COORDINATOR: Final = ("tests/broker/share/coordinator", "tests/broker/share/test_persister.py")
_SHARE_STATE: Final = "broker/share/coordinator/state.py"

SHARE_COORDINATOR: Final = tuple(
    replace(each, simulated=each.name in _BY_SIMULATION)
    for each in (
        _one(
            "share-write-of-a-former-leader",
            "a write with a leader epoch below the highest one is FENCED_LEADER_EPOCH",
            _SHARE_COORDINATOR,
            _SHARE_STATE,
            "if self.leader_epochs.get(key, 0) > leader_epoch:",
            "if self.offsets[key].stored.leader_epoch > leader_epoch:",
        ),
        _one(
            "share-write-before-an-initialization",
            "a write with a state epoch below the highest one is FENCED_STATE_EPOCH",
            _SHARE_COORDINATOR,
            _SHARE_STATE,
            "if state_epoch is not None and self.state_epochs.get(key, 0) > state_epoch:",
            "if False:",
        ),
        _one(
            "share-start-offset-goes-back",
            "a write does not move the start offset back",
            _SHARE_COORDINATOR,
            _SHARE_STATE,
            "elif change.start_offset > start_offset:",
            "else:",
        ),
        _one(
            "share-snapshot-without-earlier-batches",
            "a snapshot has all batches of its share partition, not only those of the write",
            _SHARE_COORDINATOR,
            _SHARE_STATE,
            "*(before.batches if is_snapshot else ())",
            "*()",
        ),
        _one(
            "share-pruning-beyond-a-snapshot",
            "records from the oldest of the last snapshots on are not deleted",
            _SHARE_COORDINATOR,
            _SHARE_STATE,
            "min(self.snapshots.values(), default",
            "max(self.snapshots.values(), default",
        ),
        _one(
            "share-release-wins-over-acknowledgement",
            "of two states with one delivery count the higher one holds",
            _SHARE_COORDINATOR,
            "broker/share/coordinator/batches.py",
            "(-batch.delivery_count, -batch.state, batch.last_offset)",
            "(-batch.delivery_count, batch.state, batch.last_offset)",
            (
                "broker/share/coordinator/batches.py",
                "StateBatch(first, end - 1, -state, -count)",
                "StateBatch(first, end - 1, state, -count)",
            ),
        ),
        _one(
            "share-state-told-before-its-commit",
            "the response waits until all that was read or written is committed",
            _SHARE_COORDINATOR,
            "broker/share/coordinator/shard.py",
            "return await self.committed(self.partition.log_end_offset)",
            "return NONE",
        ),
        _one(
            "share-acknowledgement-answered-before-its-write",
            "the records of an answered acknowledgement are never delivered again, whenever the node dies",
            ("tests/broker/cluster/test_share_deaths.py",),
            "broker/share/manager.py",
            "await self._write(managed, change)\n\n",
            "start_in_background(self._write(managed, change), self._life) or Outcome(NONE)\n\n",
        ),
        _one(
            "share-dead-letters-lost-with-the-leader",
            "a leader sends the dead letters of records in the state Archiving again",
            ("tests/broker/cluster/test_share_deaths.py",),
            "broker/share/manager.py",
            "            self._send_dead_letters(managed, change)\n        managed.notify()\n",
            "            pass\n        managed.notify()\n",
        ),
        _one(
            "share-persister-gives-up-at-once",
            "the persister asks again when the coordinator is not available",
            _SHARE_COORDINATOR,
            "broker/share/persister.py",
            "if not retriable or attempt == ATTEMPTS:",
            "if True:",
        ),
    )
)

_SIMULATION: Final = ("tests/broker/share",)

SHARES_ON_THREE_NODES: Final = (
    _one(
        "share-partition-of-a-former-leader-stays",
        "a node that leads a topic partition no more drops its share partitions",
        _SIMULATION,
        "broker/share/manager.py",
        "if partition.leader != self._replicas.node_id:",
        "if False:",
    ),
    _one(
        "share-lock-timer-of-another-clock",
        "locks end in the clock domain of groups",
        _SHARE_FETCH,
        "broker/share/manager.py",
        "partial(self._expire, managed), Domain.GROUPS)",
        "partial(self._expire, managed), Domain.REQUESTS)",
    ),
    _one(
        "share-dead-letters-not-sent",
        "a rejected record is written to the dead-letter queue once its state is written",
        _SIMULATION,
        "broker/share/manager.py",
        "            managed.notify()\n        self._send_dead_letters(managed, change)\n        return outcome",
        "            managed.notify()\n        return outcome",
    ),
    _one(
        "share-open-transactions-delivered",
        "a share group with read_committed gets records below the last stable offset only",
        _SHARE_FETCH,
        "broker/requests/share_fetching.py",
        "                read_committed=self._settings.read_committed,\n                whole_first_batch",
        "                read_committed=False,\n                whole_first_batch",
    ),
    _one(
        "share-leader-epoch-not-raised-by-a-read",
        "a read raises the leader epoch of a share partition, so that its former leader is fenced",
        _SHARE_COORDINATOR,
        _SHARE_STATE,
        "if self.leader_epochs.get(key) == wanted.leader_epoch:",
        "if True:",
    ),
    replace(
        _one(
            "share-sessions-without-limit",
            "a node has at most group.share.max.share.sessions share sessions",
            ("tests/broker/share/test_sessions.py",),
            "broker/share/sessions.py",
            "if len(self.sessions) >= self.sessions_max:",
            "if False:",
        ),
        simulated=False,
    ),
    replace(
        _one(
            "share-session-of-a-closed-connection-evicts-its-successor",
            "the end of a connection ends only the session that was created on it",
            ("tests/broker/share/test_sessions.py",),
            "broker/share/sessions.py",
            "return self.sessions.get(session.key) is session",
            "return True",
        ),
        simulated=False,
    ),
)

MUTANTS: Final = (
    *IDEMPOTENCE,
    *READING_COMMITTED,
    *REPLICATION,
    *SINGLE_REPLICAS,
    *TRANSACTIONS,
    *COROUTINES,
    *GROUPS,
    *SHARE_GROUPS,
    *SHARE_PARTITIONS,
    *SHARE_COORDINATOR,
    *SHARES_ON_THREE_NODES,
    *ABORTED_BY_HAND,
    *TWO_PHASE_COMMIT,
    *INTERNAL_TOPICS,
    *FILES,
    *SNAPSHOTS,
    *METADATA,
    *CLOCK,
    *LIFECYCLE,
    *BOUNDS,
    *PROGRAM,
    *DELETIONS,
    *SINK,
    *AUDIT,
)
