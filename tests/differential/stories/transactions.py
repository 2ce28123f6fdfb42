"""The transaction coordinator and what transactions do to partitions: every error a client of one node can meet.

On Kafka the markers follow the answer to EndTxn: stories that do not test that window wait for its end (settle, retry on
51). In the window the completion is already pending, so the cells of the Prepare states cannot be seen from outside:
they are left to the tests of the state machine."""

from __future__ import annotations

import time
from typing import Any

from tests.differential.story import Body, Story, Topic, story

FAR = 1_000_000


class Producer:
    """A transactional producer that keeps its id, epoch and sequences."""

    def __init__(self, s: Story, suffix: str, timeout: int = 60000) -> None:
        self.s, self.tx = s, s.name(suffix)
        self.pid, self.epoch = s.producer_id(self.tx, timeout)
        self.sequences: dict[tuple[Topic, int], int] = {}

    def who(self, **changes: Any) -> Body:
        return {"transactional_id": self.tx, "producer_id": self.pid, "producer_epoch": self.epoch} | changes

    def add(self, topics: Topic | dict[str, list[int]], v: int = 3, retry: Any = (51,), note: str = "", **more: Any) -> Body:
        """AddPartitionsToTxn of one transaction, in the shape of its version."""
        parts = {topics.name: [0]} if isinstance(topics, Topic) else topics
        rows = [{"name": name, "partitions": partitions} for name, partitions in parts.items()]
        who = self.who(**{k: value for k, value in more.items() if k != "verify_only"})
        if v < 4:
            body = {f"v3_and_below_{k}": value for k, value in who.items()} | {"v3_and_below_topics": rows}
        else:
            body = {"transactions": [who | {"topics": rows, "verify_only": more.get("verify_only", False)}]}
        return self.s.ask("add_partitions_to_txn", v, retry=retry, note=note, **body)

    def send(
        self, t: Topic, seq: int, new: bool = True, v: int | None = None, count: int = 1, note: str = "", **more: Any
    ) -> Body:
        """One transactional batch: Produce v12 adds its partition itself, v11 and v10 only verify."""
        fields = {k: more.pop(k) for k in ("pid", "epoch") if k in more}
        data = self.s.batch(count, **({"pid": self.pid, "epoch": self.epoch, "seq": seq, "txn": True} | fields))
        more.setdefault("tx", self.tx)
        more.setdefault("retry", (51,) if new else ())
        return self.s.produce(t, data, v=v if v is not None else (12 if new else 11), note=note, **more)

    def start(self, t: Topic, new: bool = True, seq: int = 0) -> None:
        if not new:
            self.add(t)
        self.send(t, seq, new)

    def end(self, commit: bool, new: bool = True, v: int | None = None, note: str = "", settle: bool = True) -> Body:
        version = v if v is not None else (5 if new else 3)
        answer = self.s.ask("end_txn", version, committed=commit, note=note, **self.who())
        if version >= 5 and answer["error_code"] == 0:
            self.s.normal.symbol("pid", answer["producer_id"])
            self.pid, self.epoch = answer["producer_id"], answer["producer_epoch"]
        if settle:
            self.s.settle(self.tx)
        return answer

    def exhaust(self, to: int = 32765) -> None:
        """Moves the epoch up to `to` by asking for it again and again, many requests on the way at a time."""
        left = to - self.epoch
        while left > 0:
            step = min(left, 1000)
            body = {"transactional_id": self.tx, "transaction_timeout": 60000}
            asked = [self.s.send("init_producer_id", 4, on="exhaust", **body) for _ in range(step)]
            answers = [self.s.receive(pending) for pending in asked]
            self.epoch = answers[-1]["producer_epoch"]
            left -= step
        assert self.epoch == to, self.epoch


# -- AddPartitionsToTxn --------------------------------------------------------------------------------------------


