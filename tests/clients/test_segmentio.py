"""segmentio/kafka-go: it has no transactional producer, so its loop is at-least-once.

Its reader ignores markers and the list of aborted transactions in a Fetch response. With ``ReadCommitted`` it stops at the
last stable offset, but delivers the records of aborted transactions, and markers as records. With Apache Kafka 4.3.1 it
returns the same four values as in `test_a_committed_reader_stops_at_the_last_stable_offset`: ``committed``, a marker,
``aborted``, a marker.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.clients.contract import (
    CODECS,
    QUICK,
    RECORDS_A_CODEC,
    AtLeastOnce,
    Contract,
    values_of,
)
from tests.support.broker import StartBroker
from tests.support.clients import ConfluentProducer, batches_of, committed_offset, values
from tests.support.foreign import Program, go_program

pytestmark = [pytest.mark.foreign, pytest.mark.client("kafka-go (segmentio)")]

MARKER = "\0" * 6
# Only crash points of groups and files, as no transaction ends here.
DEATHS = ("group.append.before:3", "group.append.after:4", "file.write:9")


class TestSegmentio:
    murmur2 = True
    exists = "Topic Already Exists"
    half = staticmethod(Contract.half)

    test_topics_are_made_grown_described_and_deleted = (
        Contract.test_topics_are_made_grown_described_and_deleted
    )
    test_the_same_key_goes_where_java_puts_it = Contract.test_the_same_key_goes_where_java_puts_it
    test_two_members_share_partitions_and_one_takes_over = (
        Contract.test_two_members_share_partitions_and_one_takes_over
    )

    @pytest.fixture
    def program(self) -> Program:
        return Program(go_program("segmentio"))

    @pytest.mark.feature("every codec", "produce and read")
    def test_batches_of_every_codec_are_stored_unchanged_by_the_broker(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:1"], settings=QUICK)
        said = program.run("codecs", broker.bootstrap, "orders")
        assert said == [
            {"codec": codec, "offset": number * RECORDS_A_CODEC, "count": RECORDS_A_CODEC}
            for number, codec in enumerate(CODECS)
        ]
        kept = Counter(CODECS[batch.attributes & 7] for batch in batches_of(broker.data_dir, "orders"))
        assert set(kept) == set(CODECS)
        own = program.run("read", broker.bootstrap, "orders", "codecs", "read_uncommitted", 1000)
        assert [each["offset"] for each in own] == list(range(1000))
        assert values_of(own) == values(broker.bootstrap, "orders")

    @pytest.mark.feature("read_committed")
    def test_a_committed_reader_stops_at_the_last_stable_offset(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:1"], settings=QUICK)
        writer = ConfluentProducer(broker.bootstrap, transactional_id="payments")
        writer.init()
        for word, end in (("committed", writer.commit), ("aborted", writer.abort)):
            writer.begin()
            writer.send("orders", [word])
            end()
        writer.begin()
        writer.send("orders", ["open"])
        said = program.run("read", broker.bootstrap, "orders", "readers", "read_committed", 4)
        assert values_of(said) == ["committed", MARKER, "aborted", MARKER]
        assert committed_offset(broker.bootstrap, "readers", "orders") == 4
        writer.commit()
        writer.close()
        said = program.run("read", broker.bootstrap, "orders", "readers", "read_committed", 2)
        assert values_of(said) == ["open", MARKER]

    @pytest.mark.feature("transactions", "fencing")
    def test_offsets_are_committed_and_aborted_in_transactions(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:1"])
        said = program.run("offsets", broker.bootstrap, "orders", "payments", "workers")
        assert said == [{"committed": 7}, {"zombie": "Producer Fenced"}]
        assert committed_offset(broker.bootstrap, "workers", "orders") == 7

    @pytest.mark.feature("classic group")
    def test_no_record_is_lost_though_members_are_killed(self, program: Program, start_broker: StartBroker):
        with AtLeastOnce(program, start_broker, "classic") as crew:
            crew.lose_members()
            crew.finish()

    @pytest.mark.feature("classic group")
    def test_no_record_is_lost_though_the_broker_is_killed(self, program: Program, start_broker: StartBroker):
        with AtLeastOnce(program, start_broker, "classic") as crew:
            crew.outlive(DEATHS[:2])
            crew.finish()
