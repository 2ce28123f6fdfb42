"""Settings of one topic: a typed view of the table in `storage.topic_configs`."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, Self

from protocol.slotted import init_names, slotted
from storage.config_def import ConfigError, ConfigType
from storage.topic_configs import (
    ALL_TOPIC_CONFIGS,
    NEVER,
    RECORD_BYTES_MAX,
    TOPIC_CONFIGS,
    TopicConfigKey,
    parse_topic_config,
    topic_config_key,
)

__all__ = [
    "ALL_TOPIC_CONFIGS",
    "NEVER",
    "RECORD_BYTES_MAX",
    "TOPIC_CONFIGS",
    "ConfigError",
    "ConfigType",
    "LogConfig",
    "TopicConfigKey",
    "parse_topic_config",
    "topic_config_key",
]


@slotted(frozen=True, kw_only=True)
class LogConfig:
    """Settings of one topic. `internal.segment.bytes`, if set, replaces the value of `segment_bytes`."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = NEVER
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_copy_lag_bytes: int = -1
    remote_copy_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    stores_as_sent: bool = field(init=False, repr=False, compare=False)
    """Whether these settings require no check of the records, and never change a batch."""

    def __post_init__(self) -> None:
        as_sent = (
            self.compression_type == "producer"
            and self.message_timestamp_before_max_ms == NEVER
            and self.max_decompressed_message_bytes == RECORD_BYTES_MAX
            and not self.compact
            and not self.log_append_time
        )
        object.__setattr__(self, "stores_as_sent", as_sent)

    @classmethod
    def from_properties(
        cls, topic_overrides: Mapping[str, str], defaults: "LogConfig | Mapping[str, str] | None" = None
    ) -> Self:
        """Return the settings of a topic: its own values, and the defaults for all others.

        Raises ConfigError if one of the topic's own values is invalid, or if the settings contradict each other.
        """
        values = _values_of(defaults)
        for name, raw in topic_overrides.items():
            values[topic_config_key(name).attribute] = parse_topic_config(name, raw)
        internal_segment_bytes = values.pop("internal_segment_bytes", None)
        config = cls(**values)
        config.check()
        if internal_segment_bytes is not None:
            return cls(**{**values, "segment_bytes": internal_segment_bytes})
        return config

    def check(self) -> None:
        """Check the rules that concern several settings (`LogConfig.validateTopicLogConfigValues`)."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        if self.remote_storage_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


@cache
def _attributes() -> tuple[str, ...]:
    return init_names(LogConfig)


def _values_of(defaults: LogConfig | Mapping[str, str] | None) -> dict[str, Any]:
    if isinstance(defaults, LogConfig):
        return {attribute: getattr(defaults, attribute) for attribute in _attributes()}
    raw = defaults or {}
    return {topic_config_key(name).attribute: parse_topic_config(name, text) for name, text in raw.items()}