@story("add-partitions")
def identity(s: Story) -> None:
    """Unknown id 49, other producer id 49, other epoch 90 (47 before v2), no id 42."""
    t, p = s.topic(), Producer(s, "tx")
    for v in range(6):
        p.add(t, v, note="unknown id", transactional_id=s.name("unknown"))
        p.add(t, v, note="empty id", transactional_id="")
        p.add(t, v, note="another producer id", producer_id=p.pid + FAR)
        p.add(t, v, note="lower epoch", producer_epoch=p.epoch - 1)
        p.add(t, v, note="higher epoch", producer_epoch=p.epoch + 1)


@story("add-partitions")
def all_or_nothing(s: Story) -> None:
    """One unknown partition: 3 for it, 55 for the rest, nothing is added."""
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
    """In v3 and below an internal topic is 29: offsets go through AddOffsetsToTxn."""
    p = Producer(s, "tx")
    for v in (0, 3, 4):
        p.add({"__consumer_offsets": [0]}, v, note="internal")


@story("add-partitions")
def verify_only(s: Story) -> None:
    """v4+: a partition that is not in the transaction is TRANSACTION_ABORTABLE (120)."""
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
    """v4+: several transactions in one request, each with its own result."""
    t, p, q = s.topic(), Producer(s, "p"), Producer(s, "q")
    topics = [{"name": t.name, "partitions": [0]}]
    rows = [
        p.who() | {"verify_only": False, "topics": topics},
        q.who() | {"verify_only": True, "topics": topics},
        {"transactional_id": s.name("r"), "producer_id": 1, "producer_epoch": 0, "verify_only": False, "topics": topics},
    ]
    s.ask("add_partitions_to_txn", 4, transactions=rows)


@story("add-partitions")
def after_a_rotation_of_states(s: Story) -> None:
    """In Ongoing, CompleteCommit, CompleteAbort."""
    t, p = s.topic(), Producer(s, "tx")
    for commit in (True, False, True):
        p.add(t)
        p.end(commit, False)
    p.add(t)


# -- AddOffsetsToTxn -----------------------------------------------------------------------------------------------


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


# -- Produce -------------------------------------------------------------------------------------------------------


