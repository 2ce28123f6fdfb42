"""The facts of an explanation: what was read from a cluster at one time.

None means "could not be read", never "there is none", so nothing may be concluded from it. Times are ages in milliseconds,
by the clock of the node in question, which may have been advanced. Partitions are named ``orders-0``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from protocol.slotted import slotted


@slotted(frozen=True, kw_only=True)
class HeldByRule:
    """A request, or a step inside the broker (such as a log write), that a fault rule holds now."""

    rule: int
    at: str
    """API of the held request (``EndTxn``), or injection point of the held step (``log.write``)."""
    node: int
    for_ms: int
    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    partitions: tuple[str, ...] = ()
    offsets: tuple[tuple[str, int, int], ...] = ()
    """(partition, first offset, last offset) of the records of a share group that the request or step names."""


@slotted(frozen=True, kw_only=True)
class FaultRule:
    """A fault rule that exists now."""

    rule: int
    text: str
    """The rule as `odradek fault list` shows it: ``EndTxn nth=2 -> lose-answer``."""
    hits: int
    spent: bool
    """Whether the rule can have no further hits. It may still hold requests."""

    @property
    def parts(self) -> tuple[str, dict[str, str], str]:
        """The API or injection point of the rule's text, its conditions of the form NAME=VALUE, and its action."""
        on, _, action = self.text.partition(" -> ")
        where, *conditions = on.split() or [""]
        return where, dict(each.split("=", 1) for each in conditions if "=" in each), action.strip()


@slotted(frozen=True, kw_only=True)
class Refusal:
    """A count of equal refusals: the same API, error, producer, transactional id, group and principal."""

    api: str
    error: str
    """Kafka's name of the error: ``OUT_OF_ORDER_SEQUENCE_NUMBER``."""
    count: int
    last_ms: int
    """Milliseconds since the newest of these refusals."""
    node: int
    client_id: str | None = None
    principal: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    partitions: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    """Topics refused as a whole, by name: for instance by Metadata, if the principal may not describe them."""
    rule: int | None = None
    """The fault rule that caused the error; None if none did, or if that is not known."""
    two_phase_commit: bool = False
    """Whether the request is an InitProducerId that asks for two-phase commit (KIP-939)."""
    line: str = ""
    """The newest refused exchange, as the trace shows it."""


@slotted(frozen=True, kw_only=True)
class Throttle:
    """Responses whose throttle time makes a client wait, because of its quota or of a fault rule."""

    client_id: str
    principal: str | None
    api: str
    count: int
    last_ms: int
    """Milliseconds since the newest of these responses."""
    throttle_ms: int
    """Throttle time in the newest response, in milliseconds."""
    transactional_id: str | None = None
    group: str | None = None
    partitions: tuple[str, ...] = ()
    """The partitions in the client's requests; empty also if they are not known."""
    rule: int | None = None
    """The fault rule that set the throttle time; None if a quota did."""


@slotted(frozen=True, kw_only=True)
class ClusterContext:
    """The facts about the whole cluster at the time of the explanation."""

    nodes: Mapping[int, str] | None = None
    """State of each node: running, killed, stopped, paused, starting, stopping; seen by a client: unreachable,
    unregistered."""
    rules: tuple[FaultRule, ...] | None = None
    """The fault rules; None if there is no control port to query. Then ``held`` is empty."""
    held: tuple[HeldByRule, ...] = ()
    trace_runs: bool | None = None
    """Whether refusals and throttles are recorded; None if there is no trace."""
    refusals: tuple[Refusal, ...] = ()
    """Requests that were refused, counted, the newest first."""
    throttles: tuple[Throttle, ...] = ()
    not_asked: tuple[str, ...] = ()
    """A sentence for each request that timed out: "Node 2 did not respond to DescribeProducers within 2 s." """


