"""The configuration of one broker: all settings, checked and typed.

    config, warnings = load_config(Path("server.properties"), os.environ, {"num.partitions": "3"})
    config.num_partitions, config.log_defaults.segment_bytes, config.get("queued.max.requests")

Attributes are Kafka's names with underscores. `values` has the checked value of every setting of Kafka; the settings that
the broker itself reads are attributes as well.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import cache
from itertools import dropwhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from broker.config.agreement import check_agreement, check_cordoned
from broker.config.definitions import (
    EMULATOR,
    EMULATOR_DEFAULTS,
    OWN_CONFIGS,
    base_name,
    broker_configs,
    defaults,
    kafka_configs,
)
from broker.config.effects import WITHOUT_EFFECT
from broker.config.endpoints import Endpoint
from broker.config.listeners import check_principal_builder, inter_broker_listener_name, listeners_of
from broker.config.node_settings import settings_for_node
from broker.config.sources import (
    Setting,
    check_node_numbers,
    for_node,
    given_settings,
    strongest,
    unknown,
)
from protocol.slotted import field_names, slotted
from storage.config import TOPIC_CONFIGS, ConfigError, LogConfig
from storage.config_def import Value, to_text

__all__ = ["BrokerConfig", "ConfigError", "ConfigSynonym", "Endpoint", "broker_config", "load_config"]

DEFAULT_CONFIG, STATIC_BROKER_CONFIG = (
    "DEFAULT_CONFIG",
    "STATIC_BROKER_CONFIG",
)  # Kafka's names of the sources

_SCHEDULER = "log.flush.scheduler.interval.ms"
_UNIT_MS = {"hours": 3_600_000, "minutes": 60_000}
# The first setting of a group that is set counts (`DynamicBrokerConfig.brokerConfigSynonyms`).
_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", _SCHEDULER),  # _SCHEDULER is also a setting with a meaning of its own
)
# Settings of internal topics that are reduced to the number of nodes.
_BOUND_BY_NODES = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


REPLICATION_FACTOR_MAX = 3
"""Maximum of the default replication factor in a cluster of several nodes."""


@slotted(frozen=True)
class ConfigSynonym:
    """One source of a value in a DescribeConfigs response: the setting, its value, and Kafka's name of the source."""

    name: str
    value: str | None
    source: str


@slotted(frozen=True, kw_only=True)
class BrokerConfig:
    # Identity and listeners. Controller listeners are left out. An advertised port 0 is replaced by the port that was bound.
    node_id: int
    broker_rack: str | None
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    inter_broker_listener_name: str
    log_dir: Path | None  # None: a temporary directory, removed when the process ends

    # Connections
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    queued_max_requests: int
    request_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int

    # Topics and logs; settings that a topic may override are in log_defaults
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    controlled_shutdown_enable: bool
    cordoned_log_dirs: tuple[str, ...]
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    leader_imbalance_check_interval_seconds: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_defaults: LogConfig
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    unclean_leader_election_interval_ms: int

    # Authorization; `values` has the settings of the authorizer class
    authorizer_class_name: str

    # Quotas of clients
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    quota_window_num: int
    quota_window_size_seconds: int

    # Groups and their offsets
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    # Transactions
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    telemetry_max_bytes: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int
    unstable_api_versions_enable: bool

    # Share groups
    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    group_share_assignment_interval_ms: int
    group_share_assignors: tuple[str, ...]
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int

    # Share coordinator
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int

    # Delegation tokens
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None = field(repr=False)

    # Settings of Odradek, with the prefix odradek.
    background_flush_interval_ms: int
    batch_decompressed_bytes_max: int
    batch_records_max: int
    client_telemetry_exporter: str
    cluster_id: str | None
    commit_order: str
    commit_marker_delay_ms: int
    control_allowed_hosts: tuple[str, ...]
    control_token: str = field(repr=False)
    crash_points: str
    defaults: str
    fetch_gives_way: bool
    log_format: str
    log_level: str
    open_files_max: int
    otel_endpoint: str
    preview: tuple[str, ...]
    produce_reads_records: bool
    queued_max_response_bytes: int

    values: Mapping[str, Value] = field(repr=False)
    # All settings that were set, as text, including names unknown to Kafka. DescribeConfigs tells them apart from defaults.
    static: Mapping[str, str] = field(repr=False)

    @property
    def broker_id(self) -> int:
        return self.node_id

    @property
    def is_cordoned(self) -> bool:
        """Whether the log directory is cordoned: it gets no new partitions (KIP-1066)."""
        # If several directories are configured, the node uses the first one only.
        _, *unused = self.values["log.dirs"] or self.values["log.dir"]
        return not set(self.cordoned_log_dirs) <= set(unused)

    @property
    def is_secured(self) -> bool:
        """Whether a listener uses TLS or SASL."""
        return any(each.security_protocol != "PLAINTEXT" for each in self.listeners)

    @property
    def uses_tls(self) -> bool:
        """Whether a listener uses TLS."""
        return any(each.security_protocol in ("SSL", "SASL_SSL") for each in self.listeners)

    def get(self, name: str) -> Value:
        """Return the value of any setting of Kafka or Odradek, by its dotted name."""
        return self.values[name]

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """The sources of a broker setting's value, the effective one first."""
        # Kafka drops all sources before the setting's own name (`ConfigHelper.configSynonyms`), so a broker that sets
        # log.retention.hours shows no synonym for retention.ms.
        return tuple(dropwhile(lambda synonym: synonym.name != name, self.group_of(name)))

    def group_of(self, name: str) -> tuple[ConfigSynonym, ...]:
        """The sources of a broker setting's value, including synonyms of higher precedence, which `synonyms` omits."""
        group, keys = synonyms_of(name), broker_configs()
        return (
            *(
                ConfigSynonym(each, self.static[each], STATIC_BROKER_CONFIG)
                for each in group
                if each in self.static
            ),
            *(
                ConfigSynonym(each, to_text(keys[each].default), DEFAULT_CONFIG)
                for each in group
                if each in keys and keys[each].default is not None
            ),
        )

    def topic_default(self, topic_config: str) -> tuple[str | None, str, tuple[ConfigSynonym, ...]]:
        """Return (value, source, synonyms) of a topic setting for topics that do not set it."""
        key = TOPIC_CONFIGS[topic_config]
        synonyms = self.synonyms(key.synonyms[0]) if key.synonyms else ()
        source = synonyms[0].source if synonyms else DEFAULT_CONFIG
        return to_text(getattr(self.log_defaults, key.attribute)), source, synonyms


