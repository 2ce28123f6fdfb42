"""Responses of a newer broker, a proxy or a broken broker: unknown fields are skipped, malformed responses fail at once."""

import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest

import odradek
from odradek.spark.wire import (
    ClientSettings,
    Cluster,
    Fatal,
    MalformedAnswer,
    ProducerId,
    Retriable,
    TransactionalWriter,
)
from tests.support import raw
from tests.support.clients import values
from tests.support.relay import Exchange, Relay

TAGS = {30: b"", 77: b"of a later release", 70_000: bytes(300)}


@pytest.fixture(scope="module")
def broker() -> Iterator[Relay]:
    with Relay() as relay, odradek.Broker(settings=relay.advertised) as broker:
        relay.forward_to(broker.process.host, broker.process.port)
        yield relay


@pytest.fixture
def relay(broker) -> Iterator[Relay]:
    as_it_is = broker.rewrite
    yield broker
    broker.rewrite = as_it_is


def connect(relay: Relay, **options: str) -> Cluster:
    # Errors that are not retried must come long before this timeout, which bounds the errors that are retried.
    options = {"kafka.delivery.timeout.ms": "20000", "kafka.max.block.ms": "20000", **options}
    return Cluster(ClientSettings.from_options({"kafka.bootstrap.servers": relay.bootstrap, **options}))


def transaction(cluster: Cluster, name: str) -> None:
    """Send every kind of request that the sink sends: two rows, an offset, a commit, a query for open transactions."""
    producers = cluster.init_producer_ids([name], 60_000)
    writer = TransactionalWriter(cluster, name, producers[name])
    writer.write(pa.array(["a", "b"]), topic=name)
    writer.flush()
    cluster.commit_offsets(name, producers[name], name, {(name, 0): (4, "four")})
    assert cluster.list_transactions(name) == {name: "Ongoing"}
    end(cluster, name, producers[name])
    assert cluster.fetch_offsets(name, [(name, 0)]) == {(name, 0): (4, "four")}


def end(cluster: Cluster, name: str, producer: ProducerId) -> None:
    [error] = cluster.end_transactions([(name, producer)], commit=True).values()
    if error is not None:
        raise error


def test_unknown_tagged_fields_in_every_response_and_header_are_skipped(relay):
    relay.rewrite = lambda each: raw.with_unknown_tags(each.name, each.version, each.response, TAGS)
    with connect(relay) as cluster:
        transaction(cluster, "tagged")
    assert values(relay.bootstrap, "tagged") == ["a", "b"]
    flexible = {each.name for each in relay.answered() if relay.rewrite(each) != each.response}
    assert {"produce", "metadata", "init_producer_id", "end_txn", "offset_fetch"} <= flexible


def replaced(relay: Relay, api: str, change) -> None:
    """From now on, replace each response to requests of the API ``api`` by ``change(response)``."""

    def rewrite(exchange: Exchange) -> bytes:
        assert exchange.response is not None
        return change(exchange.response) if exchange.name == api else exchange.response

    relay.rewrite = rewrite


def with_code(frame: bytes, code: int = 9999) -> bytes:
    """A response that begins with throttle_time and error_code, after a header without tagged fields."""
    return frame[:9] + struct.pack(">h", code) + frame[11:]


@pytest.mark.parametrize("api", ["init_producer_id", "end_txn", "add_offsets_to_txn"])
def test_an_unknown_error_code_is_a_refusal_with_its_number(relay, api):
    replaced(relay, api, with_code)
    with connect(relay) as cluster, pytest.raises(Fatal, match="ERROR_9999"):
        transaction(cluster, api)


def test_a_coordinator_that_does_not_know_yet_what_is_open_is_not_passed_over(relay):
    replaced(relay, "list_transactions", lambda frame: with_code(frame, 14))
    with connect(relay) as cluster, pytest.raises(Retriable, match="COORDINATOR_LOAD_IN_PROGRESS"):
        cluster.list_transactions("any")