@slotted(frozen=True, kw_only=True)
class TransactionFacts:
    """The state of a transactional id at its coordinator."""

    transactional_id: str
    state: str
    """Kafka's name of the state: ``Ongoing``, ``PrepareCommit``."""
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    open_ms: int | None
    """Age of the open transaction, as the timeout counts it; None if none is open, negative if it begins in the future."""
    decided_ms: int | None
    """Age of the Prepare record; None if the transaction is not decided, or if the age is not known."""
    partitions: tuple[str, ...]
    """The transaction's partitions; once it is decided, only those whose markers are not written yet."""


@slotted(frozen=True, kw_only=True)
class OpenInLog:
    """An open transaction of a partition, as the leader sees it: a producer's records that no marker follows."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    owner: TransactionFacts | None
    """State of the transactional id that has this producer id; None if no coordinator is known to have it."""
    owner_is_known: bool
    """Whether the coordinators that have responded are sufficient to determine ``owner``.

    If false, ``owner`` may be None although a coordinator has the producer.
    """


@slotted(frozen=True, kw_only=True)
class Tail:
    """The end of the log, behind the last record that read_committed readers get."""

    markers: int
    aborted: int
    """Number of records of aborted transactions."""
    reaches_start: bool
    """Whether the whole log has no record for readers."""


@slotted(frozen=True, kw_only=True)
class PartitionFacts:
    """One partition, as its leader sees it."""

    topic: str
    index: int
    leader: int | None
    """Node id of the leader; None if the partition has none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    """The eligible leader replicas (KIP-966); empty if they are not known."""
    last_known_leader: tuple[int, ...] = ()
    """Node id of the last leader, if the partition has no leader and the metadata has its last one; else empty."""
    min_isr: int | None = None
    offline: str | None = None
    """Why the leader, or the replica that should lead, cannot use its files (KAFKA_STORAGE_ERROR); None if it can."""
    log_start: int | None = None
    """Log start offset. This field and the next two (offsets) are None if the leader could not be queried."""
    last_stable: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    """The leader's log end offset, which clients cannot see; None if it could not be read."""
    open: tuple[OpenInLog, ...] = ()
    """Open transactions by first offset. The first one limits the last stable offset, unless ``advances`` is true."""
    advances: bool = False
    """Whether the transaction that limited the last stable offset ended while the facts were read."""
    tail: Tail | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def candidates(self) -> tuple[int, ...]:
        """The replicas that a clean election may choose; if there are none, the last known leader."""
        return self.isr or self.eligible or self.last_known_leader


@slotted(frozen=True, kw_only=True)
class StateStep:
    """One record of a transactional id in ``__transaction_state``."""

    time_ms: int
    """Timestamp of the record, in milliseconds since 1970."""
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """Start of the transaction, in milliseconds since 1970; -1 if there is no transaction."""
    partitions: tuple[str, ...]
    version_2: bool
    """Whether the client uses transaction version 2 (KIP-890), which bumps the epoch at the end of each transaction."""


@slotted(frozen=True, kw_only=True)
class IdFacts:
    """The facts about one transactional id."""

    transactional_id: str
    state_partition: str
    """The partition that contains the state of the transactional id: ``__transaction_state-12``."""
    coordinator: int | None
    """Node id of the leader of ``state_partition``; None if there is none."""
    coordinator_error: str | None = None
    """The coordinator's error, if there was one: ``COORDINATOR_LOAD_IN_PROGRESS``, ``COORDINATOR_NOT_AVAILABLE``."""
    transaction: TransactionFacts | None = None
    """The coordinator's state of the transactional id; None if the id is unknown, or if there is an error."""
    history: tuple[StateStep, ...] | None = None
    """The newest states of the transactional id, in time order; None if ``__transaction_state`` could not be read."""
    places: tuple[PartitionFacts, ...] = ()
    """The partitions of the open or decided transaction, and those in which a producer of the transactional id has a
    hanging transaction."""
    home: PartitionFacts | None = None
    """Facts of ``state_partition`` from the metadata (leader, ISR); None if the metadata was not read."""
    near: str | None = None
    """If the transactional id is unknown: the most similar one that exists; None if none is similar."""

    @property
    def is_unknown(self) -> bool:
        """Whether neither the coordinator nor ``__transaction_state`` knows the transactional id."""
        coordinator_responded = self.coordinator is not None and self.coordinator_error is None
        return coordinator_responded and self.transaction is None and not self.history


