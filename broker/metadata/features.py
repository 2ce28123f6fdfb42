"""Feature levels: the supported range, and the initial levels of a new cluster (KIP-584).

Only implemented levels are listed, since clients rely on the listed levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
"""Level 1 enables consumer groups (KIP-848)."""
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
"""Level 1 enables eligible leader replicas (KIP-966)."""
SHARE_VERSION: Final = "share.version"
"""Level 1 enables share groups (KIP-932), level 2 their dead-letter queues (KIP-1191)."""
STREAMS_VERSION: Final = "streams.version"

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 33),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 2),
    TRANSACTION_VERSION: (0, 2),
}
"""Feature -> (lowest, highest) supported level. Level 33 of metadata.version is 4.4-IV2."""

SCRAM_FROM: Final = 11
"""First metadata.version with SCRAM credentials in the log: 3.5-IV2 (KIP-900)."""
TOKENS_FROM: Final = 14
"""First metadata.version with delegation tokens: 3.6-IV2 (KAFKA-15219)."""
LOG_DIRECTORIES_FROM: Final = 17
"""First metadata.version with the log directories of brokers and replicas: 3.7-IV2 (KIP-858)."""
ELIGIBLE_LEADER_REPLICAS_FROM: Final = 23
"""First metadata.version with eligible leader replicas in the records of partitions: 4.0-IV1 (KIP-966)."""
RECORDS_FROM: Final = 30
"""First metadata.version with all versions of the records that this broker writes: 4.3-IV0."""
CORDONED_FROM: Final = 30
"""First metadata.version with cordoned log directories: 4.3-IV0 (KIP-1066)."""
CIDR_HOSTS_FROM: Final = 32
"""First metadata.version with CIDR hosts of ACLs: 4.4-IV1 (KIP-1276)."""
UNREGISTERED_CONTROLLERS_FROM: Final = 33
"""First metadata.version with UnregisterControllerRecord: 4.4-IV2 (KAFKA-20395)."""

DEAD_LETTERS_FROM: Final = 31
"""First metadata.version of a Kafka with share.version 2: 4.4-IV0 (KIP-1191)."""

INITIAL_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: 33,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 2,
    TRANSACTION_VERSION: 2,
}
_LOWER_INITIAL_LEVELS: Final = (
    (26, ELIGIBLE_LEADER_REPLICAS_VERSION, 0),
    (DEAD_LETTERS_FROM, SHARE_VERSION, 1),
    (28, SHARE_VERSION, 0),
)
"""(metadata.version, feature, level): initial level with a lower metadata.version. 26 is 4.1-IV0, 28 4.2-IV0."""


def initial_levels(chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the feature levels of a new cluster. ``chosen`` are the levels that the user has chosen."""
    levels = {**INITIAL_LEVELS, **chosen}
    for version, name, level in _LOWER_INITIAL_LEVELS:
        if levels[METADATA_VERSION] < version and name not in chosen:
            levels[name] = level
    return levels


def metadata_version(levels: Mapping[str, int]) -> int:
    """Return the finalized metadata.version, 0 if there is none. Records of later versions must not be written.

    At such records Kafka fails (``handleLoss``).
    """
    return levels.get(METADATA_VERSION, 0)


def is_elr_enabled(levels: Mapping[str, int]) -> bool:
    """Whether these feature levels enable eligible leader replicas (KIP-966)."""
    return levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


class UnsupportedFeature(Exception):
    """A requested feature level that this broker does not support. The message is that of ``kafka-storage format``."""


def check_levels(levels: Mapping[str, int]) -> None:
    """Raise `UnsupportedFeature` unless this broker supports each level. Level 0 disables a feature that it lacks."""
    supported = {**SUPPORTED_FEATURES, STREAMS_VERSION: (0, 0)}
    for name, level in levels.items():
        if name not in supported:
            known = ", ".join(sorted(supported.keys() - {METADATA_VERSION}))
            raise UnsupportedFeature(f"Unsupported feature: {name}. Supported features are: {known}")
        low, high = supported[name]
        if not low <= level <= high:
            raise UnsupportedFeature(f"No feature:{name} with feature level {level}")
