"""The transactional producer of stories.

Kafka writes the markers after the response to EndTxn: stories that do not test that interval wait for the completion
(settle, retry on CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from typing import Any

from tests.differential.story import Body, Story, Topic

FAR = 1_000_000


class Producer:
    """A transactional producer with its id, epoch and sequences."""

    def __init__(self, s: Story, suffix: str, timeout: int = 60000) -> None:
        self.s, self.tx = s, s.name(suffix)
        self.pid, self.epoch = s.producer_id(self.tx, timeout)
        self.sequences: dict[tuple[Topic, int], int] = {}

    def who(self, **changes: Any) -> Body:
        return {"transactional_id": self.tx, "producer_id": self.pid, "producer_epoch": self.epoch} | changes

    def add(
        self,
        topics: Topic | dict[str, list[int]],
        v: int = 3,
        retry: Any = (51,),
        note: str = "",
        **more: Any,
    ) -> Body:
        """Send AddPartitionsToTxn for one transaction, in the layout of its version."""
        parts = {topics.name: [0]} if isinstance(topics, Topic) else topics
        rows = [{"name": name, "partitions": partitions} for name, partitions in parts.items()]
        who = self.who(**{k: value for k, value in more.items() if k != "verify_only"})
        if v < 4:
            body = {f"v3_and_below_{k}": value for k, value in who.items()} | {"v3_and_below_topics": rows}
        else:
            body = {"transactions": [who | {"topics": rows, "verify_only": more.get("verify_only", False)}]}
        return self.s.ask("add_partitions_to_txn", v, retry=retry, note=note, **body)

    def send(
        self,
        t: Topic,
        seq: int,
        new: bool = True,
        v: int | None = None,
        count: int = 1,
        note: str = "",
        **more: Any,
    ) -> Body:
        """Produce one transactional batch. Produce v12 adds the partition, v11 and v10 only verify it."""
        fields = {k: more.pop(k) for k in ("pid", "epoch") if k in more}
        data = self.s.batch(
            count, **({"pid": self.pid, "epoch": self.epoch, "seq": seq, "txn": True} | fields)
        )
        more.setdefault("tx", self.tx)
        more.setdefault("retry", (51,) if new else ())
        return self.s.produce(t, data, v=v if v is not None else (12 if new else 11), note=note, **more)

    def start(self, t: Topic, new: bool = True, seq: int = 0) -> None:
        if not new:
            self.add(t)
        self.send(t, seq, new)

    def end(
        self, commit: bool, new: bool = True, v: int | None = None, note: str = "", settle: bool = True
    ) -> Body:
        version = v if v is not None else (5 if new else 3)
        answer = self.s.ask("end_txn", version, committed=commit, note=note, **self.who())
        if version >= 5 and answer["error_code"] == 0:
            self.s.normal.symbol("pid", answer["producer_id"])
            self.pid, self.epoch = answer["producer_id"], answer["producer_epoch"]
        if settle:
            self.s.settle(self.tx)
        return answer

    def exhaust(self, to: int = 32765) -> None:
        """Raise the epoch to `to` by pipelined InitProducerId requests."""
        left = to - self.epoch
        while left > 0:
            step = min(left, 1000)
            body: dict[str, Any] = {"transactional_id": self.tx, "transaction_timeout": 60000}
            asked = [self.s.send("init_producer_id", 4, on="exhaust", **body) for _ in range(step)]
            answers = [self.s.receive(pending) for pending in asked]
            self.epoch = answers[-1]["producer_epoch"]
            left -= step
        assert self.epoch == to, self.epoch
