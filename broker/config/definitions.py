"""Definitions of all broker settings: Kafka's and Odradek's own, which begin with `odradek.`.

Names, types, defaults and checks of Kafka's settings were read from the jar of the release `RELEASE` (`kafka_table`).
"""

import json
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from broker.config.effects import EFFECTIVE
from broker.config.kafka_table import ROWS, Row
from broker.resources.unsent import QUEUED_MAX_RESPONSE_BYTES
from protocol.slotted import slotted
from storage.config_def import ConfigKey, ConfigType, ListOf, OneOf, Range, Validator, Value, validator_of

OWN_PREFIX = "odradek."
EXPORTER_NONE, EXPORTER_LOG = "none", "log"  # the values of odradek.client.telemetry.exporter
EMULATOR, KAFKA = "emulator", "kafka"  # the values of odradek.defaults
MARKERS_FIRST = "markers-first"

KAFKA_15591: Final = "KAFKA-15591"
PREVIEWS: Final[Mapping[str, str]] = {
    KAFKA_15591: "Kafka 4.5: a partition that was never written accepts only first sequence 0 from an idempotent "
    "producer, and responds to any other with OUT_OF_ORDER_SEQUENCE_NUMBER.",
}
"""Name -> description of each change of a later release of Kafka that ``odradek.preview`` can enable."""

# Settings of the single-node apache/kafka image: one broker is enough, and no group waits for its first rebalance.
EMULATOR_DEFAULTS: Mapping[str, str] = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

# Settings that Kafka's plug-ins read instead of the broker. They are not in Kafka's table, but not unknown.
_PLUGIN_PREFIXES = ("config.providers.", "metrics.context.", "rlmm.config.", "rsm.config.")


@slotted(frozen=True)
class BrokerConfigKey(ConfigKey):
    update_mode: str = "read-only"  # or "per-broker", "cluster-wide": whether it may change at run time
    required: bool = False  # whether Kafka has no default for it
    documentation: str = ""  # for Odradek's settings; `documentation_of` returns that of Kafka's


def _own(
    name: str, config_type: ConfigType, default: Value, check: Validator | None, text: str
) -> BrokerConfigKey:
    return BrokerConfigKey(OWN_PREFIX + name, config_type, default, check, effective=True, documentation=text)


