"""Transactions that one object writes and another object ends, read by other clients.

Every test runs against Odradek's broker, and tests without long waits also against Apache Kafka."""

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.process import BrokerProcess
from odradek.spark.wire import (
    ClientSettings,
    Cluster,
    Fatal,
    Fenced,
    InvalidTransaction,
    MetadataTooLarge,
    RecordTooLarge,
    TransactionalWriter,
    UnknownTopic,
)
from tests.support.clients import read_messages, texts
from tests.support.clients import values as read_values

TIMEOUT_MS = 60_000


def settings_for(bootstrap: str, **options: Any) -> ClientSettings:
    more = {f"kafka.{name.replace('_', '.')}": str(value) for name, value in options.items()}
    return ClientSettings.from_options({"kafka.bootstrap.servers": bootstrap, **more})


@pytest.fixture(
    scope="module", params=["odradek", pytest.param("kafka", marks=[pytest.mark.more, pytest.mark.java])]
)
def shared_broker(request, tmp_path_factory):
    if request.param == "kafka":
        yield request.getfixturevalue("secured_kafka")
        return
    settings = {"auto.create.topics.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("wire"), settings=settings) as broker:
        yield broker


def create_topic(broker, name: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()


@pytest.fixture
def topic(shared_broker, request):
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(shared_broker, name, 4)
    return name


@pytest.fixture
def cluster(shared_broker):
    with Cluster(settings_for(shared_broker.bootstrap)) as cluster:
        yield cluster


def begin(cluster: Cluster, transactional_id: str) -> TransactionalWriter:
    producers = cluster.init_producer_ids([transactional_id], TIMEOUT_MS)
    assert producers.uncertain == set()
    return TransactionalWriter(cluster, transactional_id, producers[transactional_id])


def write(writer: TransactionalWriter, *columns, **more) -> None:
    """Write and flush: the error for a refused batch may be raised by a later call."""
    writer.write(*columns, **more)
    writer.flush()


def end(cluster: Cluster, writer: TransactionalWriter, commit: bool = True) -> None:
    assert cluster.end_transactions([writer.transaction], commit) == {writer.transaction[0]: None}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_is_read_with_its_keys_headers_and_times(shared_broker, topic, codec):
    with Cluster(settings_for(shared_broker.bootstrap, compression_type=codec)) as cluster:
        writer = begin(cluster, topic)
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        writer.write(
            pa.array([b"one", None, b""]),
            topic=topic,
            keys=pa.array([b"k", b"k", None]),
            headers=pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None], headers),
            partitions=pa.array([2, 2, 2], pa.int32()),
            timestamps=pa.array([1_700_000_000_001, 1_700_000_000_000, None], pa.int64()),
        )
        writer.flush()
        assert (writer.records, writer.partitions) == (3, frozenset({(topic, 2)}))
        end(cluster, writer)
    found = read_messages(shared_broker.bootstrap, topic, expected=3)
    assert [(each.partition(), each.key(), each.value(), each.headers()) for each in found] == [
        (2, b"k", b"one", [("h", b"1"), ("h", None)]),
        (2, b"k", None, None),
        (2, None, b"", None),
    ]
    assert [each.timestamp()[1] for each in found][:2] == [1_700_000_000_001, 1_700_000_000_000]


def test_rows_stay_in_order_within_their_key_and_every_one_is_there(shared_broker, cluster, topic):
    writer = begin(cluster, topic)
    rows = [(b"key-%d" % (number % 37), b"%06d" % number) for number in range(20_000)]
    for start in range(0, len(rows), 1_000):
        keys, values = zip(*rows[start : start + 1_000], strict=True)
        writer.write(pa.array(values), topic=topic, keys=pa.array(keys))
    writer.flush()
    assert len(writer.partitions) == 4
    assert read_messages(shared_broker.bootstrap, topic) == [], "no record is visible before the commit"
    end(cluster, writer)
    found = read_messages(shared_broker.bootstrap, topic, expected=len(rows))
    for partition in range(4):
        numbers = [each.value() for each in found if each.partition() == partition]
        assert numbers == sorted(numbers)
    assert sorted((each.key(), each.value()) for each in found) == sorted(rows)


def test_rows_without_a_key_go_around_all_partitions(shared_broker, topic):
    with Cluster(settings_for(shared_broker.bootstrap, batch_size=4_000)) as cluster:
        writer = begin(cluster, topic)
        writer.write(pa.array([b"%0100d" % number for number in range(1_000)]), topic=topic)
        writer.flush()
        assert len(writer.partitions) == 4
        end(cluster, writer)
    assert len(read_values(shared_broker.bootstrap, topic, expected=1_000)) == 1_000


def test_a_column_says_the_topic_and_an_option_where_it_is_null(shared_broker, cluster, topic):
    other = f"{topic}-other"
    create_topic(shared_broker, other, 1)
    writer = begin(cluster, topic)
    writer.write(pa.array(["a", "b", "c"]), topic=topic, topics=pa.array([other, None, other]))
    writer.flush()
    end(cluster, writer)
    assert read_values(shared_broker.bootstrap, other, expected=2) == ["a", "c"]
    assert read_values(shared_broker.bootstrap, topic, expected=1) == ["b"]


def test_an_end_is_repeated_in_the_same_way_only(cluster, topic):
    writer = begin(cluster, topic)
    writer.write(pa.array(["a"]), topic=topic)
    writer.flush()
    end(cluster, writer)
    end(cluster, writer)
    [error] = cluster.end_transactions([writer.transaction], commit=False).values()
    assert isinstance(error, InvalidTransaction)
    assert error.code == "INVALID_TXN_STATE"


