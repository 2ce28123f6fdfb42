"""Requests between nodes: WriteTxnMarkers from the coordinator, AddPartitionsToTxn from partition leaders."""

from __future__ import annotations

import re

from tests.differential.cluster.stories.producing import Producer, read
from tests.differential.cluster.story import ClusterStory, Sent, story

FIRST, SECOND = (1, 2, 3), (2, 3, 1)


class Sniffed:
    """The requests between nodes for some producers.

    Requests of a node to itself are left out, as only one of the two brokers (Kafka, ours) shows them.
    """

    def __init__(self, s: ClusterStory, *producers: Producer) -> None:
        self._s = s
        self._names = {p.tx: p for p in producers}
        self._ids = {p.pid for p in producers}

    def _new(self, api: str) -> list[Sent]:
        found = [each for each in self._s.side.sent() if each.api == api and sender(each)]
        return [each for each in found if each.receiver != sender(each) and self._is_mine(each)]

    def _is_mine(self, each: Sent) -> bool:
        if each.api == "write_txn_markers":
            return any(marker["producer_id"] in self._ids for marker in each.request["markers"])
        return any(row["transactional_id"] in self._names for row in each.request["transactions"])

    def put(self, api: str, note: str, count: int) -> None:
        """Record the requests in the transcript, by receiver. Waits for at least ``count`` requests."""
        s = self._s
        s.until(lambda: len([e for e in self._new(api) if e.response]) >= count, f"{count} requests of {api}")
        told = [
            {
                "to": each.receiver,
                "version": each.version,
                "client": (each.client_id or "").replace(f"-{sender(each)}", "-N"),
                "request": s.normal.answer(api, each.request),
                "response": s.normal.answer(api, each.response),
            }
            for each in sorted(self._new(api), key=lambda each: each.receiver)
        ]
        s.put(f"{api} between nodes ({note})", told)

    def put_markers(self) -> None:
        """Record every marker, whichever request contained it."""
        rows = [marker for each in self._new("write_txn_markers") for marker in each.request["markers"]]
        self._s.put("markers between nodes", self._s.normal.value(rows, "markers", True))


def sender(each: Sent) -> int | None:
    """Node id in the request's client id. None for a client."""
    found = re.fullmatch(
        r"broker-(\d+)-txn-marker-sender|AddPartitionsManager-client-(\d+)", each.client_id or ""
    )
    return int(found[1] or found[2]) if found else None


@story("between-nodes")
def markers(s: ClusterStory) -> None:
    """The coordinator sends one WriteTxnMarkers to each leader, whatever the number of partitions, with TV1 and TV2."""
    t = s.topic([[1, 2, 3], [2, 3, 1], [3, 1, 2], [2, 1, 3]])
    for note, commit, v in (
        ("commit", True, 5),
        ("abort", False, 5),
        ("commit, old", True, 4),
        ("abort, old", False, 3),
    ):
        p = Producer(s, FIRST, note.replace(", ", "-"))
        sniffed = Sniffed(s, p)
        for partition, at in enumerate((1, 2, 3, 2)):
            p.send(t, 0, at, partition=partition)
        p.end(commit, v)
        sniffed.put("write_txn_markers", note, 2)


@story("between-nodes")
def markers_wait_together(s: ClusterStory) -> None:
    """While one request is in flight, the markers of other transactions wait, and are sent together after the response."""
    t = s.topic([[2, 3]])
    producers = [Producer(s, FIRST, f"tx{number}") for number in "abc"]
    sniffed = Sniffed(s, *producers)
    for p in producers:
        p.send(t, 0, 2)
    s.side.hold("write_txn_markers", 1, 2)
    pending = []
    for p in producers:
        pending.append(s.send("end_txn", 5, at=1, on=f"ends {p.tx}", committed=True, **p.who()))
        s.await_transaction(p.tx, "PrepareCommit", 1)
    s.side.release()
    for p, each in zip(producers, pending, strict=True):
        p.epoch = s.take(each)["producer_epoch"]
        p.settle()
    sniffed.put_markers()
    read(s, t, 2)


@story("between-nodes")
def verification(s: ClusterStory) -> None:
    """The leader sends one verification to the coordinator for each partition of a transaction."""
    t = s.topic([[2, 3], [2, 3], [3, 2]])
    p = Producer(s, FIRST)
    new = Sniffed(s, p)
    p.send(t, 0, 2)
    p.send(t, 1, 2, note="the second batch")
    rows = [
        (t, index, s.batch(1, pid=p.pid, epoch=p.epoch, seq=seq, txn=True)) for index, seq in ((0, 2), (1, 0))
    ]
    s.produce(rows, v=12, at=2, tx=p.tx, note="one that is known, one that is not")
    p.send(t, 0, 3, partition=2)
    new.put("add_partitions_to_txn", "new protocol", 3)
    p.end(True)

    p = Producer(s, FIRST, "old")
    old = Sniffed(s, p)
    p.send(t, 0, 2, v=11, note="not added")
    p.add(t, (0, 2))
    p.send(t, 0, 2, v=11, note="added")
    p.send(t, 1, 2, v=11, note="the second batch")
    p.send(t, 0, 2, v=9, partition=1, note="not added")
    p.send(t, 0, 3, v=3, partition=2, note="added")
    old.put("add_partitions_to_txn", "old protocol", 4)
    p.end(True, 3)


@story("between-nodes")
def verification_fails(s: ClusterStory) -> None:
    """The coordinator's errors for unknown transactional ids and old epochs."""
    t = s.topic([[2, 3]])
    p = Producer(s, FIRST)
    sniffed = Sniffed(s, p)
    for v in (9, 11, 12):
        p.send(t, 0, 2, v=v, pid=p.pid + 1_000_000, retry=(), note="another producer id")
        p.send(t, 0, 2, v=v, epoch=p.epoch + 1, retry=(), note="an epoch to come")
    s.normal.symbol("pid", p.pid + 1_000_000)
    p.init()
    for v in (9, 11, 12):
        p.send(t, 0, 2, v=v, epoch=p.epoch - 1, retry=(), note="an epoch that is over")
    sniffed.put("add_partitions_to_txn", "refused", 9)
