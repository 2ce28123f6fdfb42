"""Delayed requests: a marker that arrives in the next transaction, a batch that arrives after its transaction's
marker.

The old transaction protocol (TV1) accepts both, unless verification refuses the batch. The new protocol (TV2)
refuses both by their epoch.
"""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.stories.write_txn_markers import marker
from tests.differential.story import Story, Topic, story


def look(s: Story, t: Topic, note: str) -> None:
    s.fetch(t, isolation_level=1, note=note)
    s.ask("describe_producers", 0, topics=[{"name": t.name, "partition_indexes": [0]}], note=note)


def late_marker(s: Story, *, new: bool) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.start(t, new)
    coordinated: dict[str, Any] = {"v": 2, "transaction_version": 2} if new else {"v": 1}
    epoch = p.epoch + 1 if new else p.epoch
    p.end(True, new)
    p.start(t, new, 0 if new else 1)
    marker(s, t, "late", p.pid, epoch, **coordinated)
    look(s, t, "after the late one")
    p.send(t, 1 if new else 2, new, note="the other half")
    p.end(False, new)
    look(s, t, "ended")


def late_batch(s: Story, *, new: bool, v: int | None = None) -> None:
    t, p = s.topic(), Producer(s, f"tx{v or ''}")
    p.start(t, new)
    epoch = p.epoch
    p.end(False, new)
    p.send(t, 1, new, v, epoch=epoch, note="late")
    s.produce(t, s.batch(1), note="somebody else")
    look(s, t, "after the late one")
    marker(s, t, "abort by hand", p.pid, epoch, 1, commit=False)
    look(s, t, "repaired")


@story("late")
def marker_of_a_new_one(s: Story) -> None:
    late_marker(s, new=True)


@story("late")
def marker_of_an_old_one(s: Story) -> None:
    late_marker(s, new=False)


@story("late", "tv1")
def marker_at_level_1(s: Story) -> None:
    late_marker(s, new=False)


@story("late")
def batch_of_a_new_one(s: Story) -> None:
    late_batch(s, new=True)


@story("late")
def batch_of_an_old_one(s: Story) -> None:
    for v in (10, 11):
        late_batch(s, new=False, v=v)


@story("late", "tv1")
def batch_at_level_1(s: Story) -> None:
    for v in (10, 11):
        late_batch(s, new=False, v=v)


@story("late", "unverified")
def batch_that_nobody_verifies(s: Story) -> None:
    """Without verification (transaction.partition.verification.enable=false) a late batch leaves a hanging transaction."""
    for v in (10, 11):
        late_batch(s, new=False, v=v)


@story("late", "unverified")
def batch_of_a_new_one_that_nobody_verifies(s: Story) -> None:
    """transaction.partition.verification.enable has no effect on the new protocol, which adds the partition instead."""
    late_batch(s, new=True)
