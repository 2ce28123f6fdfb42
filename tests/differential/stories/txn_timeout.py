"""Transactions that the coordinator aborts after their timeout."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import LONG_POLL_MS, Story, Topic, story


def timed_out(s: Story, new: bool) -> tuple[Topic, Producer]:
    t, p = s.topic(), Producer(s, "tx", timeout=300)
    p.start(t, new)
    s.fetch(t, isolation_level=1, max_wait=LONG_POLL_MS, note="the broker aborts")
    s.settle(p.tx)
    return t, p


@story("txn-timeout")
def new_protocol(s: Story) -> None:
    """After the timeout of a TV2 transaction Produce gets INVALID_PRODUCER_EPOCH.

    A commit gets INVALID_TXN_STATE, and an abort succeeds.
    """
    t, p = timed_out(s, True)
    p.send(t, 1, note="produce")
    s.ask("end_txn", 5, committed=True, note="commit", **p.who())
    s.ask("end_txn", 5, committed=False, note="abort", **p.who())
    body: dict[str, Any] = {
        "transactional_id": p.tx,
        "transaction_timeout": 60000,
        "producer_id": p.pid,
        "producer_epoch": p.epoch,
    }
    s.ask("init_producer_id", 5, note="its own epoch: the current one, no bump", **body)
    s.fetch(t)


@story("txn-timeout")
def old_protocol_on_a_new_cluster(s: Story) -> None:
    """After the timeout of a TV1 transaction the marker has the next epoch, and the producer gets PRODUCER_FENCED."""
    t, p = timed_out(s, False)
    p.add(t, note="add")
    p.add(t, 1, note="add, v1")
    for v in (1, 4):
        for commit_it in (True, False):
            s.ask("end_txn", v, committed=commit_it, **p.who())
    p.send(t, 1, False, note="produce")
    s.fetch(t)


@story("txn-timeout", "tv1")
def old_protocol_on_an_old_cluster(s: Story) -> None:
    t, p = timed_out(s, False)
    p.add(t, note="add")
    for v in (1, 4):
        for commit_it in (True, False):
            s.ask("end_txn", v, committed=commit_it, **p.who())
    p.send(t, 1, False, note="produce")
    body: dict[str, Any] = {
        "transactional_id": p.tx,
        "transaction_timeout": 60000,
        "producer_id": p.pid,
        "producer_epoch": p.epoch,
    }
    s.ask("init_producer_id", 5, note="with its own", **body)
    s.ask("init_producer_id", 5, note="none given", transactional_id=p.tx, transaction_timeout=60000)
    s.fetch(t)
