"""The fast paths of an append decide like the full checks (ADR 23): `opened_leader` like `leader`, and `append_as_sent` like
`check` and `append`."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from broker.replicas.partition import Partition
from protocol.batch import RecordBatch
from protocol.errors import ErrorCode
from tests.broker.replicas.partition.test_partition import Bench, idempotent, plain, transactional
from tests.support.clock import NOW_MS
from tests.support.world import World


def test_an_opened_leader_is_the_leader(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("t", 4)
    replicas = world.node.replicas
    opened = [world.partition("t", index) for index in range(3)]
    opened[1].leader_id = world.node.node_id + 1
    opened[2].offline = "a disk failed"
    short = [replicas.opened_leader("t", index) for index in range(5)]
    full = [replicas.leader("t", index) for index in range(5)]
    assert short == [opened[0], None, None, None, None]
    assert full[:3] == [opened[0], ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error]
    assert isinstance(full[3], Partition), "`leader` opens a partition that has not been used yet"
    assert full[4] is ErrorCode.unknown_topic_or_partition
    # `leader` has a fast path too, which checks the client's leader epoch.
    epoch = opened[0].leader_epoch
    assert replicas.leader("t", 0, epoch) is opened[0]
    assert replicas.leader("t", 0, epoch + 1) is ErrorCode.unknown_leader_epoch
    opened[2].offline = None
    world.abandon()


BATCHES = [
    plain(),
    plain(count=3),
    plain(compression=1),
    plain(timestamp_ms=NOW_MS + 10 * 3_600_000),
    plain(key=b"k" * 200),
    *(idempotent(sequence, epoch=epoch) for sequence in range(3) for epoch in (0, 1)),
    transactional(0),
]


@given(st.lists(st.sampled_from(BATCHES), max_size=8), st.sampled_from([-1, 1]))
@example([idempotent(0), idempotent(1), idempotent(1), idempotent(0)], -1)
def test_what_is_appended_as_sent_is_what_check_and_append_make_of_it(
    tmp_path_factory, batches: list[bytes], acks: int
) -> None:
    folder = tmp_path_factory.mktemp("forms")
    short, full = (Bench(folder / name, max_message_bytes=150) for name in ("short-0", "full-0"))
    for raw in batches:
        result = short.partition.append_as_sent(RecordBatch.parse(raw), acks)
        in_full = full.append(raw, acks=acks)
        if result is None:
            result = short.append(raw, acks=acks)
        assert result == in_full
        assert short.layout() == full.layout()
    for bench in (short, full):
        bench.partition.log.close(clean=False)
