"""The metrics that a client is requested to push: the subscriptions that match it, combined as in ``ClientMetricsManager``.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

import google_crc32c

from broker.config.metrics_configs import METRICS_CONFIGS, parse_matching_patterns
from broker.config.patterns import Matches
from protocol.slotted import slotted

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = METRICS_CONFIGS["interval.ms"].default
_SIGN: Final = 1 << 31


@slotted(frozen=True)
class Subscription:
    """The settings of one ``client-metrics`` resource."""

    metrics: frozenset[str]
    """Prefixes of the names of the requested metrics; `ALL_METRICS` stands for all."""
    interval_ms: int
    patterns: Mapping[str, Matches]
    """Client parameter, such as ``client_id`` -> pattern. Without patterns the subscription applies to all clients."""

    def is_for(self, parameters: Mapping[str, str]) -> bool:
        """Whether all patterns match the client's parameters."""
        return all(
            name in parameters and matches(parameters[name]) for name, matches in self.patterns.items()
        )


@slotted(frozen=True)
class Requested:
    """The subscription that one client gets: all matching ``client-metrics`` resources combined."""

    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int


def subscription_of(configs: Mapping[str, str], compile_pattern: Callable[[str], Matches]) -> Subscription:
    """Parse the settings of a ``client-metrics`` resource. They are valid, since every change of them was checked."""
    values = {
        name: key.parse(configs[name]) if name in configs else key.default
        for name, key in METRICS_CONFIGS.items()
    }
    return Subscription(
        frozenset(values["metrics"]),
        values["interval.ms"],
        parse_matching_patterns(values["match"], compile_pattern),
    )


def requested_of(
    instance_id: UUID, parameters: Mapping[str, str], subscriptions: Iterable[Subscription]
) -> Requested:
    """Combine all subscriptions that match the client: the union of their metrics, and the shortest interval."""
    metrics: set[str] = set()
    interval_ms: int = INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if each.is_for(parameters):
            metrics |= each.metrics
            interval_ms = min(interval_ms, each.interval_ms)
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Requested(_subscription_id(names, interval_ms, instance_id), names, interval_ms)


def _subscription_id(names: Iterable[str], interval_ms: int, instance_id: UUID) -> int:
    """Return a hash of names, interval and client: the subscription id, as in Kafka except for the order of the names."""
    crc = google_crc32c.value(f"[{', '.join(names)}]{interval_ms}".encode())
    folded = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
    number: int = (crc ^ (folded >> 32) ^ folded) & 0xFFFFFFFF
    return number - 2 * _SIGN if number & _SIGN else number
