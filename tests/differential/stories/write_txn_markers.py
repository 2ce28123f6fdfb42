"""WriteTxnMarkers, as brokers and kafka-transactions send it."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import Story, Topic, story


def marker(
    s: Story, t: Topic, note: str, pid: int, epoch: int, v: int = 1, commit: bool = True, **more: Any
) -> None:
    topics = more.pop("topics", [{"name": t.name, "partition_indexes": [0]}])
    row = {
        "producer_id": pid,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": topics,
        "coordinator_epoch": 0,
    }
    s.ask("write_txn_markers", v, markers=[row | more], note=note)


@story("write-txn-markers")
def epochs(s: Story) -> None:
    """WriteTxnMarkers checks epochs.

    A lower producer epoch gets INVALID_PRODUCER_EPOCH. With TransactionVersion 2 an equal epoch gets this error too, unless
    no transaction is open (KAFKA-19999); without it an equal epoch is valid. An older coordinator epoch gets
    TRANSACTION_COORDINATOR_FENCED.
    """
    for v, tv in ((1, 0), (2, 0), (2, 1), (2, 2)):
        t, p = s.topic(), Producer(s, f"tx{v}{tv}")
        s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
        p.epoch += 1
        p.start(t)
        more: dict[str, Any] = {"v": v, "transaction_version": tv} if v == 2 else {"v": v}
        kind = f"v{v} TV{tv}"
        marker(s, t, f"{kind}, open, lower", p.pid, p.epoch - 1, **more)
        marker(s, t, f"{kind}, open, equal", p.pid, p.epoch, **more)
        marker(s, t, f"{kind}, equal again", p.pid, p.epoch, **more)
        marker(s, t, f"{kind}, higher", p.pid, p.epoch + 1, coordinator_epoch=3, **more)
        marker(s, t, f"{kind}, coordinator epoch lower", p.pid, p.epoch + 2, coordinator_epoch=2, **more)
        marker(s, t, f"{kind}, coordinator epoch equal", p.pid, p.epoch + 2, coordinator_epoch=3, **more)
        marker(s, t, f"{kind}, 32767", p.pid, 32767, coordinator_epoch=3, **more)
        marker(s, t, f"{kind}, 32767 again", p.pid, 32767, coordinator_epoch=3, **more)
        s.fetch(t, isolation_level=1)


@story("write-txn-markers")
def no_state(s: Story) -> None:
    """A marker of a producer without state in the partition is appended all the same."""
    t = s.topic()
    marker(s, t, "commit", 800_001, 3)
    marker(s, t, "abort", 800_002, 0, commit=False)
    marker(s, t, "commit, TV2", 800_003, 1, 2, transaction_version=2)
    s.fetch(t, isolation_level=1)
    for seq in (4, 0):
        s.produce(t, s.batch(1, pid=800_001, epoch=3, seq=seq), note=f"then sequence {seq}")


@story("write-txn-markers")
def partitions(s: Story) -> None:
    """WriteTxnMarkers for unknown partitions and topics, for none, and with several markers and partitions."""
    t = s.topic(2)
    marker(s, t, "unknown partition", 800_011, 0, topics=[{"name": t.name, "partition_indexes": [0, 7]}])
    marker(s, t, "unknown topic", 800_011, 0, topics=[{"name": s.name("missing"), "partition_indexes": [0]}])
    marker(s, t, "no topics", 800_011, 0, topics=[])
    s.ask("write_txn_markers", 1, markers=[], note="none")
    base = {"transaction_result": True, "coordinator_epoch": 0, "producer_epoch": 0}
    rows = [
        base | {"producer_id": 800_012, "topics": [{"name": t.name, "partition_indexes": [0]}]},
        base | {"producer_id": 800_013, "topics": [{"name": t.name, "partition_indexes": [0, 1]}]},
    ]
    s.ask("write_txn_markers", 1, markers=rows, note="two producers")
    s.fetch([(t, 0, 0), (t, 1, 0)])


@story("write-txn-markers")
def abort_by_hand(s: Story) -> None:
    """A marker of kafka-transactions abort, with the same epoch and TransactionVersion 0, unknown to the coordinator."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    marker(s, t, "abort", p.pid, p.epoch, 1, commit=False)
    s.fetch(t, isolation_level=1)
    p.send(t, 1, note="goes on")
    p.end(True)
    s.fetch(t, isolation_level=1)
