"""The facts of an explanation: what was read of a cluster at one moment.

None stands for what could not be read, and never for "there is none": of what is None nothing may be said. Times are ages in
milliseconds by the clock that counts there, which may have been advanced. Partitions are named ``orders-0``.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.slotted import slotted


@slotted(frozen=True, kw_only=True)
class HeldByRule:
    """A request, or a step inside the broker, that a fault rule holds now."""

    rule: int
    at: str
    """The API or the point: ``WriteTxnMarkers``, ``EndTxn``, ``log.append``."""
    node: int
    for_ms: int
    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    partitions: tuple[str, ...] = ()


@slotted(frozen=True, kw_only=True)
class FaultRule:
    """A fault rule that is there now."""

    rule: int
    text: str
    """As `odradek fault list` shows it: ``EndTxn nth=2 -> lose-answer``."""
    hits: int
    spent: bool
    """It can have no further hits; what it holds it still holds."""


@slotted(frozen=True, kw_only=True)
class Refusal:
    """Equal refusals, folded: responses with one error code to one API, for one producer, id, group or principal."""

    api: str
    error: str
    """By Kafka's name: ``OUT_OF_ORDER_SEQUENCE_NUMBER``."""
    count: int
    last_ms: int
    """The age of the newest."""
    node: int
    client_id: str | None = None
    principal: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    partitions: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    """Those that the error is about as a whole, by their names: Metadata of a topic that the principal may not describe."""
    rule: int | None = None
    """The fault rule that answered, if one did; None also where that is not known."""
    line: str = ""
    """The newest, as the trace shows it."""


@slotted(frozen=True, kw_only=True)
class Throttle:
    """Responses that told a client to wait for its quota."""

    client_id: str
    principal: str | None
    api: str
    count: int
    last_ms: int
    """The age of the newest."""
    throttle_ms: int
    """The throttle time of the newest."""
    transactional_id: str | None = None
    group: str | None = None
    partitions: tuple[str, ...] = ()
    """Those that its requests named; empty also where that is not known."""
    rule: int | None = None
    """The fault rule that answered: then it is no quota."""


@slotted(frozen=True, kw_only=True)
class ClusterContext:
    """What holds for the whole cluster at that moment."""

    nodes: Mapping[int, str] | None = None
    """The state of each node: running, killed, stopped, paused, starting, stopping; to clients unreachable, unregistered."""
    rules: tuple[FaultRule, ...] | None = None
    """None without a control port: then nothing is known of rules, nor of what they hold."""
    held: tuple[HeldByRule, ...] = ()
    trace_runs: bool | None = None
    """Whether refusals and throttles are recorded; None where there is no trace to ask."""
    refusals: tuple[Refusal, ...] = ()
    """The newest first."""
    throttles: tuple[Throttle, ...] = ()
    not_asked: tuple[str, ...] = ()
    """Sentences, for each question without a response in time: "Node 2 did not respond to DescribeProducers within 2 s." """


@slotted(frozen=True, kw_only=True)
class TransactionFacts:
    """A transactional id in the state of its coordinator."""

    transactional_id: str
    state: str
    """Kafka's name: ``Ongoing``, ``PrepareCommit``."""
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    open_ms: int | None
    """For so long it has been open, as its timeout counts; None while none is open; negative: it begins in the future."""
    decided_ms: int | None
    """The age of its Prepare record; None while it is not decided, or where that is not known."""
    partitions: tuple[str, ...]
    """While it is decided: those whose markers are not written yet."""


@slotted(frozen=True, kw_only=True)
class OpenInLog:
    """An open transaction of a partition, as the leader has it: its producer has written records without a marker."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    owner: TransactionFacts | None
    """The transactional id with this producer; None: no coordinator knows the producer, or ``owner_is_known`` is False."""
    owner_is_known: bool
    """Every coordinator was asked."""


@slotted(frozen=True, kw_only=True)
class Tail:
    """What stands at the end of the log, behind the last record that readers with read_committed get."""

    markers: int
    aborted: int
    """Records of aborted transactions."""
    reaches_start: bool
    """There is no record for readers in the whole log."""


@slotted(frozen=True, kw_only=True)
class PartitionFacts:
    """One partition, as its leader has it."""

    topic: str
    index: int
    leader: int | None
    """None: it has none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None = None
    offline: str | None = None
    """Why the leader, or the replica for want of which there is none, cannot use its files (KAFKA_STORAGE_ERROR)."""
    log_start: int | None = None
    """None, as the three below: the leader could not be asked."""
    last_stable: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    """The end of the leader's log, of which clients know nothing; None where it could not be read."""
    open: tuple[OpenInLog, ...] = ()
    """By first offset; the first holds the last stable offset, unless that ``advances``."""
    advances: bool = False
    """What held the last stable offset ended while it was looked at: readers go on."""
    tail: Tail | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"


