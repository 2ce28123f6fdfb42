"""Effective settings with value, source and synonyms, in the precedence of Kafka's ``ConfigHelper``.

The precedence: a topic's own value, the dynamic value of this broker, the dynamic value for all brokers, the value in the
static configuration, the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from broker.config.definitions import OWN_PREFIX, BrokerConfigKey, documentation_of, kafka_configs
from broker.config.dynamic import Layers, with_dynamic
from broker.config.group_configs import group_configs
from broker.config.metrics_configs import METRICS_CONFIGS
from broker.metadata.image import Image
from broker.metadata.sensitive_configs import base_of, broker_key
from broker.metadata.values import GROUP_RESOURCE, METRICS_RESOURCE, MIN_IN_SYNC_REPLICAS, Topic
from protocol.named_tuple import NamedTuple
from storage.config import ALL_TOPIC_CONFIGS, TOPIC_CONFIGS, LogConfig, TopicConfigKey
from storage.config_def import ConfigType, to_text
from storage.topic_configs import parse_topic_config

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
    """One source of a setting's value."""

    name: str
    value: str | None
    source: int


class Setting(NamedTuple):
    """One effective setting of a resource."""

    name: str
    value: str | None
    source: int
    synonyms: tuple[Synonym, ...] = ()
    config_type: int = 0
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = ""
    """Kafka's description; None for a setting that Kafka does not document."""