@story("txn-produce")
def verification(s: Story) -> None:
    """A partition that was not added: 48 up to v10, 120 in v11; v12 adds it (KIP-890)."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (3, 7, 8, 10, 11):
        p.send(t, 0, False, v=v, note="not added, no transaction")
    other = s.topic()
    p.add(other)
    for v in (3, 10, 11):
        p.send(t, 0, False, v=v, note="not added, another one was")
    p.send(t, 0, v=12, note="adds itself")
    p.send(t, 1, False, v=3, note="from now on no question")
    p.send(t, 2, v=13)
    p.end(True)
    s.fetch(t, isolation_level=1)


@story("txn-produce")
def identity(s: Story) -> None:
    """Wrong epoch is 47 (the log's code, not 90), wrong producer id 49."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (3, 10, 11, 12):
        p.send(t, 0, v=v, epoch=p.epoch + 1, note="higher epoch")
        p.send(t, 0, v=v, pid=p.pid + FAR, note="another producer id")
        p.send(t, 0, v=v, tx=s.name("unknown"), note="unknown id")
        p.send(t, 0, v=v, tx="", note="empty id")
    s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
    for v in (3, 10, 11, 12):
        p.send(t, 0, v=v, note="lower epoch")
    s.fetch(t)


@story("txn-produce")
def two_producers_in_one_request(s: Story) -> None:
    """49 for the whole request."""
    t, p, q = s.topic(3), Producer(s, "p"), Producer(s, "q")
    one = s.batch(1, pid=p.pid, epoch=p.epoch, seq=0, txn=True)
    two = s.batch(1, pid=q.pid, epoch=q.epoch, seq=0, txn=True)
    three = s.batch(1, pid=p.pid, epoch=p.epoch + 1, seq=0, txn=True)
    for v in (11, 12):
        s.produce([(t, 0, one), (t, 1, two)], v=v, tx=p.tx)
        s.produce([(t, 0, one), (t, 1, three)], v=v, tx=p.tx, note="two epochs")
    s.produce([(t, 0, one), (t, 1, s.batch(1))], v=12, tx=p.tx, note="one plain")


@story("txn-produce")
def sequences(s: Story) -> None:
    """TV2 begins each transaction at 0, and a refused higher sequence does not let others pass; TV1 goes on counting."""
    t, p = s.topic(), Producer(s, "tx")
    p.send(t, 5, note="TV2, first 5")
    p.send(t, 7, note="TV2, then 7")
    p.send(t, 0, note="TV2, 0")
    p.send(t, 0, note="TV2, 0 again")
    p.send(t, 2, note="TV2, gap")
    p.send(t, 1, note="TV2, 1")
    p.end(True)
    p.send(t, 2, note="TV2, next transaction, 2")
    p.send(t, 0, note="TV2, next transaction, 0")
    p.end(True)
    u, q = s.topic(), Producer(s, "old")
    for seq in (3, 4):
        q.add(u)
        q.send(u, seq, False, note=f"TV1, {seq}")
        q.end(True, False)
    q.add(u)
    q.send(u, 0, False, note="TV1, 0 in a later transaction")
    q.send(u, 5, False, note="TV1, 5")
    q.end(False, False)


@story("txn-produce")
def add_succeeds_append_fails(s: Story) -> None:
    """The partition stays in the transaction and gets a marker."""
    t, u, p = s.topic(), s.topic(), Producer(s, "tx")
    p.send(u, 0)
    p.send(t, 4, note="wrong sequence")
    p.end(True)
    s.fetch(t, note="a marker alone")
    s.fetch(u)


@story("txn-produce")
def retries_after_the_end(s: Story) -> None:
    """A retry of a batch of a completed transaction: TV1 120 or 48, TV2 47."""
    t, p = s.topic(), Producer(s, "tx")
    old = p.epoch
    p.send(t, 0)
    p.end(True)
    for v in (11, 12):
        p.send(t, 0, v=v, epoch=old, note="TV2 batch again")
    u, q = s.topic(), Producer(s, "old")
    q.start(u, False)
    q.end(True, False)
    for v in (10, 11):
        q.send(u, 0, False, v=v, note="TV1 batch again")


@story("txn-produce")
def plain_in_a_transaction(s: Story) -> None:
    """While a transaction of the producer is open on the partition its plain batches are 48."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    s.produce(t, s.batch(1, pid=p.pid, epoch=p.epoch, seq=1), v=12, tx=p.tx, note="plain, same producer")
    s.produce(t, s.batch(1), note="plain, no producer")
    p.send(t, 1, note="goes on")
    p.end(True)
    s.produce(t, s.batch(1, pid=p.pid, epoch=p.epoch, seq=0), note="plain after it")


@story("txn-produce")
def refused_before_the_coordinator(s: Story) -> None:
    """Checks that come before and after the add."""
    t, p = s.topic(), Producer(s, "tx")
    good = {"pid": p.pid, "epoch": p.epoch, "seq": 0, "txn": True}
    s.produce(t, s.batch(1, crc=1, **good), v=12, tx=p.tx, note="CRC")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, acks=3, note="acks 3")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, partition=9, note="unknown partition")
    s.produce(t, s.batch(1, **good) * 2, v=12, tx=p.tx, note="two batches")
    s.produce(t, s.batch(1, **good), v=12, tx=p.tx, acks=1, retry=(51,), note="acks 1")
    p.end(True)
    s.fetch(t)


@story("txn-produce")
def large_transaction_of_many_partitions(s: Story) -> None:
    t, p = s.topic(5), Producer(s, "tx")
    rows = [(t, n, s.batch(2, pid=p.pid, epoch=p.epoch, seq=0, txn=True)) for n in range(5)]
    s.produce(rows, v=12, tx=p.tx, retry=(51,))
    p.end(False)
    s.fetch([(t, n, 0) for n in range(5)], isolation_level=1)


# -- EndTxn --------------------------------------------------------------------------------------------------------


@story("end-txn")
def identity(s: Story) -> None:
    """Unknown 49, no id 42, producer id 49, epoch 90 (47 before v2), -1/-1 in a v5 error."""
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
    """COMMIT and ABORT in a state that neither changes."""
    for commit in (True, False):
        note = f"{label}: {'commit' if commit else 'abort'}"
        s.ask("end_txn", v, committed=commit, note=note, **p.who())


@story("end-txn")
def old_protocol(s: Story) -> None:
    """Every cell of the table for v0-4 but the Prepare states."""
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
    """Every cell for v5: CompleteCommit. A commit retry carries the epoch before the bump."""
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
    """Every cell for v5: CompleteAbort."""
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
    """Every cell for v5: Empty."""
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
    """A retry from before the bump while the next transaction is open: 90."""
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
    """Produce v12, EndTxn v4: no bump, the marker has the same epoch. And the reverse."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    p.end(True, v=4)
    p.add(t, 3)
    p.send(t, 1, False)
    p.end(False, v=5)
    s.fetch(t, isolation_level=1)


@story("end-txn")
def exhausted_epoch(s: Story) -> None:
    """At 32766 the answer carries a new producer id with epoch 0, the marker the old one with 32767; a late retry is
    answered as the first, until the next transaction is open."""
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


# -- TxnOffsetCommit -----------------------------------------------------------------------------------------------


def commit(s: Story, p: Producer, t: Topic, note: str, v: int = 3, **more: Any) -> None:
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    row |= {k: more.pop(k) for k in list(more) if k in row}
    body = p.who() | {"group_id": s.name("g"), "topics": [{"name": t.name, "partitions": [row]}]} | more
    s.ask("txn_offset_commit", v, retry=(51,), note=note, **body)


def committed(s: Story, t: Topic, note: str, stable: bool = False, v: int = 7) -> None:
    topics = [{"name": t.name, "partition_indexes": [0]}]
    s.ask("offset_fetch", v, group_id=s.name("g"), topics=topics, require_stable=stable, note=note)


@story("txn-offsets")
def verification(s: Story) -> None:
    """The offsets partition was not added: 48 up to v3, 120 in v4, v5 adds it."""
    t, p = s.topic(), Producer(s, "tx")
    for v in (0, 2, 3, 4):
        commit(s, p, t, "not added", v)
    commit(s, p, t, "adds itself", 5)
    commit(s, p, t, "now it is there", 3)
    p.end(True)
    committed(s, t, "visible")


@story("txn-offsets")
def identity(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    s.ask("add_offsets_to_txn", 3, group_id=s.name("g"), **p.who())
    for v in (0, 2, 3, 4, 5):
        commit(s, p, t, "higher epoch", v, producer_epoch=p.epoch + 1)
        commit(s, p, t, "lower epoch", v, producer_epoch=p.epoch - 1)
        commit(s, p, t, "another producer id", v, producer_id=p.pid + FAR)
        commit(s, p, t, "unknown id", v, transactional_id=s.name("unknown"))
        commit(s, p, t, "empty id", v, transactional_id="")
        commit(s, p, t, "empty group", v, group_id="")
    p.end(False, False)


@story("txn-offsets")
def partitions(s: Story) -> None:
    """Unknown ones are 3, the others go on; metadata that is too long is 12."""
    t, p = s.topic(), Producer(s, "tx")
    good = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    rows = [
        {"name": t.name, "partitions": [good, good | {"partition_index": 8}]},
        {"name": s.name("missing"), "partitions": [good]},
    ]
    for v in (3, 5):
        s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=s.name("g"), **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=rows, **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=rows[1:], note="only unknown", **p.who())
        s.ask("txn_offset_commit", v, group_id=s.name("g"), topics=[], note="none", **p.who())
        commit(s, p, t, "4096 of metadata", v, committed_metadata="x" * 4096)
        commit(s, p, t, "4097 of metadata", v, committed_metadata="x" * 4097)
        commit(s, p, t, "negative offset", v, committed_offset=-5)
        commit(s, p, t, "null metadata", v, committed_metadata=None)


@story("txn-offsets")
def group_checks(s: Story) -> None:
    """Generation and member against a group that is unknown, then against one that is empty."""
    t, p = s.topic(), Producer(s, "tx")
    s.ask("add_offsets_to_txn", 3, group_id=s.name("g"), **p.who())
    commit(s, p, t, "unknown group, generation 0", generation_id=0, member_id="m")
    commit(s, p, t, "unknown group, generation 5, no member", generation_id=5)
    commit(s, p, t, "unknown group, member", member_id="m")
    commit(s, p, t, "simple group, member", member_id="m")
    commit(s, p, t, "simple group, generation 0", generation_id=0, member_id="m")
    commit(s, p, t, "simple group, instance", group_instance_id="i", member_id="m")
    p.end(True, False)
    committed(s, t, "visible")


@story("txn-offsets")
def visibility(s: Story) -> None:
    """Pending offsets are not seen; require_stable answers 88 with -1; an abort drops them."""
    t, p = s.topic(), Producer(s, "tx")
    plain = [{"name": t.name, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "p"}]}]
    s.ask("offset_commit", 8, group_id=s.name("g"), member_id="", topics=plain)
    commit(s, p, t, "7", 5)
    for v in (1, 6, 7, 8, 9):
        _committed_in(s, t, "pending", v, False)
    for v in (7, 8, 9):
        _committed_in(s, t, "pending, stable", v, True)
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=True, note="pending, all, stable")
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=False, note="pending, all")
    p.end(False)
    committed(s, t, "aborted", True)
    commit(s, p, t, "7 again", 5)
    p.end(True)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True, note="committed")


