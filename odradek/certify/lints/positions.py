"""Lints on the offset from which a job continues: after an abort, and after a start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from odradek.certify.exchanges import ENDS, Exchange
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.transactions import IN_TRANSACTION, was_taken
from odradek.certify.plans.faults import ABORTABLE

TopicPartition = tuple[str, int]
_ABORTABLE: Final = frozenset(ABORTABLE.values())


def no_rewind(evidence: Evidence) -> Iterator[Lint]:
    """Yield aborts after which no Fetch requests the records of the aborted transaction again."""
    positions = _Positions()
    for exchange in evidence.exchanges:
        positions.see(exchange)
    for (topic, partition), (committed, abort) in positions.passed_over.items():
        if (topic, partition) in positions.owner:
            yield seen_at(
                abort,
                "no-rewind",
                f"after an abort the consumer does not seek back to the committed offset ({topic}-{partition} offset "
                f"{committed}), and loses the records of the aborted transaction. Seek to the committed offsets",
            )


class _Positions:
    """Committed offsets, and the aborts after which the job continued without seeking back.

    The job continued if it only fetched from above the committed offset, or if it committed an offset above that of the
    aborted transaction. A job that retries records it still has in memory commits the same offset.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._offered: dict[str, dict[TopicPartition, int]] = {}
        self._initialised: set[str] = set()
        self._open: set[str] = set()
        """Transactional ids with a request in a transaction since their last EndTxn or InitProducerId."""
        self.owner: dict[TopicPartition, str] = {}
        """The transactional id that commits the offsets of each partition.

        The offsets of a partition without such an id are stored elsewhere, for instance in Spark's checkpoint.
        """
        self._fetched: dict[TopicPartition, int] = {}
        self._reader: dict[TopicPartition, str] = {}
        """The connection that last fetched each partition."""
        self._reader_of: dict[tuple[str, TopicPartition], str] = {}
        """(transactional id, partition) -> the connection that read the partition when the id last sent its offset.

        If `_reader` now differs, another instance reads the partition.
        """
        self._aborted: dict[TopicPartition, tuple[int, Exchange]] = {}
        self._beyond: dict[TopicPartition, int] = {}
        """Offsets that the aborted transaction of each partition would have committed."""
        self.passed_over: dict[TopicPartition, tuple[int, Exchange]] = {}
        """For each partition that was not read again after an abort: the committed offset at the abort, and the abort."""

    def see(self, exchange: Exchange) -> None:
        transactional_id = exchange.transactional_id
        if exchange.api == "Fetch":
            self._fetch(exchange)
        if exchange.api == "TxnOffsetCommit" and transactional_id:
            offered = dict(_offsets(exchange))
            self._offered.setdefault(transactional_id, {}).update(offered)
            self.owner.update(dict.fromkeys(offered, transactional_id))
            self._reader_of |= {(transactional_id, key): self._reader.get(key, "") for key in offered}
        if transactional_id and exchange.api in IN_TRANSACTION:
            self._open.add(transactional_id)
        if transactional_id and _ABORTABLE & set(exchange.errors):
            # A client that has added no partition yet aborts without EndTxn.
            self._abort(transactional_id, self._offered.get(transactional_id, {}), exchange)
        elif exchange.api in ENDS and transactional_id and was_taken(exchange):
            offered = self._offered.pop(transactional_id, {})
            if exchange.request.get("committed"):
                self._commit(offered)
            elif exchange.api == "EndTxn" or transactional_id in self._open:
                self._abort(transactional_id, offered, exchange)
            self._initialised.add(transactional_id)
            self._open.discard(transactional_id)

    def _fetch(self, exchange: Exchange) -> None:
        for key, offset in _fetches(exchange):
            if key in self._aborted and offset <= self._aborted[key][0]:
                self._looks_back(key)
            elif key in self._aborted and key not in self._beyond:
                self.passed_over[key] = self._aborted[key]
            self._fetched[key] = offset
            self._reader[key] = exchange.peer

    def _looks_back(self, key: TopicPartition) -> None:
        for each in (self._aborted, self._beyond, self.passed_over):
            each.pop(key, None)

    def _abort(self, aborted: str, offered: Mapping[TopicPartition, int], abort: Exchange) -> None:
        read_on = {
            key
            for key, offset in self._fetched.items()
            if offset > self._committed.get(key, 0) and self._owner_of(key, aborted) == aborted
        }
        for key in read_on | offered.keys():
            if self._reader_of.get((aborted, key), "") in ("", self._reader.get(key)):
                self._aborted.setdefault(key, (self._committed.get(key, 0), abort))
                self._beyond |= {key: offered[key]} if key in offered else {}

    def _owner_of(self, key: TopicPartition, aborted: str) -> str:
        """The transactional id that owns the partition; "" if unknown.

        If the job uses several ids, an id that has sent no offset yet may own any partition, or none.
        """
        return self.owner.get(key, aborted if len(self._initialised | {aborted}) == 1 else "")

    def _commit(self, offered: Mapping[TopicPartition, int]) -> None:
        for key, offset in offered.items():
            if key in self._beyond:
                if offset > self._beyond[key]:
                    self.passed_over[key] = self._aborted[key]
                else:
                    self._looks_back(key)
        self._committed |= offered


