"""The topic settings of Apache Kafka (`LogConfig.java`, `ServerTopicConfigSynonyms.java`)."""

from collections.abc import Mapping
from typing import Any, Final

from protocol.slotted import slotted
from storage.config_def import Check, ConfigError, ConfigKey, ConfigType, Value, validator_of

NEVER = (1 << 63) - 1  # Kafka's "no limit" of a 64-bit setting
RECORD_BYTES_MAX: Final = (1 << 31) - 9
"""Default of max.decompressed.message.bytes, with which no record is too large: the size of the JVM's largest array."""


@slotted(frozen=True)
class TopicConfigKey(ConfigKey):
    """One topic setting. `synonyms` are the broker settings that supply its default, highest precedence first."""

    synonyms: tuple[str, ...] = ()
    documentation: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


# Written by tests/oracle/tables.py: type, default, check, the broker's settings, internal.
# fmt: off
_ROWS: Final[Mapping[str, tuple[str, Any, Check, tuple[str, ...], bool]]] = {
    "cleanup.policy": ("LIST", ("delete",), ("list", ("compact", "delete"), True), ("log.cleanup.policy",), False),
    "compression.gzip.level": ("INT", -1, ("range_or", 1, 9, -1), ("compression.gzip.level",), False),
    "compression.lz4.level": ("INT", 9, ("range", 1, 17), ("compression.lz4.level",), False),
    "compression.type": (
        "STRING", "producer",
        ("one_of", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), False), ("compression.type",), False),
    "compression.zstd.level": ("INT", 3, ("range", -131072, 22), ("compression.zstd.level",), False),
    "delete.retention.ms": ("LONG", 86400000, ("range", 0, None), ("log.cleaner.delete.retention.ms",), False),
    "errors.deadletterqueue.group.enable": ("BOOLEAN", False, None, (), False),
    "file.delete.delay.ms": ("LONG", 60000, ("range", 0, None), ("log.segment.delete.delay.ms",), False),
    "flush.messages": ("LONG", 9223372036854775807, ("range", 1, None), ("log.flush.interval.messages",), False),
    "flush.ms": (
        "LONG", 9223372036854775807,
        ("range", 0, None), ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"), False),
    "follower.replication.throttled.replicas": ("LIST", (), ("throttled_replicas",), (), False),
    "index.interval.bytes": ("INT", 4096, ("range", 0, None), ("log.index.interval.bytes",), False),
    "internal.segment.bytes": ("INT", None, None, (), True),
    "leader.replication.throttled.replicas": ("LIST", (), ("throttled_replicas",), (), False),
    "local.retention.bytes": ("LONG", -2, ("range", -2, None), ("log.local.retention.bytes",), False),
    "local.retention.ms": ("LONG", -2, ("range", -2, None), ("log.local.retention.ms",), False),
    "max.compaction.lag.ms": (
        "LONG", 9223372036854775807, ("range", 1, None), ("log.cleaner.max.compaction.lag.ms",), False),
    "max.decompressed.message.bytes": (
        "INT", 2147483639, ("range", 1, 2147483639), ("max.decompressed.message.bytes",), False),
    "max.message.bytes": ("INT", 1048588, ("range", 0, None), ("message.max.bytes",), False),
    "message.timestamp.after.max.ms": (
        "LONG", 3600000, ("range", 0, None), ("log.message.timestamp.after.max.ms",), False),
    "message.timestamp.before.max.ms": (
        "LONG", 9223372036854775807, ("range", 0, None), ("log.message.timestamp.before.max.ms",), False),
    "message.timestamp.type": (
        "STRING", "CreateTime",
        ("one_of", ("CreateTime", "LogAppendTime"), False), ("log.message.timestamp.type",), False),
    "min.cleanable.dirty.ratio": ("DOUBLE", 0.5, ("range", 0, 1), ("log.cleaner.min.cleanable.ratio",), False),
    "min.compaction.lag.ms": ("LONG", 0, ("range", 0, None), ("log.cleaner.min.compaction.lag.ms",), False),
    "min.insync.replicas": ("INT", 1, ("range", 1, None), ("min.insync.replicas",), False),
    "preallocate": ("BOOLEAN", False, None, ("log.preallocate",), False),
    "remote.copy.lag.bytes": ("LONG", -1, ("range", -1, None), ("log.remote.copy.lag.bytes",), False),
    "remote.copy.lag.ms": ("LONG", 0, ("range", -1, None), ("log.remote.copy.lag.ms",), False),
    "remote.log.copy.disable": ("BOOLEAN", False, None, (), False),
    "remote.log.delete.on.disable": ("BOOLEAN", False, None, (), False),
    "remote.storage.enable": ("BOOLEAN", False, None, (), False),
    "retention.bytes": ("LONG", -1, None, ("log.retention.bytes",), False),
    "retention.ms": (
        "LONG", 604800000,
        ("range", -1, None), ("log.retention.ms", "log.retention.minutes", "log.retention.hours"), False),
    "segment.bytes": ("INT", 1073741824, ("range", 1048576, None), ("log.segment.bytes",), False),
    "segment.index.bytes": ("INT", 10485760, ("range", 4, None), ("log.index.size.max.bytes",), False),
    "segment.jitter.ms": ("LONG", 0, ("range", 0, None), ("log.roll.jitter.ms", "log.roll.jitter.hours"), False),
    "segment.ms": ("LONG", 604800000, ("range", 1, None), ("log.roll.ms", "log.roll.hours"), False),
    "unclean.leader.election.enable": ("BOOLEAN", False, None, ("unclean.leader.election.enable",), False),
}
# fmt: on

