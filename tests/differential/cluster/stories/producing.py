"""Transactional producers. A story chooses the nodes that coordinate a producer's transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.differential.cluster.story import ClusterStory
from tests.differential.story import Body, Topic


class Producer:
    """A producer with its id, its epoch and its coordinator."""

    def __init__(self, s: ClusterStory, by: Sequence[int], suffix: str = "tx", timeout: int = 60_000) -> None:
        """``by`` are the replicas of the producer's partition of ``__transaction_state``, the coordinator first."""
        self.s, self.tx, self.at, self.timeout = s, s.coordinated(by, suffix), by[0], timeout
        s.await_coordinator(self.tx, 1, self.at)
        answer = s.quiet("init_producer_id", 4, at=self.at, **self._id())
        self._learn(answer)

    def _id(self) -> Body:
        return {"transactional_id": self.tx, "transaction_timeout": self.timeout}

    def _learn(self, answer: Body) -> None:
        self.pid, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.s.normal.symbol("pid", self.pid)

    def moves_to(self, node_id: int) -> None:
        """Wait until ``node_id`` is the producer's coordinator, and send the next requests to it."""
        self.at = node_id
        self.s.await_coordinator(self.tx, 1, node_id)

    def who(self, **changes: Any) -> Body:
        return {"transactional_id": self.tx, "producer_id": self.pid, "producer_epoch": self.epoch} | changes

    def init(self, v: int = 4, *, at: int | None = None, **more: Any) -> Body:
        """Send InitProducerId. A successful response sets the producer id and epoch."""
        more.setdefault("retry", (51,))
        answer = self.s.ask("init_producer_id", v, at=at or self.at, **self._id(), **more)
        if answer["error_code"] == 0:
            self._learn(answer)
        return answer

    def send(
        self, t: Topic, seq: int, at: int, *, v: int = 12, partition: int = 0, count: int = 1, **more: Any
    ) -> Body:
        """Produce one transactional batch. Produce v12 adds the partition, older versions only verify it."""
        fields = {"pid": self.pid, "epoch": self.epoch, "seq": seq, "txn": True}
        fields |= {name: more.pop(name) for name in ("pid", "epoch", "txn") if name in more}
        more.setdefault("retry", (51,) if v >= 12 else ())
        batch = self.s.batch(count, **fields)
        return self.s.produce(t, batch, v=v, at=at, partition=partition, tx=self.tx, **more)

    def add(
        self, t: Topic, partitions: Sequence[int] = (0,), v: int = 3, *, at: int | None = None, **more: Any
    ) -> Body:
        """Send AddPartitionsToTxn, in the layout of its version."""
        rows = [{"name": t.name, "partitions": list(partitions)}]
        more.setdefault("retry", (51,))
        if v < 4:
            body = {f"v3_and_below_{name}": value for name, value in self.who().items()}
            body["v3_and_below_topics"] = rows
        else:
            verifies = more.pop("verify_only", False)
            body = {"transactions": [self.who() | {"topics": rows, "verify_only": verifies}]}
        return self.s.ask("add_partitions_to_txn", v, at=at or self.at, **body, **more)

    def add_offsets(self, group: str, v: int = 3, *, at: int | None = None, **more: Any) -> Body:
        return self.s.ask("add_offsets_to_txn", v, at=at or self.at, group_id=group, **self.who(), **more)

    def offsets(self, group: str, t: Topic, offset: int, at: int, v: int = 5, **more: Any) -> Body:
        """Send TxnOffsetCommit to the coordinator of the group."""
        rows = [
            {
                "partition_index": 0,
                "committed_offset": offset,
                "committed_metadata": "",
                "committed_leader_epoch": -1,
            }
        ]
        body: dict[str, Any] = {
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": t.name, "partitions": rows}],
        }
        more.setdefault("retry", (51,))
        return self.s.ask("txn_offset_commit", v, at=at, **self.who(), **body, **more)

    def end(
        self, commit: bool, v: int = 5, *, at: int | None = None, settles: bool = True, **more: Any
    ) -> Body:
        """Send EndTxn. With ``settles`` wait until the markers are written."""
        answer = self.s.ask("end_txn", v, at=at or self.at, committed=commit, **(self.who() | more))
        if v >= 5 and answer["error_code"] == 0:
            self._learn(answer)
        if settles and answer["error_code"] == 0:
            self.settle()
        return answer

    def settle(self) -> None:
        self.s.until(lambda: not self.state().startswith("Prepare"), f"{self.tx} is complete")

    def state(self, at: int | None = None) -> str:
        answer = self.s.look(at or self.at, "describe_transactions", 0, transactional_ids=[self.tx])
        return str(answer["transaction_states"][0]["transaction_state"])

    def describe(self, at: int | None = None, **more: Any) -> Body:
        return self.s.ask("describe_transactions", 0, at=at or self.at, transactional_ids=[self.tx], **more)


def read(
    s: ClusterStory, t: Topic, at: int, *, partition: int = 0, offset: int = 0, v: int = 12, **more: Any
) -> None:
    """Fetch as a read_committed consumer."""
    s.fetch([(t, partition, offset)], v=v, at=at, isolation_level=1, **more)