def test_an_aborted_transaction_is_not_seen(shared_broker, cluster, topic):
    for commit, value in ((False, "lost"), (True, "kept")):
        writer = begin(cluster, topic)
        writer.write(pa.array([value]), topic=topic)
        writer.flush()
        end(cluster, writer, commit)
    assert read_values(shared_broker.bootstrap, topic, expected=1) == ["kept"]


def test_every_request_of_a_fenced_producer_fails(shared_broker, cluster, topic):
    zombie = begin(cluster, topic)
    zombie.write(pa.array(["zombie"]), topic=topic)
    zombie.flush()
    writer = begin(cluster, topic)
    with pytest.raises(Fenced):
        cluster.add_partitions(*zombie.transaction, zombie.partitions)
    [error] = cluster.end_transactions([zombie.transaction], commit=True).values()
    assert isinstance(error, Fenced)
    with pytest.raises(Fenced, match=topic):
        write(zombie, pa.array(["too late"]), topic=topic)
    with pytest.raises(Fenced):
        zombie.write(pa.array(["and later"]), topic=topic)
    writer.write(pa.array(["heir"]), topic=topic)
    writer.flush()
    cluster.add_partitions(*writer.transaction, writer.partitions)
    end(cluster, writer)
    assert read_values(shared_broker.bootstrap, topic, expected=1) == ["heir"]


def test_many_ids_are_initialised_and_ended_at_once(shared_broker, cluster, topic):
    ids = [f"{topic}-{number}" for number in range(60)]
    producers = cluster.init_producer_ids(ids, TIMEOUT_MS)
    assert list(producers) == ids
    assert len({each.producer_id for each in producers.values()}) == len(ids)
    for transactional_id, producer in producers.items():
        writer = TransactionalWriter(cluster, transactional_id, producer)
        writer.write(pa.array([transactional_id]), topic=topic)
        writer.flush()
    again = cluster.init_producer_ids(ids[:30], TIMEOUT_MS)
    assert all(again[each].epoch > producers[each].epoch for each in ids[:30]), (
        "open transactions are aborted"
    )
    ended = cluster.end_transactions(list(producers.items()), commit=True)
    assert [each for each in ids if ended[each] is None] == ids[30:]
    assert sorted(texts(shared_broker.bootstrap, topic, expected=30)) == sorted(ids[30:])


def test_offsets_are_committed_with_the_transaction(cluster, topic):
    assert cluster.fetch_offsets(topic, [(topic, 0), (topic, 1)]) == {
        (topic, 0): (-1, ""),
        (topic, 1): (-1, ""),
    }
    [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
    places = {(topic, 0): (7, "next: 7"), (topic, 3): (2**40, "")}
    cluster.commit_offsets(topic, producer, topic, places)
    assert cluster.end_transactions([(topic, producer)], commit=True) == {topic: None}
    assert cluster.fetch_offsets(topic, places) == places
    [producer] = cluster.init_producer_ids([topic], TIMEOUT_MS).values()
    cluster.commit_offsets(topic, producer, topic, {(topic, 0): (8, "lost")})
    assert cluster.end_transactions([(topic, producer)], commit=False) == {topic: None}
    assert cluster.fetch_offsets(topic, [(topic, 0)]) == {(topic, 0): (7, "next: 7")}
    with pytest.raises(MetadataTooLarge, match=r"offset\.metadata\.max\.bytes"):
        cluster.commit_offsets(topic, producer, topic, {(topic, 0): (9, "x" * 5_000)})


def test_impossible_writes_are_refused_with_a_sentence(shared_broker, topic):
    with Cluster(settings_for(shared_broker.bootstrap, max_block_ms=500)) as cluster:
        with pytest.raises(UnknownTopic, match="'nowhere' did not work within 500 ms"):
            cluster.partitions_of("nowhere")
        writer = begin(cluster, topic)
        with pytest.raises(UnknownTopic, match="has 4 partitions, and a row names partition 4"):
            writer.write(pa.array(["a"]), topic=topic, partitions=pa.array([4]))
        with pytest.raises(Fatal, match="neither an option nor a column names the topic"):
            begin(cluster, topic).write(pa.array(["a"]))
        with pytest.raises(Fatal, match="a row has no topic"):
            begin(cluster, topic).write(pa.array(["a"]), topics=pa.array([None], pa.string()))
        writer = begin(cluster, topic)
        with pytest.raises(RecordTooLarge, match=r"kafka\.max\.request\.size"):
            writer.write(pa.array([b"x" * 1_100_000]), topic=topic)


def test_batches_that_a_topic_finds_too_large_are_split(shared_broker, cluster, topic):
    create_topic(shared_broker, f"{topic}-small", 2, **{"max.message.bytes": "1000"})
    writer = begin(cluster, topic)
    rows = [b"%0100d" % number for number in range(200)]
    writer.write(
        pa.array(rows), topic=f"{topic}-small", partitions=pa.array([number % 2 for number in range(200)])
    )
    writer.flush()
    end(cluster, writer)
    found = read_messages(shared_broker.bootstrap, f"{topic}-small", expected=200)
    assert [each.value() for each in sorted(found, key=lambda m: (m.partition(), m.offset()))] == rows[
        ::2
    ] + rows[1::2]


def test_a_batch_that_the_broker_finds_too_large_is_said_with_its_partition(shared_broker, topic):
    with Cluster(settings_for(shared_broker.bootstrap, max_request_size=4_000_000)) as cluster:
        writer = begin(cluster, topic)
        with pytest.raises(RecordTooLarge, match=rf"{topic}-1.*max\.message\.bytes"):
            write(writer, pa.array([b"x" * 2_000_000]), topic=topic, partitions=pa.array([1]))
