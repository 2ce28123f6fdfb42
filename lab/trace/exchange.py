"""One request and its outcome, as the trace stores it: raw frames, and properties that are cheap to get."""

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
"""Returns the name of a topic by its id; None for an unknown topic."""


def no_names(topic_id: UUID) -> str | None:
    """Return None: the name function of callers that know no topic names."""
    return None


class Outcome(Enum):
    """Outcome of a request. The values are those of the JSON form."""

    IN_PROGRESS = "in_progress"
    HELD = "held"
    """A rule stopped the request on arrival (held, lost or detached): it is not handled, or not on this connection."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """The request was handled, and the client wanted no response (acks=0)."""
    ANSWER_LOST = "answer_lost"
    """The request was handled, and a rule prevented the response from being sent."""
    CONNECTION_GONE = "connection_gone"
    """The connection ended before the response."""


class TransactionFacts(NamedTuple):
    """The transaction or idempotent producer of a request. A field that the request lacks is -1 or None."""

    transactional_id: str | None
    producer_id: int = -1
    producer_epoch: int = -1


class Ends(NamedTuple):
    """Addresses of both ends of a connection, for a capture file."""

    peer_host: str
    peer_port: int
    host: str
    port: int


@slotted(eq=False)
class Exchange:
    """A request, and its response once there is one. Frames are without their size fields."""

    number: int
    """Number of the exchange, from 1 in the order of arrival. No number is used twice, even after `Trace.clear`."""
    node_id: int
    connection_id: int
    """Number of the connection among those that the node has accepted."""
    ends: Ends
    listener: str
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    transactions: tuple[TransactionFacts, ...]
    arrived_ms: int
    """Time of arrival by the broker's clock, which may be virtual."""
    arrived_us: int
    """Time of arrival in microseconds: the clock, refined by a stopwatch.

    Differs from ``arrived_ms`` by up to 2 ms.
    """
    request: bytes
    request_bytes: int
    answer: bytes | None = None
    answer_bytes: int = 0
    answered_ms: int | None = None
    answered_us: int | None = None
    took_us: int | None = None
    """Duration from arrival to response, in microseconds of real time."""
    outcome: Outcome = Outcome.IN_PROGRESS
    was_held: bool = False
    """Whether a rule stopped the request on arrival, even if the rule has released the request since."""
    rule: int | None = None
    """Id of the rule that has responded in the broker's place, or altered the response."""
    principal: str | None = None
    errors: tuple[int, ...] = ()
    """The different error codes of the response, without 0."""
    throttle_ms: int = 0
    """Throttle time in the response, in milliseconds."""
    handled_alone: int = 0
    """Number of times that the request was handled without sending a response: as a duplicate, or after a release."""
    request_summary: str | None = None
    """Text of the request for its line in the trace, if the frame was too large to be kept completely."""
    answer_summary: str | None = None
    in_ring: bool = False

    @property
    def api(self) -> str:
        """Kafka's name of the API: ``EndTxn``."""
        return api_name(self.api_key)

    @property
    def peer(self) -> str:
        return f"{self.ends.peer_host}:{self.ends.peer_port}"

    @property
    def from_node(self) -> int | None:
        """Id of the node that sent the request; None if it was a client."""
        return sending_node(self.client_id)

    @property
    def request_is_cut(self) -> bool:
        return len(self.request) < self.request_bytes

    @property
    def answer_is_cut(self) -> bool:
        return self.answer is not None and len(self.answer) < self.answer_bytes

    @property
    def is_over(self) -> bool:
        """Whether the outcome is final."""
        return self.outcome not in (Outcome.IN_PROGRESS, Outcome.HELD)


def api_name(api_key: int) -> str:
    """Kafka's name of an API, such as ``EndTxn`` for 26; the number as text for an unknown one."""
    known = APIS.get(api_key)
    return message_name(known[0]) if known else str(api_key)
