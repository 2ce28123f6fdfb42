"""Facts about partitions, queried over the protocol: leaders, then coordinators, then the leaders again.

A transaction that just begins or ends between the queries appears in only one of the leaders' responses, and is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from lab.explain.facts import OpenInLog, PartitionFacts, Tail, TransactionFacts
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataResponsePartition
from tools.client.cluster import Cluster
from tools.client.configs import TOPIC, describe_configs
from tools.client.errors import error_name
from tools.client.fetching import Reader
from tools.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from tools.client.transactions import Transaction, transactions_of
from tools.control import Ages
from tools.explain.asking import Asking

STATE_TOPIC: Final = "__transaction_state"
LOOKS: Final = 3
"""How often the leaders are queried again, as long as a transaction that has just begun holds back readers."""
TAIL_OFFSETS: Final = 1000
"""Number of offsets before the end that are read to describe the end of a log."""
TAILS_MAX: Final = 20
PLACES_MAX: Final = 5000
"""Maximum number of partitions of a cluster that are queried for the open transactions of a producer."""
MIN_ISR_MAX: Final = 10
"""Maximum number of topics with incomplete ISRs whose min.insync.replicas is queried."""

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Log:
    """The offsets and open transactions of one partition, as reported by its leader."""

    start: int
    stable: int
    high: int
    opened: tuple[tuple[int, int, int], ...]
    """Producer id, producer epoch and first offset of each open transaction below the high watermark, by first offset."""

    @property
    def holder(self) -> tuple[int, int, int] | None:
        """Entry of ``opened`` that begins at the last stable offset; None if there is none, or it has ended."""
        return next((each for each in self.opened if each[2] == self.stable), None)

    @property
    def is_read_to_the_end(self) -> bool:
        return self.stable == self.high


@dataclass(frozen=True, slots=True)
class Owners:
    """The transactional ids of producers, from their coordinators."""

    by_producer: Mapping[int, TransactionFacts]
    asked: frozenset[int]
    """The producers in the query. An open transaction of another producer began after the query."""
    all_asked: bool


def look(
    asking: Asking, wanted: Collection[Where], ages: Ages, tails: bool = True
) -> dict[Where, PartitionFacts]:
    """Query the facts about the partitions ``wanted``. Partitions that the metadata does not contain are left out.

    With ``tails``, the facts of up to `TAILS_MAX` partitions that can be read to their end describe the last records.
    """
    placed = _placed(asking, wanted)
    logs = before = _logs(asking, placed)
    owners = Owners({}, frozenset(), False)
    for _ in range(LOOKS):
        producers = {producer for log in logs.values() for producer, _, _ in log.opened}
        if not producers:
            break
        owners = owners_of(asking, producers, ages)
        before, logs = logs, _logs(asking, placed)
        if all(
            log.holder in before[where].opened
            for where, log in logs.items()
            if log.holder and where in before
        ):
            break
    min_isr = _min_isr(asking, placed)
    found = {}
    for where, at in placed.items():
        log = logs.get(where)
        seen = _judged(log, before.get(where)) if log is not None else None
        found[where] = _facts(where, at, seen, owners, min_isr.get(where[0]))
    return {**found, **_with_tails(asking, found)} if tails else found


def _judged(log: _Log, before: _Log | None) -> _Log:
    """Return ``log`` with only the open transactions that are also in ``before``, the log of an earlier query.

    The other transactions began between the two queries, and the coordinators were queried in between: their
    responses need not contain these transactions.
    """
    known = before.opened if before is not None else ()
    return replace(log, opened=tuple(each for each in log.opened if each in known))


def open_places(asking: Asking, producers: Collection[int]) -> set[Where]:
    """The partitions of the cluster in which one of these producers has an open transaction."""
    placed = {
        (topic.name or "", each.partition_index): each
        for topic in asking.metadata(None)
        for each in topic.partitions
        if not topic.is_internal
    }
    if len(placed) > PLACES_MAX:
        asking.note(
            f"Only {PLACES_MAX} of {len(placed)} partitions were queried for hanging transactions: odradek txn find-hanging"
        )
        placed = dict(sorted(placed.items())[:PLACES_MAX])
    return {
        where
        for where, log in _logs(asking, placed).items()
        if any(producer in producers for producer, _, _ in log.opened)
    }


def _placed(asking: Asking, wanted: Collection[Where]) -> dict[Where, MetadataResponsePartition]:
    found = {}
    for topic in asking.metadata(sorted({topic for topic, _ in wanted})):
        for each in topic.partitions:
            where = (topic.name or "", each.partition_index)
            if where in wanted:
                found[where] = each
    return found


def _facts(
    where: Where, at: MetadataResponsePartition, log: _Log | None, owners: Owners, min_isr: int | None
) -> PartitionFacts:
    has_leader = at.leader_id >= 0
    return PartitionFacts(
        topic=where[0],
        index=where[1],
        leader=at.leader_id if has_leader else None,
        leader_epoch=at.leader_epoch,
        replicas=tuple(at.replica_nodes),
        isr=tuple(at.isr_nodes),
        min_isr=min_isr,
        offline="KAFKA_STORAGE_ERROR" if has_leader and at.leader_id in at.offline_replicas else None,
        log_start=None if log is None else log.start,
        last_stable=None if log is None else log.stable,
        high_watermark=None if log is None else log.high,
        open=() if log is None else tuple(_open(each, owners) for each in log.opened),
        advances=log is not None and not log.is_read_to_the_end and log.holder is None,
    )


def _open(each: tuple[int, int, int], owners: Owners) -> OpenInLog:
    producer, epoch, first = each
    return OpenInLog(
        producer_id=producer,
        producer_epoch=epoch,
        first_offset=first,
        owner=owners.by_producer.get(producer),
        owner_is_known=owners.all_asked and producer in owners.asked,
    )


# -- the leaders ------------------------------------------------------------------------------------------------


def _logs(asking: Asking, placed: Mapping[Where, MetadataResponsePartition]) -> dict[Where, _Log]:
    by_leader: dict[int, list[Where]] = {}
    for where, at in placed.items():
        if at.leader_id >= 0:
            by_leader.setdefault(at.leader_id, []).append(where)
    questions = {
        node: partial(_ask_leader, asking.cluster, partitions=partitions)
        for node, partitions in by_leader.items()
    }
    found = {}
    for logs, errors in asking.each("DescribeProducers", questions).values():
        found.update(logs)
        for where, error in errors.items():
            asking.note(f"The leader of {where[0]}-{where[1]} responds with {error}.")
    return found


def _ask_leader(
    cluster: Cluster, node: int, partitions: list[Where]
) -> tuple[dict[Where, _Log], dict[Where, str]]:
    """The logs of one leader, and the errors of partitions that it does not lead or cannot read."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    errors: dict[Where, str] = {}
    # In this order, a transaction that begins meanwhile is above the high watermark, and one that ends holds back no reader.
    starts = _offsets(cluster, node, by_topic, EARLIEST, READ_UNCOMMITTED, errors)
    highs = _offsets(cluster, node, by_topic, LATEST, READ_UNCOMMITTED, errors)
    stables = _offsets(cluster, node, by_topic, LATEST, READ_COMMITTED, errors)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()]
    )
    opened: dict[Where, list[tuple[int, int, int]]] = {}
    response = cluster.ask_node(node, "describe_producers", request)
    for name, each in ((topic.name, each) for topic in response.topics for each in topic.partitions):
        where = (name, each.partition_index)
        if each.error_code:
            errors[where] = error_name(each.error_code)
        opened[where] = [
            (producer.producer_id, producer.producer_epoch, producer.current_txn_start_offset)
            for producer in each.active_producers
            if producer.current_txn_start_offset >= 0
        ]
    found = {}
    for where in partitions:
        if where in errors:
            continue
        high = highs[where]
        below = sorted((each for each in opened[where] if each[2] < high), key=lambda each: each[2])
        found[where] = _Log(starts[where], min(stables[where], high), high, tuple(below))
    return found, errors


