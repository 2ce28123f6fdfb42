"""Tests that clients beyond the four of tests/scenarios have to pass with Odradek, unmodified.

A letter with a number, such as A8, is a scenario of tests/scenarios/README.md.

Each client has a program that takes one order per run. The orders are named like the functions in the programs, and
``tests.support.foreign`` describes how the program and the test communicate. The tests here are written once; a test file
makes a class for a client from ``Contract``, with the program and with the client's own names and capabilities. A client
with consumer groups (``group.protocol=consumer``, KIP-848) uses ``GroupContract`` too, which has two further orders:

``group-member PROTOCOL GROUP SUBSCRIPTION INSTANCE``
    The program is a member until the test writes a line, and then leaves. PROTOCOL is ``classic`` or ``consumer``,
    SUBSCRIPTION a topic or a regex that begins with ``^``; INSTANCE is ``-`` for a dynamic member. The program prints
    ``{"assigned": ["topic-0", ...]}``, sorted, after each change.
``group-loop PROTOCOL SOURCE SINK GROUP ID STEP``
    The program consumes, processes and produces (``done <value>``) until the test writes a line, with at most five records
    in a transaction. Every third transaction is aborted, and its records are read again. The program prints
    ``{"committed": n}`` after each commit. STEP is ``never``, or a step and a number, as in ``send:2``: when this step is
    reached for the second time, the program prints ``{"here": STEP}`` and stops working. The steps are ``poll``
    (records have come), ``send`` (their results are in the log, the transaction is open) and ``commit`` (the transaction is
    committed). The client handles a broker that is down; a program that cannot continue ends, and is restarted.

A classic member has a session timeout of `SESSION_MS`, or of 45 s if it is static: it has to rejoin before that. It
sends a heartbeat every 100 ms, and has an assignor without user data.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

import pytest
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

import odradek
from odradek.demo.doomed import restart_doomed
from protocol.hashing import partition_of_key
from tests.support.broker import Broker, StartBroker
from tests.support.clients import (
    ConfluentProducer,
    batches_of,
    committed_offset,
    eventually,
    texts,
    topics,
    values,
)
from tests.support.deadlines import HANG_S
from tests.support.foreign import Program, Running
from tests.support.relay import Relay

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # in the order of their numbers in a batch's attributes
RECORDS_A_CODEC = 200
LOOP_RECORDS = 30
KEYS = 40
PARTITIONS: Final = 4
SESSION_MS: Final = 1_500
QUICK: Final = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}
"""Broker settings with which groups of both protocols rebalance without a delay."""
SOME_DEATHS: Final = ("txn.prepare.after:2", "group.append.after:3", "txn.complete.before:2")
"""Crash points at which the broker dies. With ``:2`` it dies when it reaches the point for the second time."""
SOME_STEPS: Final = ("send:2", "commit:1", "poll:2")


def words(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(3)]


def values_of(said: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in said]


@contextlib.contextmanager
def relayed(start_broker: StartBroker, *topics: str) -> Iterator[tuple[Broker, Relay]]:
    """Yield a broker and the relay in front of it, which records the clients' requests with their versions."""
    with Relay() as relay:
        broker = start_broker(topics=topics, settings=relay.advertised)
        relay.forward_to(broker.host, broker.port)
        yield broker, relay