@slotted(frozen=True, kw_only=True)
class StateStep:
    """One record of a transactional id in ``__transaction_state``."""

    time_ms: int
    """Since 1970, as it was written."""
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """-1: no transaction."""
    partitions: tuple[str, ...]
    version_2: bool
    """The client speaks transaction version 2 (KIP-890): each end raises the epoch."""


@slotted(frozen=True, kw_only=True)
class IdFacts:
    """One transactional id."""

    transactional_id: str
    state_partition: str
    """Its home: ``__transaction_state-12``."""
    coordinator: int | None
    """The leader of that partition; None: it has none."""
    coordinator_error: str | None = None
    """What the coordinator answered instead of a state: ``COORDINATOR_LOAD_IN_PROGRESS``, ``COORDINATOR_NOT_AVAILABLE``."""
    transaction: TransactionFacts | None = None
    """None: its coordinator does not know the id, or ``coordinator_error`` says why it was not told."""
    history: tuple[StateStep, ...] | None = None
    """The newest states, the oldest first; None where the log could not be read."""
    places: tuple[PartitionFacts, ...] = ()
    """The partitions of its open or decided transaction, and those in which its producer's transaction hangs."""
    home: PartitionFacts | None = None
    """``state_partition`` as the cluster's metadata has it, without offsets; None where that was not read."""
    near: str | None = None
    """Of an id that no coordinator knows: one that is known, and was most likely meant."""

    @property
    def is_unknown(self) -> bool:
        """Its coordinator does not know it, and its log has no state of it."""
        is_told = self.coordinator is not None and self.coordinator_error is None
        return is_told and self.transaction is None and not self.history


@slotted(frozen=True, kw_only=True)
class MemberFacts:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assigned: tuple[str, ...]
    heartbeat_ms: int | None = None
    """The age of its last heartbeat; None where that is not known."""
    session_timeout_ms: int | None = None
    has_joined: bool | None = None
    """While the group rebalances: whether it has joined, or has revoked what it must; None where that is not known."""
    fetch_ms: int | None = None
    """The age of its client's last Fetch; None where that is not known."""


@slotted(frozen=True, kw_only=True)
class GroupOffsetFacts:
    """What a group has committed in a partition, and what stands between that and the partition's end."""

    at: PartitionFacts
    committed: int | None
    """None: nothing is committed, or, where ``pending``, an open transaction holds the only offset."""
    pending: bool
    """An open transaction will commit another one (UNSTABLE_OFFSET_COMMIT)."""
    pending_of: str | None
    """The transactional id of that transaction, where it is known."""
    records: int | None = None
    """From ``committed``, or the start of the log, to the last stable offset; None: not counted, as the two below."""
    aborted: int | None = None
    markers: int | None = None
    is_counted_to_the_end: bool = True
    """False: there may be more than these."""


@slotted(frozen=True, kw_only=True)
class GroupFacts:
    """One group, as its coordinator has it."""

    group: str
    offsets_partition: str
    """Its home: ``__consumer_offsets-7``."""
    coordinator: int | None
    """The leader of that partition; None: it has none."""
    coordinator_error: str | None = None
    type: str = ""
    """``classic`` or ``consumer``"""
    state: str = ""
    """Kafka's name: ``Stable``, ``PreparingRebalance``, ``Reconciling``; empty: the coordinator does not know the group."""
    state_ms: int | None = None
    """For so long it has been in this state; None where that is not known."""
    members: tuple[MemberFacts, ...] = ()
    offsets: tuple[GroupOffsetFacts, ...] = ()
    home: PartitionFacts | None = None
    """``offsets_partition`` as the cluster's metadata has it, without offsets; None where that was not read."""
    near: str | None = None
    """Of a group that no coordinator knows: one that is known, and was most likely meant."""

    @property
    def is_unknown(self) -> bool:
        """Its coordinator does not know it."""
        is_told = self.coordinator is not None and self.coordinator_error is None
        return is_told and not self.members and not self.offsets and self.state in ("", "Dead")


@slotted(frozen=True, kw_only=True)
class ClusterFacts:
    """What could be wrong anywhere, for `odradek explain` without a name: bounded, the worst first."""

    partitions: tuple[PartitionFacts, ...]
    """Those without a leader, offline, below min.insync.replicas, or with an open transaction."""
    transactions: tuple[TransactionFacts, ...]
    """Those that are open or decided."""
    groups: tuple[GroupFacts, ...]
    """Those that rebalance, or have members without heartbeats."""
    ahead_ms: int | None = None
    """By how much the clock has been advanced."""
    left_out: int = 0
    """Partitions, transactions and groups beyond the bound."""
