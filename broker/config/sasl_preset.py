"""Expands `--sasl` to Kafka's settings: mechanisms, login modules, and the login of the nodes to each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config.sasl_users import MECHANISMS, OPTION, PLAIN, GivenUser, User
from broker.config.sources import Setting
from storage.config_def import ConfigError

BROKER_USER: Final = "odradek-broker"
"""The user as which the nodes of a cluster log in to each other."""

_ENABLED: Final = "sasl.enabled.mechanisms"
_INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
_JAAS: Final = "sasl.jaas.config"
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})

Settings = Mapping[str, Setting]


class SaslPreset:
    """The settings that result from ``--sasl``: users, mechanisms and login modules of each listener with SASL."""

    def __init__(self, users: tuple[GivenUser, ...], settings: Settings, listeners: list[str]) -> None:
        self._settings = settings
        self._listeners = listeners
        self._broker: User | None = None
        self._inter_broker: dict[str, str] = {}
        self._users = [
            User(each.name, mechanism, each.password) for each in users for mechanism in self._usable(each)
        ]

    def _usable(self, user: GivenUser) -> tuple[str, ...]:
        """Return the user's mechanisms that all listeners have enabled. Raises `ConfigError` if there are none."""
        usable = user.mechanisms
        for listener in self._listeners:
            enabled = self._enabled(listener)
            if enabled is None:
                continue
            usable = tuple(each for each in usable if each in _mechanisms(enabled))
            if not usable:
                wanted = user.mechanism or f"none of {', '.join(MECHANISMS)}"
                without = "does not enable " if user.mechanism else "enables "
                raise ConfigError(f"{user.where} {user.name}: {shown(enabled)} {without}{wanted}")
        return usable

    def _enabled(self, listener: str) -> Setting | None:
        return self._settings.get(_of(listener, _ENABLED)) or self._settings.get(_ENABLED)

    def _is_ours(self, listener: str, mechanism: str) -> bool:
        return _of(listener, f"{mechanism.lower()}.{_JAAS}") not in self._settings

    def _own_mechanisms(self) -> list[str]:
        used = {each.mechanism for each in self._users}
        return [each for each in MECHANISMS if each in used]

    def add_inter_broker(self, listener: str, nodes: int, password: str) -> None:
        """Set the mechanism and, in a cluster of several nodes, the user `BROKER_USER` for logins between nodes.

        Does nothing if ``listener``, the inter-broker listener, does not use SASL.
        """
        if listener not in self._listeners:
            return
        given = self._settings.get(_INTER_BROKER)
        ours = [each for each in self._own_mechanisms() if self._is_ours(listener, each)]
        mechanism = given.raw.strip() if given is not None else next(iter(ours), None)
        if given is None and mechanism is not None:
            self._inter_broker[_INTER_BROKER] = mechanism
        if nodes == 1 or mechanism not in ours:
            return
        if any(each.name == BROKER_USER for each in self._users):
            raise ConfigError(
                f"{OPTION} {BROKER_USER}: this name is reserved for the login of the nodes to each other"
            )
        self._broker = User(BROKER_USER, mechanism, password)
        self._users.append(self._broker)
        if "authorizer.class.name" in self._settings:
            super_users = self._settings.get("super.users")
            before = f"{super_users.raw};" if super_users is not None and super_users.raw.strip() else ""
            self._inter_broker["super.users"] = f"{before}User:{BROKER_USER}"

    def settings(self) -> dict[str, str]:
        found = dict(self._inter_broker)
        own = self._own_mechanisms()
        if any(self._enabled(each) is None for each in self._listeners):
            found[_ENABLED] = ",".join(own)
        for listener in self._listeners:
            for mechanism in own:
                name = _of(listener, f"{mechanism.lower()}.{_JAAS}")
                if self._is_ours(listener, mechanism):
                    found[name] = self._login_module(mechanism)
                elif mechanism == PLAIN:
                    raise ConfigError(
                        f"{OPTION}: {shown(self._settings[name])} defines users as well. Use only one of the two"
                    )
        return found

    def _login_module(self, mechanism: str) -> str:
        options = {}
        if self._broker is not None and self._broker.mechanism == mechanism:
            options = {"username": self._broker.name, "password": self._broker.password}
        if mechanism == PLAIN:
            options |= {f"user_{each.name}": each.password for each in self._users if each.mechanism == PLAIN}
        module = _PLAIN_MODULE if mechanism == PLAIN else _SCRAM_MODULE
        return (
            " ".join((module, "required", *(f"{_word(key)}={_quoted(options[key])}" for key in options)))
            + ";"
        )

    def scram_users(self) -> tuple[User, ...]:
        return tuple(each for each in self._users if each.mechanism != PLAIN)


def _of(listener: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{name}"


def _mechanisms(setting: Setting) -> list[str]:
    return [each.strip() for each in setting.raw.split(",")]


def _word(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _quoted(key)


def _quoted(text: str) -> str:
    """Quote a string for a JAAS configuration, in the syntax of Java's ``StreamTokenizer``."""
    return f'"{text.translate(_ESCAPES)}"'


def shown(setting: Setting) -> str:
    """Return name and source of a setting for messages, without its value, which may be a secret."""
    return f"{setting.name} (from {setting.where})"
