"""AddPartitionsToTxn and AddOffsetsToTxn."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import FAR, Producer
from tests.differential.story import Story, story


@story("add-partitions")
def identity(s: Story) -> None:
    """AddPartitionsToTxn gets INVALID_PRODUCER_ID_MAPPING for unknown ids, and PRODUCER_FENCED for other epochs.

    Before v2 the error for other epochs is INVALID_PRODUCER_EPOCH.
    """
    t, p = s.topic(), Producer(s, "tx")
    for v in range(6):
        p.add(t, v, note="unknown id", transactional_id=s.name("unknown"))
        p.add(t, v, note="empty id", transactional_id="")
        p.add(t, v, note="another producer id", producer_id=p.pid + FAR)
        p.add(t, v, note="lower epoch", producer_epoch=p.epoch - 1)
        p.add(t, v, note="higher epoch", producer_epoch=p.epoch + 1)


@story("add-partitions")
def all_or_nothing(s: Story) -> None:
    """In AddPartitionsToTxn one unknown partition gets UNKNOWN_TOPIC_OR_PARTITION, the others OPERATION_NOT_ATTEMPTED.

    No partition is added.
    """
    t, p = s.topic(2), Producer(s, "tx")
    missing = s.name("missing")
    for v in (0, 3, 4):
        p.add({t.name: [0, 7], missing: [0]}, v, note="two unknown")
        p.add({t.name: [0, 1], missing: [0]}, v, note="one unknown")
    p.send(t, 0, False, note="it was not added")
    p.add({t.name: [0, 1]}, note="good")
    p.add({t.name: [0]}, note="again: all there")
    p.add({t.name: [0, 0]}, note="twice in one request")
    p.add({}, note="none")
    p.add({t.name: []}, note="a topic without partitions")


@story("add-partitions")
def internal_topics(s: Story) -> None:
    """Up to v3 an internal topic gets TOPIC_AUTHORIZATION_FAILED, as offsets need AddOffsetsToTxn."""
    p = Producer(s, "tx")
    for v in (0, 3, 4):
        p.add({"__consumer_offsets": [0]}, v, note="internal")


@story("add-partitions")
def verify_only(s: Story) -> None:
    """With verify_only (v4 or later) a partition outside the transaction gets TRANSACTION_ABORTABLE."""
    t, p = s.topic(2), Producer(s, "tx")
    for v in (4, 5):
        p.add({t.name: [0]}, v, verify_only=True, note="empty")
    p.add({t.name: [0]}, 4, note="add")
    for v in (4, 5):
        p.add({t.name: [0]}, v, verify_only=True, note="in it")
        p.add({t.name: [0, 1]}, v, verify_only=True, note="one of two")
        p.add({t.name: [0]}, v, verify_only=True, producer_epoch=p.epoch + 1, note="epoch")
        p.add({t.name: [0]}, v, verify_only=True, producer_id=p.pid + FAR, note="producer id")
        p.add({t.name: [0]}, v, verify_only=True, transactional_id=s.name("unknown"), note="unknown id")
        p.add({t.name: [9]}, v, verify_only=True, note="unknown partition")


@story("add-partitions")
def batched(s: Story) -> None:
    """AddPartitionsToTxn v4 may have several transactions in one request, each with its own result."""
    t, p, q = s.topic(), Producer(s, "p"), Producer(s, "q")
    topics = [{"name": t.name, "partitions": [0]}]
    rows = [
        p.who() | {"verify_only": False, "topics": topics},
        q.who() | {"verify_only": True, "topics": topics},
        {
            "transactional_id": s.name("r"),
            "producer_id": 1,
            "producer_epoch": 0,
            "verify_only": False,
            "topics": topics,
        },
    ]
    s.ask("add_partitions_to_txn", 4, transactions=rows)


@story("add-partitions")
def after_a_rotation_of_states(s: Story) -> None:
    """AddPartitionsToTxn in the states Empty, CompleteCommit and CompleteAbort begins a new transaction."""
    t, p = s.topic(), Producer(s, "tx")
    for commit in (True, False, True):
        p.add(t)
        p.end(commit, False)
    p.add(t)


@story("add-offsets")
def errors(s: Story) -> None:
    p, group = Producer(s, "tx"), s.name("g")

    def add(note: str, v: int, group_id: str = group, **changes: Any) -> None:
        s.ask("add_offsets_to_txn", v, retry=(51,), group_id=group_id, note=note, **p.who(**changes))

    for v in range(5):
        add("unknown id", v, transactional_id=s.name("unknown"))
        add("empty id", v, transactional_id="")
        add("another producer id", v, producer_id=p.pid + FAR)
        add("lower epoch", v, producer_epoch=p.epoch - 1)
        add("higher epoch", v, producer_epoch=p.epoch + 1)
    add("empty group", 3, "")
    add("good", 3)
    add("again", 4)
    p.end(True, False)
