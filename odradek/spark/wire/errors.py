"""What can go wrong between a client and a cluster, each with Kafka's name for it and one sentence.

What a retry can cure is retried until ``delivery.timeout.ms`` has passed, so ``Retriable`` reaches a caller only then:
trying the same call again later is right. Everything else is final for the call that raised it.
"""

from __future__ import annotations

from odradek.errors import OdradekError


class WireError(OdradekError):
    """A cluster refused something, or could not be reached. ``code`` is Kafka's name (``"PRODUCER_FENCED"``),
    or ``"NETWORK_EXCEPTION"`` and the like where the client itself gave up."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code = code
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"


class Retriable(WireError):
    """It did not work until ``delivery.timeout.ms`` had passed, but it may later."""


class ConnectionLost(Retriable):
    """A connection broke or was never made. ``sent``: a request may have reached the broker, with an unknown outcome."""

    def __init__(self, sentence: str, sent: bool = False) -> None:
        super().__init__("NETWORK_EXCEPTION", sentence)
        self.sent = sent


class TimedOut(Retriable):
    """No answer within ``request.timeout.ms``, or no success within ``delivery.timeout.ms``."""


class Fenced(WireError):
    """Somebody newer owns the transactional id, or its transaction was aborted (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)."""


class InvalidTransaction(WireError):
    """The coordinator's state forbids it (INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, TRANSACTION_ABORTABLE)."""


class Authentication(WireError):
    """TLS or SASL failed: SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, SSL_HANDSHAKE_FAILED."""


class Authorization(WireError):
    """Known, but not allowed (TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, …)."""


class UnknownTopic(WireError):
    """There is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION)."""


class RecordTooLarge(WireError):
    """A record or a batch is larger than the client's or the topic's limit (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE)."""


class MetadataTooLarge(WireError):
    """An offset's metadata is longer than ``offset.metadata.max.bytes`` (OFFSET_METADATA_TOO_LARGE)."""


class UnsupportedVersion(WireError):
    """The broker lacks a version whose semantics are needed (UNSUPPORTED_VERSION)."""


class BadSettings(WireError):
    """An option cannot be understood or is not supported (INVALID_CONFIG)."""


class Fatal(WireError):
    """Any other refusal; ``code`` says which."""
