"""kafka-transactions, with transactions that are open, ended, and hanging."""

from __future__ import annotations

from typing import Any

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, of_one_batch, story

LISTED = Shown(symbols=("ProducerId",), sorted=True)
DESCRIBED = Shown(
    symbols=("ProducerId",), hidden_columns=("TransactionDurationMs", "CurrentTransactionStartTimeMs")
)
PRODUCERS = Shown(symbols=("ProducerId",), sorted=True)
HANGING = Shown(symbols=("ProducerId",), hidden_columns=("LastTimestamp", "Duration(min)"))
HOUR_MS = 3_600_000


@story("kafka-transactions")
def in_every_state(s: ToolStory) -> None:
    orders = s.orders(2)
    s.producer_id(s.name("empty"))
    s.begin("open", orders)
    s.end("committed", s.begin("committed", orders), committed=True)
    s.end("aborted", s.begin("aborted", orders), committed=False)
    s.run("list", show=LISTED)
    s.run(f"list --duration-filter {HOUR_MS}", show=LISTED)
    s.run("list --duration-filter 0", show=LISTED)
    s.run(f"list --transactional-id-pattern {s.name('(open|empty)')}", show=LISTED)
    s.run("list --transactional-id-pattern (", show=LISTED)
    for name in ("empty", "open", "committed", "aborted", "absent"):
        s.run(f"describe --transactional-id {s.name(name)}", show=DESCRIBED)
    s.run(f"describe-producers --topic {orders} --partition 0", show=PRODUCERS)
    s.run(f"describe-producers --topic {orders} --partition 1", show=PRODUCERS)
    s.run(f"describe-producers --topic {orders} --partition 0 --broker-id 1", show=PRODUCERS)
    s.run(f"find-hanging --topic {orders}", show=HANGING)


@story("kafka-transactions")
def forced_to_end(s: ToolStory) -> None:
    orders = s.orders()
    s.begin("open", orders)
    s.run(f"forceTerminateTransaction --transactionalId {s.name('open')}")
    s.settle(s.name("open"))
    s.run(f"describe --transactional-id {s.name('open')}", show=DESCRIBED)
    s.run(f"forceTerminateTransaction --transactionalId {s.name('open')}")
    s.run(f"forceTerminateTransaction --transactionalId {s.name('absent')}")
    s.run(f"describe --transactional-id {s.name('absent')}", show=DESCRIBED)


@story("kafka-transactions")
def on_the_wrong_partition(s: ToolStory) -> None:
    orders = s.orders()
    s.begin("open", orders)
    here = ("--topic", orders, "--partition", 0)
    away = ("--topic", orders, "--partition", 7)
    nowhere = ("--topic", s.name("nowhere"), "--partition", 0)
    soon = ("--bootstrap-server", s.bootstrap, *s.impatient)
    for where in (away, nowhere):
        s.run("describe-producers", *where, "--broker-id 1", at=soon)
    s.run("describe-producers", *here, "--broker-id 7", at=soon)
    s.run("abort", *here, "--start-offset 5")
    s.run("abort", *here)
    s.run("abort", *here, "--producer-id 123456")
    s.run("abort", *here, "--producer-id 123456 --producer-epoch 0 --coordinator-epoch 0")
    s.run("abort", *away, "--producer-id 123456 --producer-epoch 0 --coordinator-epoch 0", at=soon)
    s.run("find-hanging")
    s.run("find-hanging --partition 0")
    s.run(f"find-hanging --topic {s.name('nowhere')}")
    s.run("abort", *here, "--start-offset 0")
    s.run("describe-producers", *here, show=PRODUCERS)


@story("kafka-transactions", profile="unverified")
def hanging(s: ToolStory) -> None:
    """A batch that arrives after the end of its transaction begins a transaction that its coordinator does not have."""
    orders = s.orders()
    transactional_id = s.name("late")
    producer_id, epoch = s.producer_id(transactional_id, version=4)
    begun: dict[str, Any] = {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
    s.quiet(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[{"name": orders, "partitions": [0]}],
    )
    for seq in (0, 1):
        if seq:
            s.quiet("end_txn", 4, **begun, committed=True)
            s.settle(transactional_id)
        data = s.batch(1, pid=producer_id, epoch=epoch, seq=seq, txn=True, ts=s.t0 - HOUR_MS)
        s.quiet("produce", 11, **of_one_batch(orders, data, transactional_id))
    here = ("--topic", orders, "--partition", 0)
    s.run(f"describe --transactional-id {transactional_id}", show=DESCRIBED)
    s.run("describe-producers", *here, show=PRODUCERS)
    s.run(f"find-hanging --topic {orders}", show=HANGING)
    s.run("find-hanging", *here, show=HANGING)
    s.run("find-hanging --broker-id 1", show=HANGING)
    s.run(f"find-hanging --topic {orders} --max-transaction-timeout 600", show=HANGING)
    s.run("abort", *here, "--start-offset 2")
    s.run(f"find-hanging --topic {orders}", show=HANGING)
    s.run("describe-producers", *here, show=PRODUCERS)
