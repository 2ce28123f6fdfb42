"""The settings of a client metrics subscription (KIP-714, ``ClientMetricsConfigs``).

Pure. The error messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.config.patterns import InvalidPattern, Matches
from protocol.slotted import slotted
from storage.config_def import ConfigError, ConfigKey, ConfigType, ListOf

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
PARAMETERS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""Client parameters to which a pattern in the setting ``match`` may refer."""


class BadRequest(ValueError):
    """An invalid request, for which Kafka responds with INVALID_REQUEST."""


@slotted(frozen=True)
class MetricsConfigKey(ConfigKey):
    documentation: str = ""


METRICS_CONFIGS: Final[Mapping[str, MetricsConfigKey]] = {
    key.name: key
    for key in (
        MetricsConfigKey(
            "interval.ms", ConfigType.INT, 300_000, documentation="How often clients push their metrics."
        ),
        MetricsConfigKey(
            "match",
            ConfigType.LIST,
            (),
            ListOf(),
            documentation="The clients that the subscription applies to, as parameter=pattern; empty: all.",
        ),
        MetricsConfigKey(
            "metrics",
            ConfigType.LIST,
            (),
            ListOf(),
            documentation="Prefixes of the names of the requested metrics; * for all.",
        ),
    )
}


def check_metrics_configs(
    subscription: str, given: Mapping[str, str], compile_pattern: Callable[[str], Matches]
) -> None:
    """Raise `BadRequest` or `ConfigError` if a subscription cannot have these settings."""
    if not subscription:
        raise BadRequest("Subscription name can't be empty")
    for name in given:
        if name not in METRICS_CONFIGS:
            raise BadRequest(f"Unknown client metrics configuration: {name}")
    values = {name: METRICS_CONFIGS[name].parse(raw) for name, raw in given.items()}
    interval_ms = values.get("interval.ms", INTERVAL_MS_MIN)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise BadRequest(
            f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        )
    parse_matching_patterns(values.get("match", ()), compile_pattern)


def parse_matching_patterns(
    patterns: Iterable[str], compile_pattern: Callable[[str], Matches]
) -> dict[str, Matches]:
    """Parse the setting ``match``: client parameter -> compiled pattern. Raises `ConfigError` for an invalid entry."""
    compiled: dict[str, Matches] = {}
    for each in patterns:
        # As Java's split, which drops empty parts at the end: "client_id=" has one part.
        parts = [part.strip() for part in each.rstrip("=").split("=")]
        if len(parts) != 2 or parts[0] not in PARAMETERS:
            raise ConfigError(f"Illegal client matching pattern: {each}")
        try:
            compiled[parts[0]] = compile_pattern(parts[1])
        except InvalidPattern:
            raise ConfigError(f"Illegal client matching pattern: {each}") from None
    return compiled
