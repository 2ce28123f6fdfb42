"""FindCoordinator and InitProducerId."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import LONG_POLL_MS, Body, Story, story

FAR = 900_000_000


@story("find-coordinator")
def types(s: Story) -> None:
    """FindCoordinator has key types 0 (group), 1 (transaction) and from v6 on 2 (share); others get INVALID_REQUEST.

    A successful response has the error message NONE in v1-3, and an empty message from v4 on.
    """
    for v in range(1, 7):
        for kind in (0, 1, 3, -1, 99):
            s.ask("find_coordinator", v, key="a", key_type=kind, coordinator_keys=["a"], note=f"type {kind}")
    for v in (1, 3, 4, 5):
        s.ask("find_coordinator", v, key="a", key_type=2, coordinator_keys=["a"], note="type 2")


@story("find-coordinator")
def keys(s: Story) -> None:
    for v in (0, 1, 3):
        for kind in (0, 1):
            s.ask("find_coordinator", v, key="", key_type=kind, note=f"empty key, type {kind}")
    for kind in (0, 1):
        s.ask("find_coordinator", 4, key_type=kind, coordinator_keys=[], note=f"no keys, type {kind}")
        s.ask(
            "find_coordinator", 4, key_type=kind, coordinator_keys=["", "b", "a"], note=f"three, type {kind}"
        )
        s.ask(
            "find_coordinator", 6, key_type=kind, coordinator_keys=["a", "a"], note=f"one twice, type {kind}"
        )
    s.ask("find_coordinator", 4, key_type=0, coordinator_keys=["ü", "x" * 300], note="long and strange")


# -- InitProducerId ------------------------------------------------------------------------------------------------


def init(s: Story, note: str, tx: str | None, v: int = 5, timeout: int = 60000, **more: Any) -> Body:
    body = {"transactional_id": tx, "transaction_timeout": timeout} | more
    return s.ask("init_producer_id", v, note=note, **body)


def given(p: Producer, epoch: int, pid: int | None = None) -> Body:
    return {"producer_id": p.pid if pid is None else pid, "producer_epoch": epoch}


@story("init-producer-id")
def without_transactional_id(s: Story) -> None:
    """InitProducerId without a transactional id returns a new producer id with epoch 0.

    A request with only one of producer id and epoch gets INVALID_REQUEST.
    """
    for v in (0, 2, 3, 5):
        init(s, "plain", None, v)
    for timeout in (0, -1, FAR):
        init(s, f"timeout {timeout}", None, timeout=timeout)
    init(s, "with an id and an epoch", None, producer_id=5, producer_epoch=3)
    init(s, "id only", None, producer_id=5)
    init(s, "epoch only", None, producer_epoch=5)


@story("init-producer-id")
def bad_requests(s: Story) -> None:
    tx = s.name("tx")
    for v in (0, 2, 3, 4, 5):
        init(s, "empty transactional id", "", v)
    for timeout in (0, -1, 900_001, 2**31 - 1, -(2**31)):
        init(s, f"timeout {timeout}", tx, timeout=timeout)
        init(s, f"timeout {timeout}", tx, 0, timeout=timeout)
    init(s, "timeout 900000", tx, timeout=900_000)
    init(s, "timeout 1", tx, timeout=1)
    init(s, "id only", tx, producer_id=5)
    init(s, "epoch only", tx, producer_epoch=5)
    init(s, "id -2, epoch -2", tx, producer_id=-2, producer_epoch=-2)


@story("init-producer-id")
def in_empty(s: Story) -> None:
    """InitProducerId (KIP-360) in the state Empty, without an epoch, with the current, the previous and other epochs.

    A request with the previous epoch counts as a retry, and gets the current epoch.
    """
    p = Producer(s, "tx")
    init(s, "none given", p.tx)
    init(s, "current", p.tx, **given(p, 1))
    init(s, "last: a retry", p.tx, **given(p, 1))
    init(s, "last again", p.tx, **given(p, 1))
    init(s, "current", p.tx, **given(p, 2))
    init(s, "too old", p.tx, **given(p, 1))
    init(s, "too old, v3", p.tx, 3, **given(p, 1))
    init(s, "too new", p.tx, **given(p, 9))
    init(s, "another id", p.tx, **given(p, 3, p.pid + 1_000_000))
    init(s, "another id, v3", p.tx, 3, **given(p, 3, p.pid + 1_000_000))
    init(s, "none given", p.tx)
    init(s, "the last before that: not kept", p.tx, **given(p, 3))


@story("init-producer-id")
def unknown_id_with_producer(s: Story) -> None:
    """An unknown transactional id with a producer id is accepted, and gets a new producer id."""
    s.normal.symbol("pid", 12345)
    init(s, "unknown", s.name("tx"), producer_id=12345, producer_epoch=7)
    init(s, "unknown, v3", s.name("tx3"), 3, producer_id=12345, producer_epoch=7)


@story("init-producer-id")
def while_ongoing(s: Story) -> None:
    """InitProducerId aborts the open transaction, and gets CONCURRENT_TRANSACTIONS until the abort is complete.

    With TV2 the epoch is raised twice.
    """
    for new in (False, True):
        t, p = s.topic(), Producer(s, f"tx{new}")
        p.start(t, new)
        kind = "TV2" if new else "TV1"
        init(s, f"{kind}, first", p.tx)
        answer = init(s, f"{kind}, at last", p.tx, retry=(51,))
        p.send(t, 0, new=new, note="the old epoch")
        p.epoch = answer["producer_epoch"]
        s.fetch(t, isolation_level=1)
        s.ask("end_txn", 5 if new else 3, committed=True, **p.who(), note="nothing is open")


@story("init-producer-id")
def while_ongoing_with_producer(s: Story) -> None:
    """InitProducerId with a producer id checks the id at once, and the epoch only after the open transaction has ended."""
    p = Producer(s, "tx")
    s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
    p.epoch = 1
    t = s.topic()
    p.start(t)
    init(s, "another id", p.tx, **given(p, p.epoch, p.pid + 1_000_000))
    init(s, "too old", p.tx, **given(p, 0))
    s.settle(p.tx)
    init(s, "too old, at last", p.tx, **given(p, 0), retry=(51,))
    init(s, "too new, at last", p.tx, **given(p, 9), retry=(51,))
    init(s, "its own", p.tx, **given(p, 1), retry=(51,))


@story("init-producer-id")
def after_an_end(s: Story) -> None:
    """InitProducerId in CompleteCommit and CompleteAbort is handled as in Empty.

    After a TV2 end the epoch of the transaction is the previous epoch, so a request with this epoch counts as a retry.
    """
    for new in (False, True):
        for commit in (True, False):
            t, p = s.topic(), Producer(s, f"tx{new}{commit}")
            p.start(t, new)
            old = p.epoch
            p.end(commit, new)
            note = f"{'TV2' if new else 'TV1'} {'commit' if commit else 'abort'}"
            init(s, f"{note}, the epoch of the transaction", p.tx, **given(p, old), retry=(51,))
            init(s, f"{note}, none given", p.tx)


@story("init-producer-id")
def new_timeout(s: Story) -> None:
    """InitProducerId with a new, shorter timeout replaces the old one: the next transaction is aborted after the
    new timeout."""
    t, p = s.topic(), Producer(s, "tx")
    init(s, "a short one", p.tx, timeout=300)
    p.epoch += 1
    p.start(t, True)
    s.fetch(t, isolation_level=1, max_wait=LONG_POLL_MS, note="the abort is awaited")


@story("init-producer-id")
def exhausted_epoch(s: Story) -> None:
    """At epoch 32766 InitProducerId assigns a new producer id, and a retry with epoch 32766 gets the same new id.

    Lower epochs of the old id get an error, and so does the old id after the epoch of the new id was raised.
    """
    p = Producer(s, "tx")
    p.exhaust()
    init(s, "at 32765: one more", p.tx)
    init(s, "too old, exhausted", p.tx, **given(p, 5))
    answer = init(s, "at 32766, its own given: rotated", p.tx, **given(p, 32766))
    init(s, "retry with the old id", p.tx, **given(p, 32766))
    init(s, "old id, another epoch", p.tx, **given(p, 32765))
    init(s, "the new one goes on", p.tx, **given(p, 0, answer["producer_id"]))
    init(s, "the old id again", p.tx, **given(p, 32766))


@story("init-producer-id")
def exhausted_epoch_without_producer(s: Story) -> None:
    p = Producer(s, "tx")
    p.exhaust()
    init(s, "at 32765", p.tx)
    init(s, "at 32766, none given: rotated", p.tx)
    init(s, "the next", p.tx)
    init(s, "the old id", p.tx, **given(p, 32766))
