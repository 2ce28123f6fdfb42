"""A follower's high watermark is one fetch behind its leader's, and a failover shows it.

The leader reads before it notes the progress of the follower that fetches, and ends no follower's fetch for a new high
watermark alone. So acknowledged records may be above the high watermarks of all replicas that survive their leader.
"""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from storage.checkpoints import read_offsets
from storage.directory import HIGH_WATERMARKS
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.broker.replicas.replication.test_reading import ask, list_latest
from tests.support.nodes import Nodes

OK = ErrorCode.none
WAIT_MS = 500
"""``replica.fetch.wait.max.ms``."""


@pytest.fixture
def nodes(make_nodes: MakeNodes) -> Nodes:
    return make_nodes(3, replica_fetch_wait_max_ms=str(WAIT_MS))


async def acknowledge(nodes: Nodes, *values: bytes) -> None:
    for value in values:
        assert nodes.outcome(nodes.append(value)).error is OK


async def test_a_follower_learns_a_high_watermark_when_its_fetch_has_waited(nodes: Nodes):
    nodes.create()
    await acknowledge(nodes, b"a")
    await nodes.pass_time(WAIT_MS - 1)
    assert nodes.ends() == {1: (1, 1), 2: (0, 1), 3: (0, 1)}
    await nodes.pass_time(1)
    assert nodes.ends() == {1: (1, 1), 2: (1, 1), 3: (1, 1)}


async def test_a_follower_learns_a_high_watermark_with_the_next_records(nodes: Nodes):
    nodes.create()
    await acknowledge(nodes, b"a", b"b")
    assert nodes.ends() == {1: (2, 2), 2: (1, 2), 3: (1, 2)}
    assert nodes.values(2) == [b"a"]


async def test_records_come_with_the_high_watermark_before_the_followers_own_fetch(nodes: Nodes):
    """The fetch that gets the second record moves the leader's high watermark to 1; its response still has 0."""
    nodes.create([1, 2])
    nodes.injection.links.slow(1, 2, 100)
    for value in (b"a", b"b"):
        nodes.append(value)
    await nodes.pass_time(100)
    assert nodes.ends() == {1: (1, 2), 2: (0, 1)}
    await nodes.pass_time(100)
    assert nodes.ends() == {1: (2, 2), 2: (0, 2)}
    await nodes.pass_time(WAIT_MS + 100)
    assert nodes.ends() == {1: (2, 2), 2: (2, 2)}


async def test_a_new_leader_commits_what_it_has_once_the_others_have_fetched(nodes: Nodes):
    nodes.create([2, 1, 3], min_isr=2)
    await acknowledge(nodes, b"a", b"b")
    nodes.kill(2)
    assert list_latest(nodes, 1) == (ErrorCode.offset_not_available, -1)
    await nodes.settle()
    assert nodes.ends() == {1: (2, 2), 3: (1, 2)}
    assert list_latest(nodes, 1) == (OK, 2)
    await nodes.pass_time(WAIT_MS)
    assert nodes.ends() == {1: (2, 2), 3: (2, 2)}


async def test_acknowledged_records_are_invisible_while_a_new_leader_is_below_min_insync_replicas(
    nodes: Nodes,
):
    """The leader stops within ``replica.fetch.wait.max.ms`` of an acknowledged write, in an orderly way. When it comes back,
    its own high watermark goes down to that of its new leader."""
    nodes.create([2, 3], min_isr=2)
    await acknowledge(nodes, b"a", b"b")
    await nodes.stop(2)
    assert read_offsets(nodes.path / "node-2" / HIGH_WATERMARKS) == {("t", 0): 2}
    await nodes.pass_time(10 * WAIT_MS)
    assert nodes.ends() == {3: (1, 2)}
    assert list_latest(nodes, 3) == (ErrorCode.offset_not_available, -1)
    for offset, error in ((1, OK), (2, OK), (3, ErrorCode.offset_out_of_range)):
        read = ask(nodes, 3, offset)
        assert (read.error_code, read.records) == (error, b"")
    assert nodes.append(b"c").error is ErrorCode.not_enough_replicas
    assert nodes.append(b"c", acks=1).base_offset == 2
    nodes.start(2)
    assert nodes.ends() == {2: (1, 3), 3: (1, 3)}
    await nodes.settle()
    assert nodes.ends() == {2: (1, 3), 3: (3, 3)}
    assert list_latest(nodes, 3) == (OK, 3)
    await nodes.pass_time(WAIT_MS)
    assert nodes.ends() == {2: (3, 3), 3: (3, 3)}


async def test_the_last_leader_waits_for_another_replica_to_commit_its_own_records(nodes: Nodes):
    """A leader that is alone again below min.insync.replicas has the high watermark of its checkpoint."""
    nodes.create([2, 3], min_isr=2)
    await acknowledge(nodes, b"a", b"b")
    await nodes.stop(3)
    assert nodes.append(b"c", acks=1).error is OK
    await nodes.stop(2)
    nodes.start(2)
    await nodes.pass_time(10 * WAIT_MS)
    assert nodes.ends() == {2: (2, 3)}
    assert list_latest(nodes, 2) == (ErrorCode.offset_not_available, -1)
    nodes.start(3)
    await nodes.settle()
    assert list_latest(nodes, 2) == (OK, 3)


async def test_a_replica_serves_consumers_while_there_is_no_leader(nodes: Nodes):
    """Kills before the first checkpoint: the high watermark is 0 after the restart, until both replicas are in sync."""
    nodes.create([2, 3], min_isr=2)
    await acknowledge(nodes, b"a")
    nodes.kill(3)
    assert nodes.append(b"b", acks=1).error is OK
    assert nodes.ends() == {2: (1, 2)}
    nodes.kill(2)
    nodes.start(3)
    await nodes.settle()
    epoch = nodes.controller.state().leader_epoch
    assert nodes.controller.state().leader == -1
    read = ask(nodes, 3, current_leader_epoch=epoch)
    assert (read.error_code, read.records, read.high_watermark) == (OK, b"", 0)
    assert ask(nodes, 3, current_leader_epoch=epoch - 1).error_code == ErrorCode.fenced_leader_epoch
    assert ask(nodes, 3, current_leader_epoch=epoch + 1).error_code == ErrorCode.unknown_leader_epoch
    nodes.start(2)
    assert nodes.ends()[2] == (0, 2)
    await nodes.settle()
    assert nodes.ends() == {2: (2, 2), 3: (0, 2)}
    assert nodes.values() == [b"a", b"b"]
