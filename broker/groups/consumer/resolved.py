"""The topics that a regular expression of a consumer group matched. Pure."""

from __future__ import annotations

from protocol.named_tuple import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression, with the metadata version and the time of the resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
