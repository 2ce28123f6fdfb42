"""Expands `--tls` and `--sasl` to Kafka's own settings. Pure.

    preset = expand(Asked(tls=folder, users=users), settings, nodes=3, broker_password=random)
    preset.settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]

Explicit settings override the options. A setting that leaves an option without effect is a `ConfigError` with both names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from broker.config.authority_files import CA, SERVER_STORE
from broker.config.endpoints import (
    DEFAULT_CONTROLLER_NAME,
    PROTOCOLS,
    Endpoint,
    parse_endpoints,
    parse_protocol_map,
    without_names,
)
from broker.config.listeners import default_inter_broker_listener, listens_where_it_advertises
from broker.config.node_settings import DEFAULT_HOST, DEFAULT_PORT
from broker.config.sasl_preset import SaslPreset, shown
from broker.config.sasl_users import OPTION, GivenUser, User
from broker.config.sources import Setting
from protocol.slotted import slotted
from storage.config_def import ConfigError

TLS_OPTION, TLS_DIRECTORY_OPTION = "--tls", "--tls-directory"

_MAP: Final = "listener.security.protocol.map"
_KEY_STORES: Final = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
_TRUST_STORES: Final = ("ssl.truststore.location", "ssl.truststore.certificates")

Settings = Mapping[str, Setting]


@slotted(frozen=True)
class Asked:
    """The values of ``--tls`` and ``--sasl``."""

    tls: Path | None = None
    """Directory of the certificate authority; None without --tls."""
    tls_directory_given: bool = False
    users: tuple[GivenUser, ...] = ()

    @property
    def protocol(self) -> str:
        """Security protocol of a listener whose protocol is not set."""
        secured = "SSL" if self.tls is not None else "PLAINTEXT"
        return f"SASL_{secured}" if self.users else secured


@slotted(frozen=True)
class Preset:
    """The settings that result from ``--tls`` and ``--sasl``."""

    settings: dict[str, str] = field(repr=False)
    users: tuple[User, ...] = ()
    """Users of SCRAM, whose credentials must be written to the metadata."""
    authority: Path | None = None
    """Directory in which key store and trust store must be created; None if the user has set a key store."""


def expand(asked: Asked, settings: Settings, *, nodes: int, broker_password: str) -> Preset:
    """Expand ``--tls`` and ``--sasl`` to settings.

    ``settings`` are the settings of the first node from all other sources. Raises `ConfigError` if one of them
    leaves an option without effect, or conflicts with it.
    """
    found: dict[str, str] = {}
    if not {"listeners", "advertised.listeners"} & settings.keys():
        found["listeners"] = str(Endpoint(asked.protocol, DEFAULT_HOST, DEFAULT_PORT))
    names = _listener_names(settings) or (asked.protocol,)
    protocols = _protocols(asked, settings, names)
    if _MAP not in settings and any(name != protocol for name, protocol in protocols.items()):
        found[_MAP] = _map_text(protocols, settings)
    authority = None
    if asked.tls is not None and not _has_key_store(asked, settings):
        authority = asked.tls
        found |= _stores(asked.tls, settings)
    users: tuple[User, ...] = ()
    if asked.users:
        sasl = [name for name in names if protocols[name].startswith("SASL_")]
        preset = SaslPreset(asked.users, settings, sasl)
        preset.add_inter_broker(_inter_broker_listener(settings, names), nodes, broker_password)
        found |= preset.settings()
        users = preset.scram_users()
    return Preset(found, users, authority)


# -- listeners ----------------------------------------------------------------------------------------------------


def endpoints_of(settings: Settings, name: str) -> tuple[Endpoint, ...]:
    """Parse `listeners` or `advertised.listeners` (``name``), without controller listeners."""
    text = settings[name].raw if name in settings else ""
    endpoints = parse_endpoints(filter(None, (each.strip() for each in text.split(","))))
    return without_names(endpoints, _controllers(settings))


def _controllers(settings: Settings) -> tuple[str, ...]:
    name = "controller.listener.names"
    text = settings[name].raw if name in settings else ""
    return tuple(each.strip() for each in text.split(",") if each.strip()) or (DEFAULT_CONTROLLER_NAME,)


def _listener_names(settings: Settings) -> tuple[str, ...]:
    of_others = listens_where_it_advertises(settings.get("listeners"), settings.get("advertised.listeners"))
    return tuple(
        each.name for each in endpoints_of(settings, "advertised.listeners" if of_others else "listeners")
    )


def _protocols(asked: Asked, settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Return the protocol of each listener: as in ``settings`` if they secure a listener, else ``asked.protocol``.

    Raises `ConfigError` if ``--tls`` or ``--sasl`` would apply to no listener.
    """
    if _MAP in settings:
        given = parse_protocol_map(settings[_MAP].raw)
        protocols = {name: given.get(name, name) for name in names}
    else:
        protocols = {name: name if name in PROTOCOLS else "PLAINTEXT" for name in names}
        if not any(each != "PLAINTEXT" for each in protocols.values()):
            return dict.fromkeys(names, asked.protocol)
    for option, is_asked, fits in (
        (TLS_OPTION, asked.tls is not None, lambda protocol: protocol.endswith("SSL")),
        (OPTION, bool(asked.users), lambda protocol: protocol.startswith("SASL_")),
    ):
        if is_asked and not any(map(fits, protocols.values())):
            cause = next((settings[name].where for name in (_MAP, "listeners") if name in settings), "")
            listed = ", ".join(f"{name}:{protocol}" for name, protocol in protocols.items())
            raise ConfigError(f"{option} applies to none of the listeners of {cause}: {listed}")
    return protocols


def _map_text(protocols: Mapping[str, str], settings: Settings) -> str:
    controllers = dict.fromkeys(map(str.upper, _controllers(settings)), "PLAINTEXT")
    whole = {**controllers, **{name: name for name in PROTOCOLS}, **protocols}
    return ",".join(f"{name}:{protocol}" for name, protocol in whole.items())


def _inter_broker_listener(settings: Settings, names: tuple[str, ...]) -> str:
    for name in ("inter.broker.listener.name", "security.inter.broker.protocol"):
        if name in settings:
            return settings[name].raw.strip().upper()
    return default_inter_broker_listener(names)


# -- TLS ----------------------------------------------------------------------------------------------------------


def _given(settings: Settings, *names: str) -> Setting | None:
    """Return the first setting with one of ``names``, with or without a listener prefix; None if none is set."""
    for name, setting in settings.items():
        if any(
            name == each or (name.startswith("listener.name.") and name.endswith(f".{each}"))
            for each in names
        ):
            return setting
    return None


def _has_key_store(asked: Asked, settings: Settings) -> bool:
    store = _given(settings, *_KEY_STORES)
    if store is not None and asked.tls_directory_given:
        raise ConfigError(
            f"{TLS_DIRECTORY_OPTION}: {shown(store)} sets a key store as well. Use only one of the two"
        )
    part = _given(settings, "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password")
    if store is None and part is not None:
        raise ConfigError(f"{TLS_OPTION} creates its own key store: {shown(part)} would have no effect")
    return store is not None


def _stores(folder: Path, settings: Settings) -> dict[str, str]:
    stores = {"ssl.keystore.location": str(folder / SERVER_STORE), "ssl.keystore.type": "PEM"}
    if _given(settings, *_TRUST_STORES) is None:
        stores |= {"ssl.truststore.location": str(folder / CA), "ssl.truststore.type": "PEM"}
    return stores
