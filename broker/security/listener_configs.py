"""The settings of one listener (KIP-103): ``listener.name.<listener>.<setting>`` overrides ``<setting>``.

configs = ListenerConfigs(config.values, "INTERNAL")
configs.value("ssl.keystore.location")
configs.value("sasl.jaas.config", mechanism="SCRAM-SHA-256")  # listener.name.internal.scram-sha-256.sasl.jaas.config
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.config_def import ConfigError, Value


def no_such_class(name: str, value: Value, known: Sequence[str]) -> ConfigError:
    """Error for a setting that names a Java class. ``known`` are the classes that Odradek implements itself."""
    hint = f"leave it out, or set it to {' or '.join(known)}" if known else "leave it out"
    return ConfigError.of(name, value, f"Odradek does not load Java classes: {hint}")


class ListenerConfigs:
    """The settings of one listener. Each call looks them up in ``values``, since settings may change at run time."""

    def __init__(self, values: Mapping[str, Value], listener: str) -> None:
        self._values = values
        self.listener = listener

    @property
    def prefix(self) -> str:
        return f"listener.name.{self.listener.lower()}."

    def value(self, name: str, mechanism: str | None = None) -> Value:
        """Value of a setting: as set for this listener and mechanism, else for this listener, else for the broker."""
        values, prefix = self._values, self.prefix
        if mechanism is not None and (of_mechanism := f"{prefix}{mechanism.lower()}.{name}") in values:
            return values[of_mechanism]
        return values[prefix + name] if prefix + name in values else values[name]

    def of_mechanism(self, name: str, mechanism: str) -> Value:
        """Value that is set for exactly this listener and mechanism; None if no such value is set."""
        return self._values.get(f"{self.prefix}{mechanism.lower()}.{name}")
