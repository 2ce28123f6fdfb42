"""Settings as they hold: value, source and synonyms, in the precedence of Kafka's ``ConfigHelper``.

A topic's own value, then what was set at run time for this broker, then for all brokers, then what the broker was started
with, then the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.config.definitions import BrokerConfigKey, kafka_configs
from broker.metadata.image import Image
from broker.metadata.values import GROUP_RESOURCE, METRICS_RESOURCE, Topic
from storage.config import ALL_TOPIC_CONFIGS, TOPIC_CONFIGS, LogConfig, TopicConfigKey
from storage.config_def import ConfigType, to_text

if TYPE_CHECKING:
    from broker.config import BrokerConfig

TOPIC_SOURCE: Final = 1
DYNAMIC_BROKER_SOURCE: Final = 2
DYNAMIC_DEFAULT_SOURCE: Final = 3
STATIC_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
LOGGER_SOURCE: Final = 6
METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8

_SOURCES: Final = {"STATIC_BROKER_CONFIG": STATIC_SOURCE, "DEFAULT_CONFIG": DEFAULT_SOURCE}

_TYPE_IDS: Final = {
    config_type: number
    for number, config_type in enumerate(
        (
            ConfigType.BOOLEAN,
            ConfigType.STRING,
            ConfigType.INT,
            ConfigType.SHORT,
            ConfigType.LONG,
            ConfigType.DOUBLE,
            ConfigType.LIST,
            ConfigType.CLASS,
            ConfigType.PASSWORD,
        ),
        start=1,
    )
}


class Synonym(NamedTuple):
    """One place that a value may come from."""

    name: str
    value: str | None
    source: int


class Setting(NamedTuple):
    """One setting of a resource, as it holds."""

    name: str
    value: str | None
    source: int
    synonyms: tuple[Synonym, ...] = ()
    config_type: int = 0
    read_only: bool = False
    sensitive: bool = False
    documentation: str = ""


class Settings:
    """All settings of one broker's view: its configuration, and what the metadata says over it."""

    def __init__(self, image: Image, config: BrokerConfig) -> None:
        self._image = image
        self._config = config

    def log_defaults(self) -> LogConfig:
        """What a topic follows that has no value of its own."""
        dynamic = {**self._image.cluster_configs, **self._image.broker_configs(self._config.node_id)}
        if not dynamic:
            return self._config.log_defaults
        changed: dict[str, Any] = {
            key.attribute: key.parse(dynamic[key.synonyms[0]])
            for key in TOPIC_CONFIGS.values()
            if key.synonyms and key.synonyms[0] in dynamic
        }
        return replace(self._config.log_defaults, **changed)

    def allows_unclean_election(self, topic: Topic) -> bool:
        """``unclean.leader.election.enable`` of a topic."""
        config = LogConfig.from_properties(topic.configs, self.log_defaults())
        return config.unclean_leader_election_enable

    def of_topic(self, own: Mapping[str, str]) -> Iterator[Setting]:
        """The settings of a topic with these values of its own, by name."""
        effective = LogConfig.from_properties(own, self.log_defaults())
        for name in _listed(own):
            key = ALL_TOPIC_CONFIGS[name]
            value = own[name] if key.internal else to_text(getattr(effective, key.attribute))
            synonyms = self._synonyms(key.synonyms[0]) if key.synonyms else ()
            if name in own:
                synonyms = (Synonym(name, value, TOPIC_SOURCE), *synonyms)
            yield _setting(key, value, synonyms)

    def of_new_topic(self, own: Mapping[str, str]) -> Iterator[Setting]:
        """The same as CreateTopics tells it: values as they were written, and any synonym decides the source.

        DescribeConfigs does not count log.retention.hours as a source of retention.ms; this answer does
        (``KafkaConfigSchema``).
        """
        defaults = self.log_defaults()
        for name in _listed(own):
            key = ALL_TOPIC_CONFIGS[name]
            if name in own:
                yield Setting(name, own[name], TOPIC_SOURCE)
            else:
                yield Setting(name, to_text(getattr(defaults, key.attribute)), self._source_of_default(key))

    def of_broker(self) -> Iterator[Setting]:
        """Every setting of this broker that Kafka knows."""
        dynamic = {**self._image.cluster_configs, **self._image.broker_configs(self._config.node_id)}
        for name, key in sorted(kafka_configs().items()):
            if key.internal:
                continue
            value = dynamic.get(name, key.text(self._config.values[name]))
            yield _broker_setting(key, value, self._synonyms(name))

    def of_all_brokers(self) -> Iterator[Setting]:
        """What was set at run time for all brokers."""
        known = kafka_configs()
        for name, value in sorted(self._image.cluster_configs.items()):
            if name in known:
                synonyms = (Synonym(name, value, DYNAMIC_DEFAULT_SOURCE),)
                yield _broker_setting(known[name], value, synonyms)

    def of_group(self, group: str) -> Iterator[Setting]:
        own = self._image.configs.get((GROUP_RESOURCE, group), {})
        for name, (config_type, default, documentation) in sorted(_GROUP_CONFIGS.items()):
            broker_name = f"group.{name}"
            synonyms = (
                (Synonym(name, default, DEFAULT_SOURCE),)
                if default is not None
                else self._synonyms(broker_name)
            )
            value = default if default is not None else to_text(self._config.get(broker_name))
            if name in own:
                value = own[name]
                synonyms = (Synonym(name, value, GROUP_SOURCE), *synonyms)
            source = synonyms[0].source if synonyms else DEFAULT_SOURCE
            yield Setting(name, value, source, synonyms, _TYPE_IDS[config_type], documentation=documentation)

    def of_client_metrics(self, subscription: str) -> Iterator[Setting]:
        own = self._image.configs.get((METRICS_RESOURCE, subscription), {})
        for name, (config_type, default, documentation) in sorted(_METRICS_CONFIGS.items()):
            synonyms = (Synonym(name, own[name], METRICS_SOURCE),) if name in own else ()
            yield Setting(
                name,
                own.get(name, default),
                METRICS_SOURCE if name in own else DEFAULT_SOURCE,
                synonyms,
                _TYPE_IDS[config_type],
                documentation=documentation,
            )

    def _source_of_default(self, key: TopicConfigKey) -> int:
        layers = (
            (self._image.broker_configs(self._config.node_id), DYNAMIC_BROKER_SOURCE),
            (self._image.cluster_configs, DYNAMIC_DEFAULT_SOURCE),
            (self._config.static, STATIC_SOURCE),
        )
        for values, source in layers:
            if any(synonym in values for synonym in key.synonyms):
                return source
        return DEFAULT_SOURCE

    def _synonyms(self, name: str) -> tuple[Synonym, ...]:
        """The places that a broker setting may come from, strongest first.

        Kafka leaves out all that come before the first of the setting's own name: a value that was set in hours is
        no synonym of the one in milliseconds.
        """
        places = [
            *_from(self._image.broker_configs(self._config.node_id), name, DYNAMIC_BROKER_SOURCE),
            *_from(self._image.cluster_configs, name, DYNAMIC_DEFAULT_SOURCE),
        ]
        for one in self._config.synonyms(name):
            source = _SOURCES[one.source]
            if one.name == name or places:
                places.append(Synonym(one.name, one.value, source))
        return tuple(places)


