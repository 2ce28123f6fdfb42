"""Descriptions of transactions (KIP-664): DescribeProducers, DescribeTransactions, ListTransactions."""

from __future__ import annotations

import time
from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.stories.write_txn_markers import marker
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline

STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


def producers(s: Story, note: str, *topics: Topic | str, indexes: tuple[int, ...] = (0,)) -> Body:
    rows = [
        {"name": each.name if isinstance(each, Topic) else each, "partition_indexes": list(indexes)}
        for each in topics
    ]
    return s.ask("describe_producers", 0, topics=rows, note=note)


def transactions(s: Story, note: str, *transactional_ids: str) -> Body:
    return s.ask("describe_transactions", 0, transactional_ids=list(transactional_ids), note=note)


def listed(s: Story, note: str, v: int = 2, **filters: Any) -> Body:
    return s.ask("list_transactions", v, note=note, **filters)


def look(s: Story, note: str, p: Producer, t: Topic) -> None:
    """Send DescribeProducers, DescribeTransactions and ListTransactions for a producer and the topic it writes to."""
    producers(s, note, t)
    transactions(s, note, p.tx)
    listed(s, note, producer_id_filters=[p.pid])


# -- a transaction, as its descriptions show it -------------------------------------------------------------------


def life(s: Story, *, new: bool) -> None:
    t, p = s.topic(2), Producer(s, "tx", 54_321)
    look(s, "empty", p, t)
    for commit in (True, False):
        for count in range(2):
            p.start(t, new, count if count or new else 0)
            if count:
                s.produce(t, s.batch(2), note="somebody else")
            look(s, f"open, {count}", p, t)
            p.end(commit, new)
            look(s, f"ended, {count}", p, t)
            if new:
                break
        p = Producer(s, "tx", 60_000)
        look(s, "begun again", p, t)


@story("inspection")
def life_of_a_new_one(s: Story) -> None:
    """The end of each transaction raises the producer epoch. After the marker the log has no sequence of the producer."""
    life(s, new=True)


@story("inspection")
def life_of_an_old_one(s: Story) -> None:
    life(s, new=False)


@story("inspection", "tv1")
def life_at_level_1(s: Story) -> None:
    life(s, new=False)


@story("inspection")
def partitions_of_a_transaction(s: Story) -> None:
    """DescribeTransactions lists partitions in the order of addition. AddOffsetsToTxn adds the group's partition."""
    t, u, p = s.topic(3), s.topic(), Producer(s, "tx")
    for topics in ({t.name: [2]}, {u.name: [0]}, {t.name: [0, 1, 2]}):
        p.add(topics)
        transactions(s, f"{sum(map(len, topics.values()))} more", p.tx)
    s.ask("add_offsets_to_txn", 3, group_id=s.name("g"), **p.who())
    answer = s.quiet("describe_transactions", 0, transactional_ids=[p.tx])
    names = sorted(topic["topic"] for topic in answer["transaction_states"][0]["topics"])
    s.put("topics, with offsets", [name.replace(s.prefix, "~") for name in names])
    p.end(False, False)
    transactions(s, "none left", p.tx)


@story("inspection")
def timed_out(s: Story) -> None:
    """The coordinator aborts a transaction after its timeout, in the protocol of the cluster's feature level."""
    for new in (True, False):
        t, p = s.topic(), Producer(s, f"tx{new}", 300)
        p.start(t, new)
        wait_until(s, p, "CompleteAbort")
        look(s, f"timed out, {'new' if new else 'old'}", p, t)


def wait_until(s: Story, p: Producer, state: str) -> None:
    deadline = Deadline()
    while not deadline.is_over:
        answer = s.quiet("describe_transactions", 0, transactional_ids=[p.tx])
        if answer["transaction_states"][0]["transaction_state"] == state:
            return
        time.sleep(0.01)


@story("inspection")
def ended_by_hand(s: Story) -> None:
    """After kafka-transactions abort the transaction is closed in the partition, but still open at the coordinator."""
    t, p = s.topic(), Producer(s, "tx")
    p.start(t)
    producers(s, "open", t)
    marker(s, t, "abort", p.pid, p.epoch, 1, commit=False)
    look(s, "after the abort", p, t)
    p.send(t, 1, note="goes on")
    look(s, "gone on", p, t)
    p.end(True)
    look(s, "ended", p, t)


# -- DescribeProducers --------------------------------------------------------------------------------------------


@story("inspection")
def who_is_in_a_log(s: Story) -> None:
    """A log has several idempotent producers, each with its last sequence and the time of its last record."""
    t = s.topic(2)
    producers(s, "nobody", t, indexes=(0, 1))
    s.produce(t, s.batch(3), note="without an id")
    producers(s, "nobody yet", t)
    for _ in range(2):
        pid, epoch = s.producer_id()
        s.produce(t, s.batch(3, pid=pid, epoch=epoch, seq=0, ts=s.t0 + 1000))
        s.produce(t, s.batch(2, pid=pid, epoch=epoch, seq=3, ts=s.t0 + 500))
    s.produce(t, s.batch(1, pid=800_100, epoch=7, seq=0), note="another epoch")
    producers(s, "three", t, indexes=(0, 1))
    s.produce(t, s.batch(1, pid=800_100, epoch=8, seq=0), note="a newer epoch")
    producers(s, "the newer epoch", t, indexes=(0, 0))


