"""Bad input gets Kafka's response and one line in the log, and does not affect the broker or other connections.

Kafka's responses are recorded in ``tests/differential``. Here the same input is sent to a broker whose log is checked.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.differential.batches import batch
from tests.support import raw
from tests.support.broker import Broker
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

BAD_SIZE = struct.pack(">i", 2**31 - 1)
TOPIC = "orders"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Peer:
    """A connection that sends bad input."""

    def __init__(self, broker: Broker) -> None:
        self.wire = raw.Wire("127.0.0.1", broker.port, timeout=HANG_S)

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 7))
        return raw.decode_response(api, version, self.wire.receive_frame())[1]

    def is_closed(self) -> bool:
        try:
            self.wire.receive_frame()
        except raw.Closed:
            return True
        return False


def produce(peer: Peer, records: bytes) -> int:
    data = [{"index": 0, "records": records}]
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{"name": TOPIC, "partition_data": data}],
    }
    answer = peer.ask("produce", 9, body)
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


def garbage(peer: Peer) -> bool:
    peer.wire.send_frame(b"\xff" * 20)
    return peer.is_closed()


def truncated_body(peer: Peer) -> bool:
    peer.wire.send_frame(raw.encode_request("metadata", 9, {"topics": None}, 7)[:-2])
    return peer.is_closed()


def huge_size(peer: Peer) -> bool:
    peer.wire.send_bytes(BAD_SIZE)
    return peer.is_closed()


def unknown_api(peer: Peer) -> bool:
    peer.wire.send_frame(struct.pack(">hhih", 999, 0, 7, -1))
    return peer.is_closed()


def unsupported_version(peer: Peer) -> bool:
    peer.wire.send_frame(struct.pack(">hhih", 3, 99, 7, -1) + b"\0")
    return peer.is_closed()


def huge_array(peer: Peer) -> bool:
    header = struct.pack(">hhih", 3, 1, 7, -1)
    peer.wire.send_frame(header + struct.pack(">i", 2**31 - 1))
    return peer.is_closed()


def bad_crc(peer: Peer) -> bool:
    return produce(peer, batch(1, ts=now_ms(), crc=1)) == 2


def unknown_codec(peer: Peer) -> bool:
    return produce(peer, batch(1, ts=now_ms(), codec=7)) == -1


def topic_with_a_slash(peer: Peer) -> bool:
    topic = {"name": "a/b", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = peer.ask("create_topics", 5, {"topics": [topic], "timeout": 5000})
    return bool(answer["topics"][0]["error_code"] == 17)


CASES: list[tuple[Callable[[Peer], bool], str]] = [
    (garbage, "connection closed"),
    (truncated_body, "connection closed"),
    (huge_size, "connection closed"),
    (unknown_api, "connection closed"),
    (unsupported_version, "connection closed"),
    (huge_array, "connection closed"),
    (bad_crc, "batch refused"),
    (unknown_codec, "batch refused"),
    (topic_with_a_slash, "topic not created"),
]


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Broker(tmp_path_factory.mktemp("broker"), topics=[f"{TOPIC}:1"]) as broker:
        yield broker


@pytest.fixture
def connect(shared_broker: Broker) -> Iterator[Callable[[], Peer]]:
    """A function that opens connections. All are closed after the test."""
    with contextlib.ExitStack() as stack:

        def new() -> Peer:
            peer = Peer(shared_broker)
            stack.callback(peer.wire.close)
            return peer

        yield new


@pytest.mark.parametrize(("act", "event"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_bad_input_gets_its_response_and_one_line_and_harms_no_other_client(
    shared_broker: Broker, connect: Callable[[], Peer], act: Callable[[Peer], bool], event: str
) -> None:
    neighbour = connect()
    assert produce(neighbour, batch(1, ts=now_ms())) == 0
    before = len(shared_broker.events)
    assert act(connect())
    # A thread writes the broker's log, so the line may come after the response.
    eventually(lambda: len(shared_broker.events) > before, "the log has a new line")
    # Requests succeed on an earlier connection and on a new one.
    assert produce(neighbour, batch(1, ts=now_ms())) == 0
    assert produce(connect(), batch(1, ts=now_ms())) == 0
    assert [line["event"] for line in shared_broker.events[before:]] == [event]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(connect: Callable[[], Peer]) -> None:
    peer = connect()
    header = raw.encode_header(18, 99, 7, "raw", True)
    peer.wire.send_frame(header + b"\x01\x01\x00")
    frame = peer.wire.receive_frame()
    assert struct.unpack_from(">ihi", frame) == (7, 35, 1)
    assert struct.unpack_from(">hhh", frame, 10) == (18, 0, 5)
    assert (
        peer.ask("api_versions", 4, {"client_software_name": "raw", "client_software_version": "1"})[
            "error_code"
        ]
        == 0
    )


def test_an_unfinished_frame_is_ignored(connect: Callable[[], Peer]) -> None:
    peer = connect()
    frame = raw.encode_request("metadata", 9, {"topics": None}, 7)
    peer.wire.send_bytes(struct.pack(">i", len(frame)) + frame[:-3])
    assert produce(connect(), batch(1, ts=now_ms())) == 0
    peer.wire.close()
    assert produce(connect(), batch(1, ts=now_ms())) == 0
