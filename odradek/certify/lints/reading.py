"""The reads of a job's input: from which offsets, and which records were read twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.certify.exchanges import Exchange
from odradek.certify.lints.evidence import Evidence

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Read:
    """One partition in a Fetch that returned records."""

    number: int
    """Index of the exchange in the trace."""
    exchange: Exchange
    key: TopicPartition
    batches: tuple[tuple[int, int, int], ...]
    """First offset, last offset and number of records of each batch; 0 records for markers and aborted batches."""

    @property
    def begin(self) -> int:
        return self.batches[0][0]

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1][1] + 1


def reads(evidence: Evidence) -> Iterator[Read]:
    """The reads of the inputs, in the order of the requests."""
    names: dict[str, str] = {}
    for number, exchange in enumerate(evidence.exchanges):
        if exchange.api != "Fetch":
            continue
        for topic in exchange.request.get("topics") or ():
            names[str(topic.get("topic_id"))] = str(topic.get("topic_name") or topic.get("topic"))
        for topic in (exchange.answer or {}).get("responses") or ():
            name = topic.get("topic_name") or topic.get("topic") or names.get(str(topic.get("topic_id")), "")
            if name in evidence.inputs:
                yield from _of_topic(number, exchange, name, topic)


def _of_topic(number: int, exchange: Exchange, name: str, topic: Mapping[str, Any]) -> Iterator[Read]:
    for partition in topic.get("partitions") or ():
        found = [
            each for each in (partition.get("records") or {}).get("batches") or () if "base_offset" in each
        ]
        if found:
            aborted = _Aborted(exchange, partition)
            batches = tuple((each["base_offset"], each["last_offset"], aborted.count(each)) for each in found)
            yield Read(number, exchange, (name, partition.get("partition_index", 0)), batches)


class _Aborted:
    """The batches that a read_committed consumer skips: those of a producer from the first offset of an aborted transaction
    to its marker."""

    def __init__(self, exchange: Exchange, partition: Mapping[str, Any]) -> None:
        found = partition.get("aborted_transactions") or () if exchange.request.get("isolation_level") else ()
        self._from = sorted((each["first_offset"], each["producer_id"]) for each in found)
        self._now: set[int] = set()

    def count(self, batch: Mapping[str, Any]) -> int:
        while self._from and self._from[0][0] <= batch["base_offset"]:
            self._now.add(self._from.pop(0)[1])
        if batch.get("control"):
            self._now.discard(batch.get("producer_id", -1))
            return 0
        return 0 if batch.get("producer_id", -1) in self._now else batch.get("count", 0)


@dataclass(frozen=True, slots=True)
class Again:
    """A Fetch of records that the same or another process had fetched before."""

    read: Read
    seen: int
    """The offset up to which the partition had been fetched."""

    @property
    def number(self) -> int:
        return self.read.number


def read_again(evidence: Evidence) -> list[Again]:
    """Each Fetch of input records that the job had fetched before, with the offset up to which it had fetched."""
    seen: dict[TopicPartition, int] = {}
    found = []
    for read in reads(evidence):
        if read.begin < seen.get(read.key, 0):
            found.append(Again(read, seen[read.key]))
        seen[read.key] = max(seen.get(read.key, 0), read.end)
    return found


def asked_for(evidence: Evidence) -> Iterator[tuple[int, TopicPartition, int, bool]]:
    """Yield (index in the trace, partition, offset, is_first) for each partition of each Fetch of an input.

    ``is_first``: whether this is the first Fetch of the partition on its connection. In a fetch session (KIP-227) a request
    contains only the changed partitions.
    """
    seen: set[tuple[str, TopicPartition]] = set()
    for number, exchange in enumerate(evidence.exchanges):
        if exchange.api == "Fetch":
            for topic in exchange.request.get("topics") or ():
                for each in topic["partitions"]:
                    key = topic.get("topic_name") or topic.get("topic"), each["partition"]
                    if key[0] in evidence.inputs:
                        yield number, key, each["fetch_offset"], (exchange.peer, key) not in seen
                        seen.add((exchange.peer, key))
