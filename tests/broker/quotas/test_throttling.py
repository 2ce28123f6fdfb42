"""Quotas of a running broker: the response has the throttle time, and the broker mutes the channel for that time.

The broker's clock is advanced, so these tests do not wait in real time.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode as E
from tests.differential.batches import batch
from tests.support import raw
from tests.support.by_hand import now_ms
from tests.support.in_process import InProcess

TOPIC = "t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path, "--topic", f"{TOPIC}:1") as broker:
        yield broker


class Client:
    """A connection with a client id."""

    def __init__(self, broker: InProcess, client_id: str) -> None:
        host, port = broker.bootstrap.split(":")
        self.wire = raw.Wire(host, int(port))
        self.client_id = client_id
        self.sent = 0

    def send(self, api: str, version: int, **body: Any) -> tuple[str, int]:
        self.sent += 1
        self.wire.send_frame(raw.encode_request(api, version, body, self.sent, self.client_id))
        return api, version

    def receive(self, asked: tuple[str, int]) -> dict[str, Any]:
        return raw.decode_response(*asked, self.wire.receive_frame())[1]

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        return self.receive(self.send(api, version, **body))

    def produce(self, value: bytes = b"x") -> int:
        """Write one record and return the throttle time of the response, in ms."""
        rows = [{"index": 0, "records": batch([value], ts=now_ms())}]
        data = [{"name": TOPIC, "partition_data": rows}]
        answer = self.ask("produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=data)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        return int(answer["throttle_time"])

    def fetch(self) -> tuple[int, bool]:
        """Send a Fetch. Returns the throttle time in ms, and whether the response contains any topic."""
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
        topics = [{"topic": TOPIC, "partitions": [row]}]
        answer = self.ask("fetch", 11, session_id=0, session_epoch=-1, topics=topics, **body)
        return int(answer["throttle_time"]), bool(answer["responses"])

    def is_silent(self) -> bool:
        return not select.select([self.wire.socket], [], [], 0)[0]


@pytest.fixture
def client(broker: InProcess) -> Iterator[Client]:
    client = Client(broker, "greedy")
    yield client
    client.wire.close()


@pytest.fixture
def other(broker: InProcess) -> Iterator[Client]:
    client = Client(broker, "modest")
    yield client
    client.wire.close()


def limit(client: Client, key: str, value: float | None, **entity: str | None) -> None:
    parts = [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()]
    row = {"key": key, "value": value or 0.0, "remove": value is None}
    body = {"entries": [{"entity": parts, "ops": [row]}], "validate_only": False}
    (entry,) = client.ask("alter_client_quotas", 1, **body)["entries"]
    assert entry["error_code"] == 0


def test_a_producer_over_its_rate_waits(broker: InProcess, client: Client, other: Client) -> None:
    assert client.produce(b"x" * 10_000) == 0
    limit(other, "producer_byte_rate", 100.0, client_id="greedy")
    throttle_ms = client.produce(b"x" * 10_000)
    # A little more than 10,000 bytes, for which the quota allows a hundred seconds. A new window counts as ten seconds.
    assert 90_000 < throttle_ms < 95_000
    asked = client.send("api_versions", 0)
    for _ in range(5):
        assert other.produce(b"x" * 10_000) == 0, "the quota limits only its own client"
    assert client.is_silent(), "the next request on the muted channel waits"
    broker.advance(f"{throttle_ms - 1000}ms", ["requests"])
    other.ask("api_versions", 0)
    assert client.is_silent()
    broker.advance("1s", ["requests"])
    assert client.receive(asked)["error_code"] == 0
    limit(other, "producer_byte_rate", None, client_id="greedy")
    assert client.produce(b"x" * 10_000) == 0, "the quota is removed"


def test_a_producer_that_wants_no_answer_waits_too(broker: InProcess, client: Client, other: Client) -> None:
    limit(other, "producer_byte_rate", 100.0, client_id="greedy")
    rows = [{"index": 0, "records": batch([b"x" * 10_000], ts=now_ms())}]
    data = [{"name": TOPIC, "partition_data": rows}]
    client.send("produce", 9, transactional_id=None, acks=0, timeout=1000, topic_data=data)
    asked = client.send("api_versions", 0)
    for _ in range(5):
        other.ask("api_versions", 0)
    assert client.is_silent()
    broker.advance("200s", ["requests"])
    assert client.receive(asked)["error_code"] == 0


def test_a_consumer_over_its_rate_waits(broker: InProcess, client: Client, other: Client) -> None:
    other.produce(b"x" * 9_000)
    limit(other, "consumer_byte_rate", 1000.0, user=None)
    assert client.fetch() == (0, True)
    throttle_ms, got_something = client.fetch()
    assert not got_something, "a throttled response has no records"
    assert 8_000 < throttle_ms < 9_000
    broker.advance(f"{throttle_ms}ms", ["requests"])
    assert client.fetch()[0] > 0, "the bytes of the first Fetch still count"
    broker.advance("20s", ["requests"])
    assert client.fetch() == (0, True)


def test_clients_of_one_user_share_its_quota(broker: InProcess, client: Client, other: Client) -> None:
    limit(other, "producer_byte_rate", 1000.0, user="ANONYMOUS")
    assert other.produce(b"x" * 5_000) == 0
    assert client.produce(b"x" * 6_000) > 0


def test_a_client_that_asks_too_much_waits_for_a_second_at_most(
    broker: InProcess, client: Client, other: Client
) -> None:
    # A quota that every request exceeds: 11 ns of the request handler's time cause the maximum throttle time.
    limit(other, "request_percentage", 1e-7, client_id="greedy")
    assert client.ask("api_versions", 4)["throttle_time"] == 1000
    broker.advance("1s", ["requests"])
    assert client.ask("api_versions", 4)["throttle_time"] == 1000


@pytest.mark.parametrize(
    ("version", "replica"),
    [(11, {"replica_id": 1}), (15, {"replica_state": {"replica_id": 1, "replica_epoch": -1}})],
)
def test_a_fetch_of_a_follower_is_exempt_from_the_request_quota(
    broker: InProcess, client: Client, other: Client, version: int, replica: dict[str, Any]
) -> None:
    limit(other, "request_percentage", 1e-7, client_id="greedy")
    body = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "topics": []}
    for sent, throttle_ms in ((replica, 0), ({"replica_id": -1} if version < 15 else {}, 1000)):
        answer = client.ask("fetch", version, session_id=0, session_epoch=-1, **body, **sent)
        assert answer["throttle_time"] == throttle_ms


def create(client: Client, name: str, version: int, partitions: int = 10) -> dict[str, Any]:
    row = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = client.ask("create_topics", version, topics=[row], timeout=1000, validate_only=False)
    return {"throttle": answer["throttle_time"], "error": answer["topics"][0]["error_code"]}


def test_too_many_topics_are_an_error_for_versions_that_know_it(
    broker: InProcess, client: Client, other: Client
) -> None:
    limit(other, "controller_mutation_rate", 1.0, client_id="greedy")
    assert create(client, "a", 7) == {"throttle": 0, "error": 0}
    assert create(client, "b", 7)["error"] == 0, "the bucket had one token left"
    refused = create(client, "c", 7)
    assert refused["error"] == E.throttling_quota_exceeded
    assert 8_000 <= refused["throttle"] <= 9_000
    broker.advance("9s", ["requests"])
    assert create(client, "c", 7)["error"] == 0
    assert create(other, "d", 7, 50) == {"throttle": 0, "error": 0}


def test_older_clients_are_throttled_only(broker: InProcess, client: Client, other: Client) -> None:
    limit(other, "controller_mutation_rate", 1.0, client_id="greedy")
    answer = create(client, "a", 5, 20)
    assert answer["error"] == 0
    assert 8_000 <= answer["throttle"] <= 9_000
    broker.advance("9s", ["requests"])
    body = {"topics": [{"name": "a", "count": 40}], "timeout": 1000, "validate_only": False}
    answer = client.ask("create_partitions", 3, **body)
    assert answer["results"][0]["error_code"] == 0
    broker.advance("60s", ["requests"])
    answer = client.ask("delete_topics", 5, topic_names=["a"], timeout=1000)
    assert answer["responses"][0]["error_code"] == 0


def test_a_client_that_disconnects_while_muted_leaves_nothing(broker: InProcess, other: Client) -> None:
    limit(other, "producer_byte_rate", 100.0, client_id="greedy")
    gone = Client(broker, "greedy")
    throttle_ms = gone.produce(b"x" * 10_000)
    gone.send("api_versions", 0)
    gone.wire.close()
    broker.advance(f"{throttle_ms + 1}ms", ["requests"])
    assert other.produce() == 0