class Settings:
    """All effective settings of one broker: the static configuration, overridden by settings in the metadata."""

    def __init__(self, image: Image, static: BrokerConfig) -> None:
        self._image = image
        self.static = static
        """The configuration with which the broker was started."""
        self._known: tuple[Layers, BrokerConfig] = (Layers({}, {}), static)

    @property
    def layers(self) -> Layers:
        """The dynamic settings: those for all brokers, and those of this broker."""
        return Layers(self._image.cluster_configs, self._image.broker_configs(self.static.node_id))

    @property
    def current(self) -> BrokerConfig:
        """The broker's effective configuration: the static one, overridden by the dynamic settings."""
        layers = self.layers
        if layers != self._known[0]:
            # Copies, because the image changes its dictionaries in place.
            kept = Layers(dict(layers.cluster), dict(layers.own))
            self._known = kept, with_dynamic(self.static, kept)
        return self._known[1]

    def log_defaults(self) -> LogConfig:
        """Return the value of each topic setting for topics that do not set it themselves."""
        return self.current.log_defaults

    def allows_unclean_election(self, topic: Topic) -> bool:
        """Return the effective ``unclean.leader.election.enable`` of a topic."""
        own = topic.configs.get("unclean.leader.election.enable")
        if own is None:
            config = self.log_defaults()
            return config.unclean_leader_election_enable
        return parse_topic_config("unclean.leader.election.enable", own) is True

    def min_insync_replicas(self, topic: Topic) -> int:
        """Return the effective ``min.insync.replicas`` of a topic."""
        own = topic.configs.get(MIN_IN_SYNC_REPLICAS)
        return self.log_defaults().min_insync_replicas if own is None else int(own)

    def of_topic(self, own: Mapping[str, str]) -> Iterator[Setting]:
        """Yield all settings of a topic that sets the values in ``own``, sorted by name."""
        effective = LogConfig.from_properties(own, self.log_defaults())
        for name in _listed(own):
            key = ALL_TOPIC_CONFIGS[name]
            value = own[name] if key.internal else to_text(getattr(effective, key.attribute))
            synonyms = self._synonyms(key.synonyms[0]) if key.synonyms else ()
            if name in own:
                synonyms = (Synonym(name, value, TOPIC_SOURCE), *synonyms)
            yield _setting(key, value, synonyms)

    def of_new_topic(self, own: Mapping[str, str]) -> Iterator[Setting]:
        """Yield all topic settings for a CreateTopics response.

        A setting in ``own`` has the value in ``own``. Any other setting has its default and the source of that
        default.


        The CreateTopics response counts log.retention.hours as a source of retention.ms; DescribeConfigs does not
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
        """Yield every broker setting that Kafka defines, and other settings that were set statically or dynamically.

        An internal setting is included only if it was set, with the text that was set as its value.
        """
        current, layers = self.current, self.layers
        known = kafka_configs()
        started_with = {
            name: text for name, text in self.static.static.items() if not name.startswith(OWN_PREFIX)
        }
        given = {**started_with, **layers.cluster, **layers.own}
        for name in sorted({*known, *given}):
            synonyms = self._synonyms(name)
            if name not in known:
                yield _other_setting(name, synonyms)
            elif not known[name].internal:
                yield _broker_setting(known[name], known[name].text(current.values[name]), synonyms)
            elif name in given:
                yield _broker_setting(known[name], given[name], synonyms)

    def of_all_brokers(self) -> Iterator[Setting]:
        """Yield the dynamic settings for all brokers."""
        known = kafka_configs()
        for name, value in sorted(self._image.cluster_configs.items()):
            synonyms = (Synonym(name, value, DYNAMIC_DEFAULT_SOURCE),)
            if name in known:
                yield _broker_setting(known[name], value, synonyms)
            else:
                yield _other_setting(name, synonyms)

    def of_group(self, group: str) -> Iterator[Setting]:
        own = self._image.configs.get((GROUP_RESOURCE, group), {})
        for name, key in sorted(group_configs().items()):
            if key.internal and name not in own:
                continue
            if key.synonym is None:
                synonyms: tuple[Synonym, ...] = (Synonym(name, key.text(key.default), DEFAULT_SOURCE),)
                value = key.text(key.default)
            else:
                synonyms = self._synonyms(key.synonym)
                value = to_text(self.current.get(key.synonym))
            if name in own:
                value = own[name]
                synonyms = (Synonym(name, value, GROUP_SOURCE), *synonyms)
            source = synonyms[0].source if synonyms else DEFAULT_SOURCE
            type_id = _TYPE_IDS[key.config_type]
            yield Setting(name, value, source, synonyms, type_id, documentation=key.documentation)

    def of_client_metrics(self, subscription: str) -> Iterator[Setting]:
        own = self._image.configs.get((METRICS_RESOURCE, subscription), {})
        for name, key in sorted(METRICS_CONFIGS.items()):
            synonyms = (Synonym(name, own[name], METRICS_SOURCE),) if name in own else ()
            yield Setting(
                name,
                own.get(name, key.text(key.default)),
                METRICS_SOURCE if name in own else DEFAULT_SOURCE,
                synonyms,
                _TYPE_IDS[key.config_type],
                documentation=key.documentation,
            )

    def _source_of_default(self, key: TopicConfigKey) -> int:
        layers = (
            (self.layers.own, DYNAMIC_BROKER_SOURCE),
            (self.layers.cluster, DYNAMIC_DEFAULT_SOURCE),
            (self.static.static, STATIC_SOURCE),
        )
        for values, source in layers:
            if any(synonym in values for synonym in key.synonyms):
                return source
        return DEFAULT_SOURCE

    def _synonyms(self, name: str) -> tuple[Synonym, ...]:
        """The sources of a broker setting, highest precedence first.

        As in Kafka, a setting with another name for the same value (log.retention.hours for log.retention.ms) is
        listed only after a source that sets ``name`` itself.
        """
        base = base_of(name)
        if base is not None:
            return self._synonyms_of_listener(name, base)
        places = [
            *_from(self.layers.own, name, DYNAMIC_BROKER_SOURCE),
            *_from(self.layers.cluster, name, DYNAMIC_DEFAULT_SOURCE),
        ]
        for one in self.static.group_of(name):
            source = _SOURCES[one.source]
            if one.name == name or places:
                places.append(Synonym(one.name, one.value, source))
        return tuple(places)

    def _synonyms_of_listener(self, name: str, base: str) -> tuple[Synonym, ...]:
        """The sources of a listener's setting, highest precedence first.

        Each source may set ``name`` (with the listener prefix) and ``base`` (without the prefix).
        """
        layers, key = self.layers, kafka_configs().get(base)
        places = [
            place
            for values, source in (
                (layers.own, DYNAMIC_BROKER_SOURCE),
                (layers.cluster, DYNAMIC_DEFAULT_SOURCE),
                (self.static.static, STATIC_SOURCE),
            )
            for each in (name, base)
            for place in _from(values, each, source)
        ]
        if key is not None and key.default is not None:
            places.append(Synonym(base, key.text(key.default), DEFAULT_SOURCE))
        return tuple(dropwhile(lambda place: place.name != name, places))


def _listed(own: Mapping[str, str]) -> list[str]:
    """Return the sorted names of the settings to list. Internal settings are listed only if they are set."""
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


def _other_setting(name: str, synonyms: tuple[Synonym, ...]) -> Setting:
    """Build a setting whose name Kafka does not define: with a listener prefix, or of a plug-in.

    The value of an unknown setting is hidden, as it may be a secret.
    """
    key = broker_key(name)
    if key is not None and name == key.name:
        return _broker_setting(key, synonyms[0].value, synonyms)
    sensitive = key is None or key.sensitive
    if sensitive:
        synonyms = _hidden(synonyms)
    return Setting(
        name,
        synonyms[0].value,
        synonyms[0].source,
        synonyms,
        0 if key is None else _TYPE_IDS[key.config_type],
        read_only=True,
        sensitive=sensitive,
        documentation=None,
    )


def _hidden(synonyms: tuple[Synonym, ...]) -> tuple[Synonym, ...]:
    return tuple(one._replace(value=None) for one in synonyms)


def _broker_setting(key: BrokerConfigKey, value: str | None, synonyms: tuple[Synonym, ...]) -> Setting:
    if key.sensitive:
        value, synonyms = None, _hidden(synonyms)
    return Setting(
        key.name,
        value,
        synonyms[0].source if synonyms else DEFAULT_SOURCE,
        synonyms,
        _TYPE_IDS[key.config_type],
        key.update_mode == "read-only",
        key.sensitive,
        documentation_of(key.name),
    )
