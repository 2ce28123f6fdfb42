"""What every further client has to be able to do against Odradek, unmodified.

Each client has a program that takes one order per run; the orders are the names of the functions in the programs, and
``tests.support.foreign`` says how they talk. The tests here are written once; a test file makes a class per client from
``Contract``, with the program and with what this client knows or calls in its own way.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from protocol.hashing import partition_of_key
from tests.support.broker import Broker, StartBroker
from tests.support.clients import ConfluentProducer, batches_of, committed_offset, topics, values
from tests.support.deadlines import HANG_S
from tests.support.foreign import Program
from tests.support.relay import Relay

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their numbers in a batch's attributes
RECORDS_A_CODEC = 200
LOOP_RECORDS = 30
KEYS = 40


def words(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(3)]


def values_of(said: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in said]


@contextlib.contextmanager
def relayed(start_broker: StartBroker, *topics: str) -> Iterator[tuple[Broker, Relay]]:
    """A broker that clients reach through a relay, which sees what versions they speak."""
    with Relay() as relay:
        broker = start_broker(topics=topics, settings=relay.advertised)
        relay.forward_to(broker.host, broker.port)
        yield broker, relay


class Contract:
    codecs: ClassVar[tuple[str, ...]] = CODECS
    # Whether its partitioner is Java's, for records with keys.
    murmur2: ClassVar[bool] = True
    # The names that it has for a creation that comes twice, and for what a zombie is told.
    exists: ClassVar[str]
    fenced: ClassVar[dict[str, str]]
    # The version of each request of a transaction that it speaks with us; None where it does not send it.
    spoken: ClassVar[dict[str, int | None]]

    def test_topics_are_made_grown_described_and_deleted(self, program: Program, broker: Broker):
        assert program.run("admin", broker.bootstrap, "orders") == [
            {"again": self.exists},
            {"partitions": 4, "retention": "60000"},
            {"left": False},
        ]
        assert "orders" not in topics(broker.bootstrap)

    def test_every_codec_is_kept_as_sent_by_idempotent_producers(
        self, program: Program, start_broker: StartBroker
    ):
        """F2, C7: each producer has an id of its own, and its sequence begins at zero."""
        broker = start_broker(topics=["orders:1"])
        said = program.run("codecs", broker.bootstrap, "orders")
        assert said == [
            {"codec": codec, "offset": number * RECORDS_A_CODEC, "count": RECORDS_A_CODEC}
            for number, codec in enumerate(self.codecs)
        ]
        batches = batches_of(broker.data_dir, "orders")
        for number, codec in enumerate(self.codecs):
            mine = [batch for batch in batches if batch.base_offset // RECORDS_A_CODEC == number]
            assert {CODECS[batch.attributes & 7] for batch in mine} == {codec}
            assert len({batch.producer_id for batch in mine}) == 1
            assert [batch.base_sequence for batch in mine] == [
                batch.base_offset - number * RECORDS_A_CODEC for batch in mine
            ]
        assert len({batch.producer_id for batch in batches} - {-1}) == len(self.codecs)
        # Read by another client, and by itself.
        total = RECORDS_A_CODEC * len(self.codecs)
        assert len(values(broker.bootstrap, "orders")) == total
        own = program.run("read", broker.bootstrap, "orders", "codecs", "read_committed", total)
        assert [each["offset"] for each in own] == list(range(total))
        assert [value.split()[0] for value in values_of(own)] == [
            codec for codec in self.codecs for _ in range(RECORDS_A_CODEC)
        ]

    def test_the_same_key_goes_where_java_puts_it(self, program: Program, start_broker: StartBroker):
        """F1."""
        broker = start_broker(topics=["orders:7"])
        said = program.run("keys", broker.bootstrap, "orders", KEYS)
        keys = [each["key"] for each in said]
        assert keys == [f"key-{number}" for number in range(KEYS)]
        if self.murmur2:
            assert [each["partition"] for each in said] == [partition_of_key(key.encode(), 7) for key in keys]
        assert program.run("keys", broker.bootstrap, "orders", KEYS) == said

    def test_transactions_commit_abort_and_hold_back_committed_readers(
        self, program: Program, start_broker: StartBroker
    ):
        """A1 to A7, B5, D2."""
        broker = start_broker(topics=["orders:1"])
        committed, uncommitted = (
            ("orders", "readers", "read_committed"),
            ("orders", "all", "read_uncommitted"),
        )
        with program.start("transactions", broker.bootstrap, "orders", "payments") as writer:
            writer.expect("open", True)
            before = program.run("read", broker.bootstrap, *committed, 3)
            everything = program.run("read", broker.bootstrap, *uncommitted, 10)
            writer.go_on()
            assert writer.finish()[-1] == {"open": False}
        after = program.run("read", broker.bootstrap, *committed, 4)

        assert values_of(before) == words("committed")
        assert values_of(everything) == [*words("committed"), *words("aborted"), *words("open"), "plain"]
        # The group goes on where it stopped: behind the aborted records.
        assert values_of(after) == [*words("open"), "plain"]
        # A marker has an offset too.
        assert [each["offset"] for each in everything] == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
        assert values(broker.bootstrap, "orders") == values_of(before + after)
        assert committed_offset(broker.bootstrap, "all", "orders") == 12

    def test_it_speaks_the_versions_that_we_expect(self, program: Program, start_broker: StartBroker):
        with relayed(start_broker, "orders:1", "done:1") as (_, relay):
            with program.start("transactions", relay.bootstrap, "orders", "payments") as writer:
                writer.expect("open", True)
                writer.go_on()
                writer.finish()
            program.run("loop", relay.bootstrap, "orders", "done", "workers", 7)
            spoken: dict[str, set[int]] = {}
            for each in relay.answered():
                spoken.setdefault(each.name, set()).add(each.version)
        assert {name: max(spoken[name]) if name in spoken else None for name in self.spoken} == self.spoken

    def test_consume_process_produce_is_exactly_once(self, program: Program, start_broker: StartBroker):
        """A8, with transactions that abort: their records come again, and count once."""
        broker = start_broker(topics=["orders:1", "done:1"])
        self.fill(broker)
        (said,) = program.run("loop", broker.bootstrap, "orders", "done", "workers", LOOP_RECORDS)
        assert said["done"] == LOOP_RECORDS
        assert said["aborted"] > 0
        self.check_loop(broker)
        assert len(values(broker.bootstrap, "done", isolation_level="read_uncommitted")) > LOOP_RECORDS

    @pytest.mark.parametrize(
        "point", ["txn.prepare.before:4", "txn.prepare.after:4", "txn.complete.before:5"]
    )
    def test_consume_process_produce_outlives_the_broker(
        self, program: Program, start_broker: StartBroker, point: str
    ):
        """A8, D3: the broker dies while a transaction is being ended, and comes back."""
        broker = start_broker(topics=["orders:1", "done:1"], environment={"ODRADEK_CRASH_POINTS": point})
        self.fill(broker)
        with program.start("loop", broker.bootstrap, "orders", "done", "workers", LOOP_RECORDS) as loop:
            assert broker.wait(HANG_S) == -signal.SIGKILL
            broker.restart(environment={})
            assert loop.finish()[-1]["done"] >= LOOP_RECORDS
        self.check_loop(broker)

    @staticmethod
    def fill(broker: Broker) -> None:
        producer = ConfluentProducer(broker.bootstrap)
        producer.send("orders", [f"order-{number}" for number in range(LOOP_RECORDS)])
        producer.close()

    @staticmethod
    def check_loop(broker: Broker) -> None:
        expected = [f"done order-{number}" for number in range(LOOP_RECORDS)]
        assert sorted(values(broker.bootstrap, "done")) == sorted(expected)
        assert committed_offset(broker.bootstrap, "workers", "orders") == LOOP_RECORDS

    def test_a_zombie_is_fenced_and_its_client_says_so(self, program: Program, start_broker: StartBroker):
        """D1, A2."""
        broker = start_broker(topics=["orders:1"])
        said = program.run("zombie", broker.bootstrap, "orders", "payments")
        assert {each["late"]: each["error"] for each in said} == self.fenced
        # Nothing of a zombie's counts, and each successor finished its own transaction.
        assert values(broker.bootstrap, "orders") == words("successor") * len(self.fenced)
        assert committed_offset(broker.bootstrap, "zombies", "orders") < 0

    def test_two_members_share_and_one_inherits(self, program: Program, start_broker: StartBroker):
        broker = start_broker(topics=["orders:4"])
        with program.start("member", broker.bootstrap, "orders", "workers") as first:
            first.expect("assigned", [0, 1, 2, 3])
            with program.start("member", broker.bootstrap, "orders", "workers") as second:
                parts = [self.half(first), self.half(second)]
                assert sorted(parts[0] + parts[1]) == [0, 1, 2, 3]
                second.go_on()
                second.finish()
            first.expect("assigned", [0, 1, 2, 3])
            first.go_on()
            first.finish()

    @staticmethod
    def half(member: Any) -> list[int]:
        """What it has as soon as it has two partitions."""
        return member.expect("assigned", lambda partitions: len(partitions) == 2)
