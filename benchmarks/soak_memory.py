"""Check that the broker's memory does not grow: ``python -m benchmarks.soak_memory --minutes 30``.

The load is steady, and its parts come and go: records that retention deletes, producers, transactional ids and groups that
expire, topics, connections. Every 30 s the resident memory is recorded. After the first minutes it must not grow: the result
is the slope of a line through the samples, and the exit code is 1 if it is above the limit. ``--only`` selects parts of the
load, to find the part that grows.

Memory that has an upper bound reaches it in the first minutes. For example, each partition of the internal topics is opened
by the first id or group that belongs to it, and then remembers the positions of its last batches.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import linear_regression
from typing import Any, Final

from benchmarks.client import (
    END_TXN,
    FETCH,
    TXN_OFFSET_COMMIT,
    Api,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    fetch_frame,
    find_group_coordinator,
    in_flight,
    in_turn,
    init_producer_id,
    large_batch,
    parse,
    produce_frame,
    small_batch,
    whole_transaction_frames,
)
from benchmarks.process import cpu_seconds, resident_mib
from benchmarks.targets import Odradek, Running
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.records.consumer_protocol import Subscription
from storage.files import file_size

OFFSET_COMMIT: Final[Api] = (8, 9)
JOIN_GROUP: Final[Api] = (11, 3)
LEAVE_GROUP: Final[Api] = (13, 2)
SYNC_GROUP: Final[Api] = (14, 3)
DELETE_TOPICS: Final[Api] = (20, 5)
CONSUMER_GROUP_HEARTBEAT: Final[Api] = (68, 1)
TOPIC: Final = "soak"
SMALL: Final = 20
"""Number of small Produce requests in each step of the load."""
SAMPLE_S: Final = 30.0
SETTLED_S: Final = 600.0
LIMIT_MIB_PER_HOUR: Final = 10.0
EPOCHS: Final = 50
"""Number of transactions with one transactional id, before the load uses a new id."""
MIB: Final = 1 << 20
SETTINGS: Final = {
    # The disk stays small, and each topic reaches its full size within the minutes that do not count: the broker has an
    # object in memory for each segment.
    "log.segment.bytes": str(2 * MIB),
    "log.retention.bytes": str(8 * MIB),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # Segments of the internal topics, at least 1 MiB, roll within these minutes and are compacted.
    "offsets.topic.segment.bytes": str(MIB),
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.segment.bytes": str(MIB),
    "transaction.state.log.num.partitions": "10",
    "log.cleaner.delete.retention.ms": "1000",
    # Unused groups, ids and producers expire within the minutes that do not count.
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "5000",
    "transactional.id.expiration.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


class Load:
    """The load: one step of each part in turn, on one connection."""

    def __init__(self, target: Running) -> None:
        self._target = target
        self.client = Client(target.connect())
        create_topic(self.client, TOPIC, 2)
        create_topic(self.client, "large")
        find_group_coordinator(self.client, "first")
        self._numbers = count()
        self._large = produce_frame("large", large_batch())
        self._offset = 0
        self.take_new_id()

    def close(self) -> None:
        self.client.close()

    def take_new_id(self) -> None:
        """Use a new transactional id from the next transaction on."""
        self._transaction: tuple[str, int, int] = ("", -1, EPOCHS)

    def small(self) -> None:
        """Write some records with a new producer id."""
        producer_id = init_producer_id(self.client)
        frames = [produce_frame(TOPIC, small_batch(producer_id, sequence)) for sequence in range(SMALL)]
        check_produced(in_turn(self.client, frames))

    def large(self) -> None:
        """Write 1 MiB and read it."""
        (answer,) = in_turn(self.client, [self._large])
        check_produced([answer])
        self.client.send(fetch_frame("large", self._offset))
        ((partition,),) = (topic.partitions for topic in parse(FETCH, self.client.receive()).responses)
        if partition.error_code or partition.high_watermark != self._offset + 1 or not partition.records:
            raise WrongResponse(f"Fetch at {self._offset}: error {partition.error_code}")
        self._offset += 1

    def transaction(self) -> None:
        """Commit records in two partitions and an offset, sometimes with a new transactional id."""
        name, producer_id, epoch = self._transaction
        if epoch == EPOCHS:
            name, epoch = f"id-{next(self._numbers)}", 0
            producer_id = init_producer_id(self.client, name)
        frames = whole_transaction_frames(TOPIC, f"group-of-{name}", name, producer_id, epoch)
        produced, *others = in_flight(self.client, [frames], 3)
        check_produced([produced])
        committed, ended = parse(TXN_OFFSET_COMMIT, others[0]), parse(END_TXN, others[1])
        if committed.topics[0].partitions[0].error_code or ended.error_code:
            raise WrongResponse(f"transaction of {name}: {committed}, {ended}")
        self._transaction = name, producer_id, epoch + 1

    def classic_group(self) -> None:
        """Join a new classic group, commit an offset, and leave the group, which later expires with its offsets."""
        group = f"classic-{next(self._numbers)}"
        offered = JoinGroupRequestProtocol(name="range", metadata=Subscription(topics=[TOPIC]).encode(1))
        joined = self._ask(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[offered],
            ),
        )
        member = {"group_id": group, "member_id": joined.member_id}
        given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(100))]
        self._ask(
            SYNC_GROUP,
            SyncGroupRequest(generation_id=joined.generation_id, assignments=given, **member),
        )
        self._commit(generation_id_or_member_epoch=joined.generation_id, **member)
        self._ask(LEAVE_GROUP, LeaveGroupRequest(**member))

    def consumer_group(self) -> None:
        """Join a new consumer group, commit an offset, and leave the group, which later expires with its offsets."""
        group = f"consumer-{next(self._numbers)}"
        member: dict[str, Any] = {"group_id": group, "member_id": f"{group}-member"}
        joined = self._ask(
            CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
                **member,
            ),
        )
        self._commit(generation_id_or_member_epoch=joined.member_epoch, **member)
        self._ask(
            CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(member_epoch=-1, topic_partitions=None, **member),
        )

    def topic(self) -> None:
        """Create, write and delete a topic of four partitions."""
        name = f"topic-{next(self._numbers)}"
        create_topic(self.client, name, 4)
        check_produced(in_turn(self.client, [produce_frame(name, small_batch(), range(4))]))
        answer = self.client.ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000))
        if answer.responses[0].error_code:
            raise WrongResponse(f"DeleteTopics: error {answer.responses[0].error_code}")

    def connection(self) -> None:
        """Write one record on a new connection."""
        other = Client(self._target.connect())
        check_produced(in_turn(other, [produce_frame(TOPIC, small_batch())]))
        other.close()

    def _commit(self, **member: Any) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 1)
        ]
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        answer = self.client.ask(OFFSET_COMMIT, OffsetCommitRequest(topics=topics, **member))
        if any(partition.error_code for partition in answer.topics[0].partitions):
            raise WrongResponse(f"OffsetCommit: {answer}")

    def _ask(self, api: Api, request: Any) -> Any:
        answer = self.client.ask(api, request)
        if answer.error_code:
            raise WrongResponse(f"{type(request).__name__}: error {answer.error_code}")
        return answer


PARTS: Final[dict[str, Callable[[Load], None]]] = {
    "small": Load.small,
    "large": Load.large,
    "transactions": Load.transaction,
    "classic-groups": Load.classic_group,
    "consumer-groups": Load.consumer_group,
    "topics": Load.topic,
    "connections": Load.connection,
}


@dataclass(frozen=True)
class Sample:
    at_s: float
    resident_mib: float
    steps: int
    cpu_s: float
    disk_mib: float
    descriptors: int

    def __str__(self) -> str:
        return (
            f"{self.at_s:6.0f} s  {self.resident_mib:6.1f} MiB  {self.steps:7,} steps  CPU {self.cpu_s:6.1f} s"
            f"  disk {self.disk_mib:4.0f} MiB  {self.descriptors} descriptors"
        )


def sampled(target: Running, data: Path, began: float, steps: int) -> Sample:
    files = [os.path.join(folder, name) for folder, _, names in os.walk(data) for name in names]
    return Sample(
        time.monotonic() - began,
        resident_mib(target.pid),
        steps,
        cpu_seconds(target.pid),
        sum(file_size(name) or 0 for name in files) / MIB,
        len(os.listdir(f"/proc/{target.pid}/fd")),
    )


def soak(
    target: Running, data: Path, minutes: float, steps_per_s: float, only: Sequence[str]
) -> list[Sample]:
    load = Load(target)
    parts = [part for name, part in PARTS.items() if name in only]
    began, samples, steps = time.monotonic(), list[Sample](), 0
    next_sample_s = due_s = 0.0
    while (passed_s := time.monotonic() - began) < minutes * 60:
        if passed_s >= next_sample_s:
            samples.append(sampled(target, data, began, steps))
            print(samples[-1], flush=True)
            next_sample_s += SAMPLE_S
        for part in parts:
            part(load)
        steps += 1
        # Do not catch up on late steps: objects that live for a minute would be more after a time without the CPU.
        due_s = max(due_s + 1 / steps_per_s, time.monotonic() - began)
        time.sleep(max(0.0, due_s - (time.monotonic() - began)))
    samples.append(sampled(target, data, began, steps))
    print(samples[-1])
    return samples


def verdict(samples: Sequence[Sample]) -> tuple[str, bool]:
    """A sentence about the memory after the first minutes, and whether it does not grow."""
    settled = [sample for sample in samples if sample.at_s >= SETTLED_S]
    if len(settled) < 3:
        return f"too short: the first {SETTLED_S / 60:.0f} minutes do not count", False
    hours = [sample.at_s / 3600 for sample in settled]
    memory = [sample.resident_mib for sample in settled]
    slope, _ = linear_regression(hours, memory)
    flat = slope <= LIMIT_MIB_PER_HOUR
    said = "flat" if flat else "grows"
    return (
        f"{said}: {slope:+.1f} MiB per hour by a line through {len(settled)} samples of the last "
        f"{(hours[-1] - hours[0]) * 60:.0f} minutes, {min(memory):.1f} to {max(memory):.1f} MiB "
        f"(limit {LIMIT_MIB_PER_HOUR:.0f} MiB per hour)",
        flat,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak_memory", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--steps-per-second", type=float, default=20.0, help="each step runs all parts of the load"
    )
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="only this part of the load (repeatable)"
    )
    parser.add_argument(
        "--directory", type=Path, help="where data is written (some 200 MiB; default: temporary)"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="odradek-soak-", dir=options.directory) as scratch:
        directory = Path(scratch)
        with Odradek().running(directory, SETTINGS) as target:
            only = options.only or list(PARTS)
            samples = soak(target, directory / "data", options.minutes, options.steps_per_second, only)
    text, flat = verdict(samples)
    print(text)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