@slotted(frozen=True, kw_only=True)
class MemberFacts:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assigned: tuple[str, ...]
    heartbeat_ms: int | None = None
    """Age of the member's last heartbeat; None if the age is not known."""
    advanced_ms: int = 0
    """How much of that age the clock of groups was advanced: no client could send a heartbeat in it."""
    session_timeout_ms: int | None = None
    has_joined: bool | None = None
    """During a rebalance: whether the member has joined, or has revoked its partitions as requested. None if not known."""
    fetch_ms: int | None = None
    """Age of the last Fetch of the member's client; None if the age is not known."""

    @property
    def silent_ms(self) -> int | None:
        """Time for which the member could have sent a heartbeat, and sent none; None if it is not known."""
        return None if self.heartbeat_ms is None else self.heartbeat_ms - self.advanced_ms


@slotted(frozen=True, kw_only=True)
class GroupOffsetFacts:
    """The committed offset of a group in a partition, and the records and markers from that offset to the last stable
    offset.
    """

    at: PartitionFacts
    committed: int | None
    """Committed offset; None if there is none (an open transaction may have a ``pending`` one)."""
    pending: bool
    """Whether an open transaction will commit another offset (UNSTABLE_OFFSET_COMMIT)."""
    pending_of: str | None
    """Transactional id of the open transaction with the pending offset; None if there is none, or if not known."""
    records: int | None = None
    """Records from ``committed`` (or the log start) to the last stable offset. Like ``aborted`` and ``markers``, None
    if not counted."""
    aborted: int | None = None
    markers: int | None = None
    is_counted_to_the_end: bool = True
    """False if there may be more records, aborted records or markers than were counted."""


@slotted(frozen=True, kw_only=True)
class InFlightFacts:
    """Adjacent records of a share partition with one state."""

    first_offset: int
    last_offset: int
    state: str
    """Available, Acquired, Acknowledged, Archiving or Archived."""
    delivery_count: int
    member_id: str = ""
    """The member that has acquired the records; empty if none has."""
    lock_ms: int | None = None
    """Milliseconds until the acquisition lock runs out; None if the records are not locked."""
    in_transition: bool = False
    """Whether ``state`` is being written to the share coordinator."""
    former_member_id: str = ""
    """The member that was the last to acquire the records, if none has now; empty if that is not known."""
    ending: str | None = None
    """Why the records are not acquired any more (`broker.share.partition.Ending`); None if that is not known."""


@slotted(frozen=True, kw_only=True)
class DeadLetterFacts:
    """An attempt to write records of a share partition to the dead-letter queue."""

    first_offset: int
    last_offset: int
    written_to: str
    """The partition that has the first of the records: ``dlq.g-0``; empty if none was written."""
    written_offset: int
    failure: str
    """Why not all records were written; empty if they were."""


