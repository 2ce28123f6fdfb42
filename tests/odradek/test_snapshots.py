"""``Broker.snapshot`` in tests: restoring it again and again, and forks that begin with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import odradek
from tests.support import raw
from tests.support.clients import ConfluentProducer
from tests.support.deadlines import HANG_S


@pytest.fixture(scope="module", params=[1, 3], ids=["one node", "three nodes"])
def broker(request: pytest.FixtureRequest) -> Iterator[odradek.Broker]:
    settings = {"transaction.state.log.num.partitions": 3}
    with odradek.Broker(nodes=request.param, topics=["orders:2"], settings=settings) as broker:
        yield broker


def write(broker: odradek.Broker, *values: str) -> None:
    producer = ConfluentProducer(broker.bootstrap_servers, idempotent=False)
    producer.send("orders", list(values))
    producer.close()


def values(broker: odradek.Broker) -> list[str]:
    return sorted(str(record.value) for record in broker.records("orders"))


def test_each_test_of_a_suite_begins_with_the_same_state(broker: odradek.Broker):
    broker.reset()
    write(broker, "a")
    with broker.snapshot() as snapshot:
        assert snapshot.topics == ("orders",)
        for number in range(2):
            write(broker, f"of test {number}")
            broker.create_topic(f"of-test-{number}")
            broker.faults.add("EndTxn -> drop")
            assert values(broker) == ["a", f"of test {number}"]
            snapshot.restore()
            assert values(broker) == ["a"]
            assert broker.faults.list() == []
            assert {topic for node in broker.nodes.values() for topic in node.leads} == {"orders"}
    with pytest.raises(odradek.NotFound, match="there is no snapshot"):
        snapshot.restore()
    snapshot.remove()


def test_a_client_from_before_a_restore_is_disconnected_and_its_transaction_gone(broker: odradek.Broker):
    broker.reset()
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    with broker.snapshot() as snapshot, socket.create_connection((host, int(port)), HANG_S) as connection:
        producer = ConfluentProducer(broker.bootstrap_servers, transactional_id="payments")
        producer.init()
        producer.begin()
        producer.send("orders", ["open"])
        assert [each.state for each in broker.transactions] == ["Ongoing"]
        snapshot.restore()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        assert broker.transactions.list() == []
        assert broker.records("orders", "read_uncommitted") == []
        producer.close()


def test_a_request_that_a_rule_holds_is_gone(broker: odradek.Broker):
    broker.reset()
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    wire = raw.Wire(host, int(port), timeout=HANG_S)
    rule = broker.faults.add("InitProducerId -> hold")
    request = {"transactional_id": "held", "transaction_timeout": 1000}
    wire.send_frame(raw.encode_request("init_producer_id", 0, request, 1))
    rule.wait()
    with broker.snapshot() as snapshot:
        snapshot.restore()
        with pytest.raises(raw.Closed):
            wire.receive_frame()
        assert broker.faults.list() == []
        assert broker.transactions.list() == []
    wire.close()


def test_forks_begin_with_the_state_and_are_independent(broker: odradek.Broker):
    broker.reset()
    producer = ConfluentProducer(broker.bootstrap_servers, transactional_id="payments")
    producer.init()
    producer.begin()
    producer.send("orders", ["open"])
    with broker.snapshot() as snapshot:
        producer.commit()
        producer.close()
        with snapshot.fork() as one, snapshot.fork() as other:
            addresses = {each.bootstrap_servers for each in (broker, one, other)}
            assert len(addresses) == 3
            for fork in (one, other):
                assert [each.state for each in fork.transactions] == ["Ongoing"]
            write(one, "of one")
            with pytest.raises(odradek.AssertionFailed, match="payments: Ongoing"):
                other.assert_no_open_transactions()
            again = ConfluentProducer(other.bootstrap_servers, transactional_id="payments")
            again.init()
            again.close()
            other.assert_exactly_once("orders", [])
            kinds = {record.value: record.outcome for record in one.records("orders", "read_uncommitted")}
            assert kinds == {"open": "open", "of one": None}
        broker.assert_exactly_once("orders", ["open"])


def test_restores_at_once_come_one_after_the_other(broker: odradek.Broker):
    broker.reset()
    write(broker, "a")
    with broker.snapshot() as snapshot, ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(snapshot.restore) for _ in range(4)]:
            each.result()
        assert values(broker) == ["a"]


def test_a_broker_that_was_found_by_its_url_has_snapshots_and_no_forks(broker: odradek.Broker):
    broker.reset()
    write(broker, "a")
    remote = odradek.connect(broker.control_url)
    with remote.snapshot() as snapshot:
        write(broker, "b")
        snapshot.restore()
        remote.assert_exactly_once("orders", ["a"])
        with pytest.raises(odradek.OdradekError, match="only a broker that this program has started"):
            snapshot.fork()