def test_an_unknown_error_code_of_a_batch_is_a_refusal_with_its_number(relay):
    def change(frame: bytes) -> bytes:
        at = frame.index(b"coded") + 5 + 1 + 4
        return frame[:at] + struct.pack(">h", 9999) + frame[at + 2 :]

    replaced(relay, "produce", change)
    with connect(relay) as cluster, pytest.raises(Fatal, match=r"records for coded-0 .*ERROR_9999"):
        transaction(cluster, "coded")


HUGE = raw.uvarint(0xFFFF_FFFF)
DAMAGE = {
    # The correlation id and the header's tagged fields come first. The counts follow directly or behind throttle_time.
    "a count beyond the frame": ("produce", lambda frame: frame[:5] + HUGE + frame[6:]),
    "a count beyond the frame, in the greeting": ("api_versions", lambda frame: frame[:6] + HUGE + frame[7:]),
    "tags beyond the frame": ("end_txn", lambda frame: frame[:4] + HUGE + frame[5:]),
    "an endless varint": ("find_coordinator", lambda frame: frame[:9] + b"\xff" * 40),
    "a text beyond the frame": ("metadata", lambda frame: frame[:14] + HUGE + frame[15:]),
    "an answer that ends": ("init_producer_id", lambda frame: frame[:12]),
    "an answer without its partitions": ("txn_offset_commit", lambda frame: frame[:9] + b"\x01\x00"),
    "an answer without its groups": ("offset_fetch", lambda frame: frame[:9] + b"\x01\x00"),
    "an answer without its topics": ("add_partitions_to_txn", lambda frame: frame[:9] + b"\x01\x00"),
    "an answer without its coordinators": ("find_coordinator", lambda frame: frame[:9] + b"\x01\x00"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_malformed_response_fails_the_call_at_once_with_the_reason(relay, damage):
    api, change = DAMAGE[damage]
    replaced(relay, api, change)
    sentence = rf"response to {api} .* {relay.bootstrap.replace('.', '[.]')} cannot be read: "
    before = len(relay.seen(api))
    with connect(relay) as cluster, pytest.raises(MalformedAnswer, match=sentence):
        transaction(cluster, f"damaged-{list(DAMAGE).index(damage)}")
    assert len(relay.seen(api)) - before <= 2, "the request is not retried again and again"


def test_a_timeout_reports_why_a_connection_was_lost(relay):
    replaced(relay, "end_txn", lambda frame: b"\x7f" + frame[1:])
    with connect(relay) as cluster, connect(relay, **{"kafka.delivery.timeout.ms": "300"}) as hasty:
        [producer] = cluster.init_producer_ids(["why"], 60_000).values()
        [error] = hasty.end_transactions([("why", producer)], commit=True).values()
    assert isinstance(error, Retriable)
    assert "sent a response that belongs to no request" in str(error)


def test_a_timeout_reports_why_a_batch_was_not_acknowledged(relay):
    replaced(relay, "produce", lambda frame: b"\x7f" + frame[1:])
    with (
        connect(relay, **{"kafka.delivery.timeout.ms": "2000"}) as cluster,
        pytest.raises(Retriable, match=r"writing to why-2-0 .* sent a response that belongs to no request"),
    ):
        transaction(cluster, "why-2")


def test_cached_metadata_does_not_replace_a_response_without_the_topic(relay):
    with connect(relay) as cluster:
        cluster.partitions_of("forgotten")
        assert list(cluster.topic_ids(["forgotten"])) == ["forgotten"]
        # No brokers, no cluster id, no controller, no topics.
        nothing = b"\x01\x00" + struct.pack(">i", -1) + b"\x01\x00"
        replaced(relay, "metadata", lambda frame: frame[:9] + nothing)
        with pytest.raises(MalformedAnswer, match="topic 'forgotten' with its partitions is missing"):
            cluster.topic_ids(["forgotten"])