def _listed(own: Mapping[str, str]) -> list[str]:
    """Settings are listed by name; internal ones only if they are set."""
    return sorted({*TOPIC_CONFIGS, *own})


def _from(values: Mapping[str, str], name: str, source: int) -> Iterator[Synonym]:
    if name in values:
        yield Synonym(name, values[name], source)


def _setting(key: TopicConfigKey, value: str | None, synonyms: tuple[Synonym, ...]) -> Setting:
    return Setting(
        key.name,
        value,
        synonyms[0].source if synonyms else DEFAULT_SOURCE,
        synonyms,
        _TYPE_IDS[key.config_type],
        documentation=key.documentation,
    )


def _broker_setting(key: BrokerConfigKey, value: str | None, synonyms: tuple[Synonym, ...]) -> Setting:
    if key.sensitive:
        value = None
        synonyms = tuple(one._replace(value=None) for one in synonyms)
    return Setting(
        key.name,
        value,
        synonyms[0].source if synonyms else DEFAULT_SOURCE,
        synonyms,
        _TYPE_IDS[key.config_type],
        key.update_mode == "read-only",
        key.sensitive,
        key.documentation,
    )


_INT: Final = ConfigType.INT
_Known = tuple[ConfigType, str | None, str]

# What a group may set for itself (`GroupConfig`): the default, or None where group.<name> of the broker is it.
_GROUP_CONFIGS: Final[Mapping[str, _Known]] = {
    "consumer.assignment.interval.ms": (_INT, None, "Time between two assignments of a consumer group."),
    "consumer.heartbeat.interval.ms": (_INT, None, "How often members of a consumer group report."),
    "consumer.session.timeout.ms": (_INT, None, "Silence after which a member of a consumer group is gone."),
    "share.assignment.interval.ms": (_INT, None, "Time between two assignments of a share group."),
    "share.auto.offset.reset": (ConfigType.STRING, "latest", "Where a share group begins in a partition."),
    "share.delivery.count.limit": (_INT, None, "How often a record is delivered to a share group at most."),
    "share.heartbeat.interval.ms": (_INT, None, "How often members of a share group report."),
    "share.isolation.level": (
        ConfigType.STRING,
        "read_uncommitted",
        "Whether a share group sees records of aborted transactions.",
    ),
    "share.partition.max.record.locks": (_INT, None, "Records of one partition that may be locked at once."),
    "share.record.lock.duration.ms": (_INT, None, "How long a record stays locked for one consumer."),
    "share.renew.acknowledge.enable": (ConfigType.BOOLEAN, "true", "Whether a lock may be renewed."),
    "share.session.timeout.ms": (_INT, None, "Silence after which a member of a share group is gone."),
    "streams.assignment.interval.ms": (_INT, None, "Time between two assignments of a streams group."),
    "streams.heartbeat.interval.ms": (_INT, None, "How often members of a streams group report."),
    "streams.initial.rebalance.delay.ms": (_INT, None, "How long a new streams group waits for members."),
    "streams.num.standby.replicas": (_INT, None, "Standby replicas of each task."),
    "streams.session.timeout.ms": (_INT, None, "Silence after which a member of a streams group is gone."),
}

_METRICS_CONFIGS: Final[Mapping[str, tuple[ConfigType, str, str]]] = {
    "interval.ms": (_INT, "300000", "Time between two pushes of a client's metrics."),
    "match": (ConfigType.LIST, "", "Which clients the subscription is for."),
    "metrics": (ConfigType.LIST, "", "Prefixes of the metrics that are wanted."),
}
