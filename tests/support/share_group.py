"""A broker in the test's own process whose topic a share group reads, and members with connections of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.loop.coroutines import start
from broker.share.state import Initialization
from protocol.batch import build_batch
from tests.support import raw
from tests.support.in_process import InProcess

TOPIC = "orders"
GROUP = "g"
ACCEPT, RELEASE, REJECT = 1, 2, 3

Acquired = list[tuple[int, int, int]]
"""(first offset, last offset, delivery count)."""


class ShareBroker(InProcess):
    """A broker whose topic has five records in a partition that share groups read from the start."""

    def __init__(self, path: Path, *arguments: str, nodes: int = 1, **more: Any) -> None:
        partitions = "--set=share.coordinator.state.topic.num.partitions=3"
        super().__init__(path, "--topic", f"{TOPIC}:1", "--nodes", str(nodes), partitions, *arguments, **more)

    def begin(self) -> None:
        """Initialize the group g, and produce the records."""
        self.initialize()
        self.produce(5)

    def initialize(self, group: str = GROUP, start_offset: int = 0) -> None:
        self.run(self._initialize(group, start_offset))

    async def _initialize(self, group: str, start_offset: int) -> None:
        node = self.cluster.running_nodes()[0]
        wanted = [Initialization(self._topic_id(), 0, 1, start_offset)]
        outcome = start(node.persister.initialize(group, wanted), node.life)
        (initialized,) = await outcome if isinstance(outcome, asyncio.Future) else outcome
        assert initialized.error == 0, initialized

    def produce(self, records: int) -> None:
        batch = build_batch([(1, None, b"x")] * records)
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        (producer,) = self.members("producer")
        producer.ask("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
        producer.wire.close()

    def _topic_id(self) -> UUID:
        topic = self.cluster.metadata.topic(TOPIC)
        assert topic is not None
        return topic.topic_id

    @property
    def topic_id(self) -> UUID:
        return self.call(self._topic_id)

    @property
    def leader(self) -> int:
        return self.call(self._leader)

    def _leader(self) -> int:
        return self.cluster.metadata.topics[TOPIC].partitions[0].leader

    def members(self, *names: str, group: str = GROUP) -> list[Member]:
        """Members with connections to the leader."""
        port = self.call(lambda: self.cluster.nodes[self._leader()].listeners[0].port)
        return [Member(port, name, group) for name in names]


class Member:
    """A member of a share group, with one connection."""

    def __init__(self, port: int, name: str, group: str = GROUP) -> None:
        self.wire = raw.Wire("127.0.0.1", port)
        self._session = {"group_id": group, "member_id": name}
        self.epoch = 0
        self.topic_id: UUID = self.ask("metadata", 12, topics=[{"name": TOPIC}])["topics"][0]["topic_id"]

    def send(self, api: str, version: int, **body: Any) -> None:
        self.wire.send_frame(raw.encode_request(api, version, body, 1))

    def receive(self, api: str, version: int = 2) -> dict[str, Any]:
        return raw.decode_response(api, version, self.wire.receive_frame())[1]

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.send(api, version, **body)
        return self.receive(api, version)

    # -- requests of the share session --------------------------------------------------------------------------

    def _send(self, api: str, topics: list[dict[str, Any]], **more: Any) -> None:
        self.send(api, 2, **self._session, share_session_epoch=self.epoch, topics=topics, **more)
        self.epoch += 1

    def _topics(self, *batches: tuple[int, int, int]) -> list[dict[str, Any]]:
        acknowledged = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in batches
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": acknowledged}]
        return [{"topic_id": self.topic_id, "partitions": partitions}]

    def send_fetch(self, *batches: tuple[int, int, int], forgets: bool = False, **more: Any) -> None:
        """Send a ShareFetch that names the partition only if it is the first, or acknowledges batches."""
        topics = self._topics(*batches) if batches or not self.epoch else []
        forgotten = [{"topic_id": self.topic_id, "partitions": [0]}] if forgets else []
        self._send(
            "share_fetch",
            topics,
            forgotten_topics_data=forgotten,
            **{"max_wait": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500, **more},
        )

    def send_acknowledge(self, *batches: tuple[int, int, int]) -> None:
        self._send("share_acknowledge", self._topics(*batches))

    def receive_acquired(self) -> Acquired:
        found = _partition(self.receive("share_fetch"))
        assert found.get("error_code", 0) == 0
        return [
            (each["first_offset"], each["last_offset"], each["delivery_count"])
            for each in found.get("acquired_records", ())
        ]

    def receive_acknowledged(self) -> int:
        error: int = _partition(self.receive("share_acknowledge"))["error_code"]
        return error

    def fetch(self, *batches: tuple[int, int, int], **more: Any) -> Acquired:
        self.send_fetch(*batches, **more)
        return self.receive_acquired()

    def fetch_until_acquired(self) -> Acquired:
        while not (found := self.fetch()):
            pass
        return found

    def acknowledge(self, *batches: tuple[int, int, int]) -> int:
        self.send_acknowledge(*batches)
        return self.receive_acknowledged()

    def is_hung_up(self) -> bool:
        """Whether the broker closes the connection instead of sending a response."""
        try:
            self.wire.receive_frame()
        except raw.Closed:
            return True
        return False


def _partition(answer: dict[str, Any]) -> dict[str, Any]:
    """The partition of a response; {} if it has none."""
    assert answer["error_code"] == 0
    return answer["responses"][0]["partitions"][0] if answer["responses"] else {}
