"""A client of several brokers that can hand over an open transaction: blocking sockets, any Kafka since 3.0."""

from odradek.spark.wire.cluster import Cluster
from odradek.spark.wire.errors import (
    Authentication,
    Authorization,
    BadSettings,
    ConnectionLost,
    Fatal,
    Fenced,
    InvalidTransaction,
    MetadataTooLarge,
    RecordTooLarge,
    Retriable,
    TimedOut,
    UnknownTopic,
    UnsupportedVersion,
    WireError,
)
from odradek.spark.wire.producer import InitializedProducers, Partition, ProducerId
from odradek.spark.wire.settings import ClientSettings
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
    "MetadataTooLarge",
    "Partition",
    "ProducerId",
    "RecordTooLarge",
    "Retriable",
    "TimedOut",
    "TransactionalWriter",
    "UnknownTopic",
    "UnsupportedVersion",
    "WireError",
]