def _offsets(
    cluster: Cluster,
    node: int,
    by_topic: Mapping[str, Collection[int]],
    timestamp: int,
    isolation: int,
    errors: dict[Where, str],
) -> dict[Where, int]:
    """Send one ListOffsets for all partitions of a leader."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes
            ],
        )
        for topic, indexes in by_topic.items()
    ]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=1_000)
    found = {}
    for topic in cluster.ask_node(node, "list_offsets", request).topics:
        for each in topic.partitions:
            where = (topic.name, each.partition_index)
            if each.error_code:
                errors[where] = error_name(each.error_code)
            found[where] = each.offset
    return found


# -- the coordinators -------------------------------------------------------------------------------------------


def owners_of(asking: Asking, producers: Collection[int], ages: Ages) -> Owners:
    """The transactions of these producers, from all coordinators."""
    state = asking.any("Metadata", lambda: asking.cluster.refresh([STATE_TOPIC]))
    ids = sorted(producers)
    nodes = sorted(asking.cluster.nodes)
    found = asking.each(
        "ListTransactions",
        {node: lambda node: transactions_of(asking.cluster, node, (), ids) for node in nodes},
    )
    led = state is not None and all(each.leader_id in found for topic in state for each in topic.partitions)
    if state is not None and not led:
        asking.note("Some coordinators of transactional ids could not be queried.")
    known = {each.producer_id: transaction_facts(each, ages) for part in found.values() for each in part}
    return Owners(known, frozenset(producers), led and len(found) == len(nodes))


def transaction_facts(at: Transaction, ages: Ages) -> TransactionFacts:
    """Convert the coordinator's view to `TransactionFacts`.

    The age is by the broker's clock if it can be queried, else by the local clock.
    """
    open_ms = None
    if at.start_ms is not None and not at.state.startswith("Prepare"):
        open_ms = ages.open_ms(at)
    return TransactionFacts(
        transactional_id=at.transactional_id,
        state=at.state,
        producer_id=at.producer_id,
        producer_epoch=at.producer_epoch,
        coordinator=at.coordinator,
        timeout_ms=at.timeout_ms,
        open_ms=open_ms,
        decided_ms=None,
        partitions=tuple(f"{topic}-{index}" for topic, index in at.partitions) if at.is_open else (),
    )


# -- settings, and the ends of logs -----------------------------------------------------------------------------


def _min_isr(asking: Asking, placed: Mapping[Where, MetadataResponsePartition]) -> dict[str, int]:
    """min.insync.replicas of topics with incomplete ISRs."""
    topics = sorted({topic for (topic, _), at in placed.items() if len(at.isr_nodes) < len(at.replica_nodes)})
    found = {}
    for topic in topics[:MIN_ISR_MAX]:
        configs = asking.any("DescribeConfigs", partial(describe_configs, asking.cluster, TOPIC, topic))
        for each in configs or ():
            if each.name == "min.insync.replicas" and each.value is not None:
                found[topic] = int(each.value)
    return found


def _with_tails(asking: Asking, found: Mapping[Where, PartitionFacts]) -> dict[Where, PartitionFacts]:
    """Return the facts of at most `TAILS_MAX` partitions, with a `Tail` that describes each log's last records.

    Only partitions that have a leader, records, and no open transaction are read.
    """
    by_leader: dict[int, list[PartitionFacts]] = {}
    count = 0
    for at in found.values():
        is_read = at.high_watermark is not None and at.last_stable == at.high_watermark != at.log_start
        if is_read and at.leader is not None and count < TAILS_MAX:
            by_leader.setdefault(at.leader, []).append(at)
            count += 1
    questions = {
        node: partial(_read_tails, asking.cluster, places=places) for node, places in by_leader.items()
    }
    return {where: at for tails in asking.each("Fetch", questions).values() for where, at in tails.items()}


def _read_tails(cluster: Cluster, node: int, places: Iterable[PartitionFacts]) -> dict[Where, PartitionFacts]:
    return {(at.topic, at.index): _with_tail(cluster, at) for at in places}


def _with_tail(cluster: Cluster, at: PartitionFacts) -> PartitionFacts:
    start, end = at.log_start or 0, at.high_watermark or 0
    first = max(start, end - TAIL_OFFSETS)
    reader = Reader(cluster, at.topic, at.index, READ_UNCOMMITTED, first)
    markers = aborted = 0
    seen_record = first > start
    while reader.offset < end:
        before = reader.offset
        for seen in reader.read():
            if seen.record.offset >= end:
                break
            if seen.outcome in ("", "committed", "open"):
                markers = aborted = 0
                seen_record = True
            elif seen.outcome == "aborted":
                aborted += 1
            else:
                markers += 1
        if reader.offset == before:
            break
    tail = Tail(markers=markers, aborted=aborted, reaches_start=not seen_record)
    return replace(at, tail=tail)
