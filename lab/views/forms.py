"""The structs of the summaries, which are sent as JSON. docs/page.md and the OpenAPI document describe them.

Offsets are Kafka's. A summary is bounded; ``total`` counts what it leaves out, too.
"""

from __future__ import annotations

import msgspec


class Form(msgspec.Struct, kw_only=True):
    """Base of the structs that summaries consist of."""


class NodeSummary(Form):
    node: int
    state: str
    """running, paused, stopped, killed, starting or stopping; for a node behind a proxy: running or unreachable"""
    address: str
    """The advertised address of the node's first listener, HOST:PORT."""
    leads: int
    replicas: int
    connections: int
    skew_ms: int
    misrouted_to: int | None


class ClusterSummary(Form):
    product: str
    """broker, or proxy: a proxy shows another cluster, with fewer views"""
    cluster_id: str
    bootstrap_servers: str
    now_ms: int
    """The broker's clock, in milliseconds since the epoch."""
    ahead_ms: int
    """How far the broker's clock has been advanced, in milliseconds."""
    topics: int
    partitions: int
    trace: bool
    """Whether the trace is on."""
    loop_lag_ms: float
    """The largest lag of the event loop in the last minute."""
    nodes: list[NodeSummary]


class HeldUp(Form):
    """The part of a partition that an open transaction hides: read_committed readers get nothing from its first
    offset on.
    """

    topic: str
    partition: int
    first_offset: int
    records: int
    """Number of offsets from ``first_offset`` to the high watermark; 0 if an earlier transaction is open."""


class TransactionSummary(Form):
    transactional_id: str
    state: str
    """State by Kafka's name; or Hanging: open in a partition, and no coordinator will end it."""
    producer_id: int
    producer_epoch: int
    coordinator: int | None
    timeout_ms: int | None
    open_ms: int | None
    """How long the transaction has been open, as its timeout counts; null if none is open."""
    partitions: list[str]
    """The partitions of the transaction: topic-partition."""
    holds_up: list[HeldUp]


class TransactionsSummary(Form):
    total: int
    by_state: dict[str, int]
    transactions: list[TransactionSummary]
    """Open transactions, the oldest first; then the others, the latest change first."""


class OpenTransaction(Form):
    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str | None
    """Null if no coordinator has this partition and producer: then the transaction hangs."""


class PartitionSummary(Form):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    log_start: int | None
    """Log start offset. This and the fields below (offsets) are null if the partition has no leader."""
    last_stable: int | None
    high_watermark: int | None
    log_end: int | None
    """Log end offset; null without a leader, and behind a proxy."""
    open: list[OpenTransaction]


class PartitionsSummary(Form):
    total: int
    first: int
    """Index of the first of ``partitions`` among the partitions of all chosen topics."""
    partitions: list[PartitionSummary]


class GroupOffset(Form):
    topic: str
    partition: int
    committed: int | None
    """Committed offset; null if only an open transaction has an offset."""
    lag: int | None
    """Lag of a read_committed reader: last stable offset minus ``committed``; null if either is unknown."""
    pending: bool
    """Whether an open transaction will commit another offset."""


class RecordRange(Form):
    """Adjacent records in flight of a share partition with the same state."""

    first_offset: int
    last_offset: int
    state: str
    """Available, Acquired, Acknowledged, Archiving or Archived"""
    delivery_count: int
    member_id: str | None
    """The member that has acquired the records; null if none has."""
    lock_ms: int | None
    """Milliseconds until the acquisition lock runs out; null if the records are not locked."""
    in_transition: bool
    """Whether the state is being written to the share coordinator."""
    former_member_id: str | None
    """The member that was the last to acquire the records, if none has now; null if that is not known."""
    ending: str | None
    """Why the records are not acquired any more: released, rejected, transaction aborted, …; null if not known."""


class SharePartitionSummary(Form):
    """One partition of a share group."""

    topic: str
    partition: int
    is_loaded: bool = False
    """Whether the leader has the share partition in memory: since the first ShareFetch. Locks are only there."""
    start_offset: int | None = None
    """Null if no record was acknowledged yet."""
    end_offset: int | None = None
    """Offset of the last record in flight; the next one to deliver if nothing is in flight; null if it is not loaded."""
    delivery_complete_count: int | None = None
    """Number of records from ``start_offset`` on that are acknowledged or archived."""
    lag: int | None = None
    """Number of records that are neither acknowledged nor archived, up to the high watermark."""
    records: dict[str, int] = {}
    """Number of records in flight by state."""
    in_flight: list[RecordRange] = []
    """The first ranges in flight."""


class GroupSummary(Form):
    group: str
    type: str
    """classic, consumer or share"""
    state: str
    members: int
    coordinator: int
    lag: int
    offsets: list[GroupOffset]
    shares: list[SharePartitionSummary] = []
    """The partitions of a share group, which has no committed offsets."""


class GroupsSummary(Form):
    total: int
    groups: list[GroupSummary]


class BatchView(msgspec.Struct, array_like=True):
    """One batch of a log, in JSON an array of its fields, because a response may have thousands of batches."""

    base_offset: int
    last_offset: int
    records: int
    bytes: int
    kind: str
    """data, transactional, commit or abort (markers), control (any other control batch)"""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    timestamp_ms: int
    leader_epoch: int


class BatchesPiece(Form):
    """The batches of a partition that a viewer has not received yet.

    The outcome of a transactional batch follows from the markers: its transaction is open until a marker of its producer id
    follows in the same partition.
    """

    topic: str
    partition: int
    restarted: bool
    """Whether the viewer must discard earlier pieces: first piece, truncated log, or too many new batches."""
    batches: list[BatchView]
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int | None
    """Log end offset; null behind a proxy, which reads up to the high watermark."""
    held: list[BatchView] = []
    """The first batches after the last stable offset, if ``batches`` begin later; else empty."""
