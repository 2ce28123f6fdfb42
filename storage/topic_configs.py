"""The table of Kafka 4.3.1's topic settings (`LogConfig.java`, `ServerTopicConfigSynonyms.java`)."""

from collections.abc import Mapping

from protocol.slotted import slotted
from storage.config_def import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ListOf,
    OneOf,
    Range,
    RangeOr,
    ThrottledReplicas,
    Validator,
    Value,
)

NEVER = (1 << 63) - 1  # Kafka's "no limit" of a 64-bit setting


@slotted(frozen=True)
class TopicConfigKey(ConfigKey):
    """One topic setting. `synonyms` are the broker settings that supply its default, highest precedence first."""

    synonyms: tuple[str, ...] = ()
    documentation: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def _key(
    name: str,
    config_type: ConfigType,
    default: Value,
    validator: Validator | None,
    synonyms: tuple[str, ...],
    documentation: str,
    *,
    effective: bool = True,
    internal: bool = False,
) -> TopicConfigKey:
    return TopicConfigKey(name, config_type, default, validator, effective, internal, synonyms, documentation)


_BOOLEAN, _STRING, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_KEYS = (
    _key(
        "cleanup.policy",
        _LIST,
        ("delete",),
        ListOf(("compact", "delete")),
        ("log.cleanup.policy",),
        "delete: old segments are deleted by age or size; compact: the last record of each key is kept, and records "
        "without a key are refused.",
    ),
    _key(
        "compression.type",
        _STRING,
        "producer",
        OneOf(_COMPRESSIONS),
        ("compression.type",),
        "Codec of stored batches; producer keeps each batch's codec, any other recompresses batches with another codec.",
    ),
    _key(
        "compression.gzip.level",
        _INT,
        -1,
        RangeOr(1, 9, -1),
        ("compression.gzip.level",),
        "Level when the broker compresses with gzip; -1 is the library's choice.",
    ),
    _key(
        "compression.lz4.level",
        _INT,
        9,
        Range(1, 17),
        ("compression.lz4.level",),
        "Level when the broker compresses with lz4.",
    ),
    _key(
        "compression.zstd.level",
        _INT,
        3,
        Range(-131072, 22),
        ("compression.zstd.level",),
        "Level when the broker compresses with zstd.",
    ),
    _key(
        "delete.retention.ms",
        _LONG,
        86_400_000,
        Range(0),
        ("log.cleaner.delete.retention.ms",),
        "How long compaction keeps a tombstone or a transaction marker after the first pass that could remove it.",
    ),
    _key(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        Range(0),
        ("log.segment.delete.delay.ms",),
        "How long the files of a deleted segment stay on disk, renamed to .deleted.",
    ),
    _key(
        "flush.messages",
        _LONG,
        NEVER,
        Range(1),
        ("log.flush.interval.messages",),
        "After this many records the log is synced to disk.",
    ),
    _key(
        "flush.ms",
        _LONG,
        NEVER,
        Range(0),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "The log is synced this long after its first unsynced record, whatever log.flush.scheduler.interval.ms is.",
    ),
    _key(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        ThrottledReplicas(),
        (),
        "Replicas whose fetching as a follower is throttled.",
        effective=False,
    ),
    _key(
        "index.interval.bytes",
        _INT,
        4096,
        Range(0),
        ("log.index.interval.bytes",),
        "An index entry is added after this many bytes of log.",
    ),
    _key(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        ThrottledReplicas(),
        (),
        "Replicas whose serving as a leader is throttled.",
        effective=False,
    ),
    _key(
        "local.retention.bytes",
        _LONG,
        -2,
        Range(-2),
        ("log.local.retention.bytes",),
        "Tiered storage only: bytes kept on the local disk.",
        effective=False,
    ),
    _key(
        "local.retention.ms",
        _LONG,
        -2,
        Range(-2),
        ("log.local.retention.ms",),
        "Tiered storage only: age kept on the local disk.",
        effective=False,
    ),
    _key(
        "max.compaction.lag.ms",
        _LONG,
        NEVER,
        Range(1),
        ("log.cleaner.max.compaction.lag.ms",),
        "The longest time after which a record is compacted.",
    ),
    _key(
        "max.message.bytes",
        _INT,
        1_048_588,
        Range(0),
        ("message.max.bytes",),
        "The largest batch that is accepted, with its 12 bytes of base offset and length.",
    ),
    _key(
        "message.timestamp.after.max.ms",
        _LONG,
        3_600_000,
        Range(0),
        ("log.message.timestamp.after.max.ms",),
        "How far in the future a record's own timestamp may lie.",
    ),
    _key(
        "message.timestamp.before.max.ms",
        _LONG,
        NEVER,
        Range(0),
        ("log.message.timestamp.before.max.ms",),
        "How far in the past a record's own timestamp may lie.",
    ),
    _key(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        OneOf(_TIMESTAMP_TYPES),
        ("log.message.timestamp.type",),
        "Whether the timestamp of a record is the producer's or the time of the append.",
    ),
    _key(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        Range(0, 1),
        ("log.cleaner.min.cleanable.ratio",),
        "The share of uncompacted bytes from which a log is compacted.",
    ),
    _key(
        "min.compaction.lag.ms",
        _LONG,
        0,
        Range(0),
        ("log.cleaner.min.compaction.lag.ms",),
        "The shortest time for which a record is not compacted.",
    ),
    _key(
        "min.insync.replicas",
        _INT,
        1,
        Range(1),
        ("min.insync.replicas",),
        "With fewer in-sync replicas a Produce with acks=all is refused.",
    ),
    _key(
        "preallocate",
        _BOOLEAN,
        False,
        None,
        ("log.preallocate",),
        "Allocate a segment's bytes when it begins.",
        effective=False,
    ),
    _key("remote.log.copy.disable", _BOOLEAN, False, None, (), "Tiered storage only.", effective=False),
    _key("remote.log.delete.on.disable", _BOOLEAN, False, None, (), "Tiered storage only.", effective=False),
    _key(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        None,
        (),
        "Tiered storage, which this broker does not have: only false is accepted.",
        effective=False,
    ),
    _key(
        "retention.bytes",
        _LONG,
        -1,
        None,
        ("log.retention.bytes",),
        "The size of a log above which its oldest segments are deleted; below 0 is no limit.",
    ),
    _key(
        "retention.ms",
        _LONG,
        604_800_000,
        Range(-1),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "The age at which segments are deleted; -1 is never.",
    ),
    _key(
        "segment.bytes",
        _INT,
        1_073_741_824,
        Range(1_048_576),
        ("log.segment.bytes",),
        "Size at which a new segment begins.",
    ),
    _key(
        "segment.index.bytes",
        _INT,
        10_485_760,
        Range(4),
        ("log.index.size.max.bytes",),
        "Size of an index at which a new segment begins.",
    ),
    _key(
        "segment.jitter.ms",
        _LONG,
        0,
        Range(0),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "Random time taken off segment.ms, so that not all partitions roll at once.",
    ),
    _key(
        "segment.ms",
        _LONG,
        604_800_000,
        Range(1),
        ("log.roll.ms", "log.roll.hours"),
        "Age at which a new segment begins.",
    ),
    _key(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        None,
        ("unclean.leader.election.enable",),
        "Whether a replica outside of the ISR may become leader, which loses the records that it lacks.",
    ),
    # Kafka's own tests use this for small segments: it overrides segment.bytes and has no lower bound.
    _key(
        "internal.segment.bytes",
        _INT,
        None,
        None,
        (),
        "Size at which a new segment begins, for tests.",
        internal=True,
    ),
)

ALL_TOPIC_CONFIGS: Mapping[str, TopicConfigKey] = {key.name: key for key in _KEYS}
TOPIC_CONFIGS: Mapping[str, TopicConfigKey] = {key.name: key for key in _KEYS if not key.internal}


def topic_config_key(name: str) -> TopicConfigKey:
    key = ALL_TOPIC_CONFIGS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key


def parse_topic_config(name: str, raw: str) -> Value:
    """Parse the value of one topic setting. Raises ConfigError with Kafka's message."""
    return topic_config_key(name).parse(raw)