def synonyms_of(name: str) -> tuple[str, ...]:
    """The synonyms of a setting, in order of precedence, including the setting itself."""
    return next((group for group in _SYNONYMS if name in group and name != _SCHEDULER), (name,))


def load_config(
    properties_file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    nodes: int = 1,
    number: int = 1,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> tuple[BrokerConfig, list[str]]:
    """Load the configuration from all sources. Returns it with warnings about settings that have no effect.

    ``defaults`` have the lowest precedence.

    In a cluster of several ``nodes`` this is the configuration of node ``number``, counted from 1. Unless the
    node's own settings differ, its id and its ports are those of the first node plus ``number`` - 1. Raises
    ConfigError, with the name, the value and its source, at the first invalid value.
    """
    given = given_settings(properties_file, environ, overrides, defaults)
    check_node_numbers(given, nodes)
    settings = settings_for_node(strongest(for_node(given, number)), number - 1)
    warnings = unknown(settings)
    values, static = _values(settings, nodes)
    check_agreement(values)
    check_cordoned(values)
    check_principal_builder(values)
    warnings += _ineffective(settings, values)
    listeners, advertised = listeners_of(settings, values)
    config = BrokerConfig(
        **{attribute: values[name] for attribute, name in attributes().items()},
        listeners=listeners,
        advertised_listeners=advertised,
        inter_broker_listener_name=inter_broker_listener_name(settings, values, listeners),
        log_dir=_log_dir(settings, values, warnings),
        log_defaults=log_defaults_of(values),
        cluster_id=values["odradek.cluster.id"] or None,
        values=values,
        static=static,
    )
    return config, warnings


def _ineffective(settings: Mapping[str, Setting], values: Mapping[str, Value]) -> Iterator[str]:
    """Yield a warning for each setting that was set, has no effect, and on whose effect the user might rely."""
    for name, instead in WITHOUT_EFFECT.items():
        if name in settings and values[name] and values[name] != broker_configs()[name].default:
            yield f"{name} (from {settings[name].where}) has no effect: {instead}"


def node_configs(
    properties_file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    nodes: int,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[BrokerConfig, ...], list[str]]:
    """Load the configurations of all nodes of a cluster. Returns them with their warnings, each warning once."""
    configs, warnings = [], []
    for number in range(1, nodes + 1):
        config, found = load_config(
            properties_file, environ, overrides, nodes=nodes, number=number, defaults=defaults
        )
        configs.append(config)
        warnings += [line for line in found if line not in warnings]
    ids = [config.node_id for config in configs]
    if len(set(ids)) != len(ids):
        raise ConfigError(f"Each node needs an id of its own, not {', '.join(map(str, ids))}.")
    return tuple(configs), warnings


def broker_config(overrides: Mapping[str, str] | None = None) -> BrokerConfig:
    """Build a configuration from these settings alone, for tests and for programs that start a node themselves."""
    return load_config(None, {}, overrides or {})[0]


_COMPUTED = frozenset(
    {
        "listeners",
        "advertised_listeners",
        "inter_broker_listener_name",
        "log_dir",
        "log_defaults",
        "cluster_id",
        "values",
        "static",
    }
)


@cache
def attributes() -> Mapping[str, str]:
    """Return attribute of BrokerConfig -> setting, for each attribute that is the value of one setting."""
    own = {name.removeprefix("odradek.").replace(".", "_"): name for name in OWN_CONFIGS}
    names = [each for each in field_names(BrokerConfig) if each not in _COMPUTED]
    return {name: own.get(name) or name.replace("_", ".") for name in names}


def _values(settings: Mapping[str, Setting], nodes: int) -> tuple[dict[str, Value], dict[str, str]]:
    """Return (value of every known setting, text of every setting that a source or the emulator's defaults set)."""
    keys = broker_configs()
    values = defaults()
    given = {name: _parse(setting) for name, setting in settings.items() if base_name(name) in keys}
    values |= given
    static = {name: setting.raw for name, setting in settings.items()}
    emulator = values["odradek.defaults"] == EMULATOR
    # node.id is always set, because Kafka has no default for it.
    for name, raw in EMULATOR_DEFAULTS.items() if emulator else (("node.id", "1"),):
        if nodes > 1 and name in _BOUND_BY_NODES:
            continue  # Kafka's own default, reduced to the number of nodes below
        if name not in static and not (name == "node.id" and "broker.id" in static):
            static[name], values[name] = raw, keys[name].parse(raw)
    _agree_on_node_id(values, static)
    if emulator:
        _fit_to_nodes(values, static, nodes, given)
    return values, static


def _fit_to_nodes(
    values: dict[str, Value], static: dict[str, str], nodes: int, given: Collection[str]
) -> None:
    """Reduce replication settings that exceed the number of nodes, and set defaults with which a cluster works
    while one of its nodes is down. ``given`` has the names of the settings that the user has set."""

    def put(name: str, value: int) -> None:
        static[name], values[name] = str(value), value

    for name in _BOUND_BY_NODES:
        if values[name] > nodes:
            put(name, nodes)
    if nodes == 2 and "transaction.state.log.min.isr" not in given:
        put("transaction.state.log.min.isr", 1)
    if nodes > 1 and "default.replication.factor" not in given:
        put("default.replication.factor", min(nodes, REPLICATION_FACTOR_MAX))


def _parse(setting: Setting) -> Value:
    key = broker_configs()[base_name(setting.name)]
    try:
        return key.parse(setting.raw)
    except ConfigError as error:
        raise ConfigError(f"{error} (from {setting.where})") from None


def _agree_on_node_id(values: dict[str, Value], static: dict[str, str]) -> None:
    """Set both node.id and its older name broker.id if only one of them is set, as Kafka does. Raises
    `ConfigError` if they differ."""
    if "broker.id" not in static:
        static["broker.id"], values["broker.id"] = static["node.id"], values["node.id"]
    elif "node.id" not in static:
        static["node.id"], values["node.id"] = static["broker.id"], values["broker.id"]
    if values["node.id"] != values["broker.id"]:
        raise ConfigError("You must set `node.id` to the same value as `broker.id`.")
    kafka_configs()["node.id"].parse(str(values["node.id"]))


def _log_dir(
    settings: Mapping[str, Setting], values: Mapping[str, Value], warnings: list[str]
) -> Path | None:
    """Return the log directory: log.dirs, else log.dir, as in Kafka; None (a temporary directory) if neither is set."""
    name = "log.dirs" if values["log.dirs"] else "log.dir"
    if name not in settings:
        return None
    directories = values[name]
    if not directories:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    if len(directories) > 1:
        where = settings[name].where
        warnings.append(f"{name} (from {where}) names several directories: only {directories[0]} is used")
    return Path(directories[0])


def log_defaults_of(values: Mapping[str, Value]) -> LogConfig:
    """Return the settings of a topic that sets none itself (`KafkaConfig.extractLogConfigMap`)."""
    defaults: dict[str, Any] = {}
    for key in TOPIC_CONFIGS.values():
        for synonym in key.synonyms:
            if (value := values[synonym]) is not None:
                unit_ms = _UNIT_MS.get(synonym.rpartition(".")[2])
                defaults[key.attribute] = value * unit_ms if unit_ms else value
                break
    if defaults["retention_ms"] < 0:
        defaults["retention_ms"] = -1
    _require(defaults["segment_ms"] >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(defaults["segment_jitter_ms"] >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        defaults["retention_ms"] != 0,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    config = LogConfig(**defaults)
    config.check()
    return config


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(f"requirement failed: {message}")