class Contract:
    codecs: ClassVar[tuple[str, ...]] = CODECS
    # Whether the client's partitioner for records with keys is murmur2, as in Java.
    murmur2: ClassVar[bool] = True
    # The client's error names for a topic that exists already, and for a fenced producer.
    exists: ClassVar[str]
    fenced: ClassVar[dict[str, str]]
    # The version of each transactional request that the client sends to us; None if it does not send that request.
    spoken: ClassVar[dict[str, int | None]]

    @pytest.mark.feature("topics and settings")
    def test_topics_are_made_grown_described_and_deleted(self, program: Program, broker: Broker):
        assert program.run("admin", broker.bootstrap, "orders") == [
            {"again": self.exists},
            {"partitions": 4, "retention": "60000"},
            {"left": False},
        ]
        assert "orders" not in topics(broker.bootstrap)

    @pytest.mark.feature("every codec", "idempotence", "produce and read")
    def test_batches_of_every_codec_are_stored_unchanged(self, program: Program, start_broker: StartBroker):
        """Batches of each codec, each from a new producer, are stored unchanged (scenarios F2, C7)."""
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
        # The records are read by confluent-kafka, and by the client under test.
        total = RECORDS_A_CODEC * len(self.codecs)
        assert len(values(broker.bootstrap, "orders")) == total
        own = program.run("read", broker.bootstrap, "orders", "codecs", "read_committed", total)
        assert [each["offset"] for each in own] == list(range(total))
        assert [value.split()[0] for value in values_of(own)] == [
            codec for codec in self.codecs for _ in range(RECORDS_A_CODEC)
        ]

    @pytest.mark.feature("partitioner")
    def test_the_same_key_goes_where_java_puts_it(self, program: Program, start_broker: StartBroker):
        """The client sends a key to the partition to which Kafka's Java client sends it (scenario F1)."""
        broker = start_broker(topics=["orders:7"])
        said = program.run("keys", broker.bootstrap, "orders", KEYS)
        keys = [each["key"] for each in said]
        assert keys == [f"key-{number}" for number in range(KEYS)]
        if self.murmur2:
            assert [each["partition"] for each in said] == [partition_of_key(key.encode(), 7) for key in keys]
        assert program.run("keys", broker.bootstrap, "orders", KEYS) == said

    @pytest.mark.feature("transactions", "read_committed")
    def test_transactions_commit_abort_and_hold_back_committed_readers(
        self, program: Program, start_broker: StartBroker
    ):
        """Transactions are committed and aborted; read_committed consumers wait for their end (scenarios A, B5, D2)."""
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
        # The group continues at its committed offset, after the aborted records.
        assert values_of(after) == [*words("open"), "plain"]
        # A marker has an offset too.
        assert [each["offset"] for each in everything] == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
        assert values(broker.bootstrap, "orders") == values_of(before + after)
        assert committed_offset(broker.bootstrap, "all", "orders") == 12

    @pytest.mark.feature("transactions")
    def test_it_uses_the_expected_request_versions(self, program: Program, start_broker: StartBroker):
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
        # Without a fallback: each connection begins with one ApiVersions request, in a version that the broker has.
        assert len(spoken["api_versions"]) == 1

    @pytest.mark.feature("exactly-once loop")
    def test_consume_process_produce_is_exactly_once(self, program: Program, start_broker: StartBroker):
        """Each record has one result, although the records of aborted transactions are read again (scenario A8)."""
        broker = start_broker(topics=["orders:1", "done:1"])
        self.fill(broker)
        (said,) = program.run("loop", broker.bootstrap, "orders", "done", "workers", LOOP_RECORDS)
        assert said["done"] == LOOP_RECORDS
        assert said["aborted"] > 0
        self.check_loop(broker)
        assert len(values(broker.bootstrap, "done", isolation_level="read_uncommitted")) > LOOP_RECORDS

    @pytest.mark.feature("exactly-once loop, broker killed")
    @pytest.mark.parametrize(
        "point", ["txn.prepare.before:4", "txn.prepare.after:4", "txn.complete.before:5"]
    )
    def test_consume_process_produce_outlives_the_broker(
        self, program: Program, start_broker: StartBroker, point: str
    ):
        """Each record has one result, although the broker dies while it ends a transaction (scenarios A8, D3).

        The broker is then restarted.
        """
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
        assert sorted(texts(broker.bootstrap, "done")) == sorted(expected)
        assert committed_offset(broker.bootstrap, "workers", "orders") == LOOP_RECORDS

    @pytest.mark.feature("fencing")
    def test_a_zombie_is_fenced_and_its_client_says_so(self, program: Program, start_broker: StartBroker):
        """Each request of a zombie producer gets an error that its client reports as fencing (scenarios D1, A2)."""
        broker = start_broker(topics=["orders:1"])
        said = program.run("zombie", broker.bootstrap, "orders", "payments")
        assert {each["late"]: each["error"] for each in said} == self.fenced
        # Nothing of a zombie is committed, and each successor has committed its own transaction.
        assert values(broker.bootstrap, "orders") == words("successor") * len(self.fenced)
        assert committed_offset(broker.bootstrap, "zombies", "orders") < 0

    @pytest.mark.feature("classic group")
    def test_two_members_share_partitions_and_one_takes_over(
        self, program: Program, start_broker: StartBroker
    ):
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
        """Wait until the member has two partitions, and return them."""
        return member.expect("assigned", lambda partitions: len(partitions) == 2)