@slotted(frozen=True, kw_only=True)
class SharePartitionFacts:
    """A partition of a share group, as its leader has it in memory."""

    at: PartitionFacts
    initialization: str | None = None
    """``initialized``, ``initializing`` or ``not initialized``, as the group coordinator has it; None if not known."""
    is_loaded: bool | None = None
    """Whether the leader has the share partition in memory; None if that is not known."""
    start_offset: int | None = None
    """Start offset in the leader's memory, without it the stored one: -1 if nothing was acknowledged. None if not known."""
    end_offset: int | None = None
    """Offset of the last record in flight; the next one to deliver if nothing is in flight. None if it is not loaded."""
    delivery_complete_count: int | None = None
    """Number of records from the start offset on that are acknowledged or archived. None if it is not known."""
    next_offset: int | None = None
    """Offset at which the next ShareFetch reads. None, and the fields below empty, if it is not loaded."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Number of records in flight by state."""
    in_flight: tuple[InFlightFacts, ...] = ()
    """Records in flight by offset, the first ones if there are many."""
    dead_letters: tuple[DeadLetterFacts, ...] = ()
    """The newest attempts at the dead-letter queue, the oldest first."""
    coordinator: PartitionFacts | None = None
    """Facts of the partition of ``__share_group_state`` from the metadata; None if there is none, or if it is not known."""

    @property
    def in_flight_count(self) -> int | None:
        """Number of offsets from the start offset to the end offset, which share.partition.max.record.locks limits."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset + 1 if self.records else 0

    @property
    def lag(self) -> int | None:
        """Number of records that are neither acknowledged nor archived, as Kafka computes it; None if it is not known."""
        start, end, count = self.start_offset, self.at.high_watermark, self.delivery_complete_count
        return None if start is None or start < 0 or end is None or count is None else end - start - count


@slotted(frozen=True, kw_only=True)
class ShareSettingsFacts:
    """The settings of a share group that decide about deliveries."""

    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    read_committed: bool = False
    dead_letter_topic: str = ""
    """Empty: the group has no dead-letter queue."""


@slotted(frozen=True, kw_only=True)
class ShareFacts:
    """The part of a share group that other groups do not have."""

    is_enabled: bool = True
    """Whether ``share.version`` is 1 or higher."""
    settings: ShareSettingsFacts | None = None
    """None if they are not known."""
    partitions: tuple[SharePartitionFacts, ...] = ()
    left_out: int = 0
    """Number of further partitions of the group."""


@slotted(frozen=True, kw_only=True)
class GroupFacts:
    """One group, as its coordinator sees it."""

    group: str
    offsets_partition: str
    """The partition that contains the state of the group: ``__consumer_offsets-7``."""
    coordinator: int | None
    """Node id of the leader of ``offsets_partition``; None if there is none."""
    coordinator_error: str | None = None
    type: str = ""
    """``classic``, ``consumer`` or ``share``"""
    state: str = ""
    """Kafka's name: ``Stable``, ``PreparingRebalance``, ``Reconciling``; empty if the coordinator does not know the
    group."""
    state_ms: int | None = None
    """How long the group has been in this state; None if the duration is not known."""
    members: tuple[MemberFacts, ...] = ()
    offsets: tuple[GroupOffsetFacts, ...] = ()
    share: ShareFacts | None = None
    """None if it is no share group, or if its partitions were not read."""
    home: PartitionFacts | None = None
    """Facts of ``offsets_partition`` from the metadata (leader, ISR); None if the metadata was not read."""
    near: str | None = None
    """If the group is unknown: the most similar group that exists; None if none is similar."""

    @property
    def is_unknown(self) -> bool:
        """Whether the coordinator does not know the group."""
        coordinator_responded = self.coordinator is not None and self.coordinator_error is None
        return coordinator_responded and not self.members and not self.offsets and self.state in ("", "Dead")


@slotted(frozen=True, kw_only=True)
class ClusterFacts:
    """The parts of a cluster that may have a problem, for `odradek explain` without arguments: a limited number."""

    partitions: tuple[PartitionFacts, ...]
    """Partitions without a leader, offline, below min.insync.replicas, or with an open transaction."""
    transactions: tuple[TransactionFacts, ...]
    """Open or decided transactions."""
    groups: tuple[GroupFacts, ...]
    """Groups that rebalance, or have members without heartbeats."""
    ahead_ms: int | None = None
    """How far the clock has been advanced, in milliseconds."""
    left_out: int = 0
    """Number of further partitions, transactions and groups that may have a problem, but are too many to list."""
