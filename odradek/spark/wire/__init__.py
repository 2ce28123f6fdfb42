"""A blocking client of a Kafka cluster (3.0 or newer) that can hand over an open transaction to another process.

The client and the writer are imported when they are first used. The writer imports numba, which a process that only
begins and ends transactions does not need: it runs for a second. The commands of `odradek` import only the SASL and TLS
modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
from odradek.spark.wire.settings import ClientSettings

if TYPE_CHECKING:
    from odradek.spark.wire.cluster import Cluster
    from odradek.spark.wire.producer import InitializedProducers, Partition, ProducerId, TransactionState
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


_LOADED_LATE: Final = {
    "Cluster": "cluster",
    "InitializedProducers": "producer",
    "Partition": "producer",
    "ProducerId": "producer",
    "TransactionState": "producer",
    "TransactionalWriter": "writer",
}
"""The exported names that are imported when they are first used, each with its module."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATE:
        raise AttributeError(f"module 'odradek.spark.wire' has no attribute {name!r}")
    return getattr(import_module(f"odradek.spark.wire.{_LOADED_LATE[name]}"), name)