def _committed_in(s: Story, t: Topic, note: str, v: int, stable: bool) -> None:
    topics = [{"name": t.name, "partition_indexes": [0]}]
    groups = [{"group_id": s.name("g"), "topics": topics}]
    body: Body = {"group_id": s.name("g"), "topics": topics} if v < 8 else {"groups": groups}
    s.ask("offset_fetch", v, require_stable=stable, note=note, **body)


@story("txn-offsets")
def only_pending(s: Story) -> None:
    """A group that has pending offsets only: all topics, stable, lists none of them."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=True, note="all, stable")
    s.ask("offset_fetch", 7, group_id=s.name("g"), topics=None, require_stable=False, note="all")
    committed(s, t, "named, stable", True)
    committed(s, t, "named")
    s.ask("list_groups", 4)
    s.ask("describe_groups", 5, groups=[s.name("g")])
    p.end(True)


@story("txn-offsets")
def later_plain_commit_wins(s: Story) -> None:
    """A commit marker makes a pending offset visible only if its record is later than the visible one's."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    plain = [{"name": t.name, "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}]}]
    s.ask("offset_commit", 8, group_id=s.name("g"), member_id="", topics=plain)
    committed(s, t, "still pending", True)
    p.end(True)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True)


@story("txn-offsets")
def deletion_drops_pending(s: Story) -> None:
    """DeleteGroups and OffsetDelete drop a pending offset; the commit does not bring it back."""
    t, p = s.topic(), Producer(s, "tx")
    commit(s, p, t, "7", 5)
    parts = [{"name": t.name, "partitions": [{"partition_index": 0}]}]
    s.ask("offset_delete", 0, group_id=s.name("g"), topics=parts)
    committed(s, t, "after OffsetDelete", True)
    commit(s, p, t, "7 again", 5)
    s.ask("delete_groups", 2, groups_names=[s.name("g")])
    committed(s, t, "after DeleteGroups", True)
    p.end(True)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True, note="after the commit")