OWN_CONFIGS: Mapping[str, BrokerConfigKey] = {
    key.name: key
    for key in (
        _own(
            "background.flush.interval.ms",
            ConfigType.LONG,
            5000,
            Range(0),
            "How often a thread syncs the logs to disk and writes the checkpoints: it bounds how much a recovery has to "
            "read after a crash. 0 leaves the sync to the operating system, as Kafka does; only then have "
            "log.flush.offset.checkpoint.interval.ms and log.flush.start.offset.checkpoint.interval.ms an effect.",
        ),
        _own(
            "batch.decompressed.bytes.max",
            ConfigType.INT,
            128 * 1024 * 1024,
            Range(1),
            "The largest decompressed size of a batch whose records the broker reads (see "
            "odradek.produce.reads.records): a kilobyte of zstd can expand to 30 MB. The broker responds to a larger one "
            "with MESSAGE_TOO_LARGE, on which producers split the batch.",
        ),
        _own(
            "batch.records.max",
            ConfigType.INT,
            1_000_000,
            Range(1),
            "The maximum number of records in a batch. The broker responds to a larger one with MESSAGE_TOO_LARGE, on which "
            "producers split the batch.",
        ),
        _own(
            "defaults",
            ConfigType.STRING,
            EMULATOR,
            OneOf((EMULATOR, KAFKA)),
            "emulator: the defaults of the single-node apache/kafka image, and internal topics never have "
            "more replicas than there are nodes; kafka: the defaults of Apache Kafka itself.",
        ),
        _own(
            "client.telemetry.exporter",
            ConfigType.STRING,
            EXPORTER_NONE,
            OneOf((EXPORTER_NONE, EXPORTER_LOG)),
            "log: the broker announces GetTelemetrySubscriptions and PushTelemetry (KIP-714), and logs the metrics that "
            "clients push for the subscriptions of kafka-client-metrics; it needs odradek[telemetry]. "
            "none: it does not announce them, as Kafka without a plug-in.",
        ),
        _own(
            "cluster.id",
            ConfigType.STRING,
            "",
            None,
            "The cluster id of a new data directory; empty: a random id. The variable CLUSTER_ID sets it too.",
        ),
        _own(
            "commit.order",
            ConfigType.STRING,
            MARKERS_FIRST,
            OneOf((MARKERS_FIRST, KAFKA)),
            "markers-first: the coordinator responds to EndTxn after it has written the markers of partitions on its own "
            "node; kafka: it responds first and writes the markers afterwards, so the next transaction of the "
            "same id can get CONCURRENT_TRANSACTIONS.",
        ),
        _own(
            "commit.marker.delay.ms",
            ConfigType.LONG,
            0,
            Range(0),
            "With odradek.commit.order=kafka: how long the coordinator waits between the EndTxn response and the markers.",
        ),
        _own(
            "control.allowed.hosts",
            ConfigType.LIST,
            (),
            None,
            "Host names and addresses besides loopback that the control port accepts in the Host and Origin headers. With a "
            "token it accepts any Host.",
        ),
        _own(
            "control.tls.certificate",
            ConfigType.STRING,
            "",
            None,
            "A PEM file with the certificate chain of the control port, its own certificate first. The control port then "
            "speaks HTTPS. Empty: it speaks HTTP.",
        ),
        _own(
            "control.tls.key",
            ConfigType.STRING,
            "",
            None,
            "A PEM file with the key of odradek.control.tls.certificate, not encrypted. Empty: the key is in the file of "
            "the certificate.",
        ),
        _own(
            "control.token",
            ConfigType.PASSWORD,
            "",
            None,
            "The bearer token that every call of the control port must then have. Set one if other machines can reach "
            "the control port, and set it by ODRADEK_CONTROL_TOKEN: other users can read a process's command line. Its "
            "role is stop, which allows everything.",
        ),
        _own(
            "control.token.look",
            ConfigType.PASSWORD,
            "",
            None,
            "A token of the role look: calls with it can read everything, including records, and change nothing.",
        ),
        _own(
            "control.token.stage",
            ConfigType.PASSWORD,
            "",
            None,
            "A token of the role stage: calls with it may do everything except stop a node or damage its files.",
        ),
        _own(
            "crash.points",
            ConfigType.STRING,
            "",
            None,
            "Crash points at which the broker kills itself with SIGKILL, for tests of recovery.",
        ),
        _own(
            "fetch.gives.way",
            ConfigType.BOOLEAN,
            True,
            None,
            "Whether the broker responds immediately to a Fetch that waits for data when its connection sends a request of "
            "another API. In Kafka that request waits behind the Fetch for up to fetch.max.wait.ms.",
        ),
        _own(
            "log.format",
            ConfigType.STRING,
            "auto",
            OneOf(("auto", "human", "json")),
            "The format of the broker's own log. human: readable lines; json: one object per line; auto: human on a "
            "terminal, else json.",
        ),
        _own(
            "log.level",
            ConfigType.STRING,
            "info",
            OneOf(("debug", "info", "warning", "error")),
            "The lowest level that the broker's own log shows.",
        ),
        _own(
            "open.files.max",
            ConfigType.INT,
            0,
            Range(0),
            "The maximum number of segment files that the broker keeps open; it opens others when needed. 0: half of the "
            "process's limit of open files, at most 16384.",
        ),
        _own(
            "otel.endpoint",
            ConfigType.STRING,
            "",
            None,
            "The URL of an OpenTelemetry collector (OTLP over HTTP, http://HOST:4318/v1/traces) to which the broker sends a "
            "span for each request and each transaction; it needs odradek[otel]. Empty: it sends none.",
        ),
        _own(
            "preview",
            ConfigType.LIST,
            (),
            ListOf(tuple(PREVIEWS)),
            "Changes of later releases of Kafka that the broker applies. "
            + " ".join(f"{name} ({text.rstrip('.')})." for name, text in PREVIEWS.items()),
        ),
        _own(
            "produce.reads.records",
            ConfigType.BOOLEAN,
            False,
            None,
            "Whether the broker reads and checks every record of every batch, as Kafka does, which takes a microsecond "
            "per record. If false, it reads them only where it must: for cleanup.policy=compact, for a compression.type "
            "other than the batch's, for message.timestamp.before.max.ms, if the batch's maximum timestamp is beyond "
            "message.timestamp.after.max.ms, or if a compressed batch may have a record above "
            "max.decompressed.message.bytes.",
        ),
        _own(
            "queued.max.response.bytes",
            ConfigType.LONG,
            QUEUED_MAX_RESPONSE_BYTES,
            Range(1),
            "The maximum size of responses that wait for slow clients, over all connections. A Fetch reads at most the "
            "rest of it. While nothing is left, the broker serves only clients that have read all their responses.",
        ),
    )
}