@story("inspection")
def producers_of_what_is_not_there(s: Story) -> None:
    t = s.topic()
    producers(s, "partitions", t, indexes=(0, 1, -1, 2**31 - 1))
    producers(s, "a topic", s.name("missing"), indexes=(0, 7))
    for name in ("", ".", "..", "a b", "a/b", "ü", "x" * 249, "x" * 250):
        producers(s, f"name {name[:10]!r} of {len(name)}", name)
    producers(s, "no partitions", t, s.name("missing"), "a b", indexes=())
    producers(s, "no topics")
    producers(s, "the same topic twice", t, t)
    producers(s, "one that is, one that is not", t, s.name("missing"))


@story("inspection")
def markers_without_data(s: Story) -> None:
    t = s.topic()
    marker(s, t, "commit", 800_201, 3)
    marker(s, t, "abort, TV2", 800_202, 1, 2, commit=False, transaction_version=2, coordinator_epoch=5)
    producers(s, "two that wrote nothing", t)


@story("inspection")
def internal_topics(s: Story) -> None:
    """Internal topics are described like any other topic."""
    topics = [{"name": "__transaction_state", "partition_indexes": [0, 50]}]
    answer = s.quiet("describe_producers", 0, retry=(), topics=topics)
    s.put("__transaction_state", [row["error_code"] for row in answer["topics"][0]["partitions"]])


# -- DescribeTransactions -----------------------------------------------------------------------------------------


@story("inspection")
def ids_that_are_not_known(s: Story) -> None:
    p = Producer(s, "tx")
    transactions(s, "none")
    transactions(s, "the empty one", "")
    transactions(s, "unheard of", s.name("nobody"))
    transactions(s, "some of each", s.name("nobody"), p.tx, "", p.tx)
    transactions(s, "beyond ASCII", "ünïcøde \U0001f600")


# -- ListTransactions ---------------------------------------------------------------------------------------------


def some_ids(s: Story) -> dict[str, Producer]:
    t = s.topic()
    ids = {name: Producer(s, name) for name in ("idle", "open", "done", "gone")}
    for name in ("open", "done", "gone"):
        ids[name].start(t)
    ids["done"].end(True)
    ids["gone"].end(False)
    return ids


@story("inspection")
def list_by_state(s: Story) -> None:
    some_ids(s)
    for v in range(3):
        listed(s, "all", v)
        for state in STATES:
            listed(s, state, v, state_filters=[state])
    for states in (
        ["Dead"],
        ["PrepareEpochFence"],
        ["Nonsense"],
        ["Nonsense", "Open", "Nonsense"],
        ["Ongoing", "ongoing"],
        ["ONGOING", "Ongoing "],
        [""],
        ["Ongoing", "Empty", "Ongoing"],
    ):
        listed(s, repr(states), state_filters=states)


@story("inspection")
def list_by_producer_id(s: Story) -> None:
    ids = some_ids(s)
    for v in range(3):
        listed(s, "one", v, producer_id_filters=[ids["open"].pid])
        listed(s, "two and nobody", v, producer_id_filters=[ids["open"].pid, 1 << 40, ids["idle"].pid])
    listed(s, "nobody", producer_id_filters=[-1])
    listed(s, "and a state", producer_id_filters=[ids["open"].pid], state_filters=["Empty"])
    listed(s, "and its state", producer_id_filters=[ids["open"].pid], state_filters=["Ongoing"])


@story("inspection")
def list_by_duration(s: Story) -> None:
    """ListTransactions by duration: an id without a transaction has the start time -1, so any duration matches."""
    some_ids(s)
    for v in (1, 2):
        for duration in (-1, -(2**63), 0, 3_600_000, 2**63 - 1):
            listed(s, f"{duration}", v, duration_filter=duration)
    listed(s, "an open one of an hour", duration_filter=3_600_000, state_filters=["Ongoing"])


@story("inspection")
def list_by_pattern(s: Story) -> None:
    """ListTransactions by pattern: the pattern has RE2's syntax and must match the whole id. An empty one matches all."""
    some_ids(s)
    for pattern in (
        None,
        "",
        s.prefix,
        f"{s.prefix}.*",
        f"{s.prefix}-open",
        f"^{s.prefix}-open$",
        ".*-open",
        "open",
        f"{s.prefix}-(open|idle)",
        f"{s.prefix}-[a-p]+",
        f"(?i){s.prefix.upper()}-OPEN",
        rf"{s.prefix}-\p{{Ll}}{{4}}",
        rf"\Q{s.prefix}\E-\w+",
        rf"{s.prefix}-(?P<name>d.*)",
        rf"{s.prefix}-(?<name>d.*)",
        rf"{s.prefix}-[[:alpha:]]+",
        rf"\A{s.prefix}-gone\z",
    ):
        listed(s, _shown(s, pattern), transactional_id_pattern=pattern)
    listed(s, "and a state", transactional_id_pattern=f"{s.prefix}.*", state_filters=["Ongoing"])


@story("inspection")
def list_by_what_is_no_pattern(s: Story) -> None:
    some_ids(s)
    for pattern in (
        "(",
        ")",
        "[",
        "[z-a]",
        "*",
        "+a",
        "a**",
        "a++",
        "a{1001}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        r"(a)\1",
        "\\",
        r"\p{Nonsense}",
        "(?P<n>a)(?P<n>b)",
        "(?z)a",
        r"\Z",
        "a{2,1}",
        "((a{100}){100}){100}",
    ):
        listed(s, _shown(s, pattern), transactional_id_pattern=pattern, state_filters=["Nonsense"])


def _shown(s: Story, pattern: str | None) -> str:
    return repr(pattern).replace(s.prefix, "~").replace(s.prefix.upper(), "~")
