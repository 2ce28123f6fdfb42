"""The shapes of the summaries. They are sent as JSON as they stand; docs/page.md and the OpenAPI document describe them.

Offsets are Kafka's. A summary has bounds: what it leaves out it counts (``total``).
"""

from __future__ import annotations

import msgspec


class Form(msgspec.Struct, kw_only=True):
    """A part of a summary."""


class NodeSummary(Form):
    node: int
    state: str
    """running, paused, stopped, killed, starting or stopping; of a node behind a proxy: running or unreachable"""
    address: str
    """The advertised address of its first listener, HOST:PORT."""
    leads: int
    replicas: int
    connections: int
    skew_ms: int


class ClusterSummary(Form):
    product: str
    """broker, or proxy: then another cluster does the work, and fewer views can be had."""
    cluster_id: str
    bootstrap_servers: str
    now_ms: int
    """The broker's clock."""
    ahead_ms: int
    """By how much that clock has been advanced."""
    topics: int
    partitions: int
    trace: bool
    """Whether the trace records."""
    loop_lag_ms: float
    """The latest of the last minute; how late the event loop was at most."""
    nodes: list[NodeSummary]


class HeldUp(Form):
    """What an open transaction holds up in one partition: read_committed readers get nothing behind its first offset."""

    topic: str
    partition: int
    first_offset: int
    records: int
    """Offsets from there to the high watermark; 0 if another transaction stands before it in the partition."""


class TransactionSummary(Form):
    transactional_id: str
    state: str
    """By Kafka's name; Hanging: open in a partition, and no coordinator will end it."""
    producer_id: int
    producer_epoch: int
    coordinator: int | None
    timeout_ms: int | None
    open_ms: int | None
    """For so long it has been open, as its time-out counts; null while none is open."""
    partitions: list[str]
    """topic-partition"""
    holds_up: list[HeldUp]


class TransactionsSummary(Form):
    total: int
    by_state: dict[str, int]
    transactions: list[TransactionSummary]
    """The open ones first, the oldest of them leading; then the others, the latest change leading."""


class OpenTransaction(Form):
    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str | None
    """Null if no coordinator names this partition for the producer: then it hangs."""


class PartitionSummary(Form):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    log_start: int | None
    """Null without a leader, as the following are."""
    last_stable: int | None
    high_watermark: int | None
    log_end: int | None
    """Null behind a proxy, too."""
    open: list[OpenTransaction]


class PartitionsSummary(Form):
    total: int
    first: int
    """The place of the first one below among the partitions of all chosen topics."""
    partitions: list[PartitionSummary]


class GroupOffset(Form):
    topic: str
    partition: int
    committed: int | None
    """Null where an open transaction holds the only offset."""
    lag: int | None
    """Of a read_committed reader: from there to the last stable offset; null where either is unknown."""
    pending: bool
    """An open transaction will commit another offset."""


class GroupSummary(Form):
    group: str
    type: str
    """classic or consumer"""
    state: str
    members: int
    coordinator: int
    lag: int
    offsets: list[GroupOffset]


class GroupsSummary(Form):
    total: int
    groups: list[GroupSummary]


class BatchView(msgspec.Struct, array_like=True):
    """One batch of a log, as an array: there may be thousands."""

    base_offset: int
    last_offset: int
    records: int
    bytes: int
    kind: str
    """data, transactional, commit or abort: the two last are markers"""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    timestamp_ms: int
    leader_epoch: int


class BatchesPiece(Form):
    """The batches that a partition has got since the piece before this one.

    What became of a transactional batch follows from the markers: it is open until a marker of its producer id stands behind
    it in the same partition.
    """

    topic: str
    partition: int
    restarted: bool
    """Forget what came before: this is the first piece, the log was truncated, or too much came at once."""
    batches: list[BatchView]
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int | None
    """Null behind a proxy, which reads up to the high watermark."""
    held: list[BatchView] = []
    """Where readers wait far before these batches: the first batches from the last stable offset on."""
