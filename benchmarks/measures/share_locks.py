"""A hundred thousand records that 500 members of a share group have acquired: the cost of a fetch, the end of all locks."""

from __future__ import annotations

import http.client
import json
import time
import tracemalloc
from collections.abc import Iterator
from itertools import count
from typing import Final
from uuid import UUID

from benchmarks.client import (
    Api,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    find_group_coordinator,
    in_flight,
    now_ms,
    produce_frame,
    until_ready,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import others_at_rest, precise_cpu_seconds
from benchmarks.targets import OdradekWithControlPort, Running, control_address
from broker.share.partition import Acknowledged, Fetched, Limits, SharePartition
from broker.share.settings import ShareGroupSettings
from broker.share.state import StoredState
from protocol.batch import build_batch
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

ALTER_CONFIGS: Final[Api] = (44, 1)
SHARE_HEARTBEAT: Final[Api] = (76, 1)
SHARE_FETCH: Final[Api] = (78, 1)
GROUP: Final = "locks"
TOPIC: Final = "locks"
PARTITIONS: Final = 20
PARTITION_RECORDS: Final = 40_000
"""Number of records in each partition: more than all members acquire."""
BATCH_RECORDS: Final = 20
FETCH_RECORDS: Final = 200
FETCHES: Final = 500
"""Number of fetches in each measurement."""
LOCK_MS: Final = 3_600_000
SETTINGS: Final = {
    "group.share.max.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.max.partition.max.record.locks": "10000",
    "group.share.partition.max.record.locks": "10000",
}
ACCEPT: Final = 1


def measure(run: Run) -> Iterator[Figure]:
    others = others_at_rest()
    sizes = (1_000, 10_000, run.scaled(100_000, 20_000))
    with OdradekWithControlPort().running(run.scratch / "share-locks", SETTINGS) as broker:
        members = Members(Client(broker.connect()))
        costs = {}
        for records in sizes:
            members.acquire(records)
            costs[records] = members.cost_us(broker.pid)
        smallest, largest = sizes[0], sizes[-1]
        yield Figure(
            f"CPU per ShareFetch with {largest:,} acquired records",
            costs[largest],
            "us",
            limit=2 * costs[smallest],
            baseline=", ".join(f"{each:,}: {costs[each]:.0f} us" for each in sizes[:-1]),
            note=f"{largest // FETCH_RECORDS} members, each acknowledges and acquires {FETCH_RECORDS} records",
            other_cpu=others,
        )
        advance(broker, 1)  # the first request imports what it needs
        used_s, start = precise_cpu_seconds(broker.pid), time.perf_counter()
        advance(broker, LOCK_MS)
        members.check_available()
        yield Figure(
            f"end of the locks of {largest:,} records, after an hour of the virtual clock",
            (precise_cpu_seconds(broker.pid) - used_s) * 1000,
            "ms",
            limit=100,
            note=f"CPU of the broker; {(time.perf_counter() - start) * 1000:.0f} ms until a fetch has them again",
            other_cpu=others,
        )
    for text, types in (
        ("whole batches", [ACCEPT]),
        ("each with a state of its own", [ACCEPT] * BATCH_RECORDS),
    ):
        yield Figure(
            f"memory per acquired record, {text}", bytes_per_record(types), "bytes", other_cpu=others
        )


def advance(broker: Running, duration_ms: int) -> None:
    """Advance the clock of groups."""
    connection = http.client.HTTPConnection(*control_address(broker))
    body = json.dumps({"by_ms": duration_ms, "only": ["groups"]})
    connection.request("POST", "/v1/clock/advance", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise WrongResponse(f"clock/advance: {response.status} {response.read().decode()}")
    connection.close()


class Members:
    """Members of one share group, each of which fetches from one partition. All use one connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        create_topic(client, TOPIC, PARTITIONS)
        find_group_coordinator(client, GROUP)
        batch = build_batch([(now_ms(), None, b"record")] * BATCH_RECORDS)
        frame = produce_frame(TOPIC, batch, range(PARTITIONS))
        check_produced(in_flight(client, [frame] * (PARTITION_RECORDS // BATCH_RECORDS)))
        from_start = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        group = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[from_start])
        client.ask(ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[group]))
        self._epoch = 0
        self._topic_id: UUID = until_ready(self._join)
        self._held: list[tuple[int, int]] = []
        """First and last offset of the records that each member has acquired."""
        self._epochs: list[int] = []
        self._next = count()

    def _join(self) -> UUID:
        """Send a heartbeat. Later ones, after the share partitions are initialized, have the assignment."""
        names = [TOPIC] if self._epoch == 0 else None
        response = self._client.ask(
            SHARE_HEARTBEAT,
            ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="member", member_epoch=self._epoch, subscribed_topic_names=names
            ),
        )
        if response.error_code:
            raise WrongResponse(f"ShareGroupHeartbeat: error {response.error_code}")
        self._epoch = response.member_epoch
        if not response.assignment or not response.assignment.topic_partitions:
            raise WrongResponse("ShareGroupHeartbeat: no assignment")
        topic_id: UUID = response.assignment.topic_partitions[0].topic_id
        return topic_id

    def acquire(self, records: int) -> None:
        """Let new members acquire records until this number is acquired."""
        while len(self._held) * FETCH_RECORDS < records:
            self._epochs.append(0)
            self._held.append((0, -1))
            until_ready(lambda: self._fetch(len(self._held) - 1))

    def cost_us(self, pid: int) -> float:
        """CPU time of the broker for a ShareFetch of one of the members, in turn."""
        used_s = precise_cpu_seconds(pid)
        for _ in range(FETCHES):
            self._fetch(next(self._next) % len(self._held))
        return (precise_cpu_seconds(pid) - used_s) / FETCHES * 1e6

    def check_available(self) -> None:
        """Check that the records of the first member are delivered a second time."""
        first_offset, last_offset = self._held[0]
        self._held[0] = (0, -1)
        self._fetch(0, delivery_count=2)
        if self._held[0][0] > first_offset or self._held[0][1] < last_offset:
            raise WrongResponse(f"delivered again: {self._held[0]}, not {first_offset} to {last_offset}")

    def _fetch(self, member: int, delivery_count: int = 1) -> None:
        first_offset, last_offset = self._held[member]
        batches = [
            AcknowledgementBatch(
                first_offset=first_offset, last_offset=last_offset, acknowledge_types=[ACCEPT]
            )
        ]
        partition = FetchPartition(
            partition_index=member % PARTITIONS,
            acknowledgement_batches=batches if last_offset >= first_offset else [],
        )
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=f"member-{member}",
            share_session_epoch=self._epochs[member],
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=FETCH_RECORDS,
            batch_size=FETCH_RECORDS,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        response = self._client.ask(SHARE_FETCH, request)
        if response.error_code:
            raise WrongResponse(f"ShareFetch: error {response.error_code}")
        self._epochs[member] += 1
        found = [each for topic in response.responses for each in topic.partitions]
        if not found or found[0].error_code or found[0].acknowledge_error_code:
            raise WrongResponse(f"ShareFetch: {found}")
        acquired = found[0].acquired_records
        if not acquired or {each.delivery_count for each in acquired} != {delivery_count}:
            raise WrongResponse(f"ShareFetch: acquired {acquired}, not with delivery count {delivery_count}")
        self._held[member] = acquired[0].first_offset, acquired[-1].last_offset


def bytes_per_record(types: list[int]) -> float:
    """Memory of one share partition with 10,000 records in flight. With more than one type each record has had its own
    acknowledgement, which could not be written."""
    records = 10_000
    settings = ShareGroupSettings(partition_max_record_locks=records)
    batches = [(first, first + BATCH_RECORDS - 1) for first in range(0, records, BATCH_RECORDS)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        partition = SharePartition()
        partition.load(StoredState(start_offset=0), settings)
        limits = Limits(records, BATCH_RECORDS)
        partition.acquire("member", Fetched(0, batches), limits, settings, 0)
        if len(types) > 1:
            for first, last in batches[1:]:
                change = partition.acknowledge("member", [Acknowledged(first, last, types)], settings, 0)
                partition.roll_back(change)
        return (tracemalloc.get_traced_memory()[0] - before) / records
    finally:
        tracemalloc.stop()
