"""Kafka's rules for one setting: how its text is parsed, checked and written.

The error messages are Kafka's (`ConfigDef.java`, `ConfigException.java`), because clients show them to users.
"""

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from protocol.slotted import slotted


class ConfigError(ValueError):
    """A setting that Kafka would reject. In a request it causes INVALID_CONFIG; in the broker's own settings it prevents the
    start.
    """

    @classmethod
    def of(cls, name: str, value: object, reason: str) -> "ConfigError":
        return cls(f"Invalid value {_java_text(value)} for configuration {name}: {reason}")


class ConfigType(StrEnum):
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


# A parsed value is one of: bool, int, float, str, tuple[str, ...], None. `Any`, because which one depends on the setting's
# name at run time. The typed views (LogConfig, BrokerConfig) have the types.
Value = Any
Validator = Callable[[str, Value], None]
# A check in a table that was read from Kafka's jar: (kind, *arguments).
Check = tuple[Any, ...] | None

_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script, as in Java
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_WHITESPACE = "".join(map(chr, range(0x21)))  # what Java's String.trim removes


def parse_type(name: str, raw: str, config_type: ConfigType) -> Value:
    """Parse `raw` as a value of the type, without running any validator."""
    text = raw.strip(_WHITESPACE)
    if config_type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ConfigError.of(name, raw, "Expected value to be either true or false")
        return text.lower() == "true"
    if config_type in _INTEGER_BITS:
        return _parse_integer(name, raw, text, config_type)
    if config_type is ConfigType.DOUBLE:
        if not _DOUBLE.fullmatch(text):
            raise ConfigError.of(name, raw, f"Not a number of type {config_type}")
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    if config_type is ConfigType.LIST:
        # Kafka drops duplicate members (KIP-1161).
        return tuple(dict.fromkeys(re.split(r"\s*,\s*", text))) if text else ()
    return text


def _parse_integer(name: str, raw: str, text: str, config_type: ConfigType) -> int:
    limit = 1 << (_INTEGER_BITS[config_type] - 1)
    # Limit the length before int() sees the text: parsing a very long row of digits is expensive.
    if _INTEGER.fullmatch(text) and len(text.lstrip("+-").lstrip("0")) <= 19:
        value = int(text)
        if -limit <= value < limit:
            return value
    raise ConfigError.of(name, raw, f"Not a number of type {config_type}")


def to_text(value: Value) -> str | None:
    """The text that Kafka writes for a parsed value in DescribeConfigs and in config records."""
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else _java_text(value)


def _java_text(value: object) -> str:
    """The text of a value as Java's `String.valueOf` writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """The text of a number as Java's `Double.toString` writes it: plain from 0.001 to 10,000,000, else as 1.5E10."""
    if not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # imported here, because few numbers need it

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    scientific = f"{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
    return f"-{scientific}" if sign else scientific


@slotted(frozen=True)
class Range:
    """Validator of a number: between inclusive bounds. None means unbounded."""

    minimum: float | None = None
    maximum: float | None = None

    def __call__(self, name: str, value: Value) -> None:
        if value is None:
            raise ConfigError.of(name, None, "Value must be non-null")
        if self.minimum is not None and value < self.minimum:
            raise ConfigError.of(name, value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError.of(name, value, f"Value must be no more than {self.maximum}")

    def text(self) -> str:
        return f"≥ {self.minimum}" if self.maximum is None else f"{self.minimum} to {self.maximum}"


@slotted(frozen=True)
class RangeOr:
    """Validator of a number: between inclusive bounds, or equal to one value outside of them (gzip's -1)."""

    minimum: int
    maximum: int
    other: int

    def __call__(self, name: str, value: Value) -> None:
        if value != self.other and not self.minimum <= value <= self.maximum:
            reason = f"Value must be between {self.minimum} and {self.maximum} or equal to {self.other}"
            raise ConfigError.of(name, value, reason)

    def text(self) -> str:
        return f"{self.minimum} to {self.maximum}, or {self.other}"


@slotted(frozen=True)
class OneOf:
    choices: tuple[str, ...]
    ignore_case: bool = False

    def __call__(self, name: str, value: Value) -> None:
        given = value.upper() if self.ignore_case else value
        if given not in self.choices:
            hint = " (case insensitive)" if self.ignore_case else ""
            raise ConfigError.of(name, value, f"String must be one of{hint}: {', '.join(self.choices)}")

    def text(self) -> str:
        return "of " + ", ".join(self.choices)


@slotted(frozen=True)
class ListOf:
    """Validator of a list: no duplicates, no empty members. If there are no choices, any text is allowed."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def __call__(self, name: str, value: Value) -> None:
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        if len(set(value)) != len(value):
            raise ConfigError(f"Configuration '{name}' values must not be duplicated.")
        for member in value:
            if not member:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if self.choices and member not in self.choices:
                raise ConfigError.of(name, member, f"String must be one of: {', '.join(self.choices)}")

    def text(self) -> str:
        return "of " + ", ".join(self.choices) if self.choices else ""


@slotted(frozen=True)
class ThrottledReplicas:
    """Validator of a list: `*`, or partition:broker pairs."""

    def __call__(self, name: str, value: Value) -> None:
        if "".join(value) == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", member) for member in value):
            return
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
        raise ConfigError.of(name, value, reason)

    def text(self) -> str:
        return "of partition:broker, or *"


def _non_empty(name: str, value: Value) -> None:
    if not value:
        raise ConfigError.of(name, value, "String must be non-empty")


def validator_of(check: Check) -> Validator | None:
    """The validator for a check in a table that was read from Kafka's jar; None if the setting has no check."""
    match check:
        case ("range", minimum, maximum):
            return Range(minimum, maximum)
        case ("range_or", minimum, maximum, other):
            return RangeOr(minimum, maximum, other)
        case ("list", choices, may_be_empty):
            return ListOf(choices, may_be_empty)
        case ("one_of", choices, ignore_case):
            return OneOf(choices, ignore_case)
        case ("throttled_replicas",):
            return ThrottledReplicas()
        case ("non_empty",):
            return _non_empty
    return None


@slotted(frozen=True)
class ConfigKey:
    """One of Kafka's settings. In addition, `effective` states whether the setting changes anything in this broker."""

    name: str
    config_type: ConfigType
    default: Value
    validator: Validator | None = None
    effective: bool = False
    internal: bool = False  # Kafka accepts the setting, but does not list it

    def parse(self, raw: str) -> Value:
        value = parse_type(self.name, raw, self.config_type)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    @property
    def sensitive(self) -> bool:
        return self.config_type is ConfigType.PASSWORD

    def text(self, value: Value) -> str | None:
        return to_text(value)
