"""One request and what became of it, as the trace keeps it: raw frames and the facts that are cheap to have."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from uuid import UUID

from broker.peers.senders import sending_node
from protocol.messages.index import APIS
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted
from protocol.versions import message_name

Names = Callable[[UUID], str | None]
"""The name of a topic by its id; None for a topic that is not known (any more)."""


def no_names(topic_id: UUID) -> str | None:
    """For callers that know no topic names."""
    return None


class Outcome(Enum):
    """What became of a request. The values are those of the JSON form."""

    IN_PROGRESS = "in_progress"
    HELD = "held"
    """A rule stopped it on arrival: held, lost, or detached. It is not handled, or not on this connection."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """Handled; the client wanted no answer (acks=0)."""
    ANSWER_LOST = "answer_lost"
    """Handled, and a rule kept the answer back."""
    CONNECTION_GONE = "connection_gone"
    """The connection ended before the answer."""


class TransactionFacts(NamedTuple):
    """Whose transaction (or idempotent producer) a request is about. -1 and None: it does not say."""

    transactional_id: str | None
    producer_id: int = -1
    producer_epoch: int = -1


class Ends(NamedTuple):
    """Both ends of a connection, for a capture."""

    peer_host: str
    peer_port: int
    host: str
    port: int


@slotted(eq=False)
class Exchange:
    """A request, and its answer once there is one. Frames are without their size fields."""

    number: int
    """Counts from 1 in the order of arrival; never used twice, also after ``clear``."""
    node_id: int
    connection_id: int
    """Of the node: the n-th connection that it has accepted."""
    ends: Ends
    listener: str
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    transactions: tuple[TransactionFacts, ...]
    arrived_ms: int
    """By the broker's clock, which may be virtual."""
    arrived_us: int
    """The same to the microsecond."""
    request: bytes
    request_bytes: int
    answer: bytes | None = None
    answer_bytes: int = 0
    answered_ms: int | None = None
    answered_us: int | None = None
    took_us: int | None = None
    """From arrival to the answer, in real time."""
    outcome: Outcome = Outcome.IN_PROGRESS
    was_held: bool = False
    """A rule stopped it on arrival; it may have been let go since."""
    rule: int | None = None
    """The rule that has answered instead of the broker, or has altered its answer."""
    principal: str | None = None
    errors: tuple[int, ...] = ()
    """The error codes of the answer, each once, without 0."""
    throttle_ms: int = 0
    """For so long the answer tells its client to wait for its quota."""
    handled_alone: int = 0
    """How many times it was handled without sending a response: as a duplicate, or late."""
    request_summary: str | None = None
    """Of a frame too large to keep whole: what the text line says of it."""
    answer_summary: str | None = None
    in_ring: bool = False

    @property
    def api(self) -> str:
        """Kafka's name: ``EndTxn``."""
        return api_name(self.api_key)

    @property
    def peer(self) -> str:
        return f"{self.ends.peer_host}:{self.ends.peer_port}"

    @property
    def from_node(self) -> int | None:
        """The node that asked, if it was one of the cluster's."""
        return sending_node(self.client_id)

    @property
    def request_is_cut(self) -> bool:
        return len(self.request) < self.request_bytes

    @property
    def answer_is_cut(self) -> bool:
        return self.answer is not None and len(self.answer) < self.answer_bytes

    @property
    def is_over(self) -> bool:
        """Nothing more will be heard of it."""
        return self.outcome not in (Outcome.IN_PROGRESS, Outcome.HELD)


def api_name(api_key: int) -> str:
    """``EndTxn`` for 26; the number itself for what is not known."""
    known = APIS.get(api_key)
    return message_name(known[0]) if known else str(api_key)
