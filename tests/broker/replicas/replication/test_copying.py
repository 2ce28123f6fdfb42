"""Followers copy batches at once over links that are up, and their fetch offsets decide what is committed."""

from __future__ import annotations

from unittest.mock import DEFAULT, Mock

import pytest

from broker.replicas.replication import replica_fetcher
from protocol.errors import ErrorCode
from storage.reading import TAIL_BATCHES_REMEMBERED
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.support.nodes import Nodes

OK = ErrorCode.none


async def test_an_append_is_on_every_replica_and_committed_when_it_returns(nodes: Nodes):
    nodes.create()
    result = nodes.append(b"a", b"b")
    assert result.error is OK
    assert nodes.ends() == {1: (2, 2), 2: (2, 2), 3: (2, 2)}
    assert nodes.outcome(result).error is OK
    assert nodes.content(1) == nodes.content(2) == nodes.content(3) != b""


async def test_a_follower_is_another_folder_with_files_of_its_own(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    files = [(nodes.path / f"node-{node_id}" / "t-0").glob("*.log") for node_id in (1, 2, 3)]
    assert len({path.read_bytes() for each in files for path in each}) == 1


async def test_behind_a_cut_link_a_follower_stays_in_the_isr_and_nothing_is_committed(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.cut(1, 3)
    outcome = nodes.outcome(nodes.append(b"b"))
    assert nodes.ends() == {1: (1, 2), 2: (1, 2), 3: (1, 1)}
    assert outcome.error is None
    nodes.injection.links.mend(1, 3)
    await nodes.settle()
    assert nodes.ends() == {1: (2, 2), 2: (2, 2), 3: (2, 2)}
    assert outcome.error is OK


@pytest.mark.parametrize("link", [(1, 2), (2, 1)])
async def test_both_directions_of_a_link_are_needed(make_nodes: MakeNodes, link: tuple[int, int]):
    nodes = make_nodes(2)
    nodes.create([1, 2])
    nodes.injection.links.cut(*link)
    nodes.append(b"a")
    assert nodes.ends()[2] == (0, 0)


async def test_a_paused_replica_fetches_nothing_until_it_is_resumed(nodes: Nodes):
    nodes.create()
    nodes.injection.links.pause(2, "t")
    outcome = nodes.outcome(nodes.append(b"a"))
    assert nodes.ends()[2] == (0, 0)
    nodes.injection.links.resume(2, "t")
    await nodes.settle()
    assert outcome.error is OK


async def test_over_a_slow_link_it_takes_the_way_there_and_back(make_nodes: MakeNodes):
    nodes = make_nodes(2)
    nodes.create([1, 2])
    nodes.append(b"a")
    nodes.injection.links.slow(1, 2, 100)
    nodes.injection.links.slow(2, 1, 30)
    await nodes.pass_time(1000)
    outcome = nodes.outcome(nodes.append(b"b"))
    await nodes.pass_time(99)
    assert nodes.ends() == {1: (1, 2), 2: (1, 1)}
    await nodes.pass_time(1)
    assert nodes.ends() == {1: (1, 2), 2: (1, 2)}
    await nodes.pass_time(29)
    assert outcome.error is None
    await nodes.pass_time(1)
    assert outcome.error is OK
    assert nodes.ends() == {1: (2, 2), 2: (1, 2)}
    await nodes.pass_time(100)
    assert nodes.ends() == {1: (2, 2), 2: (2, 2)}


async def test_what_is_on_a_slow_link_when_it_is_cut_is_lost_and_asked_for_again(make_nodes: MakeNodes):
    nodes = make_nodes(2)
    nodes.create([1, 2])
    nodes.append(b"a")
    nodes.injection.links.slow(1, 2, 100)
    await nodes.pass_time(1000)
    nodes.append(b"b")
    nodes.injection.links.cut(1, 2)
    await nodes.pass_time(1000)
    assert nodes.ends() == {1: (1, 2), 2: (1, 1)}
    nodes.injection.links.mend(1, 2)
    await nodes.pass_time(1000)
    assert nodes.ends() == {1: (2, 2), 2: (2, 2)}


def with_a_follower_far_behind(make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Two nodes: node 2 has none of 100 records because its link is cut, and will fetch fewer than ten records at a
    time."""
    monkeypatch.setattr(replica_fetcher, "FETCH_BYTES", 1000)
    nodes = make_nodes(2)
    nodes.create([1, 2])
    nodes.injection.links.cut(1, 2)
    for _ in range(100):
        nodes.append(b"v" * 100)
    return nodes


async def test_a_follower_far_behind_catches_up_in_several_turns(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
):
    nodes = with_a_follower_far_behind(make_nodes, monkeypatch)
    nodes.injection.links.mend(1, 2)
    first = nodes.on(2).log_end_offset
    assert 0 < first < 10
    await nodes.settle()
    assert nodes.ends() == {1: (100, 100), 2: (100, 100)}
    assert nodes.content(1) == nodes.content(2)


async def test_a_followers_high_watermark_is_never_beyond_its_log(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
):
    """A follower outside the ISR limits its high watermark to its own log end, although the leader's response has a higher
    high watermark."""
    nodes = with_a_follower_far_behind(make_nodes, monkeypatch)
    await nodes.pass_time(45_000)
    assert (nodes.isr(), nodes.leader.high_watermark) == ((1,), 100)
    nodes.injection.links.mend(1, 2)
    high_watermark, end_offset = nodes.ends()[2]
    assert 0 < high_watermark == end_offset < 10


async def test_a_batch_larger_than_a_followers_share_is_committed_in_the_leaders_turn(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replica_fetcher, "FETCH_BYTES", 1000)
    nodes.create()
    assert nodes.outcome(nodes.append(b"v" * 5000)).error is OK


async def test_deleted_records_go_from_every_replica(nodes: Nodes):
    nodes.create()
    for value in (b"a", b"b", b"c"):
        nodes.append(value)
    nodes.injection.links.cut(1, 2)
    assert nodes.leader.delete_records(2) == (OK, 0)
    nodes.injection.links.mend(1, 2)
    await nodes.settle()
    assert [nodes.on(node_id).log_start_offset for node_id in (1, 2, 3)] == [2, 2, 2]
    assert nodes.leader.delete_records(2) == (OK, 2)


async def test_a_partition_with_a_single_replica_is_not_replicated(nodes: Nodes):
    nodes.create([2])
    nodes.append(b"a")
    assert nodes.on(2).leading is None
    assert nodes.on(2).following is None
    assert nodes.ends() == {2: (1, 1)}
    assert nodes.running[1].get("t", 0) is None
    assert nodes.running[1].leader("t", 0) is ErrorCode.not_leader_or_follower


async def test_a_follower_below_the_leader_s_log_start_restarts_there(nodes: Nodes):
    nodes.create(min_isr=1)
    nodes.append(b"a")
    nodes.injection.links.cut(1, 3)
    for _ in range(3):
        nodes.append(b"b")
    await nodes.pass_time(60_000)
    assert nodes.isr() == (1, 2)
    nodes.leader.log.roll(nodes.clock.now)
    assert nodes.leader.delete_records(3)[0] is OK
    nodes.injection.links.mend(1, 3)
    await nodes.settle()
    third = nodes.on(3)
    assert (third.log_start_offset, third.log_end_offset, third.high_watermark) == (3, 4, 4)
    assert set(nodes.isr()) == {1, 2, 3}


async def test_a_follower_begins_with_the_batch_in_which_the_leaders_log_starts(nodes: Nodes):
    """A follower whose log has fallen behind the leader's log start begins with the whole batch that contains the log start
    (Kafka: ``UnexpectedAppendOffsetException``)."""
    nodes.create(min_isr=1)
    nodes.injection.links.cut(1, 3)
    nodes.append(b"a")
    await nodes.pass_time(60_000)
    assert nodes.isr() == (1, 2)
    nodes.append(b"b", b"c", b"d")
    assert nodes.leader.delete_records(3)[0] is OK
    nodes.injection.links.mend(1, 3)
    await nodes.settle()
    third = nodes.on(3)
    assert (third.log_start_offset, third.log_end_offset, third.high_watermark) == (3, 4, 4)
    assert set(nodes.isr()) == {1, 2, 3}


async def test_a_damaged_batch_of_the_leader_is_not_appended(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.cut(1, 3)
    nodes.append(b"b")
    path = next((nodes.path / "node-1" / "t-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    nodes.injection.links.mend(1, 3)
    await nodes.settle()
    assert nodes.on(3).log_end_offset == 1


def damage_length(nodes: Nodes, position: int) -> None:
    path = min((nodes.path / "node-1" / "t-0").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(position + 8)
        file.write(b"\x7f\xff\xff\xff")


@pytest.mark.parametrize("newer", [0, TAIL_BATCHES_REMEMBERED])
async def test_a_damaged_length_costs_neither_the_loop_nor_the_leader(
    nodes: Nodes, newer: int, monkeypatch: pytest.MonkeyPatch
):
    """A damaged batch length stops a follower, but neither the event loop nor the leader. The leader has the positions
    of its newest batches in memory. To find an older batch it searches the log, and detects the damage."""
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.cut(1, 3)
    size = nodes.leader.log.size
    nodes.append(b"b")
    for _ in range(newer):
        nodes.append(b"c", acks=1)
    damage_length(nodes, size)
    reads = Mock(wraps=nodes.leader.log.read, side_effect=[DEFAULT] * 3)
    monkeypatch.setattr(nodes.leader.log, "read", reads)
    nodes.injection.links.mend(1, 3)
    await nodes.settle()
    monkeypatch.undo()
    assert nodes.leader.offline is None
    assert nodes.append(b"d").error is OK
    assert nodes.on(3).log_end_offset == 1


async def test_what_was_copied_in_front_of_a_damaged_batch_has_still_to_be_flushed(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    copy = nodes.on(3)
    copy.log.flushed_up_to(copy.log_end_offset)
    copy.note_flushed()
    nodes.injection.links.cut(1, 3)
    nodes.append(b"b")
    before = len(nodes.content(1))
    nodes.append(b"c")
    size = len(nodes.content(3))
    records = bytearray(nodes.content(1)[size:])
    records[before - size + 20] ^= 1
    assert copy.append_replicated(bytes(records)) is ErrorCode.corrupt_message
    assert copy.log_end_offset == 2
    assert copy.unflushed
