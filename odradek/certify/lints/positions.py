"""What a job has committed, and from where it reads on: after an abort, and after a start."""

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
    """After an abort no Fetch asks for the records of the aborted transaction again."""
    positions = _Positions()
    for exchange in evidence.exchanges:
        positions.see(exchange)
    for (topic, partition), (committed, abort) in positions.passed_over.items():
        if (topic, partition) in positions.owner:
            yield seen_at(
                abort,
                "no-rewind",
                f"after an abort the consumer does not go back to the committed position ({topic}-{partition} offset "
                f"{committed}), and loses the records of the aborted transaction. Seek to the committed positions",
            )


class _Positions:
    """Committed positions, and the aborts behind which the job went on without a look back.

    It went on if it fetched from further on only, or if it committed a position beyond that of the aborted transaction with
    records that it had fetched before. One that tries the same records again commits the same position.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._offered: dict[str, dict[TopicPartition, int]] = {}
        self._initialised: set[str] = set()
        self._open: set[str] = set()
        """Ids that have sent something since their last end."""
        self.owner: dict[TopicPartition, str] = {}
        """Whose transactions have its positions. Where none has, they lie elsewhere (Spark's checkpoint) or nowhere."""
        self._fetched: dict[TopicPartition, int] = {}
        self._reader: dict[TopicPartition, str] = {}
        """The connection that has fetched the partition last."""
        self._reader_of: dict[tuple[str, TopicPartition], str] = {}
        """The same when the id had sent positions of it last: another one by now, and another instance has the partition."""
        self._aborted: dict[TopicPartition, tuple[int, Exchange]] = {}
        self._beyond: dict[TopicPartition, int] = {}
        """What the aborted transaction would have committed."""
        self.passed_over: dict[TopicPartition, tuple[int, Exchange]] = {}
        """The position that was committed at the abort, and the abort."""

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
            # A client that has added nothing yet sends no EndTxn for its abort.
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
        """Of several instances one that has sent no position yet may have any partition, or none."""
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
    """After a start a job reads from further on than what was committed: it keeps positions elsewhere, and kept them early.

    Connections that were not there before tell a start from a producer that is initialised again.
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
                    f"after a start the job reads {topic}-{partition} from offset {offset} on, and no more than "
                    f"{committed} was committed: it took records for done before the commit was answered. Send "
                    "positions with the transaction, or write them down once the commit has returned",
                )


class _Starts:
    """What a process reads first, of processes that took the place of another one."""

    def __init__(self) -> None:
        self._initialised: set[str] = set()
        self._fetching: set[str] = set()
        """Connections."""
        self._before: set[str] | None = None
        """Those that fetched before the newest start."""
        self._begun: set[TopicPartition] = set()
        self._asked: dict[TopicPartition, int] = {}
        """The offset of the newest Fetch."""
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
                # Beside another instance a Fetch of what was asked for before may come from one that only connected again.
                if is_first and not (self._are_several and self._asked.get(key) == offset):
                    yield key, offset
                self._begun.add(key)
                self._asked[key] = offset
            self._fetching.add(peer)


class _Committed:
    """The positions of the groups, as the broker has them after each exchange."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.topics: set[str] = set()
        """Those of which a position was ever sent."""
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
