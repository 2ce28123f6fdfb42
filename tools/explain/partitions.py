"""Where readers of a partition stop, and which transaction holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.messages.describe_producers import ProducerState
from protocol.messages.metadata import MetadataResponsePartition
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader
from tools.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offset
from tools.client.transactions import Transaction, describe_producers, list_transactions
from tools.control import Ages, control_of
from tools.explain.refused import refused_batches
from tools.text import duration_text

TAIL_OFFSETS = 1000
"""So many offsets before the end are read to see what stands there."""


def explain_partition(cluster: Cluster, topic: str, partition: int) -> list[str]:
    """Sentences: the leader, where readers stop, and why."""
    found = [each for each in cluster.topic(topic).partitions if each.partition_index == partition]
    if not found:
        count = len(cluster.topic(topic).partitions)
        raise ToolError(f"{topic} has no partition {partition}: the last is {count - 1}")
    sentences = list(_replicas(topic, found[0]))
    if found[0].leader_id < 0:
        return sentences
    start = list_offset(cluster, topic, partition, EARLIEST)
    stable = list_offset(cluster, topic, partition, LATEST, READ_COMMITTED)
    end = list_offset(cluster, topic, partition, LATEST)
    sentences.append(f"The log begins at offset {start} and ends at {end}.")
    if stable < end:
        sentences += _held(cluster, topic, partition, stable, end)
    else:
        sentences.append("Readers with read_committed read to the end: no transaction is open here.")
        sentences += _markers_at_the_end(cluster, topic, partition, start, end)
    return sentences + list(refused_batches(control_of(cluster), topic, partition))


def _replicas(topic: str, at: MetadataResponsePartition) -> Iterator[str]:
    name = f"{topic}-{at.partition_index}"
    missing = sorted(set(at.replica_nodes) - set(at.isr_nodes))
    if at.leader_id < 0:
        yield (
            f"{name} has no leader: its replicas are on {_nodes(at.replica_nodes)}, "
            f"and of its ISR, {_nodes(at.isr_nodes)}, none runs."
        )
        return
    yield f"Node {at.leader_id} leads {name} in leader epoch {at.leader_epoch}."
    if missing:
        yield (
            f"{_nodes(missing).capitalize()} fell out of the ISR, which is {_nodes(at.isr_nodes)}. "
            "With acks=all a record is acknowledged once all of the ISR have it."
        )


def _nodes(ids: Sequence[int]) -> str:
    return ("node " if len(ids) == 1 else "nodes ") + ", ".join(map(str, ids)) if ids else "no node"


def _held(cluster: Cluster, topic: str, partition: int, stable: int, end: int) -> Iterator[str]:
    """The open transactions, the one that holds the last stable offset first."""
    producers = [
        each for each in describe_producers(cluster, topic, partition) if each.current_txn_start_offset >= 0
    ]
    by_id = {
        each.producer_id: each
        for each in list_transactions(cluster, (), [each.producer_id for each in producers])
    }
    ages = Ages(cluster)
    for each in sorted(producers, key=lambda each: each.current_txn_start_offset):
        first = each.current_txn_start_offset
        known = by_id.get(each.producer_id)
        behind = f"{end - first} offset{'s' * (end - first != 1)} at or behind it"
        if first == stable:
            yield (
                f"Readers with read_committed stop at {stable}: producer {each.producer_id} "
                f"{_of_id(known)}, epoch {each.producer_epoch}, has an open transaction that begins there, with {behind}."
            )
        else:
            who = f"of producer {each.producer_id} {_of_id(known)}"
            yield f"Another open transaction, {who}, begins at {first}, with {behind}."
        yield _its_end(topic, partition, each, known, ages)


def _of_id(known: Transaction | None) -> str:
    return "of an unknown transactional id" if known is None else f"of {known.transactional_id}"


def _its_end(
    topic: str, partition: int, producer: ProducerState, known: Transaction | None, ages: Ages
) -> str:
    """How the transaction will end: by the client, by its time-out, or never."""
    abort = f"odradek txn abort --partition {topic}/{partition} --start-offset {producer.current_txn_start_offset}"
    if known is None:
        return f"It hangs: no coordinator knows producer {producer.producer_id}. Abort it: {abort}"
    if not known.is_open or (topic, partition) not in known.partitions:
        return (
            f"It hangs: for its coordinator, node {known.coordinator}, {known.transactional_id} is {known.state}, "
            f"without {topic}-{partition}. Abort it: {abort}"
        )
    if known.state.startswith("Prepare"):
        return f"The coordinator, node {known.coordinator}, has decided ({known.state}): its marker is on the way."
    opened = ages.open_ms(known)
    left = known.timeout_ms - opened
    ends = (
        f"times out in {duration_text(left)}"
        if left > 0
        else f"is past its time-out by {duration_text(-left)}"
    )
    return (
        f"It has been open for {duration_text(opened)} and {ends}. "
        f"The client ends it, or: odradek txn abort {known.transactional_id}"
    )


def _markers_at_the_end(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> Iterator[str]:
    """A consumer's position is behind the last record that it got, and so below markers at the end."""
    reader = Reader(cluster, topic, partition, READ_UNCOMMITTED, max(start, end - TAIL_OFFSETS))
    hidden = 0
    while not reader.at_end:
        for seen in reader.read():
            hidden = hidden + 1 if seen.outcome not in ("", "committed") else 0
    if hidden >= end - start:
        yield "The log holds no record for them, but markers or aborted records."
    elif hidden:
        held, what = (
            ("offset holds", "a marker or an aborted record")
            if hidden == 1
            else (f"{hidden} offsets hold", "markers or aborted records")
        )
        yield (
            f"The last {held} no record for them, but {what}: "
            f"the last record that they get stands below {end - hidden}, and a lag of {hidden} may be nothing."
        )
