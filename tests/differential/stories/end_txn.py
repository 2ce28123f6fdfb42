"""EndTxn: each combination of state, result and epoch that is visible to clients."""

from __future__ import annotations

from tests.differential.stories.transactional import FAR, Producer
from tests.differential.story import Story, story


@story("end-txn")
def identity(s: Story) -> None:
    """EndTxn gets INVALID_PRODUCER_ID_MAPPING for unknown ids, and PRODUCER_FENCED for other epochs.

    Before v2 the error for other epochs is INVALID_PRODUCER_EPOCH.
    """
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    for v in range(6):
        for note, changes in (
            ("unknown id", {"transactional_id": s.name("unknown")}),
            ("empty id", {"transactional_id": ""}),
            ("another producer id", {"producer_id": p.pid + FAR}),
            ("lower epoch", {"producer_epoch": p.epoch - 1}),
            ("higher epoch", {"producer_epoch": p.epoch + 1}),
        ):
            s.ask("end_txn", v, committed=True, note=note, **p.who(**changes))
    p.end(True)


def twice(s: Story, p: Producer, v: int, label: str) -> None:
    """Send COMMIT and ABORT in a state that neither of them changes."""
    for commit in (True, False):
        note = f"{label}: {'commit' if commit else 'abort'}"
        s.ask("end_txn", v, committed=commit, note=note, **p.who())


@story("end-txn")
def old_protocol(s: Story) -> None:
    """EndTxn v0-4 with each result in each state, except the Prepare states."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (1, 2, 4):
        twice(s, p, v, "Empty")
    p.start(t, False)
    p.end(True, v=4, note="Ongoing: commit")
    for v in (0, 3, 4):
        twice(s, p, v, "CompleteCommit")
    p.start(t, False, 1)
    p.end(False, v=4, note="Ongoing: abort")
    for v in (0, 3, 4):
        twice(s, p, v, "CompleteAbort")
    s.fetch(t, isolation_level=1)


@story("end-txn")
def new_protocol_commit(s: Story) -> None:
    """EndTxn v5 in CompleteCommit, for each combination of result and epoch. A retry has the epoch before the bump."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    before = p.epoch
    p.end(True, note="Ongoing: commit")
    retry = {"producer_epoch": before}
    s.ask("end_txn", 5, committed=True, note="CompleteCommit: commit retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=False, note="CompleteCommit: abort retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=True, note="CompleteCommit: commit", **p.who())
    s.ask("end_txn", 5, committed=True, note="CompleteCommit: too old", **p.who(producer_epoch=before - 1))
    s.ask("end_txn", 5, committed=True, note="CompleteCommit: too new", **p.who(producer_epoch=before + 2))
    p.end(False, note="CompleteCommit: abort bumps")
    s.fetch(t)


@story("end-txn")
def new_protocol_abort(s: Story) -> None:
    """EndTxn v5 in CompleteAbort, for each combination of result and epoch."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    before = p.epoch
    p.end(False, note="Ongoing: abort")
    retry = {"producer_epoch": before}
    s.ask("end_txn", 5, committed=False, note="CompleteAbort: abort retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=True, note="CompleteAbort: commit retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=True, note="CompleteAbort: commit", **p.who())
    p.end(False, note="CompleteAbort: abort bumps")
    p.end(False, note="and again")
    s.fetch(t)


@story("end-txn")
def new_protocol_empty(s: Story) -> None:
    """EndTxn v5 in Empty, for each combination of result and epoch."""
    p = Producer(s, "tx")
    s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
    retry = {"producer_epoch": p.epoch}
    p.epoch += 1
    s.ask("end_txn", 5, committed=False, note="Empty: abort retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=True, note="Empty: commit retry", **p.who(**retry))
    s.ask("end_txn", 5, committed=True, note="Empty: commit", **p.who())
    p.end(False, note="Empty: abort bumps")


@story("end-txn")
def new_protocol_ongoing_retry(s: Story) -> None:
    """EndTxn v5 with the epoch before the bump gets PRODUCER_FENCED while the next transaction is open."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    before = p.epoch
    p.end(True)
    p.start(t)
    for commit in (True, False):
        s.ask("end_txn", 5, committed=commit, note="Ongoing: retry", **p.who(producer_epoch=before))
    p.end(True)


@story("end-txn")
def begun_new_ended_old(s: Story) -> None:
    """Produce v12 and EndTxn v4 in one transaction: no bump, and the marker has the same epoch. Also the reverse."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    p.end(True, v=4)
    p.add(t, 3)
    p.send(t, 1, False)
    p.end(False, v=5)
    s.fetch(t, isolation_level=1)


@story("end-txn")
def exhausted_epoch(s: Story) -> None:
    """At epoch 32766 EndTxn returns a new producer id with epoch 0, and the marker has the old id with epoch 32767.

    A late retry gets the same response until the next transaction is open.
    """
    t, p = s.topic(), Producer(s, "tx")
    p.exhaust(32766)
    p.start(t)
    old = p.pid
    p.end(True, note="at 32766")
    late = {"producer_id": old, "producer_epoch": 32766}
    s.ask("end_txn", 5, committed=True, note="late retry", **p.who(**late))
    s.ask("end_txn", 5, committed=False, note="late retry, abort", **p.who(**late))
    p.start(t)
    s.ask("end_txn", 5, committed=True, note="late retry in the next", **p.who(**late))
    p.end(True)
    s.fetch(t)
