"""An explanation: the name of a cause, and sentences, the first of which describes the cause."""

from __future__ import annotations

from enum import Enum

from protocol.slotted import slotted


class Cause(Enum):
    """The cause of an explanation, as a name for programs. docs/troubleshooting.md has the first line of the
    explanation for each cause.
    """

    NOTHING = "nothing"
    """Nothing that was examined is wrong."""
    UNKNOWN = "unknown"
    """The node or coordinator that has the facts could not be queried."""

    # Causes of a partition, or of a transactional id that waits for one.
    NO_LEADER = "no-leader"
    OFFLINE = "offline"
    LEADER_AWAY = "leader-away"
    """The leader of the partition is paused, or does not respond."""
    MARKER_HELD = "marker-held"
    MARKER_LEADER_AWAY = "marker-leader-away"
    MARKER_ON_THE_WAY = "marker-on-the-way"
    OPEN_TRANSACTION = "open-transaction"
    HANGING_TRANSACTION = "hanging-transaction"
    BEGINS_IN_THE_FUTURE = "begins-in-the-future"
    BELOW_MIN_ISR = "below-min-isr"
    REPLICA_AWAY = "replica-away"
    """A replica in the ISR does not fetch, so writes with acks=all wait for it."""
    UNDER_REPLICATED = "under-replicated"
    """Replicas are out of the ISR, but writes continue."""
    REFUSED_BATCH = "refused-batch"
    OUT_OF_ORDER_SEQUENCE = "out-of-order-sequence"
    ABORTED_TAIL = "aborted-tail"
    MARKERS_ONLY = "markers-only"
    EMPTY_LOG = "empty-log"

    # Causes of a transactional id.
    COORDINATOR_NOT_AVAILABLE = "coordinator-not-available"
    COORDINATOR_LOADING = "coordinator-loading"
    REQUEST_HELD = "request-held"
    FENCED_PRODUCER = "fenced-producer"
    REFUSED_END_TXN = "refused-end-txn"
    REFUSED_REQUEST = "refused-request"
    UNKNOWN_ID = "unknown-id"

    # Causes of a group. Those of partitions and coordinators apply to it too.
    UNKNOWN_GROUP = "unknown-group"
    GROUP_EMPTY = "group-empty"
    GROUP_REBALANCING = "group-rebalancing"
    MEMBER_STOPPED_POLLING = "member-stopped-polling"
    UNSTABLE_OFFSETS = "unstable-offsets"
    LAG = "lag"

    # Causes of a share group, and of one of its records.
    SHARE_GROUPS_DISABLED = "share-groups-disabled"
    SHARE_PARTITION_NOT_INITIALIZED = "share-partition-not-initialized"
    NO_ASSIGNMENT = "no-assignment"
    RECORD_LOCKS_FULL = "record-locks-full"
    """The share partition has as many records in flight as share.partition.max.record.locks permits."""
    RECORD_LOCKED = "record-locked"
    RECORD_IN_TRANSITION = "record-in-transition"
    """The new state of a record is being written to the share coordinator."""
    RECORD_AVAILABLE = "record-available"
    RECORD_NOT_DELIVERED = "record-not-delivered"
    RECORD_DONE = "record-done"
    """The record is acknowledged or archived."""
    DEAD_LETTER_LOST = "dead-letter-lost"
    """A record was archived, and could not be written to the dead-letter queue."""

    # Causes of nodes, and of clients of any kind.
    NODE_AWAY = "node-away"
    THROTTLED = "throttled"
    NOT_AUTHORIZED = "not-authorized"
    ACTIVE_RULE = "active-rule"
    """A fault rule has hit requests or steps, and no other explanation names the rule."""


@slotted(frozen=True)
class Explanation:
    """The result for one partition, group, transactional id, node or client: a cause, and sentences about it."""

    subject: str
    """The subject: ``orders-0``, ``group readers``, ``transactional id etl-1``, ``node 2``, ``client app-1``"""
    cause: Cause
    lines: tuple[str, ...]
    """Sentences: first the cause, with the rule or node responsible, then what to do, then details."""
