"""Old and unusual brokers: the versions that the client chooses, and the error if no version is supported by both."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import odradek
from odradek.spark.wire import (
    ClientSettings,
    Cluster,
    ConnectionLost,
    Retriable,
    TransactionalWriter,
    UnsupportedVersion,
    messages,
)
from odradek.spark.wire import connection as connection_module
from odradek.spark.wire.dial import dial
from odradek.spark.wire.messages import Api, choose_version
from tests.support import raw
from tests.support.clients import values
from tests.support.deadlines import HANG_S
from tests.support.relay import Relay

APIS = [each for each in vars(messages).values() if isinstance(each, Api)]
# From these versions on, requests have the semantics of transaction version 2, or are for brokers only (KIP-890).
TRANSACTION_VERSION_2 = {"produce": 12, "add_partitions_to_txn": 4, "end_txn": 5, "txn_offset_commit": 5}


def test_all_versions_are_below_transaction_version_2():
    for api in APIS:
        assert api.highest < TRANSACTION_VERSION_2.get(api.name, 99), api.name
        assert api.key == raw.API_KEYS[api.name]


def test_the_highest_version_of_both_is_chosen():
    api = Api("end_txn", 26, 2, 3)
    assert choose_version(api, {26: (0, 5)}, "a:1") == 3
    assert choose_version(api, {26: (0, 2)}, "a:1") == 2
    for offered, has in (
        ({26: (0, 1)}, "has versions 0 to 1"),
        ({26: (4, 5)}, "4 to 5"),
        ({}, "does not have it"),
    ):
        with pytest.raises(UnsupportedVersion, match=f"end_txn is needed .* from 2 to 3, .* a:1 {has}|{has}"):
            choose_version(api, offered, "a:1")


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[odradek.Broker, Relay]]:
    with Relay() as relay, odradek.Broker(topics=["old:2", "new:2"], settings=relay.advertised) as broker:
        relay.forward_to(broker.process.host, broker.process.port)
        yield broker, relay


def connect(bootstrap: str, **options: str) -> Cluster:
    return Cluster(ClientSettings.from_options({"kafka.bootstrap.servers": bootstrap, **options}))


@pytest.mark.parametrize(("topic", "bound"), [("old", "lowest"), ("new", "highest")])
def test_a_transaction_works_with_the_oldest_versions_and_with_the_newest(broker, monkeypatch, topic, bound):
    _, relay = broker
    chosen: dict[str, int] = {}

    def choose(api: Api, offered: messages.Versions, address: str) -> int:
        return chosen.setdefault(api.name, getattr(api, bound))

    monkeypatch.setattr(connection_module, "choose_version", choose)
    with connect(relay.bootstrap) as cluster:
        producers = cluster.init_producer_ids([topic, f"{topic}-2"], 60_000)
        writer = TransactionalWriter(cluster, topic, producers[topic])
        writer.write(pa.array(["a", "b"]), topic=topic, partitions=pa.array([0, 1]))
        writer.flush()
        cluster.commit_offsets(topic, producers[topic], topic, {(topic, 1): (4, "four")})
        assert cluster.end_transactions([writer.transaction], commit=True) == {topic: None}
        assert cluster.fetch_offsets(topic, [(topic, 0), (topic, 1)]) == {
            (topic, 0): (-1, ""),
            (topic, 1): (4, "four"),
        }
    assert values(relay.bootstrap, topic) == ["a", "b"]
    spoken = {each.name: each.version for each in relay.seen() if each.client_id == "odradek-spark"}
    assert spoken == chosen | {"api_versions": 3}


@contextmanager
def listener(answers: list[bytes]) -> Iterator[str]:
    """A server that accepts a connection for each of these responses, sends the response, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                client, _ = server.accept()
                with client:
                    client.recv(1000)
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(HANG_S)


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (bytes.fromhex("0000000a 00000000 0023 00000000"), UnsupportedVersion, "older than Apache Kafka 2.4"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConnectionLost, "is not a Kafka broker, or expects TLS"),
        (bytes.fromhex("15030300020250"), ConnectionLost, "is not a Kafka broker, or expects TLS"),
        (b"", ConnectionLost, r"does the broker expect another kafka\.security\.protocol"),
    ],
)
def test_a_server_that_is_no_broker_is_reported(answer, kind, sentence):
    with listener([answer]) as address:
        settings = ClientSettings.from_options({"kafka.bootstrap.servers": address})
        host, _, port = address.partition(":")
        with pytest.raises(kind, match=sentence):
            dial(settings, None, host, int(port))


def test_a_connection_closed_while_idle_is_replaced_before_the_request(broker):
    _, relay = broker
    with connect(relay.bootstrap) as cluster:
        cluster.init_producer_ids(["idle"], 60_000)
        for each in relay._connections:
            each.close()
        before = len(relay.seen("init_producer_id"))
        assert cluster.init_producer_ids(["idle"], 60_000).uncertain == set()
        assert len(relay.seen("init_producer_id")) == before + 1


def test_a_request_without_a_response_is_retried_on_a_new_connection(broker):
    _, relay = broker
    with connect(
        relay.bootstrap, **{"kafka.delivery.timeout.ms": "60000", "kafka.request.timeout.ms": "100"}
    ) as cluster:
        cluster.partitions_of("new")
        relay.lose("answer", "find_coordinator", close=False)
        [producer] = cluster.init_producer_ids(["silent"], 60_000).values()
        relay.lose("answer", "end_txn", close=False)
        [error] = cluster.end_transactions([("silent", producer)], commit=False).values()
        assert not isinstance(error, Retriable)


def test_importing_the_client_loads_no_compiler_and_no_test_library():
    program = "import sys, odradek.spark.wire; print(sorted({'numba', 'pyarrow', 'hypothesis'} & sys.modules.keys()))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