def in_both_protocols(classic: str, consumer: str) -> pytest.MarkDecorator:
    """A mark that runs a test with both group protocols.

    ``classic`` and ``consumer`` are the features that the test shows with the protocol of that name.
    """
    return pytest.mark.parametrize(
        "protocol",
        [
            pytest.param("classic", marks=pytest.mark.feature(classic)),
            pytest.param("consumer", marks=pytest.mark.feature(consumer)),
        ],
    )


def places(topic: str, *partitions: int) -> list[str]:
    return [f"{topic}-{partition}" for partition in partitions or range(PARTITIONS)]


def described(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    return admin.describe_consumer_groups([group])[group].result(HANG_S)


def kind_of(broker: Broker, group: str) -> str:
    """Type of the group: CLASSIC or CONSUMER."""
    found: str = described(AdminClient({"bootstrap.servers": broker.bootstrap}), group).type.name
    return found


class GroupContract:
    # The protocols in which a static member that is closed keeps its partitions.
    keeps_static_members: ClassVar[frozenset[str]] = frozenset(("classic", "consumer"))

    @pytest.mark.feature("consumer group (KIP-848)")
    def test_members_of_a_consumer_group_come_go_and_are_killed(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:4"], settings=QUICK)
        group = (broker.bootstrap, "consumer", "workers", "orders", "-")
        with program.start("group-member", *group) as first:
            first.expect("assigned", places("orders"))
            assert kind_of(broker, "workers") == "CONSUMER"
            with program.start("group-member", *group) as second:
                self.share(first, second)
                second.kill()
                first.expect("assigned", places("orders"))
            with program.start("group-member", *group) as third:
                self.share(first, third)
                third.go_on()
                third.finish()
            first.expect("assigned", places("orders"))
            first.go_on()
            first.finish()

    @in_both_protocols("classic group, static members", "consumer group, static members")
    def test_a_static_member_comes_back_to_what_it_had(
        self, program: Program, start_broker: StartBroker, protocol: str
    ):
        waits = protocol in self.keeps_static_members
        session = {"group.consumer.session.timeout.ms": 45_000 if waits else SESSION_MS}
        broker = start_broker(topics=["orders:4"], settings=QUICK | session)
        group = (broker.bootstrap, protocol, "workers", "orders")
        with program.start("group-member", *group, "one") as staying:
            staying.expect("assigned", places("orders"))
            with program.start("group-member", *group, "two") as leaving:
                had = self.share(staying, leaving)
                leaving.go_on()
                leaving.finish()
            told = len(staying.seen)
            with program.start("group-member", *group, "two") as back:
                if not waits:
                    self.share(staying, back)
                    return
                back.expect("assigned", had[1])
                assert staying.heard("assigned") == had[0]
                assert len(staying.seen) == told

    @pytest.mark.feature("consumer group, regular expressions")
    def test_the_broker_resolves_a_regular_expression(self, program: Program, start_broker: StartBroker):
        """A member with a regex subscription gets the partitions of a new topic, and loses those of a deleted one.

        The coordinator resolves the regex again after ten seconds; the test advances the clock.
        """
        broker = start_broker(
            topics=["orders-1:2", "other:1"],
            settings=QUICK | {"group.consumer.session.timeout.ms": 45_000},
            control=True,
        )
        with program.start(
            "group-member", broker.bootstrap, "consumer", "workers", "^orders-[0-9]+", "-"
        ) as member:
            member.expect("assigned", places("orders-1", 0, 1))
            self.create(broker, "orders-22")
            odradek.connect(broker.control_url).clock.advance("11s")
            member.expect("assigned", [*places("orders-1", 0, 1), "orders-22-0"])
            self.delete(broker, "orders-1")
            member.expect("assigned", ["orders-22-0"])
            member.go_on()
            member.finish()

    @pytest.mark.feature("groups change their protocol")
    def test_a_group_with_members_changes_its_protocol(self, program: Program, start_broker: StartBroker):
        broker = start_broker(topics=["orders:4"], settings=QUICK)

        def start(protocol: str) -> Running:
            return program.start("group-member", broker.bootstrap, protocol, "workers", "orders", "-")

        with start("classic") as classic:
            classic.expect("assigned", places("orders"))
            with start("consumer") as consumer:
                self.share(classic, consumer)
                classic.go_on()
                classic.finish()
                consumer.expect("assigned", places("orders"))
                assert kind_of(broker, "workers") == "CONSUMER"
                with start("classic") as back:
                    self.share(consumer, back)
                    consumer.go_on()
                    consumer.finish()
                    back.expect("assigned", places("orders"))
                    assert kind_of(broker, "workers") == "CLASSIC"
                    back.go_on()
                    back.finish()

    @in_both_protocols("exactly-once loop, members killed", "exactly-once loop in a consumer group")
    def test_the_loop_is_exactly_once_though_members_are_killed(
        self, program: Program, start_broker: StartBroker, protocol: str
    ):
        """Each record has one result, although members are killed and restarted with the same transactional id."""
        self.kill_members_of_the_loop(program, start_broker, protocol)

    @staticmethod
    def kill_members_of_the_loop(
        program: Program, start_broker: StartBroker, protocol: str, steps: Sequence[str] = SOME_STEPS
    ) -> None:
        with Crew(program, start_broker, protocol) as crew:
            crew.lose_members(steps)
            crew.finish()

    @in_both_protocols("exactly-once loop, members killed", "exactly-once loop in a consumer group")
    def test_the_loop_is_exactly_once_though_members_are_frozen_past_their_sessions(
        self, program: Program, start_broker: StartBroker, protocol: str
    ):
        """Each record has one result, although both members are frozen until the group has removed them.

        Then the members continue, as after a pause of an overloaded machine.
        """
        with Crew(program, start_broker, protocol) as crew:
            crew.freeze_members()
            crew.finish()

    @pytest.mark.feature("exactly-once loop in a consumer group")
    def test_the_loop_of_a_consumer_group_outlives_the_broker(
        self, program: Program, start_broker: StartBroker
    ):
        with Crew(program, start_broker, "consumer") as crew:
            crew.outlive(SOME_DEATHS)
            crew.finish()

    @staticmethod
    def share(*members: Running) -> list[list[str]]:
        """Wait until all partitions are assigned and each member has half of them; return the assignments."""

        def parts() -> list[list[str]]:
            found = [member.heard("assigned") or [] for member in members]
            is_whole = sorted(chain.from_iterable(found)) == places("orders")
            return found if is_whole and len({len(each) for each in found}) == 1 else []

        return eventually(parts, "each member has half of the partitions")

    @staticmethod
    def create(broker: Broker, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(HANG_S)

    @staticmethod
    def delete(broker: Broker, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([topic])[topic].result(HANG_S)


class Crew:
    """The members of one group that run the loop, by transactional id, and the records that are sent to the loop."""

    EVERY: Final = 8
    """`feed` sends records only in every ``EVERY``-th call, so that members can keep up."""

    def __init__(self, program: Program, start_broker: StartBroker, protocol: str) -> None:
        self._program, self._protocol = program, protocol
        self.broker = start_broker(topics=[f"in:{PARTITIONS}", "out:1"], settings=QUICK)
        self._members: dict[str, Running] = {}
        self._gone: list[Running] = []
        self._producer = ConfluentProducer(self.broker.bootstrap)
        self._looks = self._fed = 0

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._producer.close()
        for member in (*self._gone, *self._members.values()):
            member.close()

    def start(self, name: str, step: str = "never") -> Running:
        if name in self._members:
            self._gone.append(self._members[name])
        arguments = (self.broker.bootstrap, self._protocol, "in", "out", "workers", name, step)
        self._members[name] = self._program.start("group-loop", *arguments)
        return self._members[name]

    def start_first(self, name: str) -> None:
        """Start the first member, and wait until the group has an offset for each partition.

        librdkafka 2.16 resets a position once more, half a second later, if the partition is revoked while the response to
        ListOffsets is in flight (`rd_kafka_toppar_handle_Offset`: "outdated offset response"), and so reads records twice.
        """
        self.start(name)
        self._eventually(
            lambda: self.feed() or all(offset > 0 for offset in self._offsets()),
            "each partition has a committed offset",
        )

    def kill(self, name: str) -> None:
        if self._members[name].is_alive:
            self._members[name].kill()

    def mend(self) -> None:
        """Restart members that have ended."""
        for name, member in list(self._members.items()):
            if not member.is_alive:
                self.start(name)

    def feed(self) -> None:
        self._looks += 1
        if self._looks % self.EVERY == 0:
            self.feed_now()

    def feed_now(self) -> None:
        """Send one record to each partition."""
        for partition in range(PARTITIONS):
            self._producer.send("in", [f"{partition}-{self._fed}"], partition=partition)
        self._fed += 1

    def _offsets(self) -> Iterator[int]:
        """Committed offsets of the group, by partition."""
        for partition in range(PARTITIONS):
            yield committed_offset(self.broker.bootstrap, "workers", "in", partition)

    def lose_members(self, steps: Sequence[str] = SOME_STEPS) -> None:
        """Kill member b at each of ``steps``, then member a, and restart each with its transactional id."""
        self.start_first("a")
        for step in steps:
            doomed = self.start("b", step)
            self._eventually(lambda: self.feed() or doomed.heard("here"), step)  # noqa: B023
            doomed.kill()
        self.start("b")
        self.kill("a")
        self.start("a")

    def freeze_members(self) -> None:
        """Freeze both members until the group has removed them, then resume them."""
        self.start_first("a")
        self.start("b")
        self._eventually(lambda: self.feed() or self._members["b"].heard("committed"), "b has committed")
        for member in self._members.values():
            member.freeze()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self._eventually(lambda: self.feed() or not described(admin, "workers").members, "the group is empty")
        for member in self._members.values():
            member.wake()

        def are_members_again() -> bool:
            """Restart members that were fenced and have ended; return whether both are members of the group."""
            self.mend()
            return len(described(admin, "workers").members) == len(self._members)

        self._eventually(are_members_again, "both are members again")

    def outlive(self, deaths: Sequence[str]) -> None:
        """Kill the broker at each of these crash points, and restart it."""
        self.start_first("a")
        self.kill("a")
        for _ in range(15 * len(deaths)):
            self.feed_now()
        self.start("a")
        self.start("b")
        self.broker.terminate()
        for death in deaths:
            restart_doomed(self.broker, death)
            self._eventually(lambda: self.mend() or not self.broker.is_running, f"the broker dies at {death}")
            assert self.broker.wait() == -signal.SIGKILL
        self.broker.restart(environment={})

    def finish(self) -> None:
        """Wait until all records are processed, stop the members, and check the results."""
        self.feed_now()

        def is_done() -> bool:
            self.mend()
            return all(offset == self._fed for offset in self._offsets())

        self._eventually(is_done, "all records are processed")
        assert kind_of(self.broker, "workers") == self._protocol.upper()
        for member in self._members.values():
            member.go_on()
        for member in self._members.values():
            member.finish()
        wanted = [f"done {partition}-{at}" for partition in range(PARTITIONS) for at in range(self._fed)]
        self.judge(texts(self.broker.bootstrap, "out"), wanted)

    def _eventually(self, look: Callable[[], object], what: str) -> None:
        """Like `eventually`; a timeout also reports the group's offsets and the errors of its members."""
        try:
            eventually(look, what)
        except AssertionError as hung:
            hung.add_note(f"committed {list(self._offsets())} of {self._fed} each")
            for name, member in self._members.items():
                hung.add_note(f"{name}, {'alive' if member.is_alive else 'dead'}: {member.complaints}")
            raise

    def judge(self, found: list[str], wanted: list[str]) -> None:
        """Check that each result was written exactly once, and in a transaction."""
        assert sorted(found) == sorted(wanted)
        assert all(batch.is_transactional for batch in batches_of(self.broker.data_dir, "out"))


class AtLeastOnce(Crew):
    """Base class for a client whose results may be duplicated after a kill of a member or a rebalance."""

    def judge(self, found: list[str], wanted: list[str]) -> None:
        assert set(found) == set(wanted)
