"""Find hanging transactions: open in a partition, although no coordinator will end them (KIP-664).

Three queries, in this order: the leaders list open transactions, the coordinators list their transactions, the
leaders list open transactions again. A transaction hangs if both lists of the leaders contain it, and no
coordinator will end it. A transaction that begins or ends during the queries is in only one of the two lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from odradek.printable import clipped
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from protocol.messages.metadata import MetadataResponseTopic
from tools.client.cluster import NODE_S, Cluster
from tools.client.errors import ToolError, check, error_name, is_retriable, no_such
from tools.client.transactions import Transaction, list_transactions

STATE_TOPIC: Final = "__transaction_state"
_NO_LEADER: Final = -1
LOOKS: Final = 2
"""How often partitions are queried again, with new metadata, after their leader has changed."""
NAMED_MAX: Final = 5
"""Maximum number of partitions listed in a sentence."""

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Open:
    """An open transaction in a partition, as reported by the partition's leader."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    known: Transaction | None = None
    """The coordinator's state of the transactional id with this producer id; None if no coordinator has one."""

    @property
    def where(self) -> Where:
        return self.topic, self.partition

    @property
    def is_expected(self) -> bool:
        """Whether the coordinator will end the transaction: its own state is open and lists the partition."""
        return self.known is not None and self.known.is_open and self.where in self.known.partitions

    @property
    def why(self) -> str:
        """The reason why no coordinator will end the transaction, as text."""
        if self.known is None:
            return f"no coordinator knows producer {self.producer_id}"
        return (
            f"coordinator node {self.known.coordinator} has {clipped(self.known.transactional_id)} in "
            f"{self.known.state}, without {self.topic}-{self.partition}"
        )

    @property
    def sentence(self) -> str:
        """Sentence about the transaction, for a user who named its transactional id."""
        return (
            f"a transaction of its producer hangs in {self.topic}-{self.partition} from offset {self.start_offset}; "
            f"to abort it: {self.abort_command}"
        )

    @property
    def abort_command(self) -> str:
        """The command that aborts the transaction."""
        return (
            f"odradek txn abort --partition {self.topic}/{self.partition} --start-offset {self.start_offset}"
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The hanging transactions, by partition and offset, and sentences on what could not be determined."""

    hanging: list[Open] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class _Look:
    """The open transactions of partitions: one request per leader, repeated for partitions whose leader has changed."""

    def __init__(self, cluster: Cluster, wanted: Collection[Where], node_id: int | None) -> None:
        self._cluster = cluster
        self.opened: list[Open] = []
        self.unseen: dict[Where, str] = {}
        """Reason for each partition that could not be queried."""
        for _ in range(LOOKS):
            changed: set[Where] = set()
            by_leader = {
                leader: partitions
                for leader, partitions in self._by_leader(wanted).items()
                if node_id in (None, leader)
            }
            leaderless = f"its leader: {error_name(ErrorCode.leader_not_available)}"
            self.unseen.update(dict.fromkeys(by_leader.pop(_NO_LEADER, ()), leaderless))
            found, errors = cluster.each(partial(self._ask, by_leader), by_leader)
            for leader, error in errors.items():
                self.unseen.update(dict.fromkeys(by_leader[leader], str(error)))
            for response in found.values():
                changed |= self._take_in(response)
            if not changed:
                return
            wanted = changed

    def _by_leader(self, wanted: Collection[Where]) -> dict[int, list[Where]]:
        found: dict[int, list[Where]] = {}
        for topic in self._cluster.refresh(sorted({topic for topic, _ in wanted})):
            for each in topic.partitions:
                where = (topic.name or "", each.partition_index)
                if where in wanted:
                    found.setdefault(each.leader_id, []).append(where)
        return found

    def _ask(self, by_leader: Mapping[int, list[Where]], leader: int) -> DescribeProducersResponse:
        by_topic: dict[str, list[int]] = {}
        for topic, index in by_leader[leader]:
            by_topic.setdefault(topic, []).append(index)
        topics = [TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()]
        request = DescribeProducersRequest(topics=topics)
        response: DescribeProducersResponse = self._cluster.ask_node(leader, "describe_producers", request)
        return response

    def _take_in(self, response: DescribeProducersResponse) -> set[Where]:
        """Store one leader's response. Returns the partitions whose leader has changed."""
        changed = set()
        for name, each in ((topic.name, each) for topic in response.topics for each in topic.partitions):
            where = (name, each.partition_index)
            if each.error_code:
                self.unseen[where] = error_name(each.error_code)
                if is_retriable(each.error_code):
                    changed.add(where)
                continue
            self.unseen.pop(where, None)
            self.opened += [
                _open(where, producer)
                for producer in each.active_producers
                if producer.current_txn_start_offset >= 0
            ]
        return changed


def _open(where: Where, producer: ProducerState) -> Open:
    return Open(
        *where,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def find_hanging(
    cluster: Cluster, topics: Collection[str] | None = None, *, node_id: int | None = None
) -> Found:
    """The hanging transactions of topics (None: all, including internal ones); with ``node_id``, only in partitions that
    this node leads.
    """
    wanted = _partitions(cluster.refresh(topics), named=topics is not None)
    first = _Look(cluster, wanted, node_id)
    unknown = _not_looked_at(first.unseen)
    if not first.opened:
        return Found(unknown=unknown)
    try:
        before = _coordinators(cluster)
        ids = sorted({each.producer_id for each in first.opened})
        known = {each.producer_id: each for each in list_transactions(cluster, (), ids)}
        candidates = unexpected(first.opened, known)
        if not candidates:
            return Found(unknown=unknown)
        second = _Look(cluster, {each.where for each in candidates}, node_id)
        # A coordinator may be unavailable, or may have moved between the queries.
        told = before == _coordinators(cluster) and None not in before.values()
    except ToolError as error:
        return Found(unknown=[*unknown, f"the coordinators' transactions could not be determined: {error}"])
    if told:
        unknown += [
            _may_hang(each, second.unseen[each.where]) for each in candidates if each.where in second.unseen
        ]
        return Found(still_open(candidates, second.opened), unknown)
    return Found(unknown=unknown + [_may_hang(each, "a coordinator is unavailable") for each in candidates])


def hanging_of(cluster: Cluster, producer_id: int) -> list[Open]:
    """Hanging transactions of this producer id. Empty if the cluster cannot be queried within ``NODE_S`` seconds."""
    with suppress(ToolError), cluster.within(NODE_S):
        return [each for each in find_hanging(cluster).hanging if each.producer_id == producer_id]
    return []


def _may_hang(each: Open, why: str) -> str:
    return f"{each.topic}-{each.partition}@{each.start_offset}: producer {each.producer_id} may hang: {why}"


def unexpected(opened: Iterable[Open], known: Mapping[int, Transaction]) -> list[Open]:
    """Return those in ``opened`` that no coordinator will end, with their attribute ``known`` set.

    The argument ``known`` has the transactions that the coordinators report, by producer id.
    """
    told = (replace(each, known=known.get(each.producer_id)) for each in opened)
    return [each for each in told if not each.is_expected]


def still_open(candidates: Iterable[Open], opened: Iterable[Open]) -> list[Open]:
    """Return the ``candidates`` that are also in ``opened``, the result of a later query, sorted by partition.

    Two entries are the same transaction if partition, producer id and first offset are equal.
    """
    again = {(each.where, each.producer_id, each.start_offset) for each in opened}
    found = [each for each in candidates if (each.where, each.producer_id, each.start_offset) in again]
    return sorted(found, key=lambda each: (each.where, each.start_offset))


def _partitions(topics: Iterable[MetadataResponseTopic], *, named: bool) -> set[Where]:
    """The partitions of these topics. Raises an error for a topic that was ``named`` but does not exist."""
    found = set()
    for topic in topics:
        if named and topic.error_code == ErrorCode.unknown_topic_or_partition:
            raise no_such("topic", topic.name or "")
        if named:
            check(topic.error_code, topic.name or "")
        found |= {(topic.name or "", each.partition_index) for each in topic.partitions}
    return found


def _not_looked_at(unseen: Mapping[Where, str]) -> list[str]:
    """One sentence per reason why partitions were not queried: a denial or an unavailable node is reported once for all its
    partitions.
    """
    by_reason: dict[str, list[str]] = {}
    # List topics of users first, as only a few are named.
    for (topic, index), why in sorted(
        unseen.items(), key=lambda each: (each[0][0].startswith("__"), each[0])
    ):
        by_reason.setdefault(why, []).append(f"{topic}-{index}")
    return [
        f"{' '.join(places[:NAMED_MAX])}{_and_more(len(places) - NAMED_MAX)} could not be queried: {why}"
        for why, places in by_reason.items()
    ]


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _coordinators(cluster: Cluster) -> dict[int, tuple[int, int] | None]:
    """Leader and leader epoch of each partition of __transaction_state; None for one without a leader."""
    (topic,) = cluster.refresh([STATE_TOPIC])
    return {
        each.partition_index: (each.leader_id, each.leader_epoch) if each.leader_id in cluster.nodes else None
        for each in topic.partitions
    }