_DOCUMENTATION: Final = {
    "cleanup.policy": (
        "delete: old segments are deleted by age or size; compact: the last record of each key is kept, and "
        "records without a key are refused."
    ),
    "compression.gzip.level": "Level when the broker compresses with gzip; -1 is the library's choice.",
    "compression.lz4.level": "Level when the broker compresses with lz4.",
    "compression.type": (
        "Codec of stored batches; producer keeps each batch's codec, any other recompresses batches with another "
        "codec."
    ),
    "compression.zstd.level": "Level when the broker compresses with zstd.",
    "delete.retention.ms": (
        "How long compaction keeps a tombstone or a transaction marker after the first pass that could remove it."
    ),
    "errors.deadletterqueue.group.enable": "Whether the topic may be the dead-letter queue of share groups.",
    "file.delete.delay.ms": "How long the files of a deleted segment stay on disk, renamed to .deleted.",
    "flush.messages": "After this many records the log is synced to disk.",
    "flush.ms": (
        "The log is synced this long after its first unsynced record, whatever log.flush.scheduler.interval.ms is."
    ),
    "follower.replication.throttled.replicas": "Replicas whose fetching as a follower is throttled.",
    "index.interval.bytes": "An index entry is added after this many bytes of log.",
    "internal.segment.bytes": "Size at which a new segment begins, for tests.",
    "leader.replication.throttled.replicas": "Replicas whose serving as a leader is throttled.",
    "local.retention.bytes": "Tiered storage only: bytes kept on the local disk.",
    "local.retention.ms": "Tiered storage only: age kept on the local disk.",
    "max.compaction.lag.ms": "The longest time after which a record is compacted.",
    "max.decompressed.message.bytes": (
        "The largest size of a single record in a compressed batch, after decompression: attributes, key, value and "
        "headers."
    ),
    "max.message.bytes": "The largest batch that is accepted, with its 12 bytes of base offset and length.",
    "message.timestamp.after.max.ms": "How far in the future a record's own timestamp may lie.",
    "message.timestamp.before.max.ms": "How far in the past a record's own timestamp may lie.",
    "message.timestamp.type": "Whether the timestamp of a record is the producer's or the time of the append.",
    "min.cleanable.dirty.ratio": "The share of uncompacted bytes from which a log is compacted.",
    "min.compaction.lag.ms": "The shortest time for which a record is not compacted.",
    "min.insync.replicas": "With fewer in-sync replicas a Produce with acks=all is refused.",
    "preallocate": "Allocate a segment's bytes when it begins.",
    "remote.copy.lag.bytes": "Tiered storage only: a closed segment is copied when so many bytes follow it.",
    "remote.copy.lag.ms": "Tiered storage only: the age from which a closed segment is copied.",
    "remote.log.copy.disable": "Tiered storage only.",
    "remote.log.delete.on.disable": "Tiered storage only.",
    "remote.storage.enable": "Tiered storage, which this broker does not have: only false is accepted.",
    "retention.bytes": "The size of a log above which its oldest segments are deleted; below 0 is no limit.",
    "retention.ms": "The age at which segments are deleted; -1 is never.",
    "segment.bytes": "Size at which a new segment begins.",
    "segment.index.bytes": "Size of an index at which a new segment begins.",
    "segment.jitter.ms": "Random time taken off segment.ms, so that not all partitions roll at once.",
    "segment.ms": "Age at which a new segment begins.",
    "unclean.leader.election.enable": (
        "Whether a replica that is neither in sync nor eligible may become leader, which loses the records that it lacks."
    ),
}

_WITHOUT_EFFECT: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


def _key(
    name: str, type_name: str, default: Value, check: Check, synonyms: tuple[str, ...], internal: bool
) -> TopicConfigKey:
    return TopicConfigKey(
        name,
        ConfigType(type_name),
        default,
        validator_of(check),
        name not in _WITHOUT_EFFECT,
        internal,
        synonyms,
        _DOCUMENTATION[name],
    )


ALL_TOPIC_CONFIGS: Mapping[str, TopicConfigKey] = {name: _key(name, *row) for name, row in _ROWS.items()}
TOPIC_CONFIGS: Mapping[str, TopicConfigKey] = {
    name: key for name, key in ALL_TOPIC_CONFIGS.items() if not key.internal
}


def topic_config_key(name: str) -> TopicConfigKey:
    key = ALL_TOPIC_CONFIGS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key


def parse_topic_config(name: str, raw: str) -> Value:
    """Parse the value of one topic setting. Raises ConfigError with Kafka's message."""
    return topic_config_key(name).parse(raw)
