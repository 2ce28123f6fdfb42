"""The high watermark of each replica at every moment: only a leader computes it, a follower copies its leader's.

A record above the leader's high watermark may be lost by a clean election, so no replica may show it to a consumer.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker.metadata.elections import records_for_unfenced_brokers
from broker.replicas.manager import ReplicaManager
from broker.replicas.partition import Partition
from storage.checkpoints import read_offsets
from storage.directory import HIGH_WATERMARKS, LogDirectory
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.support.nodes import Nodes
from tests.support.points import Gate


def flushed(partition: Partition) -> None:
    """Mark the whole log of the partition as synced."""
    partition.log.flushed_up_to(partition.log_end_offset)
    partition.note_flushed()


async def leave_node_3_with_an_uncommitted_record(nodes: Nodes, gate: Gate | None = None) -> None:
    """Append a record with acks=1 that node 2 does not fetch. Node 2 is in the ISR, so the record stays
    uncommitted, although the leader, node 1, and node 3 have it.

    ``gate`` holds steps of the nodes, such as node 3's write of this record, until its release. None holds no
    step.
    """
    nodes.create()
    nodes.append(b"committed")
    nodes.injection.links.pause(2)
    nodes.injection.points = gate
    nodes.append(b"not committed", acks=1)
    assert nodes.ends() == {1: (1, 2), 2: (1, 1), 3: (1, 2)}


# -- no leader --------------------------------------------------------------------------------------------------


async def lose_the_leader(nodes: Nodes, gate: Gate | None = None) -> Partition:
    """Kill node 1 and then node 2, each while it leads, so that the partition has no leader. Returns the replica
    of node 3, which has the uncommitted record and is not in the ISR. ``gate``: see
    `leave_node_3_with_an_uncommitted_record`."""
    await leave_node_3_with_an_uncommitted_record(nodes, gate)
    nodes.injection.links.cut(2, 3)
    nodes.kill(1)
    nodes.injection.links.resume(2)
    await nodes.settle()
    nodes.append(b"of the next leader", acks=1)
    await nodes.pass_time(50_000)
    assert nodes.isr() == (2,)
    nodes.kill(2)
    assert nodes.controller.state().leader == -1
    return nodes.on(3)


async def test_an_fsync_commits_nothing_while_there_is_no_leader(nodes: Nodes):
    replica = await lose_the_leader(nodes)
    flushed(replica)
    assert nodes.ends() == {3: (1, 2)}
    assert nodes.values(3) == [b"committed"]


async def test_a_held_write_that_ends_commits_nothing_while_there_is_no_leader(nodes: Nodes):
    gate = Gate("log.write", lambda at: at.node_id == 3)
    replica = await lose_the_leader(nodes, gate)
    assert gate.held
    gate.release()
    assert (replica.high_watermark, replica.log_end_offset) == (1, 2)


async def test_a_record_that_was_never_committed_is_lost_without_an_unclean_election(nodes: Nodes):
    """A record that was never below a leader's high watermark is lost in a clean election. `Losses` lists the
    record as possibly acknowledged with acks=1, not with acks=all."""
    flushed(await lose_the_leader(nodes))
    nodes.injection.links.mend(2, 3)
    nodes.start(2)
    await nodes.settle()
    assert nodes.values(3) == [b"committed", b"of the next leader"]
    [loss] = nodes.injection.losses.list()
    assert (loss.first_offset, loss.acknowledged) == (1, "acks=1")


async def test_a_replica_that_is_opened_while_there_is_no_leader_has_its_checkpoint(nodes: Nodes):
    await lose_the_leader(nodes)
    await nodes.stop(3)
    nodes.start(3)
    assert nodes.controller.state().leader == -1
    assert nodes.ends() == {3: (1, 2)}


async def test_a_replica_without_a_checkpoint_opens_with_nothing_committed(nodes: Nodes):
    """A replica without an entry in the checkpoint file opens with the high watermark 0. Kafka does the same, and writes
    that file every five seconds."""
    await lose_the_leader(nodes)
    nodes.kill(3)
    nodes.start(3)
    assert nodes.ends() == {3: (0, 2)}


# -- a follower -------------------------------------------------------------------------------------------------


async def test_a_held_write_that_ends_at_a_follower_commits_nothing(nodes: Nodes):
    """A follower's high watermark does not move if its held write is released while the link to its leader is cut."""
    nodes.create()
    nodes.append(b"committed")
    nodes.injection.links.pause(3)
    gate = nodes.injection.points = Gate("log.write", lambda at: at.node_id == 2)
    nodes.append(b"not committed", acks=1)
    nodes.injection.links.cut(1, 2)
    gate.release()
    assert nodes.ends()[2] == (1, 2)
    assert nodes.values(2) == [b"committed"]


async def test_consumers_that_wait_at_a_follower_are_not_woken_for_what_is_not_committed(nodes: Nodes):
    """When a follower's held write is released, waiting consumers see no high watermark above the leader's, which
    is 0. The test checks this at each wake-up, as the follower copies the leader's high watermark later in the
    same turn."""
    nodes.create()
    nodes.injection.links.pause(3)
    gate = nodes.injection.points = Gate("log.write", lambda at: at.node_id == 2)
    nodes.append(b"not committed", acks=1)
    follower = nodes.on(2)
    seen: list[int] = []
    follower.delayed.watch(lambda: seen.append(follower.high_watermark))
    gate.release()
    assert set(seen) <= {0}


async def test_an_fsync_at_a_follower_commits_nothing(nodes: Nodes):
    await leave_node_3_with_an_uncommitted_record(nodes)
    nodes.injection.links.cut(1, 3)
    flushed(nodes.on(3))
    assert nodes.ends()[3] == (1, 2)


