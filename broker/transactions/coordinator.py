"""The transaction coordinator: carries out what `broker.transactions.decisions` decides.

Each method first appends the new state, then writes markers, then responds. Each request is a coroutine that is started
eagerly (`broker.loop.coroutines`): on one node without ``flush.messages`` nothing waits, and a whole EndTxn (PrepareX,
markers, CompleteX, response) is one turn of the event loop. After an `await`, state that was read before may be outdated, so
a method reads the state again, unless the transactional id was pending, which kept its state from changing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain
from broker.clock.sleeping import sleep_ms
from broker.coordinator_runtime.runtime import CoordinatorRuntime
from broker.coordinator_runtime.shard import CoordinatorShard
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from broker.loop.life import NodeLife
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import TRANSACTION_STATE
from broker.transactions import decisions
from broker.transactions.after_crash import report_lost_decisions
from broker.transactions.cleanup import Cleanup
from broker.transactions.entry import Entry, PendingCompleteTxn
from broker.transactions.fresh_ids import fresh_producer_id
from broker.transactions.markers import RETRY_BACKOFF_MS, TransactionMarkerManager
from broker.transactions.records import state_batch
from broker.transactions.shard import TransactionShard
from broker.transactions.transaction import (
    NO_EPOCH,
    PREPARED,
    TRANSACTION_VERSION_2,
    AbortFirst,
    Answer,
    NeedsProducerId,
    TopicPartition,
    Transaction,
    Transition,
)
from protocol.errors import NONE, ErrorCode
from protocol.hashing import partition_for

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager

log_events = get_logger()

ORDER_OF_KAFKA: Final = "kafka"
PREPARE_APPEND: Final = "txn.prepare.append"
COMPLETE_APPEND: Final = "txn.complete.append"


class TransactionCoordinator(MetadataListener):
    """Coordinates the transactional ids whose partition of ``__transaction_state`` this node leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        *,
        injection: FaultInjection | None = None,
        peers: Peers | None = None,
        partitions: int | None = None,
        life: NodeLife | None = None,
    ) -> None:
        """Create the coordinator of one life of a node.

        ``peers`` sends markers to other nodes. If it is None, a marker waits until this node leads the marker's
        partition.

        ``partitions`` is the number of partitions that ``__transaction_state`` had when the node started; None:
        read it from the metadata.
        """
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._injection = injection or FaultInjection()
        self._life = life or NodeLife()
        self._partitions = partitions or coordinator_partitions(TRANSACTION_STATE, metadata.topic, config)
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_STATE,
            replicas,
            clock,
            self._life,
            self._injection,
            lambda partition: TransactionShard(partition, self._injection),
            self._resume,
            self._is_partition_count_stable,
        )
        self._markers = TransactionMarkerManager(
            replicas,
            groups,
            clock,
            self._life,
            metadata=metadata,
            injection=self._injection,
            peers=peers,
        )
        self._fresh_id = partial(fresh_producer_id, metadata, config.node_id)
        self._serving = self._runtime.serving
        self.cleanup = Cleanup(config, clock, self._life, self._runtime, self.abort, self._fresh_id)
        metadata.subscribe(self)

    # -- the partition of a transactional id --------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """Partition of ``__transaction_state`` for a transactional id, by the partition count at the node's start."""
        return partition_for(transactional_id, self._partitions)

    def _is_partition_count_stable(self) -> bool:
        """Whether ``__transaction_state`` has as many partitions as at the node's start.

        After a change, the ids in a loaded partition would not be the ids that hash to it.
        """
        topic = self._metadata.topic(TRANSACTION_STATE)
        return topic is None or len(topic.partitions) == self._partitions

    def node_for(self, transactional_id: str) -> int | None:
        """Id of the node that coordinates a transactional id; None if the id's partition does not exist or has no leader."""
        topic = self._metadata.topic(TRANSACTION_STATE)
        state = None if topic is None else topic.partition(self.partition_for(transactional_id))
        return None if state is None or state.leader < 0 else state.leader

    def _find(self, transactional_id: str) -> tuple[TransactionShard, Entry | None] | ErrorCode:
        """Return the shard and the entry of a transactional id (None if the id is new), or the error for the client.

        Callers test for a tuple, because an isinstance check for an enumeration would cost a call (ADR 25).
        """
        index = partition_for(transactional_id, self._partitions)
        shard: CoordinatorShard | ErrorCode | None = self._serving.find(index)
        if shard is None:
            shard = self._runtime.find(index)
        if isinstance(shard, TransactionShard):
            return shard, shard.entries.get(transactional_id)
        assert isinstance(shard, ErrorCode)
        return shard

    def _resume(self, shard: TransactionShard) -> None:
        """Finish transactions that are in PrepareCommit or PrepareAbort in a shard that was just loaded.

        All markers of these transactions are written again; duplicates are harmless.
        """
        decided = [entry for entry in shard.entries.values() if entry.txn.state in PREPARED]
        for entry in decided:
            log_events.info(
                "finishing a decided transaction",
                transactional_id=entry.txn.transactional_id,
                state=entry.txn.state.name,
                partitions=len(entry.txn.partitions),
            )
        completions = [PendingCompleteTxn(shard, entry) for entry in decided]
        for completion in completions:
            start_in_background(self._complete(shard, completion), self._life)
        self._markers.start(*completions)

    # -- requests -----------------------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
    ) -> Answer:
        """Handle InitProducerId. If an earlier instance of the producer left a transaction open, abort it first."""
        fresh: int | None = None
        while True:
            found = self._find(transactional_id)
            if not isinstance(found, tuple):
                return Answer(found)
            shard, entry = found
            if entry is None and fresh is not None:
                entry = shard.entries[transactional_id] = Entry(Transaction(transactional_id, fresh))
            if entry is not None:
                decision = decisions.init_producer_id(
                    entry.txn,
                    entry.pending,
                    timeout_ms=timeout_ms,
                    producer_id=producer_id,
                    epoch=epoch,
                    now_ms=self._clock.now_ms(),
                    fresh_producer_id=fresh,
                )
                if isinstance(decision, Answer):
                    return decision
                if isinstance(decision, Transition):
                    error = await self._persist(shard, entry, decision)
                    return decision.answer if error is NONE else Answer(error)
                if isinstance(decision, AbortFirst):
                    outcome = await self.abort(shard, entry, fresh)
                    if outcome is not None:
                        return decision.answer if outcome.error is NONE else outcome
            fresh = await self._fresh_id()
            if fresh is None:
                return Answer(ErrorCode.coordinator_load_in_progress)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Answer:
        """Handle AddPartitionsToTxn, AddOffsetsToTxn, and the implicit add of Produce v12 and TxnOffsetCommit v5."""
        found = self._find(transactional_id)
        if not isinstance(found, tuple):
            return Answer(found)
        shard, entry = found
        decision = decisions.add_partitions(
            entry.txn if entry else None,
            entry.pending if entry else None,
            producer_id=producer_id,
            epoch=epoch,
            partitions=partitions,
            client_version=client_version,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(decision, Answer) or entry is None:
            return decision if isinstance(decision, Answer) else Answer(ErrorCode.unknown_server_error)
        if not self._can_store(client_version):
            return Answer(ErrorCode.unsupported_version)
        crash_point("txn.begin.append")
        error = await self._persist(shard, entry, decision)
        return decision.answer if error is NONE else Answer(error)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check whether the partitions are part of this producer's open transaction; returns an error for each partition."""
        found = self._find(transactional_id)
        if not isinstance(found, tuple):
            return dict.fromkeys(partitions, found)
        entry = found[1]
        return decisions.verify_partitions(
            entry.txn if entry else None, producer_id=producer_id, epoch=epoch, partitions=partitions
        )

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, bumps_epoch: bool
    ) -> Answer:
        """Handle EndTxn. ``bumps_epoch`` is true for EndTxn v5 and later."""
        fresh: int | None = None
        while True:
            found = self._find(transactional_id)
            if not isinstance(found, tuple):
                return Answer(found)
            shard, entry = found
            txn, pending = (entry.txn, entry.pending) if entry else (None, None)
            now_ms = self._clock.now_ms()
            decision: Answer | Transition | NeedsProducerId
            if bumps_epoch:
                decision = decisions.end_v2(
                    txn,
                    pending,
                    producer_id=producer_id,
                    epoch=epoch,
                    committed=committed,
                    now_ms=now_ms,
                    fresh_producer_id=fresh,
                )
            else:
                decision = decisions.end_v1(
                    txn, pending, producer_id=producer_id, epoch=epoch, committed=committed, now_ms=now_ms
                )
            if not isinstance(decision, NeedsProducerId):
                break
            fresh = await self._fresh_id()
            if fresh is None:
                return Answer(ErrorCode.coordinator_load_in_progress)
        if isinstance(decision, Answer) or entry is None:
            return decision if isinstance(decision, Answer) else Answer(ErrorCode.unknown_server_error)
        if bumps_epoch and not self._can_store(TRANSACTION_VERSION_2):
            return Answer(ErrorCode.unsupported_version)
        return await self._end(shard, entry, decision)

    # -- administration (KIP-664) -------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> Entry | ErrorCode:
        """Return the entry of a transactional id, TRANSACTIONAL_ID_NOT_FOUND, or the error of the id's partition."""
        found = self._find(transactional_id)
        return found if isinstance(found, ErrorCode) else found[1] or ErrorCode.transactional_id_not_found

    def all_entries(self) -> list[Entry] | ErrorCode:
        """Return the entries of all ids that this node coordinates; COORDINATOR_LOAD_IN_PROGRESS while a partition loads."""
        topic = self._metadata.topic(TRANSACTION_STATE)
        entries: list[Entry] = []
        for state in topic.partitions if topic is not None else ():
            if state.leader != self._replicas.node_id:
                continue
            shard = self._runtime.find(state.index)
            if shard is ErrorCode.coordinator_load_in_progress:
                return shard
            if isinstance(shard, TransactionShard):
                entries.extend(shard.entries.values())
        return entries

    # -- carrying out decisions ---------------------------------------------------------------------------------

    @property
    def _value_version(self) -> int:
        return 1 if self._metadata.features.get("transaction.version", 0) >= 1 else 0

    def _can_store(self, client_version: int) -> bool:
        """Whether a record can store ``client_version``. At transaction.version 0 it can store only 0 (old clients)."""
        return client_version == 0 or self._value_version >= 1

    @property
    def _transaction_version(self) -> int:
        return self._metadata.features.get("transaction.version", 0)

    async def _persist(
        self, shard: TransactionShard, entry: Entry, transition: Transition, point: str | None = None
    ) -> ErrorCode:
        """Append a state, and install it in memory once the record is committed. Returns NONE or the error for the client.

        ``point``: injection point at which a fault rule may hold or refuse the append.
        """
        after = transition.after
        entry.pending = after.state
        records = state_batch(after, self._value_version, after.last_update_ms)
        error = await shard.write(records, after.transactional_id, point)
        entry.pending = None
        if error is NONE:
            shard.install(entry, after)
        return error

    async def _end(self, shard: TransactionShard, entry: Entry, transition: Transition) -> Answer:
        """Write PrepareX, the markers and CompleteX. Returns the response after the first attempt at each marker.

        With ``odradek.commit.order=kafka`` the response comes before the markers. Once PrepareX is committed, the
        transaction can only be completed: the client does not wait for markers that have to be retried, but its next
        transaction does.
        """
        crash_point("txn.prepare.before")
        error = await self._persist(shard, entry, transition, PREPARE_APPEND)
        if error is not NONE:
            return Answer(error)
        crash_point("txn.prepare.after")
        completion = PendingCompleteTxn(shard, entry)
        if self._config.commit_order == ORDER_OF_KAFKA:
            start_in_background(self._complete_later(shard, completion), self._life)
        else:
            self._markers.start(completion)
            start_in_background(self._complete(shard, completion), self._life)
        return transition.answer

    async def _complete_later(self, shard: TransactionShard, completion: PendingCompleteTxn) -> None:
        """Write the markers after the client has received its response, as ``odradek.commit.order=kafka`` requires."""
        await sleep_ms(self._clock, self._config.commit_marker_delay_ms, Domain.TRANSACTIONS)
        self._markers.start(completion)
        await self._complete(shard, completion)

    async def _complete(self, shard: TransactionShard, completion: PendingCompleteTxn) -> None:
        """Wait until all markers are committed, then write CompleteX."""
        entry = completion.entry
        while await completion.all_committed():
            now_ms = self._clock.now_ms()
            after = decisions.complete(entry.txn, now_ms)
            crash_point("txn.complete.before")
            records = state_batch(after, self._value_version, now_ms)
            error = await shard.write(records, after.transactional_id, COMPLETE_APPEND)
            if error is NONE:
                entry.pending, entry.failed_fence = None, False
                shard.install(entry, after)
                crash_point("txn.complete.after")
                return
            if error is not ErrorCode.coordinator_not_available:
                return  # another node coordinates the partition now and finishes the transaction from its log
            await sleep_ms(self._clock, RETRY_BACKOFF_MS, Domain.REQUESTS)

    async def abort(
        self, shard: TransactionShard, entry: Entry, fresh_producer_id: int | None = None
    ) -> Answer | None:
        """Abort an open transaction after its timeout or for a new instance of the producer.

        Returns NONE or the error of the append of PrepareAbort, as an `Answer`. Returns None if the epochs of the
        producer id are exhausted: the caller then allocates a new producer id and calls this method again with it.
        During the allocation the transactional id is not pending, as nothing is decided; Kafka allocates the
        producer id synchronously.
        """
        transition = decisions.abort_by_coordinator(
            entry.txn,
            transaction_version=self._transaction_version,
            failed_fence=entry.failed_fence,
            now_ms=self._clock.now_ms(),
            fresh_producer_id=fresh_producer_id,
        )
        if isinstance(transition, NeedsProducerId):
            return None
        outcome = await self._end(shard, entry, transition)
        if outcome.error is not NONE and self._transaction_version < TRANSACTION_VERSION_2:
            # As on Kafka: the bumped epoch fences the producer in memory even if the record could not be written.
            entry.txn = entry.txn._replace(epoch=transition.after.epoch, last_epoch=NO_EPOCH)
            entry.failed_fence = True
        return outcome

    # -- start, stop, metadata changes --------------------------------------------------------------------------

    def start(self) -> None:
        """Load every partition that this node leads, finish transactions that were decided, and start the timers.

        After an unclean shutdown, also report lost decisions (`after_crash`).
        """
        self._runtime.load_all(self._metadata.topic(TRANSACTION_STATE), at_once=True)
        if not self._replicas.directory.was_clean:
            # The search needs every log open. Only a power cut, which loses data that was not synced, can lose a decision.
            known = [entry.txn for shard in self._runtime.open() for entry in shard.entries.values()]
            report_lost_decisions(known, self._replicas)
        self.start_timers()

    def start_timers(self) -> None:
        """Start the periodic jobs. If ``__transaction_state`` does not exist yet, there is nothing else to start."""
        self.cleanup.start()

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        self._runtime.on_leader_changed(topic, partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        self._runtime.on_topic_deleted(topic)

    def close(self) -> None:
        """Cancel the timers and all waiting coroutines, when the node stops or is killed."""
        self.cleanup.close()
        self._runtime.abandon()
        self._markers.abandon()

    abandon = close

    def known(self) -> Iterator[Transaction]:
        """Yield the committed state of each id that this node coordinates now. Ids may change during the iteration."""
        for shard in self._runtime.all():
            if shard.is_current() and not shard.is_loading:
                for entry in tuple(shard.entries.values()):
                    yield entry.txn

    def memory(self) -> dict[int, dict[str, Transaction]]:
        """Return the committed state of all ids: partition of the topic -> transactional id -> state."""
        return {index: shard.memory() for index, shard in self._runtime.items() if shard.entries}