AUTHORIZER_CONFIGS: Final[Mapping[str, BrokerConfigKey]] = {
    key.name: key
    for key in (
        BrokerConfigKey(
            "super.users",
            ConfigType.STRING,
            None,
            effective=True,
            documentation="Principals that may do everything, as in User:admin;User:CN=ops,O=Example.",
        ),
        BrokerConfigKey(
            "allow.everyone.if.no.acl.found",
            ConfigType.STRING,
            None,
            effective=True,
            documentation="true: everyone may access a resource without ACLs; otherwise only super users may.",
        ),
    )
}
"""Settings of Kafka's StandardAuthorizer, which reads them itself: they are not in Kafka's table of broker settings."""


class _KafkaConfigs(Mapping[str, BrokerConfigKey]):
    """Kafka's table of settings. The definition of a setting is created on first access, as a start needs few of them."""

    def __init__(self) -> None:
        self._made: dict[str, BrokerConfigKey] = {}

    def __getitem__(self, name: str) -> BrokerConfigKey:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = _kafka_key(name, ROWS[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in ROWS

    def __iter__(self) -> Iterator[str]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)


_KAFKA_CONFIGS: Final = _KafkaConfigs()


def kafka_configs() -> Mapping[str, BrokerConfigKey]:
    """Return the definitions of Kafka's settings by name. A `default` of None is Kafka's null."""
    return _KAFKA_CONFIGS


def defaults() -> dict[str, Value]:
    """Return the default of every broker setting, Kafka's settings first."""
    return {
        **{name: row[1] for name, row in ROWS.items()},
        **dict.fromkeys(AUTHORIZER_CONFIGS),
        **{key.name: key.default for key in OWN_CONFIGS.values()},
    }


@cache
def _documentation() -> Mapping[str, str]:
    text = Path(__file__).with_name("kafka_documentation.json").read_text("utf-8")
    return dict(json.loads(text))


def documentation_of(name: str) -> str:
    """Return the one-sentence description of a broker setting of Kafka; empty for an unknown name. The first call loads
    all descriptions from a file."""
    for ours in (RUN_TIME_CONFIGS, AUTHORIZER_CONFIGS):
        if name in ours:
            return ours[name].documentation
    return _documentation().get(name, "")


def _replication_quota(name: str, text: str) -> BrokerConfigKey:
    unlimited = 2**63 - 1
    return BrokerConfigKey(
        name, ConfigType.LONG, unlimited, Range(0), update_mode="cluster-wide", documentation=text
    )


RUN_TIME_CONFIGS: Final[Mapping[str, BrokerConfigKey]] = {
    key.name: key
    for key in (
        _replication_quota(
            "leader.replication.throttled.rate",
            "The maximum rate in bytes per second from a leader to the followers in leader.replication.throttled.replicas.",
        ),
        _replication_quota(
            "follower.replication.throttled.rate",
            "The maximum rate in bytes per second at which the followers in follower.replication.throttled.replicas fetch.",
        ),
        _replication_quota(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "The maximum rate in bytes per second of moves between the log directories of a broker.",
        ),
    )
}
"""Broker settings that can only be set dynamically, not in a file (`QuotaConfig.brokerQuotaConfigs`)."""


@cache
def alterable_configs() -> Mapping[str, BrokerConfigKey]:
    """Return the settings that AlterConfigs may change: Kafka's table, and the settings that exist only dynamically."""
    return ChainMap(RUN_TIME_CONFIGS, kafka_configs())  # type: ignore[arg-type]


@cache
def broker_configs() -> Mapping[str, BrokerConfigKey]:
    return ChainMap(OWN_CONFIGS, AUTHORIZER_CONFIGS, kafka_configs())  # type: ignore[arg-type]


def _kafka_key(name: str, row: Row) -> BrokerConfigKey:
    config_type, default, check, update_mode, is_internal, is_required = row
    return BrokerConfigKey(
        name,
        ConfigType(config_type),
        default,
        validator_of(check),
        name in EFFECTIVE,
        is_internal,
        update_mode,
        is_required,
    )


def base_name(name: str) -> str:
    """Return a setting without listener prefix: `listener.name.internal.ssl.keystore.type` -> `ssl.keystore.type`."""
    parts = name.split(".", 3)
    if len(parts) < 4 or parts[:2] != ["listener", "name"]:
        return name
    base = parts[3]
    # Some settings have a SASL mechanism in between: listener.name.x.plain.sasl.jaas.config
    return base if base in kafka_configs() else base.partition(".")[2] or base


def is_known(name: str) -> bool:
    return name in broker_configs() or base_name(name) in kafka_configs() or name.startswith(_PLUGIN_PREFIXES)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a misspelt name; None if no name is similar."""
    import difflib  # imported only for an error message

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return matches[0] if matches else None
