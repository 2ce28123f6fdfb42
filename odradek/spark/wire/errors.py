"""The errors between a client and a cluster, each with Kafka's name and one sentence.

After errors that a retry can cure, requests are retried until ``delivery.timeout.ms`` has passed. Only then does a caller
get ``Retriable``, and may try the same call again later. All other errors are final for the call that raised them.
"""

from __future__ import annotations

from odradek._protocol.errors import ErrorCode
from odradek.errors import OdradekError


class WireError(OdradekError):
    """A cluster rejected a request, or could not be reached.

    ``code`` is Kafka's name of the error: of the broker's error code (``"PRODUCER_FENCED"``), or the name that fits if
    the client itself gave up (``"NETWORK_EXCEPTION"``).
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code = code
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"


class Retriable(WireError):
    """The call did not succeed before ``delivery.timeout.ms`` had passed, but may succeed later."""


class ConnectionLost(Retriable):
    """A connection broke or could not be opened. ``sent``: a request may have reached the broker, with unknown outcome."""

    def __init__(self, sentence: str, sent: bool = False) -> None:
        super().__init__("NETWORK_EXCEPTION", sentence)
        self.sent = sent


class TimedOut(Retriable):
    """No response within ``request.timeout.ms``, or no success within ``delivery.timeout.ms``."""


class Fenced(WireError):
    """A newer epoch owns the transactional id, or its transaction was aborted (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)."""


class InvalidTransaction(WireError):
    """The request is not allowed in the transaction's state.

    INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, TRANSACTION_ABORTABLE.
    """


class Authentication(WireError):
    """TLS or SASL failed: SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, SSL_HANDSHAKE_FAILED."""


class Authorization(WireError):
    """The client lacks a right (TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, …)."""


class UnknownTopic(WireError):
    """There is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION)."""


class RecordTooLarge(WireError):
    """A record or a batch is larger than the client's or the topic's limit (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE)."""


class MetadataTooLarge(WireError):
    """An offset's metadata is longer than ``offset.metadata.max.bytes`` (OFFSET_METADATA_TOO_LARGE)."""


class UnsupportedVersion(WireError):
    """The broker lacks a version of an API whose semantics are needed (UNSUPPORTED_VERSION)."""


class MalformedAnswer(WireError):
    """A broker's response cannot be parsed (INVALID_RESPONSE). The request is not retried: it would get the same response.

    Whether the request had an effect is not known.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__("INVALID_RESPONSE", sentence)


class BadSettings(WireError):
    """An option has an invalid value or is not supported (INVALID_CONFIG)."""


class Fatal(WireError):
    """An error for which there is no other class here; ``code`` is Kafka's name of the error."""


# Error codes after which the client tries again, grouped by what it must look up first (Kafka's RetriableException and
# RefreshRetriableException, with the table of TransactionManager.java).
COORDINATOR_MOVED = frozenset({15, 16})
LEADER_MOVED = frozenset({3, 5, 6, 9, 56, 72, 74, 75, 100})
RETRIABLE = frozenset({2, 7, 13, 14, 19, 20, 51, 88, 89}) | COORDINATOR_MOVED | LEADER_MOVED

UNKNOWN_TOPIC_OR_PARTITION = 3
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
CONCURRENT_TRANSACTIONS = 51
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
OPERATION_NOT_ATTEMPTED = 55
TRANSACTIONAL_ID_NOT_FOUND = 105

_FINAL: dict[int, tuple[type[WireError], str]] = {
    10: (RecordTooLarge, "is larger than the broker accepts: see max.message.bytes of the topic and kafka.batch.size"),
    12: (MetadataTooLarge, "has metadata that is longer than the broker's offset.metadata.max.bytes"),
    17: (UnknownTopic, "is not a topic that clients may use"),
    18: (RecordTooLarge, "is larger than a segment of its topic"),
    22: (Fatal, "was refused, because its consumer group has members"),
    29: (Authorization, "may not be used by this client"),
    30: (Authorization, "may not be used by this client"),
    31: (Authorization, "needs a right on the cluster that this client does not have"),
    35: (UnsupportedVersion, "was requested in a version that the broker does not have"),
    45: (Fatal, "is refused: the broker lost records that it had acknowledged, or has others of this producer id"),
    47: (Fenced, "is refused: a newer producer has this transactional id, or its transaction was aborted"),
    48: (InvalidTransaction, "is refused: the producer has no open transaction there, or it ended with the other outcome"),
    49: (InvalidTransaction, "is refused: its transactional id belongs to another producer id, or has expired"),
    50: (BadSettings, "has a transaction timeout of more than the broker's transaction.max.timeout.ms"),
    53: (Authorization, "may not be used by this client"),
    87: (Fatal, "has a record that the broker rejects"),
    90: (Fenced, "is refused: a newer producer has this transactional id, or its transaction was aborted"),
    120: (InvalidTransaction, "is refused: its transaction can only be aborted"),
}  # fmt: skip


def name_of(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        name: str = ErrorCode(code).name
        return name.upper()
    except ValueError:
        return f"ERROR_{code}"


def refused(code: int, subject: str, said: str | None = None) -> WireError:
    """The error for an error code after which the client does not retry.

    ``subject`` begins the error's sentence; ``said`` is the broker's error message.
    """
    kind, predicate = _FINAL.get(code, (Fatal, "was refused by the broker"))
    return kind(name_of(code), f"{subject} {predicate}{f': {said}' if said else ''}")


def gave_up(code: int, subject: str, timeout_ms: int, why: str = "") -> WireError:
    """The error for a retriable error code after the timeout. ``why`` is the reason why the last attempt failed."""
    kind = UnknownTopic if code == UNKNOWN_TOPIC_OR_PARTITION else TimedOut
    last = f"; last error: {why}" if why and why != name_of(code) else ""
    return kind(name_of(code), f"{subject} did not work within {timeout_ms} ms{last}")
