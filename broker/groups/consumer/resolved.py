"""The topics that a regular expression of a consumer group matched. Pure."""

from __future__ import annotations

from protocol.named_tuple import NamedTuple


class ResolvedRegex(NamedTuple):
    """Topics that match, the metadata version at which they were determined, and the time of that."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
