"""Misrouted connections of real clients: with TLS and SASL, and between the nodes."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import odradek
from tests.support.deadlines import HANG_S


def first_node(broker: odradek.Broker, client_id: str) -> int:
    """Id of the node that serves a new client which connects to node 2's address."""
    address = {"bootstrap.servers": broker.bootstrap_servers.split(",")[1], "client.id": client_id}
    AdminClient({**broker.client_config(), **address}).list_topics(timeout=HANG_S)
    return next(each["node"] for each in broker.trace.entries() if each["client_id"] == client_id)


def test_a_client_with_tls_and_sasl_is_served_by_the_other_node():
    with odradek.Broker(nodes=2, topics=["orders:2"], tls=True, users={"alice": "secret"}) as broker:
        broker.trace.start()
        assert first_node(broker, "before") == 2
        broker.nodes[2].misroute(1)
        assert broker.nodes[2].misrouted_to == 1
        assert first_node(broker, "during") == 1
        broker.nodes[2].misroute(2)
        assert broker.nodes[2].misrouted_to is None
        assert first_node(broker, "after") == 2


def test_markers_reach_their_node_when_the_misroute_ends():
    with odradek.Broker(nodes=2, topics=["orders:1"]) as broker:
        broker.move_coordinator(transactional_id="payments", to=1)
        broker.move_leader("orders", 0, to=2)
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments", "linger.ms": 0}
        )
        producer.init_transactions(HANG_S)
        producer.begin_transaction()
        producer.produce("orders", b"paid")
        assert producer.flush(HANG_S) == 0
        broker.nodes[2].misroute(1)
        rule = broker.faults.add("WriteTxnMarkers -> delay 1ms")
        producer.commit_transaction(HANG_S)
        rule.wait()
        assert broker.transactions["payments"].state == "PrepareCommit"
        broker.nodes[2].misroute(2)
        broker.transactions.wait("payments", "CompleteCommit")
