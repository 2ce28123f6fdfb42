"""Requests between the response to EndTxn and the completion of the transaction.

When Kafka responds to EndTxn, the completion is already pending, so clients cannot see the Prepare states. The tests of
the state machine contain requests in these states.
"""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import FAR, Producer
from tests.differential.story import Body, Story, story


def behind(s: Story, p: Producer, end: Body, v: int, api: str, av: int, note: str, **body: Any) -> None:
    """Send EndTxn and another request in one packet.

    Markers are held until the second response, so that the second request arrives before the completion.
    """
    with s.hold_markers():
        first = s.send("end_txn", v, **end)
        second = s.send(api, av, note=note, **body)
        answer = s.receive(first)
        assert answer["error_code"] == 0, answer
        s.take(second)
    if v >= 5:
        p.pid, p.epoch = answer["producer_id"], answer["producer_epoch"]
    s.settle(p.tx)


@story("txn-window", "order")
def old_protocol(s: Story) -> None:
    """After EndTxn v0-4 the completion is pending: requests get errors for wrong ids, otherwise CONCURRENT_TRANSACTIONS."""
    t, p = s.topic(), Producer(s, "tx")
    seq = 0
    for commit_it in (True, False):
        state = "PrepareCommit" if commit_it else "PrepareAbort"
        add = {f"v3_and_below_{k}": value for k, value in p.who().items()}
        add["v3_and_below_topics"] = [{"name": t.name, "partitions": [0]}]
        for note, api, v, body in (
            ("commit", "end_txn", 4, p.who(committed=True)),
            ("abort", "end_txn", 4, p.who(committed=False)),
            ("another producer id", "end_txn", 4, p.who(committed=True, producer_id=p.pid + FAR)),
            ("another epoch", "end_txn", 4, p.who(committed=True, producer_epoch=p.epoch + 1)),
            ("add", "add_partitions_to_txn", 3, add),
            ("init", "init_producer_id", 4, {"transactional_id": p.tx, "transaction_timeout": 60000}),
        ):
            p.start(t, False, seq)
            seq += 1
            behind(s, p, p.who(committed=commit_it), 4, api, v, f"{state}: {note}", **body)


@story("txn-window", "order")
def new_protocol(s: Story) -> None:
    """After EndTxn v5 another EndTxn gets CONCURRENT_TRANSACTIONS, whatever its epoch."""
    t, p = s.topic(), Producer(s, "tx")
    for commit_it in (True, False):
        state = "PrepareCommit" if commit_it else "PrepareAbort"
        for note, changes in (
            ("commit retry", {"committed": True}),
            ("abort retry", {"committed": False}),
            ("commit, new epoch", {"committed": True, "producer_epoch": 1}),
            ("abort, new epoch", {"committed": False, "producer_epoch": 1}),
            ("commit, too old", {"committed": True, "producer_epoch": -1}),
        ):
            p.start(t)
            moved = {k: (value + p.epoch if k == "producer_epoch" else value) for k, value in changes.items()}
            end = p.who(committed=commit_it)
            behind(s, p, end, 5, "end_txn", 5, f"{state}: {note}", **p.who(**moved))


@story("txn-window", "order")
def init_producer(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    for commit_it in (True, False):
        p.start(t)
        body = {"transactional_id": p.tx, "transaction_timeout": 60000}
        behind(s, p, p.who(committed=commit_it), 5, "init_producer_id", 4, "none given", **body)
        p.start(t)
        body |= {"producer_id": p.pid, "producer_epoch": p.epoch}
        behind(s, p, p.who(committed=commit_it), 5, "init_producer_id", 4, "the old epoch", **body)


@story("txn-window")
def markers_first(s: Story) -> None:
    """By default our broker writes markers before it responds to EndTxn: later requests get no CONCURRENT_TRANSACTIONS."""
    t, p = s.topic(), Producer(s, "tx")
    for seq in range(2):
        p.start(t, False, seq)
        add = {f"v3_and_below_{k}": value for k, value in p.who().items()}
        add["v3_and_below_topics"] = [{"name": t.name, "partitions": [0]}]
        end = p.who(committed=True)
        behind(s, p, end, 4, "add_partitions_to_txn", 3, "right behind EndTxn", **add)
        p.add(t)


@story("txn-window", "order")
def batch_that_waits(s: Story) -> None:
    """Produce v12 right after EndTxn v4, to a partition of the transaction without data, is appended.

    Its verification guard is created before the marker, and the batch has the marker's epoch.
    """
    t, p = s.topic(), Producer(s, "tx")
    for seq in range(3):
        p.add(t)
        end = s.send("end_txn", 4, committed=seq != 1, **p.who())
        s.receive(end)
        p.send(t, seq, note="the next transaction")
        p.end(True, False)
    s.fetch(t, isolation_level=1)
