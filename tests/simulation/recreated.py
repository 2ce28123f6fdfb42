"""Topics that are deleted and created again with the same name while clients use them.

Invariants, in addition to the checks of the workload:

- A record that was sent to a topic id is visible only in the topic with that id, at the offset in its Produce response.
- A new topic begins at offset 0 on each replica, even if its node was down while the old topic was deleted.
- A transaction during which a topic is deleted ends. It is visible as a whole or not at all in the remaining partitions.
- At the end of the run no folder and no producer state of an old topic is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final
from uuid import UUID

from broker.metadata.listeners import MetadataListener
from broker.metadata.values import Topic
from broker.replicas.partition import Partition
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.checkpoints import read_partition_metadata
from tests.simulation.clients import transact
from tests.simulation.consumers import Reader
from tests.simulation.ending import content
from tests.simulation.ledger import Broken, Ledger, Spot, Verdict, View
from tests.simulation.producers import PRODUCE
from tests.simulation.rare import DELETED_IN_TRANSACTION, READS_NEXT_TOPIC, SENT_TO_DELETED
from tests.simulation.reach import Reach, Stage
from tests.simulation.wire import ASK_LEADER_AGAIN, LATE_MARGIN_MS, NONE, Gone, Wire

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
NAME: Final = "phoenix"
PHOENIX: Final[Spot] = (NAME, 0)
STEADY: Final[Spot] = ("steady", 0)
"""A partition to which the same transactions write, in a topic that is not deleted."""
LIVES_S: Final = (2.0, 25.0)
GONE_S: Final = (0.0, 0.0, 4.0)
EMPTIES: Final = 0.3
PAUSE_S: Final = (0.1, 2.0)
BY_ID: Final = "phoenix-by-id"
MOVED: Final = frozenset({ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id}) | ASK_LEADER_AGAIN
THERE_ALREADY: Final = frozenset({NONE, ErrorCode.topic_already_exists})
GONE_ALREADY: Final = frozenset({NONE, ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})


class Recreated(Reach, MetadataListener):
    """The `Reach` (optional part of the workload) that recreates topics, for the run of one seed."""

    clients = ("phoenix-admin", BY_ID, "phoenix-new", "phoenix-committed", "phoenix-uncommitted")

    def __init__(self, random: Random, nodes: int) -> None:
        super().__init__(random, nodes)
        self._settings = ""
        self._ledger = Ledger()
        self._first_work = 0
        """Number of the first work in the ledger that began after the creation of the current topic."""
        self._sent: dict[bytes, UUID] = {}
        """Topic id to which each value was sent."""
        self._told: dict[bytes, int] = {}
        """Offset of each acknowledged value."""

    def arguments(self, topic_settings: str) -> list[str]:
        self._settings = topic_settings
        return ["--topic", f"{NAME}:2:{topic_settings}", "--topic", f"{STEADY[0]}:1:{topic_settings}"]

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        stage.cluster.metadata.subscribe(self)

    def on_topic_created(self, topic: Topic) -> None:
        if topic.name == NAME:
            self._first_work = len(self._ledger.works)

    def on_topic_deleted(self, topic: Topic) -> None:
        if topic.name == NAME and any(
            name == NAME
            for node in self.stage.cluster.running_nodes()
            for home in node.transactions.memory().values()
            for txn in home.values()
            for name, _ in txn.partitions
        ):
            self.stage.reached(DELETED_IN_TRANSACTION)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        wire, stop = self.stage.wire, self.stage.stop
        yield self._recreate(wire("phoenix-admin"))
        yield self._send_by_id(wire(BY_ID))
        name, level = "phoenix-new", self.random.choice((1, 2))
        yield transact(wire(name), [PHOENIX, PHOENIX, STEADY], self._ledger, stop, name, level)
        for isolation in ("committed", "uncommitted"):
            yield self._read(IdReader(wire(f"phoenix-{isolation}"), f"read_{isolation}", self))

    # ---- deletion and creation

    async def _recreate(self, wire: Wire) -> None:
        random, stop = wire.random, self.stage.stop
        while not stop.now:
            await asyncio.sleep(random.uniform(*LIVES_S))
            if random.random() < EMPTIES:
                await self._empty(wire)
            await self._delete(wire)
            await asyncio.sleep(random.uniform(0, random.choice(GONE_S)))
            await self._create(wire)
        # A duplicate of the request may arrive late, and delete the topic once more.
        await asyncio.sleep(LATE_MARGIN_MS / 1000)
        await self._create(wire)
        wire.close()

    async def _empty(self, wire: Wire) -> None:
        """Delete all records: the topic then has a log start above 0, also in a checkpoint file."""
        partition = DeleteRecordsPartition(partition_index=0, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=NAME, partitions=[partition])], timeout_ms=2_000
        )
        try:
            await wire.ask_leader(*PHOENIX, DELETE_RECORDS, 2, request)
        except Gone:
            await asyncio.sleep(LATE_MARGIN_MS / 1000)  # so that no duplicate reaches the next topic
        await asyncio.sleep(wire.random.uniform(0, 10))

    async def _delete(self, wire: Wire) -> None:
        topic_id = wire.facts.topic_id(NAME)
        if topic_id is None:
            return
        which = (
            DeleteTopicState(name=NAME) if wire.random.random() < 0.5 else DeleteTopicState(topic_id=topic_id)
        )
        request = DeleteTopicsRequest(topics=[which], timeout_ms=5_000)
        await self._insist(wire, "deletes", DELETE_TOPICS, 6, request, GONE_ALREADY)

    async def _create(self, wire: Wire) -> None:
        settings = [setting.partition("=") for setting in self._settings.split(",")]
        configs = [CreatableTopicConfig(name=name, value=value) for name, _, value in settings]
        topic = CreatableTopic(
            name=NAME,
            num_partitions=wire.random.randint(1, 2),
            replication_factor=wire.random.randint(min(2, self.nodes), self.nodes),
            configs=configs,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        await self._insist(wire, "creates", CREATE_TOPICS, 7, request, THERE_ALREADY)

    @staticmethod
    async def _insist(
        wire: Wire, what: str, key: int, version: int, request: Any, enough: frozenset[ErrorCode]
    ) -> None:
        while True:
            try:
                answer = await wire.ask_any(key, version, request)
            except Gone:
                await wire.back_off()
                continue
            result = (answer.topics if key == CREATE_TOPICS else answer.responses)[0]
            error = ErrorCode(result.error_code)
            wire.say(f"{what} {NAME}: {error.name}")
            if error in enough:
                return
            await wire.back_off()

    # ---- producers

    async def _send_by_id(self, wire: Wire) -> None:
        number = 0
        while not self.stage.stop.now:
            await asyncio.sleep(wire.random.uniform(*PAUSE_S))
            number += 1
            try:
                await self._send(wire, f"{BY_ID}/{number}/0".encode())
            except Gone:
                await wire.back_off()
        wire.close()

    async def _send(self, wire: Wire, value: bytes) -> None:
        await wire.leader(*PHOENIX)
        topic_id = wire.topic_ids[NAME]
        self._sent[value] = topic_id
        batch = build_batch([(wire.now_ms(), None, value)])
        partition = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[partition])],
        )
        answer = await wire.ask_leader(*PHOENIX, PRODUCE, 13, request)
        (topic,) = answer.responses
        (result,) = topic.partition_responses
        error = ErrorCode(result.error_code)
        wire.say(f"sends to {topic_id}: {error.name} {result.base_offset}")
        if topic.topic_id != topic_id:
            raise Broken(f"a batch was sent to topic id {topic_id}, the response has {topic.topic_id}")
        if error is NONE:
            self._told[value] = result.base_offset
        elif error in MOVED:
            if error is ErrorCode.unknown_topic_id:
                self.stage.reached(SENT_TO_DELETED)
            wire.forget_leader(*PHOENIX)

    # ---- consumers

    async def _read(self, reader: IdReader) -> None:
        while not self.stage.stop.now:
            try:
                found = await reader.fetch()
            except Gone:
                await reader.wire.back_off()
                continue
            if found:
                reader.wire.say(f"read {found[0]} .. {found[-1]}")
        reader.wire.close()

    def view(self, reader: str, isolation: str, topic_id: UUID) -> View:
        return self._ledger.view(f"{reader} {topic_id}", PHOENIX, isolation)

    def check_sent(self, values: Iterable[bytes], topic_id: UUID) -> None:
        for value in values:
            if self._sent.get(value, topic_id) != topic_id:
                raise Broken(
                    f"{value!r} was sent to topic id {self._sent[value]}, but is in topic id {topic_id}"
                )

    # ---- checks inside the nodes

    def look(self) -> None:
        topic = self.stage.cluster.metadata.topics.get(NAME)
        for node in self.stage.cluster.running_nodes():
            for index in range(2):
                replica = node.replicas.get(NAME, index)
                if replica is not None and (topic is None or replica.topic_id != topic.topic_id):
                    raise Broken(
                        f"{NAME}-{index} on node {node.node_id} has the old topic id {replica.topic_id}"
                    )

    # ---- at the end

    def check(self) -> None:
        topic = self.stage.cluster.metadata.topics[NAME]
        replicas = {
            node.node_id: replica
            for node in self.stage.cluster.running_nodes()
            if (replica := node.replicas.get(*PHOENIX)) is not None
        }
        for node_id, replica in replicas.items():
            if replica.log_start_offset:
                raise Broken(
                    f"{PHOENIX} is new, but has log start {replica.log_start_offset} on node {node_id}"
                )
            self._check_producers(node_id, replica)
        for node in self.stage.cluster.running_nodes():
            self._check_files(node.node_id, topic)
        leader = replicas[topic.partitions[0].leader]
        self._check_records(leader, topic.topic_id)
        self.stage.say(f"{NAME} is {topic.topic_id}, with {leader.log_end_offset} offsets")

    @staticmethod
    def _check_producers(node_id: int, replica: Partition) -> None:
        there = {batch.producer_id for batch in replica.log.batches()}
        if left := replica.log.producers.entries.keys() - there:
            raise Broken(
                f"{PHOENIX} on node {node_id} has state of producers {sorted(left)} of an older topic"
            )

    def _check_files(self, node_id: int, topic: Topic) -> None:
        """Check that no files of old topics are left. Folders with the suffix -stray remain, as in Kafka."""
        directory = self.stage.cluster.nodes[node_id].node.replicas.directory
        expected = {f"{NAME}-{state.index}" for state in topic.partitions if node_id in state.replicas}
        found = {path.name: path for path in directory.path.glob(f"{NAME}-*") if path.suffix != ".json"}
        for name, path in found.items():
            is_foreign = name in expected and read_partition_metadata(path) not in (None, topic.topic_id)
            if is_foreign or name.endswith("-delete"):
                raise Broken(f"{name} remains from an older {NAME} on node {node_id}")

    def _check_records(self, leader: Partition, topic_id: UUID) -> None:
        committed, everything = (content(leader, read_committed=each) for each in (True, False))
        self.check_sent((value for _, value in everything), topic_id)
        where = {value: offset for offset, value in committed}
        for value, offset in self._told.items():
            if self._sent[value] == topic_id and where.get(value) != offset:
                raise Broken(f"{value!r} was written at {offset} of {PHOENIX}, but is at {where.get(value)}")
        views = {key: view for key, view in self._ledger.views.items() if str(topic_id) in key[0]}
        recent = Ledger()
        recent.views = views
        recent.check_views({PHOENIX: committed}, {PHOENIX: everything})
        self._check_works(committed)

    def _check_works(self, committed: list[tuple[int, bytes]]) -> None:
        """Check the transactions. Records sent to earlier topics of the name may be missing."""
        steady = content(self._leader(STEADY), read_committed=True)
        older, newer = self._ledger.works[: self._first_work], self._ledger.works[self._first_work :]
        maybe = {value for work in older for spot, value in work.sent if spot == PHOENIX}
        for work in older:
            there = maybe.intersection(value for _, value in work.sent).intersection(v for _, v in committed)
            if work.verdict is Verdict.ABORTED and there:
                raise Broken(f"{work.producer}/{work.number} was aborted, but {there} is visible")
        ledger = Ledger()
        ledger.works = [
            replace(work, sent=[each for each in work.sent if each[0] != PHOENIX]) for work in older
        ] + newer
        ours = [each for each in committed if each[1] not in maybe and each[1] not in self._sent]
        ledger.check_works({PHOENIX: ours, STEADY: steady})

    def _leader(self, spot: Spot) -> Partition:
        cluster = self.stage.cluster
        node = cluster.running(cluster.metadata.topics[spot[0]].partitions[spot[1]].leader)
        partition = node.replicas.get(*spot) if node is not None else None
        assert partition is not None, spot
        return partition


class IdReader(Reader):
    """A consumer that fetches by topic id, and starts again with each new topic of the name."""

    version = 16

    def __init__(self, wire: Wire, isolation: str, recreated: Recreated) -> None:
        super().__init__(wire, PHOENIX, isolation)
        self._isolation = isolation
        self._recreated = recreated
        self._topic_id: UUID | None = None

    async def fetch(self, max_wait_ms: int = 2_000) -> list[tuple[int, bytes]]:
        await self.wire.leader(*PHOENIX)
        topic_id = self.wire.topic_ids[NAME]
        if topic_id != self._topic_id:
            if self._topic_id is not None:
                self._recreated.stage.reached(READS_NEXT_TOPIC)
            self._topic_id, self.position = topic_id, 0
            self.view = self._recreated.view(self.wire.name, self._isolation, topic_id)
        return await super().fetch(max_wait_ms)

    def _request(self, leader_epoch: int, max_wait_ms: int) -> FetchRequest:
        request = super()._request(leader_epoch, max_wait_ms)
        request.topics[0].topic_id = self._topic_id
        return request

    def _take(self, data: Any, leader_epoch: int) -> list[tuple[int, bytes]]:
        found = super()._take(data, leader_epoch)
        assert self._topic_id is not None
        self._recreated.check_sent((value for _, value in found), self._topic_id)
        return found

    def note_shown(self, records: bytes) -> None:
        if self.wire.facts.topic_id(NAME) == self._topic_id:
            super().note_shown(records)

    async def out_of_range(self, leader_epoch: int) -> None:
        """Ignore OFFSET_OUT_OF_RANGE: the records were deleted, and the whole topic is deleted soon."""
