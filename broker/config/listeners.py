"""The listeners of a broker from its settings: listening, advertised, inter-broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.config.definitions import kafka_configs
from broker.config.endpoints import (
    DEFAULT_CONTROLLER_NAME,
    Endpoint,
    advertise,
    check_advertised,
    check_distinct,
    listen_everywhere,
    parse_endpoints,
    parse_protocol_map,
    with_protocols,
    without_names,
)
from broker.config.node_settings import DEFAULT_HOST, DEFAULT_PORT
from broker.config.sources import Rank, Setting
from storage.config import ConfigError
from storage.config_def import Value

PRINCIPAL_BUILDER: Final = "principal.builder.class"


def check_principal_builder(values: Mapping[str, Value]) -> None:
    """Raise `ConfigError` for a principal builder that the user has written, since this broker cannot load Java classes."""
    known = kafka_configs()[PRINCIPAL_BUILDER].default
    if values[PRINCIPAL_BUILDER] != known:
        raise ConfigError.of(
            PRINCIPAL_BUILDER, values[PRINCIPAL_BUILDER], f"Odradek builds all principals as {known} does"
        )


def listeners_of(
    settings: Mapping[str, Setting], values: Mapping[str, Value]
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return (listeners, advertised listeners), without controller listeners. Raises `ConfigError`."""
    controllers = values["controller.listener.names"] or (DEFAULT_CONTROLLER_NAME,)
    protocols = parse_protocol_map(values["listener.security.protocol.map"])
    listening, advertising = settings.get("listeners"), settings.get("advertised.listeners")
    advertised: tuple[Endpoint, ...] = ()
    if advertising and values["advertised.listeners"]:
        endpoints = without_names(parse_endpoints(values["advertised.listeners"]), controllers)
        advertised = with_protocols(endpoints, protocols)
    if advertised and listens_where_it_advertises(listening, advertising):
        listeners = listen_everywhere(advertised)
    elif listening is None:
        listeners = (Endpoint("PLAINTEXT", DEFAULT_HOST, DEFAULT_PORT),)
    else:
        endpoints = without_names(parse_endpoints(values["listeners"]), controllers)
        listeners = with_protocols(endpoints, protocols)
    if not listeners:
        raise ConfigError(
            "There must be at least one broker listener. "
            "Perhaps all listeners appear in controller.listener.names?"
        )
    check_distinct(listeners)
    check_advertised(advertised, listeners)
    return listeners, advertised or advertise(listeners)


def listens_where_it_advertises(listening: Setting | None, advertising: Setting | None) -> bool:
    """Whether to derive listeners from advertised.listeners: listeners is not set, or set by a source of lower rank."""
    if advertising is None:
        return False
    if listening is None:
        return True
    return advertising.rank is not Rank.ONE_NODE and advertising.rank > listening.rank


def default_inter_broker_listener(names: Sequence[str]) -> str:
    """Return the name of the inter-broker listener for a configuration in which no setting selects one."""
    return "PLAINTEXT" if "PLAINTEXT" in names else names[0]


def inter_broker_listener_name(
    settings: Mapping[str, Setting], values: Mapping[str, Value], listeners: tuple[Endpoint, ...]
) -> str:
    """Return the name of the inter-broker listener.

    It is inter.broker.listener.name, else security.inter.broker.protocol, else the default. Raises `ConfigError`.
    """
    wanted = values["inter.broker.listener.name"]
    by_protocol = "security.inter.broker.protocol"
    names = [listener.name for listener in listeners]
    if wanted is None:
        if by_protocol in settings:
            wanted = str(values[by_protocol]).upper()
        else:
            return default_inter_broker_listener(names)
    elif by_protocol in settings:
        raise ConfigError(f"Only one of inter.broker.listener.name and {by_protocol} should be set.")
    if wanted.upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name must be a listener name defined in listeners, not {wanted}. "
            f"The valid options based on currently configured listeners are {','.join(names)}"
        )
    return str(wanted.upper())