@story("txn-offsets")
def two_transactions(s: Story) -> None:
    """Of two pending offsets the later record wins, whichever commits last."""
    t, p, q = s.topic(), Producer(s, "p"), Producer(s, "q")
    commit(s, p, t, "7 by p", 5)
    commit(s, q, t, "9 by q", 5, committed_offset=9)
    q.end(True)
    committed(s, t, "q committed, p pending", True)
    committed(s, t, "q committed, p pending")
    p.end(True)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True, note="both committed")


@story("txn-offsets")
def whole_transaction(s: Story) -> None:
    """Data and offsets of one transaction, TV1."""
    t, p = s.topic(), Producer(s, "tx")
    p.add(t)
    p.send(t, 0, False)
    s.ask("add_offsets_to_txn", 3, retry=(51,), group_id=s.name("g"), **p.who())
    commit(s, p, t, "7", 3, generation_id=-1)
    p.end(True, False)
    s.ask("offset_fetch", 7, retry=(88,), group_id=s.name("g"), topics=None, require_stable=True)
    s.fetch(t, isolation_level=1)


# -- what readers see ----------------------------------------------------------------------------------------------


def listed(s: Story, t: Topic, note: str, timestamp: int = -1) -> None:
    for isolation in (0, 1):
        row = {"partition_index": 0, "timestamp": timestamp}
        body = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": t.name, "partitions": [row]}]}
        s.ask("list_offsets", 7, note=f"{note}, isolation {isolation}", **body)


