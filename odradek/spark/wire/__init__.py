"""A client of several brokers that can hand over an open transaction: blocking sockets, any Kafka since 3.0.

The writer is loaded when it is first used: it brings a compiler with it, and who only begins and ends transactions does so
in a process that lives for a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.spark.wire.cluster import Cluster
from odradek.spark.wire.errors import (
    Authentication,
    Authorization,
    BadSettings,
    ConnectionLost,
    Fatal,
    Fenced,
    InvalidTransaction,
    MalformedAnswer,
    MetadataTooLarge,
    RecordTooLarge,
    Retriable,
    TimedOut,
    UnknownTopic,
    UnsupportedVersion,
    WireError,
)
from odradek.spark.wire.producer import InitializedProducers, Partition, ProducerId, TransactionState
from odradek.spark.wire.settings import ClientSettings

if TYPE_CHECKING:
    from odradek.spark.wire.writer import TransactionalWriter

__all__ = [
    "Authentication",
    "Authorization",
    "BadSettings",
    "ClientSettings",
    "Cluster",
    "ConnectionLost",
    "Fatal",
    "Fenced",
    "InitializedProducers",
    "InvalidTransaction",
    "MalformedAnswer",
    "MetadataTooLarge",
    "Partition",
    "ProducerId",
    "RecordTooLarge",
    "Retriable",
    "TimedOut",
    "TransactionState",
    "TransactionalWriter",
    "UnknownTopic",
    "UnsupportedVersion",
    "WireError",
]


def __getattr__(name: str) -> Any:
    if name != "TransactionalWriter":
        raise AttributeError(f"module 'odradek.spark.wire' has no attribute {name!r}")
    from odradek.spark.wire.writer import TransactionalWriter

    return TransactionalWriter
