"""Topic settings. The error messages were recorded from Kafka 4.3.1's validators."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.config import (
    ALL_TOPIC_CONFIGS,
    TOPIC_CONFIGS,
    ConfigError,
    LogConfig,
    TopicConfigKey,
    parse_topic_config,
)
from storage.config_def import ConfigType, parse_type, to_text

LONG_MAX = (1 << 63) - 1


def test_the_37_settings_of_a_topic_are_known_and_typed():
    assert len(TOPIC_CONFIGS) == 37
    assert {key.attribute for key in TOPIC_CONFIGS.values()} == {
        field.name for field in fields(LogConfig) if field.init
    }


@pytest.mark.parametrize("key", TOPIC_CONFIGS.values(), ids=lambda key: key.name)
def test_the_typed_default_is_the_table_s(key: TopicConfigKey):
    default = getattr(LogConfig(), key.attribute)
    assert default == key.default
    assert type(default) is type(key.default)
    assert key.parse(key.text(key.default) or "") == key.default
    assert key.documentation.endswith(".")


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("segment.bytes", "1048576", 1048576),
        ("segment.bytes", " +1048576 ", 1048576),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-1000", -1000),
        ("flush.messages", "9223372036854775807", LONG_MAX),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("min.cleanable.dirty.ratio", "1e-7", 1e-7),
        ("min.cleanable.dirty.ratio", "1d", 1.0),
        ("preallocate", "TRUE", True),
        ("preallocate", " false", False),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("compression.zstd.level", "-131072", -131072),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "1:2,3:4", ("1:2", "3:4")),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("segment.ms", "00000000000000000000005", 5),
    ],
)
def test_a_good_value_is_read_as_kafka_reads_it(name: str, raw: str, value: object):
    assert parse_topic_config(name, raw) == value


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        (
            "segment.bytes",
            "1000",
            "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576",
        ),
        ("segment.bytes", "", "Invalid value  for configuration segment.bytes: Not a number of type INT"),
        (
            "segment.bytes",
            "1_0",
            "Invalid value 1_0 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "2147483648",
            "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.ms",
            "9223372036854775808",
            "Invalid value 9223372036854775808 for configuration segment.ms: Not a number of type LONG",
        ),
        ("segment.ms", "0", "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
        (
            "min.cleanable.dirty.ratio",
            "123456789.5",
            "Invalid value 1.234567895E8 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1e400",
            "Invalid value Infinity for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "cleanup.policy",
            "a",
            "Invalid value a for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: "
            "Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "leader.replication.throttled.replicas",
            "1:x,2:3",
            "Invalid value [1:x, 2:3] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        ("message.format.version", "2.8", "Unknown topic config name: message.format.version"),
    ],
)
def test_a_bad_value_is_refused_in_kafka_s_words(name: str, raw: str, message: str):
    with pytest.raises(ConfigError) as refused:
        parse_topic_config(name, raw)
    assert str(refused.value) == message


def test_a_topic_s_own_values_lie_over_the_defaults():
    defaults = LogConfig.from_properties({"retention.ms": "1000", "segment.ms": "500"})
    config = LogConfig.from_properties({"segment.ms": "7", "cleanup.policy": "compact"}, defaults)
    assert (config.retention_ms, config.segment_ms) == (1000, 7)
    assert (config.compact, config.delete) == (True, False)
    assert LogConfig.from_properties({}, {"retention.ms": "1000"}).retention_ms == 1000


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(
        ConfigError, match=r"min\.compaction\.lag\.ms \(100\) > max\.compaction\.lag\.ms \(50\)"
    ):
        LogConfig.from_properties({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"})


def test_tiered_storage_is_refused():
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled in the broker"):
        LogConfig.from_properties({"remote.storage.enable": "true"})


def test_the_internal_segment_size_goes_below_the_public_bound_and_is_listed_nowhere():
    config = LogConfig.from_properties({"internal.segment.bytes": "100", "segment.bytes": "1048576"})
    assert config.segment_bytes == 100
    assert "internal.segment.bytes" not in TOPIC_CONFIGS
    assert ALL_TOPIC_CONFIGS["internal.segment.bytes"].internal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e22, "1.0E22"),
        (1e-7, "1.0E-7"),
        (-1.25e7, "-1.25E7"),
        (float("-inf"), "-Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
    ],
)
def test_a_value_is_written_as_java_writes_it(value: object, text: str | None):
    assert to_text(value) == text


@given(st.text(max_size=30), st.sampled_from(ConfigType))
def test_any_text_is_either_read_or_refused(raw: str, config_type: ConfigType):
    try:
        value = parse_type("a.name", raw, config_type)
    except ConfigError:
        return
    assert isinstance(to_text(value), str)


@given(st.floats(allow_nan=False))
def test_a_double_survives_being_written_and_read(value: float):
    assert parse_type("a.name", to_text(value) or "", ConfigType.DOUBLE) == value


def test_a_member_of_a_list_that_comes_again_is_dropped():
    assert parse_topic_config("cleanup.policy", "compact,delete,compact") == ("compact", "delete")
