"""Connections of a paused node stay open and get no response until the node is resumed."""

from __future__ import annotations

from tests.broker.net.test_connection import HEARTBEAT, Broker, Parking, heartbeat, pong


async def test_requests_during_a_pause_get_their_response_after_it() -> None:
    broker = Broker({HEARTBEAT: pong})
    early = broker.connect()
    early.send(heartbeat(1))
    broker.connections.pause()
    late = broker.connect()
    early.send(heartbeat(2))
    late.send(heartbeat(3) + heartbeat(4))
    assert (early.answered(), late.answered()) == ([1], [])
    assert not early.transport.closing
    assert not late.transport.closing
    assert not early.transport.reading  # what the client sends stays in the kernel's buffer
    broker.connections.resume()
    early.send(early.unsent)
    late.send(late.unsent)
    assert (early.answered(), late.answered()) == ([1, 2], [3, 4])
    early.send(heartbeat(5))
    assert early.answered() == [1, 2, 5]


async def test_a_response_that_is_ready_during_a_pause_is_sent_after_it() -> None:
    parking = Parking()
    broker = Broker({HEARTBEAT: parking})
    peer = broker.connect()
    peer.send(heartbeat(1) + heartbeat(2))
    broker.connections.pause()
    await parking.release()
    assert peer.answered() == []
    assert len(parking.seen) == 1  # the second request is not handled during the pause
    broker.connections.resume()
    assert peer.answered() == [1]
    await parking.release()
    assert peer.answered() == [1, 2]


async def test_a_kill_is_not_put_off_by_a_pause() -> None:
    broker = Broker({HEARTBEAT: pong})
    peer = broker.connect()
    broker.connections.pause()
    broker.connections.reset()
    assert peer.transport.aborted
    broker.connections.resume()  # has no connection left to resume
    assert peer.answered() == []


async def test_a_connection_that_ends_meanwhile_closes_after_the_pause() -> None:
    broker = Broker({HEARTBEAT: pong})
    peer = broker.connect()
    broker.connections.pause()
    (connection,) = broker.connections._open
    connection.hang_up()
    assert not peer.transport.closing
    broker.connections.resume()
    assert peer.transport.closing