async def test_a_followers_high_watermark_is_its_new_leaders_though_that_is_lower(nodes: Nodes):
    nodes.create()
    nodes.injection.links.slow(1, 3, 100)
    nodes.append(b"a")
    await nodes.pass_time(100)
    await nodes.pass_time(0)
    assert nodes.ends() == {1: (1, 1), 2: (1, 1), 3: (0, 1)}
    nodes.injection.links.pause(2)
    nodes.lead(3)
    await nodes.settle()
    assert nodes.ends()[2] == (1, 1), "unchanged in the new epoch until the leader responds"
    nodes.injection.links.cut(1, 3)
    nodes.injection.links.resume(2)
    await nodes.settle()
    assert nodes.ends()[2] == nodes.ends()[3] == (0, 1), (
        "node 1 is in sync, and has not fetched from its new leader yet"
    )


async def test_a_followers_high_watermark_does_not_go_below_its_own_log_start(nodes: Nodes):
    """A follower keeps its high watermark at or above its own log start, even if a new leader's high watermark is lower
    (``UnifiedLog.updateHighWatermark``)."""
    nodes.create()
    for value in (b"a", b"b", b"c"):
        nodes.append(value)
    follower = nodes.on(2)
    follower.delete_records(2)
    follower.update_from_leader(1, 0)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (2, 2, 3)


async def test_a_follower_that_begins_again_has_committed_all_up_to_its_start(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.kill(3)
    for value in (b"b", b"c"):
        nodes.append(value)
    nodes.leader.delete_records(3)
    heard: list[tuple[int, int]] = []
    nodes.start(3)
    follower = nodes.on(3)
    follower.delayed.watch(lambda: heard.append((follower.log_start_offset, follower.high_watermark)))
    await nodes.settle()
    assert nodes.ends()[3] == (3, 3)
    assert all(log_start <= high_watermark for log_start, high_watermark in heard)


def truncate(partition: Partition, offset: int) -> None:
    partition.log.truncate_to(offset)


async def test_a_truncation_takes_the_high_watermark_back_only_where_it_lies_above(nodes: Nodes):
    await leave_node_3_with_an_uncommitted_record(nodes)
    follower = nodes.on(3)
    follower.truncate_by(lambda partition, offset: None, 2)
    assert follower.high_watermark == 1
    follower.truncate_by(truncate, 0)
    assert (follower.high_watermark, follower.log_end_offset) == (0, 0)


# -- changes of the leader --------------------------------------------------------------------------------------


async def test_a_leader_that_follows_keeps_its_high_watermark(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.pause(3)
    nodes.append(b"b", acks=1)
    nodes.injection.links.cut(1, 2)
    old = nodes.leader
    nodes.lead(2)
    flushed(old)
    assert (old.high_watermark, old.log_end_offset) == (1, 2)


async def test_a_leader_whose_node_stops_checkpoints_what_was_committed(nodes: Nodes):
    """A stopping node checkpoints the committed high watermark, even if an fsync completes after the node has stopped
    leading and following."""
    await leave_node_3_with_an_uncommitted_record(nodes)
    for node_id in (1, 3):
        replicas = nodes.running[node_id]
        replicas._stop()
        flushed(nodes.on(node_id))
        assert nodes.ends()[node_id] == (1, 2)


async def test_a_directory_that_is_opened_alone_keeps_what_was_committed(nodes: Nodes):
    """A directory that is opened without any other node, as an import does, keeps its high watermark."""
    await leave_node_3_with_an_uncommitted_record(nodes)
    await nodes.stop(3)
    metadata: Any = nodes.controller
    clock: Any = nodes.clock
    directory = LogDirectory(nodes.path / "node-3")
    replicas = ReplicaManager(3, directory, nodes.config, clock, metadata, Random(0))
    partition = replicas.get("t", 0)
    assert partition is not None
    assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
    assert await replicas.close(clean=True)
    directory.close(clean=True)
    assert read_offsets(directory.path / HIGH_WATERMARKS) == {("t", 0): 1}


@pytest.mark.parametrize("change", ["epoch", "isr"])
async def test_a_change_of_epoch_or_isr_moves_no_followers_high_watermark(nodes: Nodes, change: str):
    await leave_node_3_with_an_uncommitted_record(nodes)
    nodes.injection.links.pause(3)
    if change == "isr":
        await nodes.controller.alter_partition("t", 0, nodes.controller.state().leader_epoch, [1, 3])
    else:
        nodes.lead(2)
        nodes.lead(1)
    flushed(nodes.on(3))
    await nodes.settle()
    assert nodes.ends()[3] == (1, 2)


# -- a single replica -------------------------------------------------------------------------------------------


async def test_a_single_replica_commits_what_it_has_as_long_as_it_leads(make_nodes: MakeNodes):
    nodes = make_nodes(1)
    nodes.create([1])
    gate = nodes.injection.points = Gate("log.write")
    nodes.append(b"a", acks=1)
    nodes.lose(1)
    assert nodes.controller.state().leader == -1
    gate.release()
    flushed(nodes.on(1))
    assert nodes.ends() == {1: (0, 1)}
    nodes.kill(1, tell=False)
    nodes.start(1)
    await nodes.settle()
    assert nodes.ends() == {1: (1, 1)}


async def test_a_single_replica_that_leads_again_commits_what_it_has(make_nodes: MakeNodes):
    nodes = make_nodes(1)
    nodes.create([1])
    gate = nodes.injection.points = Gate("log.write")
    nodes.append(b"a", acks=1)
    nodes.lose(1)
    gate.release()
    nodes.controller.brokers[1] = replace(nodes.controller.brokers[1], fenced=False)
    nodes.controller.commit(records_for_unfenced_brokers(nodes.controller.image, [1], nodes.controller))
    assert nodes.ends() == {1: (1, 1)}
