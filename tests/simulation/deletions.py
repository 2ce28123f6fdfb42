"""DeleteRecords on a topic that transactions, an idempotent producer and consumers use at the same time.

Invariants, in addition to the checks of the workload:

- Once a low watermark is acknowledged, the leader's log start is not below it, and no consumer gets a record below it, as
  long as that leader is alive. After the leader's death this holds if the in-sync replicas had the low watermark in their
  checkpoint files: Kafka too writes ``log-start-offset-checkpoint`` later.
- A log never starts above the highest offset that a client has requested.
- A consumer gets OFFSET_OUT_OF_RANGE only below the log start. No other records are missing for the consumer.
- An acknowledged record is at the offset in its Produce response, unless the log start is above that offset.
- At the end of the run all replicas have the same log start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any, Final

from broker.loop.life import NodeLife
from broker.replicas.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from storage.directory import LOG_STARTS
from tests.simulation.clients import number_batches, transact
from tests.simulation.consumers import Reader
from tests.simulation.ending import content
from tests.simulation.ledger import Broken, Ledger, Spot, View
from tests.simulation.rare import BEHIND_LOG_START
from tests.simulation.reach import Reach
from tests.simulation.wire import ASK_LEADER_AGAIN, LATE_MARGIN_MS, NONE, Gone, Wire

LIST_OFFSETS, DELETE_RECORDS = 2, 21
EARLIEST, LATEST = -2, -1
HIGH_WATERMARK: Final = -1
BEYOND: Final = 1_000_000
"""An offset above the end of every log."""
TRIMMED: Final[Spot] = ("trimmed", 0)
PAUSE_S: Final = (0.5, 8.0)
TIMEOUT_MS: Final = 5_000
MISTAKES: Final = 0.1
TO_THE_END: Final = 0.25


class Deletions(Reach):
    """The `Reach` (optional part of the workload) that deletes records, for the run of one seed."""

    clients = ("trimmer", "trimmed-new", "trimmed-numbered", "trimmed-committed", "trimmed-uncommitted")

    def __init__(self, random: Random, nodes: int) -> None:
        super().__init__(random, nodes)
        self._ledger = Ledger()
        self._acknowledged = 0
        """The low watermark in the last DeleteRecords response without an error."""
        self._in_memory: dict[NodeLife, int] = {}
        """By life of a node: the highest low watermark acknowledged in that life. A kill of the node may undo it.
        """
        self._settled = 0
        """The log start that all in-sync replicas have in their checkpoint files. No crash undoes it."""
        self._asked = 0
        """The highest offset up to which a client has requested to delete records, except ``BEYOND``."""
        self._to_the_end_until_ms = 0
        """If the last request deletes up to the high watermark: time in ms until which it may still arrive. Else
        0."""
        self._log_starts: dict[Partition, int] = {}

    def arguments(self, topic_settings: str) -> list[str]:
        return ["--topic", f"{TRIMMED[0]}:1:{topic_settings}"]

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        wire, stop, ledger = self.stage.wire, self.stage.stop, self._ledger
        yield self._trim(wire("trimmer"))
        yield transact(
            wire("trimmed-new"), [TRIMMED], ledger, stop, "trimmed-new", self.random.choice((1, 2))
        )
        yield number_batches(wire("trimmed-numbered"), [TRIMMED], ledger, stop)
        for name in ("committed", "uncommitted"):
            reader = f"trimmed-{name}"
            view = ledger.view(reader, TRIMMED, f"read_{name}")
            yield self._read(TrimmedReader(wire(reader), f"read_{name}", view, self))

    # ---- deletions

    async def _trim(self, wire: Wire) -> None:
        while not self.stage.stop.now:
            await asyncio.sleep(wire.random.uniform(*PAUSE_S))
            await self._delete_somewhere(wire)
        # The last deletion is acknowledged, so the final checks expect its effect.
        while not await self._delete_somewhere(wire):
            await wire.back_off()
        wire.close()

    async def _delete_somewhere(self, wire: Wire) -> bool:
        """Send one DeleteRecords request, and return whether it was acknowledged."""
        random = wire.random
        try:
            latest = await list_offset(wire, TRIMMED, LATEST)
            offset = random.randint(0, latest)
            if random.random() < TO_THE_END:
                offset = HIGH_WATERMARK
            elif random.random() < MISTAKES:
                offset = BEYOND
            return await self._delete(wire, offset)
        except Gone as error:
            wire.say(f"no deletion: {error}")
            return False

    async def _delete(self, wire: Wire, offset: int) -> bool:
        self._to_the_end_until_ms = wire.now_ms() + LATE_MARGIN_MS if offset == HIGH_WATERMARK else 0
        if offset != BEYOND:
            self._asked = max(self._asked, offset)
        topic, index = TRIMMED
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await wire.ask_leader(topic, index, DELETE_RECORDS, 2, request)
        result = answer.topics[0].partitions[0]
        error = ErrorCode(result.error_code)
        wire.say(f"deletes up to {offset}: {error.name} {result.low_watermark}")
        if error in ASK_LEADER_AGAIN:
            wire.forget_leader(topic, index)
        if error is NONE:
            self._ledger.cuts.setdefault(TRIMMED, []).append(result.low_watermark)
            self._acknowledge(offset, result.low_watermark)
        elif (error is ErrorCode.offset_out_of_range) != (offset == BEYOND) and error not in MAY_FAIL:
            raise Broken(f"DeleteRecords of {TRIMMED} up to {offset} has the result {error.name}")
        return error is NONE

    def _acknowledge(self, offset: int, low_watermark: int) -> None:
        if low_watermark < offset or offset == BEYOND:
            raise Broken(
                f"DeleteRecords up to {offset} is acknowledged with the low watermark {low_watermark}"
            )
        if offset == HIGH_WATERMARK:
            self._asked = max(self._asked, low_watermark)
        self._acknowledged = low_watermark
        for node in self.stage.cluster.running_nodes():
            life = self.stage.cluster.nodes[node.node_id].life
            self._in_memory[life] = max(self._in_memory.get(life, 0), low_watermark)

    def floor(self, node_id: int) -> int:
        """The lowest offset at which the log may start while this node leads the partition."""
        return max(self._settled, self._in_memory.get(self.stage.cluster.nodes[node_id].life, 0))

    # ---- consumers

    async def _read(self, reader: TrimmedReader) -> None:
        while not self.stage.stop.now:
            try:
                found = await reader.fetch()
            except Gone:
                await reader.wire.back_off()
                continue
            if found:
                reader.wire.say(f"read {found[0]} .. {found[-1]}")
        reader.wire.close()

    # ---- checks inside the nodes

    def look(self) -> None:
        topic, index = TRIMMED
        state = self.stage.cluster.metadata.topics[topic].partitions[index]
        replicas = {
            node.node_id: replica
            for node in self.stage.cluster.running_nodes()
            if (replica := node.replicas.get(topic, index)) is not None and replica.offline is None
        }
        self._check_forward(replicas)
        leader = replicas.get(state.leader)
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            self._check_leader(state.leader, leader)
        next_leaders = {*state.isr, *state.eligible_leader_replicas}
        if next_leaders and next_leaders <= replicas.keys():
            durable = [self._durable(node_id, replicas[node_id]) for node_id in next_leaders]
            self._settled = max(self._settled, min(durable))

    def _check_forward(self, replicas: dict[int, Partition]) -> None:
        for node_id, replica in replicas.items():
            before = self._log_starts.get(replica, 0)
            if replica.log_start_offset < before:
                raise Broken(
                    f"{TRIMMED} on node {node_id}: log start went back from {before} to {replica.log_start_offset}"
                )
        self._log_starts = {replica: replica.log_start_offset for replica in replicas.values()}

    def _check_leader(self, node_id: int, leader: Partition) -> None:
        if self.stage.now_ms() <= self._to_the_end_until_ms:
            self._asked = max(self._asked, leader.high_watermark)
        if leader.log_start_offset > self._asked:
            raise Broken(
                f"{TRIMMED}: log start {leader.log_start_offset} is above the highest requested offset {self._asked}"
            )
        floor = self.floor(node_id)
        if leader.log_start_offset < floor:
            raise Broken(
                f"{TRIMMED}: the leader's log start {leader.log_start_offset} is below the acknowledged offset {floor}"
            )

    def _durable(self, node_id: int, replica: Partition) -> int:
        """Log start that the replica would have after a crash of its node."""
        directory = self.stage.cluster.nodes[node_id].node.replicas.directory
        kept = directory.read_checkpoint(LOG_STARTS).get(TRIMMED, 0)
        segments = replica.log.segments
        return max(kept, segments[0].base_offset if segments else 0)

    # ---- at the end

    def check(self) -> None:
        topic, index = TRIMMED
        leader = self.stage.cluster.metadata.topics[topic].partitions[index].leader
        replicas = {
            node.node_id: replica
            for node in self.stage.cluster.running_nodes()
            if (replica := node.replicas.get(topic, index)) is not None
        }
        starts = {node_id: replica.log_start_offset for node_id, replica in replicas.items()}
        if len(set(starts.values())) != 1:
            raise Broken(f"{TRIMMED}: replicas have different log starts, by node: {starts}")
        if starts[leader] < self._acknowledged:
            raise Broken(
                f"{TRIMMED}: log start {starts[leader]} is below {self._acknowledged}, which DeleteRecords acknowledged"
            )
        committed = content(replicas[leader], read_committed=True)
        everything = content(replicas[leader], read_committed=False)
        start = starts[leader]
        self._ledger.check_works({TRIMMED: committed}, {TRIMMED: start})
        self._ledger.check_views({TRIMMED: committed}, {TRIMMED: everything}, {TRIMMED: start})
        self.stage.say(f"{TRIMMED} starts at {start}, with {len(committed)} records")


MAY_FAIL: Final = ASK_LEADER_AGAIN | {ErrorCode.request_timed_out, ErrorCode.unknown_server_error}


class TrimmedReader(Reader):
    """A consumer with ``auto.offset.reset=earliest``."""

    def __init__(self, wire: Wire, isolation: str, view: View, deletions: Deletions) -> None:
        super().__init__(wire, TRIMMED, isolation, view)
        self._deletions = deletions
        self._seen = view

    async def fetch(self, max_wait_ms: int = 2_000) -> list[tuple[int, bytes]]:
        node_id, _ = await self.wire.leader(*self.spot)
        floor = self._deletions.floor(node_id)
        found = await super().fetch(max_wait_ms)
        if found and found[0][0] < min(floor, self._deletions.floor(node_id)):
            raise Broken(
                f"{self.wire.name} got {found[0]} of {self.spot}, but all records below {floor} are deleted"
            )
        return found

    async def out_of_range(self, leader_epoch: int) -> None:
        earliest = await list_offset(self.wire, self.spot, EARLIEST)
        self.wire.say(f"{self.position} is out of range, goes on at {earliest}")
        if earliest > self.position:
            self._deletions.stage.reached(BEHIND_LOG_START)
            self._seen.jumps.append((self.position, earliest))
            self.position = earliest
        elif self.wire.facts.leader_epoch(*self.spot) == leader_epoch:
            # A new leader may not have a deletion that was not acknowledged.
            raise Broken(
                f"{self.spot}: position {self.position} is OFFSET_OUT_OF_RANGE, but the log start is {earliest}"
            )


async def list_offset(wire: Wire, spot: Spot, timestamp: int) -> int:
    """Offset for ``timestamp`` from ListOffsets: first offset (-2) or high watermark (-1). Raises ``Gone`` on an
    error."""
    topic, index = spot
    _, leader_epoch = await wire.leader(topic, index)
    asked = ListOffsetsPartition(
        partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    answer = await wire.ask_leader(topic, index, LIST_OFFSETS, 6, request)
    found = answer.topics[0].partitions[0]
    error = ErrorCode(found.error_code)
    if error is not NONE:
        wire.forget_leader(topic, index)
        raise Gone(error.name)
    return int(found.offset)
