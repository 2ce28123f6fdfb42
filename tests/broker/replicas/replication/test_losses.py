"""The list of losses has each record that a replica truncated once, with how it was acknowledged; its length is limited."""

from __future__ import annotations

from broker.injection.losses import ACKS_1, COMMITTED, LOSSES_KEPT, PERHAPS_COMMITTED, Loss, Losses
from tests.support.nodes import Nodes

LAG_MS = 30_000


async def test_what_only_the_leader_had_was_acknowledged_to_acks_1(nodes: Nodes):
    nodes.create()
    nodes.append(b"safe", acks=1)
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.cut(1, 3)
    for value in (b"lost", b"lost too"):
        nodes.append(value, acks=1)
    nodes.kill(1)
    await nodes.settle()
    nodes.append(b"later", acks=1)
    assert nodes.injection.losses.list() == ()  # the killed node still has the records on its disk
    nodes.injection.links.mend(1, 2)
    nodes.injection.links.mend(1, 3)
    nodes.start(1)
    await nodes.settle()
    [loss] = nodes.injection.losses.list()
    assert (loss.topic, loss.partition, loss.first_offset, loss.last_offset, loss.records) == (
        "t",
        0,
        1,
        2,
        2,
    )
    assert (loss.acknowledged, loss.nodes, loss.producer_id) == (ACKS_1, [1], -1)
    assert (loss.written_epoch, loss.leader_epoch) == (0, 1)
    assert loss.leader != 1


async def test_an_unclean_election_may_lose_what_was_committed(nodes: Nodes):
    nodes.create([1, 2], unclean_leader_election_enable="true")
    nodes.append(b"kept")
    nodes.injection.links.cut(1, 2)
    nodes.append(b"waits")
    await nodes.pass_time(2 * LAG_MS)
    assert nodes.isr() == (1,)
    nodes.append(b"acknowledged by the only one in sync")
    nodes.kill(1)
    await nodes.settle()
    nodes.append(b"instead")
    nodes.injection.links.mend(1, 2)
    nodes.start(1)
    await nodes.settle()
    [loss] = nodes.injection.losses.list()
    assert (loss.first_offset, loss.last_offset, loss.leader) == (1, 2, 2)
    assert loss.acknowledged in (COMMITTED, PERHAPS_COMMITTED)


async def test_without_a_loss_nothing_is_noted(nodes: Nodes):
    nodes.create()
    nodes.append(b"safe")
    await nodes.settle()
    nodes.kill(1)
    await nodes.settle()
    nodes.start(1)
    await nodes.settle()
    assert len(nodes.injection.losses) == 0


def loss_of(first: int, last: int, acknowledged: str, node: int) -> Loss:
    return Loss(0, "t", 0, first, last, last - first + 1, 5, 0, acknowledged, 0, 2, 1, [node])


def test_what_several_replicas_give_up_is_one_loss() -> None:
    losses = Losses()
    losses.note(loss_of(3, 4, ACKS_1, 1))
    losses.note(loss_of(3, 5, COMMITTED, 3))
    losses.note(loss_of(3, 4, ACKS_1, 1))
    [loss] = losses.list()
    assert (loss.last_offset, loss.records, loss.acknowledged, loss.nodes) == (5, 3, COMMITTED, [1, 3])


def test_only_the_newest_losses_are_kept() -> None:
    losses = Losses()
    for offset in range(LOSSES_KEPT + 2):
        losses.note(loss_of(offset, offset, ACKS_1, 1))
    assert (len(losses), losses.dropped, losses.list()[0].first_offset) == (LOSSES_KEPT, 2, 2)
    losses.clear()
    assert (len(losses), losses.dropped) == (0, 0)