def _offsets(exchange: Exchange) -> Iterable[tuple[TopicPartition, int]]:
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (
                (topic.get("name") or topic.get("topic_name"), each["partition_index"]),
                each["committed_offset"],
            )


def _fetches(exchange: Exchange) -> Iterable[tuple[TopicPartition, int]]:
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (topic.get("topic_name") or topic.get("topic"), each["partition"]), each["fetch_offset"]


def reported_early(evidence: Evidence) -> Iterator[Lint]:
    """Yield a lint for each first Fetch of a partition by a new process that begins above the committed offset.

    Such a job stores offsets outside Kafka, and stored them too early. A new process differs from a new
    producer in the old process by its new connections.
    """
    positions, starts = _Committed(), _Starts()
    for exchange in evidence.exchanges:
        positions.see(exchange)
        for (topic, partition), offset in starts.begun_with(exchange):
            committed = positions.committed.get((topic, partition), 0)
            if topic in positions.topics and offset > committed:
                yield seen_at(
                    exchange,
                    "reported-early",
                    f"after a start the job reads {topic}-{partition} from offset {offset}, although only offset "
                    f"{committed} was committed: it considered records done before the response to the commit. Send "
                    "offsets with the transaction, or store them after the commit has returned",
                )


class _Starts:
    """The first Fetch of each partition by processes that replaced an earlier process."""

    def __init__(self) -> None:
        self._initialised: set[str] = set()
        self._fetching: set[str] = set()
        """Connections that have fetched."""
        self._before: set[str] | None = None
        """Connections that fetched before the latest start of a process (InitProducerId on a new connection).

        None before the first such start.
        """
        self._begun: set[TopicPartition] = set()
        self._asked: dict[TopicPartition, int] = {}
        """Offset of the latest Fetch of each partition."""
        self._ids: set[str | None] = set()

    @property
    def _are_several(self) -> bool:
        return len(self._ids) > 1

    def begun_with(self, exchange: Exchange) -> Iterator[tuple[TopicPartition, int]]:
        peer = exchange.peer
        if exchange.api == "InitProducerId":
            if self._initialised and peer not in self._initialised:
                self._before, self._begun = set(self._fetching), set()
            self._initialised.add(peer)
            self._ids.add(exchange.transactional_id)
        elif exchange.api == "Fetch":
            for key, offset in _fetches(exchange):
                is_first = self._before is not None and peer not in self._before and key not in self._begun
                # With several instances, a Fetch from the same offset as before may come from an instance that only
                # reconnected.
                if is_first and not (self._are_several and self._asked.get(key) == offset):
                    yield key, offset
                self._begun.add(key)
                self._asked[key] = offset
            self._fetching.add(peer)


class _Committed:
    """The committed offsets of the groups after each exchange."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.topics: set[str] = set()
        """Topics for which an offset commit was ever sent."""
        self._offered: dict[str, dict[TopicPartition, int]] = {}

    def see(self, exchange: Exchange) -> None:
        transactional_id = exchange.transactional_id or ""
        if exchange.api in ("OffsetCommit", "TxnOffsetCommit"):
            self.topics |= set(exchange.topics)
        if not was_taken(exchange):
            return
        if exchange.api == "OffsetCommit":
            self.committed.update(_offsets(exchange))
        elif exchange.api == "TxnOffsetCommit":
            self._offered.setdefault(transactional_id, {}).update(_offsets(exchange))
        elif exchange.api == "EndTxn":
            offered = self._offered.pop(transactional_id, {})
            self.committed |= offered if exchange.request.get("committed") else {}
