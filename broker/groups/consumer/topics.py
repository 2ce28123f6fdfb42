"""The consumer groups' interface to the cluster's topics, and the hash that detects a change of a topic. Pure.

KIP-1101: a group stores one hash of its topics instead of their metadata. The hash is part of the group's record, so it is
the same as in Kafka (``Utils.computeTopicHash``, ``computeGroupHash``): XXH3 over a stream of little-endian values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import pack
from typing import Final, Protocol
from uuid import UUID

import xxhash

TOPIC_HASH_VERSION: Final = 0
_LOW_64: Final = 2**64 - 1


class TopicsImage(Protocol):
    """The topics as of one version of the cluster's metadata."""

    @property
    def version(self) -> int: ...
    @property
    def last_version_with_new_topics(self) -> int: ...
    @property
    def changes(self) -> int:
        """A counter that is incremented whenever the hash of a topic may have changed."""
        ...

    def names(self) -> Iterable[str]: ...
    def topic_id(self, name: str) -> UUID | None: ...
    def topic_name(self, topic_id: UUID) -> str | None: ...
    def partition_count(self, topic_id: UUID) -> int:
        """Number of partitions of a topic; 0 if the topic does not exist."""
        ...

    def topic_hash(self, name: str) -> int | None:
        """Hash of a topic, as the function `topic_hash` computes it; None if the topic does not exist."""
        ...


def topic_ids(topics: TopicsImage, names: Iterable[str]) -> frozenset[UUID]:
    """Ids of the topics in ``names`` that exist."""
    found = (topics.topic_id(name) for name in names)
    return frozenset(topic_id for topic_id in found if topic_id is not None)


def topic_hash(topic_id: UUID, name: str, racks: Sequence[Sequence[str]]) -> int:
    """Hash of a topic. ``racks`` has one entry for each partition: the racks of its replicas."""
    stream = bytearray(pack("<BQQ", TOPIC_HASH_VERSION, topic_id.int >> 64, topic_id.int & _LOW_64))
    stream += _text(name)
    stream += pack("<i", len(racks))
    for partition, of_partition in enumerate(racks):
        stream += pack("<i", partition)
        for rack in sorted(of_partition):
            stream += pack("<i", _units(rack)) + _text(rack)
    return _signed(xxhash.xxh3_64_intdigest(bytes(stream)))


def metadata_hash(topics: TopicsImage, names: Iterable[str]) -> int:
    """Hash over the topics in ``names`` that exist; 0 if none exists."""
    hashes: Mapping[str, int] = {
        name: found for name in names if (found := topics.topic_hash(name)) is not None
    }
    if not hashes:
        return 0
    ordered = sorted(hashes, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(pack("<q", hashes[name]) for name in ordered)))


def _text(text: str) -> bytes:
    """Encode a string for the hash: its UTF-16 code units, then their number."""
    return text.encode("utf-16-le", "surrogatepass") + pack("<i", _units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value
