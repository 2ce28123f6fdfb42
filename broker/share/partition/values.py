"""What goes into a share partition and what comes out of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from broker.share.state import Ending, RecordState, StateBatch, StoredState
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

if TYPE_CHECKING:
    from .in_flight import InFlightState


class DeliverySettings(Protocol):
    """The settings of a share group that a share partition needs (`ShareGroupSettings`)."""

    @property
    def record_lock_duration_ms(self) -> int: ...

    @property
    def delivery_count_limit(self) -> int: ...

    @property
    def partition_max_record_locks(self) -> int: ...

    @property
    def renew_acknowledge(self) -> bool: ...

    @property
    def dead_letter_topic(self) -> str:
        """Empty if the group has no dead-letter queue, or ``share.version`` is lower than 2."""


class Fetched(NamedTuple):
    """Record batches as read from the log, of which records are to be acquired."""

    fetch_offset: int
    """The offset of the read, `SharePartition.next_fetch_offset`. The first batch may begin below it; if it begins above it,
    compaction has removed the batches between."""
    batches: Sequence[tuple[int, int]]
    """Base offset and last offset of each batch, control batches included."""
    aborted: Sequence[tuple[int, int]] = ()
    """First and last offset of each batch of an aborted transaction, for a group that reads committed records only."""


class Limits(NamedTuple):
    """How many records a ShareFetch may acquire."""

    records_max: int
    """Without ``record_limit`` this limit is soft: whole record batches are acquired."""
    batch_size: int
    """Number of records from which on acquired records are split, at the start of a record batch."""
    record_limit: bool = False
    """ShareAcquireMode 1 (KIP-1206): never more than ``records_max``."""


class Acquired(NamedTuple):
    """Offsets that a member has acquired, for AcquiredRecords of the response."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """One AcknowledgementBatch of a request."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One AcknowledgeType for the whole batch, or one for each offset."""


class DeadLetters(NamedTuple):
    """Records in state ARCHIVING, which must be written to the dead-letter queue."""

    first_offset: int
    last_offset: int
    delivery_count: int
    message: str
    """The reason, for the header ``__dlq.errors.message``."""


@slotted(eq=False)
class Change:
    """New states of records, from the request to the end of the write.

    Until `SharePartition.commit` or `SharePartition.roll_back` the records can be neither acquired nor acknowledged. A
    change by `SharePartition.expire` or `SharePartition.archive` takes effect at once, and stays if the write fails.
    """

    batches: list[StateBatch] = field(default_factory=list)
    """The states to write. Empty if nothing must be written: then the change needs no commit."""
    stored: StoredState = StoredState()
    """Start offset, state epoch and delivery complete count to write, without batches."""
    dead_letters: list[DeadLetters] = field(default_factory=list)
    """To be written to the dead-letter queue once the states are written. Then call `SharePartition.archive`."""
    transitions: list[InFlightState] = field(default_factory=list)
    """The states that were changed, one for each of ``batches``. Empty if the change has taken effect."""


class InFlight(NamedTuple):
    """Records with one state, for views."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str
    """The member that has acquired the records. Empty if none has."""
    lock_expires_ms: int | None
    """When the acquisition lock runs out. None if the records are not locked."""
    in_transition: bool
    """Whether ``state`` is being written: it may be rolled back."""
    former_member_id: str = ""
    """The member that was the last to acquire the records, if none has now. Empty if none has since the state was loaded."""
    ending: Ending | None = None
    """Why the records are not acquired any more. None if they are, or if none has acquired them since then."""


class Refused(Exception):
    """Acknowledgements that a share partition refuses. Nothing was changed."""

    def __init__(self, error: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