@story("isolation")
def one_commit(s: Story) -> None:
    """Trace A: one partition, TV2. The last stable offset, the marker, the empty aborted list."""
    t, p = s.topic(), Producer(s, "tx")
    p.end(False, note="abort with nothing added moves the epoch")
    p.send(t, 0)
    p.send(t, 1, count=2)
    for v in (4, 11, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="open")
        s.fetch(t, v=v, isolation_level=0, note="open")
    listed(s, t, "open")
    listed(s, t, "open, by time", s.t0)
    listed(s, t, "open, max timestamp", -3)
    p.end(True)
    for v in (4, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="committed")
    listed(s, t, "committed")
    listed(s, t, "committed, by time", s.t0)
    listed(s, t, "committed, max timestamp", -3)


@story("isolation")
def one_abort(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.send(t, 0, count=2)
    p.end(False)
    for v in (4, 12, 18):
        s.fetch(t, v=v, isolation_level=1, note="aborted")
        s.fetch(t, v=v, isolation_level=0, note="aborted, uncommitted")
    s.fetch(t, 1, isolation_level=1, note="from its second record")
    s.fetch(t, 2, isolation_level=1, note="from the marker")
    s.fetch(t, 3, isolation_level=1, note="from behind")
    listed(s, t, "aborted")
    listed(s, t, "aborted, by time", s.t0)


@story("isolation")
def overlapping_aborts(s: Story) -> None:
    """Trace F: the aborted list is in the order of the markers, not of the first offsets."""
    t, a, b = s.topic(), Producer(s, "a"), Producer(s, "b")
    a.send(t, 0)
    b.send(t, 0)
    s.produce(t, s.batch(1), note="plain behind an open transaction")
    b.end(False)
    s.fetch(t, isolation_level=1, note="b aborted, a open")
    began = time.monotonic()
    s.fetch(t, isolation_level=1, max_wait=500, note="the long poll waits for the last stable offset")
    s.put("waited", 0.4 < time.monotonic() - began < 3)
    listed(s, t, "b aborted, a open")
    a.end(False)
    for offset in (0, 1, 2, 3, 4, 5):
        s.fetch(t, offset, isolation_level=1, note=f"both aborted, from {offset}")


@story("isolation")
def many_transactions(s: Story) -> None:
    """Commits and aborts of three producers in turn."""
    t = s.topic()
    producers = [Producer(s, f"p{n}") for n in range(3)]
    for n in range(9):
        p = producers[n % 3]
        p.send(t, 0)
        p.end(n % 2 == 0)
    for offset in (0, 4, 9, 14, 17, 18):
        s.fetch(t, offset, isolation_level=1, note=f"from {offset}")
    s.fetch(t, 0, isolation_level=1, partition_max_bytes=300, note="300 bytes")


@story("isolation")
def a_marker_wakes_the_long_poll(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    rows = {"topics": [{"topic": t.name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9999}]}]}
    began = time.monotonic()
    wait = {"replica_id": -1, "max_wait": 8000, "min_bytes": 1, "isolation_level": 1, "session_epoch": -1}
    waiting = s.send("fetch", 12, on="reader", **wait, **rows)
    time.sleep(0.2)
    p.send(t, 1, note="more of the transaction")
    time.sleep(0.2)
    p.end(True)
    s.take(waiting)
    s.put("woke", time.monotonic() - began < 6)


