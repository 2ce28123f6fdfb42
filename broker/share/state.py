"""States of records in a share group, and the stored state of a share partition (KIP-932). Pure."""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple

INT32: Final = range(-(2**31), 2**31)
_INTEGER: Final = re.compile(r"[+-]?\d+")
MEMBER_ID_LENGTH_MAX: Final = 36
"""Maximum length of the id that a member of a share group makes for itself."""
NO_START_OFFSET: Final = -1
"""Start offset of a share partition from which no record was acknowledged yet: ``share.auto.offset.reset`` applies."""
UNKNOWN_COUNT: Final = -1
"""Delivery complete count of a share partition without a start offset, or from a version that lacks the field."""


class SharePartitionKey(NamedTuple):
    """A partition of a topic, as one group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which the share coordinator is found: ``group:topicId:partition``, the id as Kafka's ``Uuid``."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


def share_partition_key(coordinator_key: str) -> SharePartitionKey | None:
    """Parse a key for the share coordinator. The group id may contain colons. None for text that is no such key."""
    # As for Java's `split`, colons at the end do not count.
    *group, topic_id, partition = ["", "", *coordinator_key.rstrip(":").split(":")]
    group_id = ":".join(group[2:])
    if not group_id.strip() or not _INTEGER.fullmatch(partition):
        return None
    try:
        key = SharePartitionKey(
            group_id, UUID(bytes=b64decode(topic_id + "==", b"-_", validate=True)), int(partition)
        )
    except ValueError:
        return None
    return key if INT32.start <= key.partition < INT32.stop else None


class RecordState(IntEnum):
    """Delivery state of a record, with its id on the wire and in the log. ACQUIRED is only in memory."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Rejected, or delivered too often: the record is being written to the dead-letter queue (KIP-1191)."""
    ARCHIVED = 4


TERMINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
"""States that never change: records that the start offset passes."""


class Ending(Enum):
    """How the acquisition of records ended, or what archived them. For views: no decision depends on it."""

    GAP = "gap"
    ACCEPTED = "accepted"
    RELEASED = "released"
    REJECTED = "rejected"
    LOCK_EXPIRED = "lock expired"
    SESSION_ENDED = "session ended"
    COMPACTED = "compacted"
    BELOW_LOG_START = "below log start"
    ABORTED = "transaction aborted"
    """The records are of an aborted transaction, and the group reads committed records only."""


class StateBatch(NamedTuple):
    """The state of the records from ``first_offset`` to ``last_offset``."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class StoredState(NamedTuple):
    """The state of a share partition in ``__share_group_state``."""

    state_epoch: int = 0
    """Changes with each initialization: a leader with an older epoch may not write."""
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    """Number of records from the start offset on that are acknowledged or archived. The lag is without them."""
    batches: Sequence[StateBatch] = ()


class Initialization(NamedTuple):
    """A share partition for the share coordinator to initialize."""

    topic_id: UUID
    partition: int
    state_epoch: int
    """Epoch of the group that initializes the partition."""
    start_offset: int


class Outcome(NamedTuple):
    """What the share coordinator has answered for one share partition."""

    error: ErrorCode
    message: str | None = None
