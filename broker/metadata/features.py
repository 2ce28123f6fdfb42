"""Feature levels: what this broker can do, and what a new cluster starts with (KIP-584).

Only what is built is here: a client that sees a level believes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
"""1 has consumer groups (KIP-848)."""

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
}
"""Lowest and highest level, by name. 30 is 4.3-IV0."""

SCRAM_FROM: Final = 11
"""The metadata.version from which on the log has SCRAM credentials: 3.5-IV2 (KIP-900)."""
TOKENS_FROM: Final = 14
"""Delegation tokens: 3.6-IV2 (KIP-900)."""
LOG_DIRECTORIES_FROM: Final = 17
"""The log directories of brokers and replicas: 3.7-IV2 (KIP-858)."""

INITIAL_LEVELS: Final[Mapping[str, int]] = {METADATA_VERSION: 30, TRANSACTION_VERSION: 2, GROUP_VERSION: 1}


def metadata_version(levels: Mapping[str, int]) -> int:
    """Kafka ends at records that this level does not have (``ImageWriterOptions.handleLoss``)."""
    return levels.get(METADATA_VERSION, 0)


class UnsupportedFeature(Exception):
    """A level was asked for that this broker does not have; the message names it."""


def check_levels(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        if name not in SUPPORTED_FEATURES:
            known = ", ".join(SUPPORTED_FEATURES)
            raise UnsupportedFeature(f"The feature {name} is not known here; the known ones are {known}.")
        low, high = SUPPORTED_FEATURES[name]
        if not low <= level <= high:
            raise UnsupportedFeature(f"The feature {name} has levels {low} to {high} here, not {level}.")
