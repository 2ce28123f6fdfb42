"""A hundred thousand transactional ids and ten thousand groups: the duration of a clean stop and of the next start."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from benchmarks.client import (
    INIT_PRODUCER_ID,
    Api,
    Client,
    WrongResponse,
    create_topic,
    find_group_coordinator,
    frame,
    in_flight,
    init_producer_id_frame,
    parse,
    produce_frame,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import cpu_seconds, others_at_rest, resident_mib
from benchmarks.targets import Running
from protocol.batch import build_batch
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

ADD_PARTITIONS: Final[Api] = (24, 3)
END_TXN: Final[Api] = (26, 3)
OFFSET_COMMIT: Final[Api] = (8, 8)
TOPIC: Final = "many-ids"
PARTITIONS: Final = 4
PIPELINE: Final = 500
"""Number of requests in flight."""


def measure(run: Run) -> Iterator[Figure]:
    ids, groups = run.scaled(100_000, 2_000), run.scaled(10_000, 500)
    directory = run.scratch / "many-ids"
    text = f"{ids:,} transactional ids and {groups:,} groups"
    others = others_at_rest()
    with run.target.running(directory) as target:
        client = Client(target.connect())
        create_topic(client, TOPIC, PARTITIONS)
        find_group_coordinator(client, "first")
        yield _timed(f"make {text}", target, lambda: fill(client, ids, groups), others)
        yield Figure("resident memory with them", resident_mib(target.pid), "MiB", other_cpu=others)
        client.close()
        yield _timed(f"clean stop with {text}", target, lambda: _stop(target), others, limit=2)
    for number in (1, 2):
        with run.target.running(directory) as target:
            client = Client(target.connect())
            find_group_coordinator(client, "first")
            taken_s = time.perf_counter() - target.spawned_at
            yield _figure(
                f"start {number} after a clean stop with {text}, to both coordinators found",
                taken_s,
                cpu_seconds(target.pid),
                others,
                limit=5,
            )
            _check(client, ids)
            client.close()
            yield _timed(f"clean stop {number} after it", target, lambda: _stop(target), others, limit=2)


# -- the work -----------------------------------------------------------------------------------------------------


def fill(client: Client, ids: int, groups: int) -> None:
    """Commit one transaction with each id, and one offset in each of the partitions for each group."""
    for first in range(0, ids, PIPELINE):
        names = [f"id-{number}" for number in range(first, min(first + PIPELINE, ids))]
        answers = _ask_all(client, INIT_PRODUCER_ID, map(init_producer_id_frame, names))
        producers = [(name, answer.producer_id) for name, answer in zip(names, answers, strict=True)]
        if any(answer.error_code for answer in answers):
            raise WrongResponse(f"InitProducerId: {answers[0]}")
        for work in (_add_partitions, _produce, _commit):
            _transact(client, producers, work)
    for first in range(0, groups, PIPELINE):
        names = [f"group-{number}" for number in range(first, min(first + PIPELINE, groups))]
        _ask_all(client, OFFSET_COMMIT, map(_offset_commit, names))


def _transact(
    client: Client, producers: Sequence[tuple[str, int]], request: Callable[[str, int], bytes]
) -> None:
    in_flight(client, [request(name, producer_id) for name, producer_id in producers])


def _ask_all(client: Client, api: Api, frames: Iterable[bytes]) -> list[Any]:
    return [parse(api, answer) for answer in in_flight(client, list(frames))]


def _add_partitions(name: str, producer_id: int) -> bytes:
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[producer_id % PARTITIONS])]
    return frame(
        ADD_PARTITIONS,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
    )


def _produce(name: str, producer_id: int) -> bytes:
    batch = build_batch(
        [(time.time_ns() // 1_000_000, None, name.encode())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return produce_frame(TOPIC, batch, [producer_id % PARTITIONS], name)


def _commit(name: str, producer_id: int) -> bytes:
    return frame(
        END_TXN,
        EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=0, committed=True),
    )


def _offset_commit(group: str) -> bytes:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return frame(OFFSET_COMMIT, OffsetCommitRequest(group_id=group, topics=topics))


def _check(client: Client, ids: int) -> None:
    """Check that the broker knows the last id: InitProducerId returns an epoch above 0."""
    (answer,) = _ask_all(client, INIT_PRODUCER_ID, [init_producer_id_frame(f"id-{ids - 1}")])
    if answer.error_code or answer.producer_epoch < 1:
        raise WrongResponse(f"InitProducerId after a restart: {answer}")


def _stop(target: Running) -> None:
    target.process.send_signal(signal.SIGTERM)
    # The process stays a zombie until it is waited for, and /proc still has a zombie's CPU time.
    os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)


# -- the figures --------------------------------------------------------------------------------------------------


def _timed(
    name: str, target: Running, work: Callable[[], None], others: float, limit: float | None = None
) -> Figure:
    cpu_s, began = cpu_seconds(target.pid), time.perf_counter()
    work()
    return _figure(name, time.perf_counter() - began, cpu_seconds(target.pid) - cpu_s, others, limit)


def _figure(name: str, taken_s: float, cpu_s: float, others: float, limit: float | None = None) -> Figure:
    return Figure(name, taken_s, "s", limit=limit, note=f"CPU of the process {cpu_s:.1f} s", other_cpu=others)
