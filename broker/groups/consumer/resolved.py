"""What a regular expression of a consumer group stands for at the moment. Pure."""

from __future__ import annotations

from protocol.named_tuple import NamedTuple


class ResolvedRegex(NamedTuple):
    """The topics that match, the version of the metadata in which they did, and when that was found."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
