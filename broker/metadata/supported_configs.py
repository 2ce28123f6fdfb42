"""Settings that a replay accepts. The replay skips settings that Kafka has removed (``DefaultSupportedConfigChecker``).

>>> is_supported(TOPIC_RESOURCE, "retention.ms"), is_supported(TOPIC_RESOURCE, "message.format.version")
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.config.group_configs import group_configs
from broker.config.metrics_configs import METRICS_CONFIGS
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from storage.config import ALL_TOPIC_CONFIGS

_SUPPORTED: Final[Mapping[int, Callable[[str], bool]]] = {
    TOPIC_RESOURCE: lambda name: name in ALL_TOPIC_CONFIGS,
    # A name may have a listener prefix, or belong to a plug-in.
    BROKER_RESOURCE: lambda name: True,
    METRICS_RESOURCE: lambda name: name in METRICS_CONFIGS,
    GROUP_RESOURCE: lambda name: name in group_configs(),
}


def is_supported(resource_type: int, name: str) -> bool:
    supported = _SUPPORTED.get(resource_type)
    return supported is not None and supported(name)
