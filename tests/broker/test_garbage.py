"""Objects of a broker are freed by reference counting. The garbage collector runs so rarely that an object which only
the collector can free counts as leaked.

The tests run parts of the load of `benchmarks.soak_memory` (records that retention deletes, transactional ids and
groups that expire, topics, connections), and then advance the clock until the broker has dropped all of that.
"""

from __future__ import annotations

import gc
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.client import Client, check_produced, create_topic, in_turn, produce_frame, small_batch
from benchmarks.soak_memory import DELETE_TOPICS, PARTS, SETTINGS, Load
from broker.clock import Domain
from broker.replicas.partition import Partition
from protocol.messages.delete_topics import DeleteTopicsRequest
from tests.support.clients import ConfluentProducer
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess

OURS = ("broker.", "protocol.", "storage.")
STEPS = 12
DELETED = 40
DELETED_TOPIC = "comes-and-goes-"
LATER = {
    "log.segment.bytes": "1048576",
    "log.initial.task.delay.ms": "0",
    "log.retention.bytes": "2097152",
}
EVERYTHING = [domain.value for domain in Domain if domain is not Domain.CONNECTIONS]


class OfBroker:
    def __init__(self, broker: InProcess) -> None:
        host, port = broker.bootstrap.split(":")
        self._address = host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address)


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """Count the objects of our packages that only the garbage collector can free, by class or function name."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(described for each in gc.garbage if (described := _described(each)) is not None)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _described(thing: object) -> str | None:
    kind = type(thing)
    names = [
        f"{each.__module__}.{each.__qualname__}" for each in (thing, kind) if hasattr(each, "__qualname__")
    ]
    return next((name for name in names if name.startswith(OURS)), None)


def test_what_is_in_a_cycle_is_found():
    class Ring:
        self: Any

    Ring.__module__ = "broker.test"
    with garbage() as found:
        ring = Ring()
        ring.self = ring
        del ring
    assert sum(found.values()) == 1


@pytest.mark.more
@pytest.mark.parametrize("part", PARTS)
def test_nothing_waits_for_the_collector(tmp_path, part):
    with (
        InProcess(tmp_path, settings=SETTINGS | LATER) as broker,
        closing(Load(cast(Any, OfBroker(broker)))) as load,
    ):
        # Objects that are created once, on first use.
        some_steps(load, part, broker)
        with garbage() as found:
            some_steps(load, part, broker)
        assert found == {}


def test_no_replica_of_a_deleted_topic_waits_for_the_collector(tmp_path):
    """No replica of a deleted topic waits for the garbage collector. In this cluster of three nodes each partition has a
    leader and two followers that fetch from it."""
    with InProcess(tmp_path, "--nodes=3", settings=SETTINGS | LATER) as broker:
        topic_comes_and_goes(broker)
        with garbage() as found:
            topic_comes_and_goes(broker)
        assert found == {}


def test_deleted_topics_are_forgotten_that_retention_has_looked_at(tmp_path):
    """Soon after the deletion of a partition, retention forgets the partition, although its next check would be in a
    week."""
    with (
        InProcess(tmp_path, settings=SETTINGS | LATER | {"log.retention.bytes": "-1"}) as broker,
        closing(Client(OfBroker(broker).connect())) as client,
    ):
        create_topic(client, "stays")
        check_produced(in_turn(client, [produce_frame("stays", small_batch())]))
        for number in range(DELETED):
            create_topic(client, f"{DELETED_TOPIC}{number}")
            check_produced(in_turn(client, [produce_frame(f"{DELETED_TOPIC}{number}", small_batch())]))
            broker.advance("2s", EVERYTHING)
            client.ask(
                DELETE_TOPICS,
                DeleteTopicsRequest(topic_names=[f"{DELETED_TOPIC}{number}"], timeout_ms=30_000),
            )
        broker.advance("1m", EVERYTHING)
        gc.collect()
        left = [each for each in gc.get_objects() if type(each) is Partition and DELETED_TOPIC in each.topic]
        assert len(left) < DELETED - 15


def topic_comes_and_goes(broker: InProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic("replicated", 6, 3)]).values():
        made.result(HANG_S)
    producer = ConfluentProducer(broker.bootstrap)
    producer.send("replicated", [*map(str, range(60))])
    producer.close()
    for deleted in admin.delete_topics(["replicated"]).values():
        deleted.result(HANG_S)
    broker.advance("1m", EVERYTHING)


def some_steps(load: Load, part: str, broker: InProcess) -> None:
    for _ in range(STEPS):
        PARTS[part](load)
    # Transactional ids, groups and their offsets expire after a minute, each at one of the checks that follow.
    for _ in range(4):
        broker.advance("1m", EVERYTHING)
    load.take_new_id()