@story("isolation")
def sessions(s: Story) -> None:
    """A move of the last stable offset alone is told only when the high watermark moved too."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    answer = s.fetch(t, session_epoch=0, isolation_level=1, note="new")
    more = {"session_id": answer["session_id"], "isolation_level": 1}
    s.fetch([], session_epoch=1, **more, note="nothing")
    p.end(True)
    s.fetch([], session_epoch=2, **more, note="committed")


@story("isolation")
def delete_records_into_a_transaction(s: Story) -> None:
    """After DeleteRecords past the start of an open transaction the last stable offset is the log start."""
    t, p = s.topic(), Producer(s, "tx")
    s.produce(t, s.batch(2))
    p.send(t, 0, count=4)
    row = {"partition_index": 0, "offset": 4}
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": [row]}], timeout=10000)
    s.fetch(t, 4, isolation_level=1, note="open")
    listed(s, t, "open")
    p.end(False)
    s.fetch(t, 4, isolation_level=1, note="aborted")
    listed(s, t, "aborted")


@story("isolation")
def compressed(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    data = s.batch(3, pid=p.pid, epoch=p.epoch, seq=0, txn=True, codec=1)
    s.produce(t, data, v=12, tx=p.tx, retry=(51,))
    p.end(False)
    s.fetch(t, 1, isolation_level=1)


# -- timeouts ------------------------------------------------------------------------------------------------------


def timed_out(s: Story, new: bool) -> tuple[Topic, Producer]:
    t, p = s.topic(), Producer(s, "tx", timeout=300)
    p.start(t, new)
    s.fetch(t, isolation_level=1, max_wait=8000, note="the broker aborts")
    s.settle(p.tx)
    return t, p


@story("txn-timeout")
def new_protocol(s: Story) -> None:
    """A TV2 producer that timed out: produce 47, commit 48, abort 0 with the new epoch."""
    t, p = timed_out(s, True)
    p.send(t, 1, note="produce")
    s.ask("end_txn", 5, committed=True, note="commit", **p.who())
    s.ask("end_txn", 5, committed=False, note="abort", **p.who())
    body = {"transactional_id": p.tx, "transaction_timeout": 60000, "producer_id": p.pid, "producer_epoch": p.epoch}
    s.ask("init_producer_id", 5, note="its own epoch: the current one, no bump", **body)
    s.fetch(t)


@story("txn-timeout")
def old_protocol_on_a_new_cluster(s: Story) -> None:
    """Trace C: the marker has the next epoch, and the TV1 client is fenced: 90."""
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
    body = {"transactional_id": p.tx, "transaction_timeout": 60000, "producer_id": p.pid, "producer_epoch": p.epoch}
    s.ask("init_producer_id", 5, note="with its own", **body)
    s.ask("init_producer_id", 5, note="none given", transactional_id=p.tx, transaction_timeout=60000)
    s.fetch(t)


@story("feature-level-1", "tv1")
def handshake(s: Story) -> None:
    """transaction.version finalized at 1."""
    for v in (3, 4):
        answer = s.quiet("api_versions", v, client_software_name="a", client_software_version="1")
        rows = [row for row in answer["finalized_features"] if row["name"] == "transaction.version"]
        s.put(f"api_versions v{v}", rows)


@story("feature-level-1", "tv1")
def old_protocol(s: Story) -> None:
    t, p = s.topic(), Producer(s, "tx")
    p.start(t, False)
    p.end(True, False)
    p.start(t, False, 1)
    p.end(False, False)
    s.fetch(t, isolation_level=1)


@story("feature-level-1", "tv1")
def new_requests(s: Story) -> None:
    """The version of the request decides, not the feature level: v12 adds, EndTxn v5 bumps."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    p.end(True)
    p.start(t)
    p.end(False)
    s.fetch(t, isolation_level=1)


@story("feature-level-1", "tv1")
def init_while_ongoing(s: Story) -> None:
    """The coordinator's own abort follows the feature level: the epoch moves in another way than at level 2."""
    for new in (False, True):
        t, p = s.topic(), Producer(s, f"tx{new}")
        p.start(t, new)
        body = {"transactional_id": p.tx, "transaction_timeout": 60000}
        s.ask("init_producer_id", 5, retry=(51,), note="TV2" if new else "TV1", **body)
        p.send(t, 1, new=new, note="the old epoch")
        s.fetch(t)


# -- WriteTxnMarkers -----------------------------------------------------------------------------------------------


def marker(s: Story, t: Topic, note: str, pid: int, epoch: int, v: int = 1, commit: bool = True, **more: Any) -> None:
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
    """Lenient: lower is 47, equal is good. TransactionVersion 2: equal is 47 too, unless nothing is open (KAFKA-19999).
    A coordinator epoch lower than seen is 52."""
    for v, tv in ((1, 0), (2, 0), (2, 1), (2, 2)):
        t, p = s.topic(), Producer(s, f"tx{v}{tv}")
        s.quiet("init_producer_id", 4, transactional_id=p.tx, transaction_timeout=60000)
        p.epoch += 1
        p.start(t)
        more = {"v": v, "transaction_version": tv} if v == 2 else {"v": v}
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
    """A producer the partition does not know: appended all the same."""
    t = s.topic()
    marker(s, t, "commit", 800_001, 3)
    marker(s, t, "abort", 800_002, 0, commit=False)
    marker(s, t, "commit, TV2", 800_003, 1, 2, transaction_version=2)
    s.fetch(t, isolation_level=1)
    for seq in (4, 0):
        s.produce(t, s.batch(1, pid=800_001, epoch=3, seq=seq), note=f"then sequence {seq}")


@story("write-txn-markers")
def partitions(s: Story) -> None:
    """Not here is 3; several markers, several partitions; none at all."""
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
    """What kafka-transactions abort does: the same epoch, TransactionVersion 0; the coordinator is not told."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    marker(s, t, "abort", p.pid, p.epoch, 1, commit=False)
    s.fetch(t, isolation_level=1)
    p.send(t, 1, note="goes on")
    p.end(True)
    s.fetch(t, isolation_level=1)


# -- between Prepare and Complete ----------------------------------------------------------------------------------


def behind(s: Story, p: Producer, end: Body, v: int, api: str, av: int, note: str, **body: Any) -> None:
    """EndTxn and another request in one packet, so that the second meets the Prepare state."""
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
    """Right behind EndTxn v0-4 the completion is pending: ids are checked, then everything is 51."""
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
    """Right behind EndTxn v5: 51, whatever the epoch."""
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
    """Our default order: markers are written before EndTxn is answered, so what follows does not meet 51."""
    t, p = s.topic(), Producer(s, "tx")
    for seq in range(2):
        p.start(t, False, seq)
        add = {f"v3_and_below_{k}": value for k, value in p.who().items()}
        add["v3_and_below_topics"] = [{"name": t.name, "partitions": [0]}]
        end = p.who(committed=True)
        behind(s, p, end, 4, "add_partitions_to_txn", 3, "right behind EndTxn", **add)
        p.add(t)
