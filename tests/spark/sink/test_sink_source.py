"""Tests that call the data source as Spark does, without a JVM.

The data source is pickled for the tasks, and another object decides the batch.
"""

import contextlib
import itertools
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.types import ArrayType, StringType, StructType
from pyspark.taskcontext import TaskContext

from odradek.spark.sink import (
    Decision,
    DecisionMismatch,
    ExactlyOnce,
    MayBeLost,
    NotDecided,
    SinkError,
    progress,
    source,
)
from odradek.spark.sink import plan as planning
from odradek.spark.wire import ClientSettings, Cluster


def columns(**types) -> StructType:
    schema = StructType()
    for name, kind in types.items():
        schema.add(name, kind)
    return schema


SCHEMA = columns(key="string", value="string")
HEADERS = ArrayType(columns(key="string", value="binary"))
# The id of a test's query is the last one: Spark gives each query its own, and so does the fixture ``sink``.
queries = [str(uuid4())]
attempt_ids = itertools.count()


@dataclass
class Context:
    """The parts of Spark's TaskContext that the sink uses."""

    task: int
    batch: int | None
    query_id: str | None = ""
    attempt: int = 0

    def __post_init__(self):
        self.attempt_id = next(attempt_ids)
        self.query_id = queries[-1] if self.query_id == "" else self.query_id

    def partitionId(self):
        return self.task

    def taskAttemptId(self):
        return self.attempt_id

    def attemptNumber(self):
        return self.attempt

    def getLocalProperty(self, key):
        return {
            "streaming.sql.batchId": None if self.batch is None else str(self.batch),
            "sql.streaming.queryId": self.query_id,
        }[key]


@pytest.fixture
def task(monkeypatch):
    """A function that writes rows in a task: from a pickled writer, a context, and rows as one or more Arrow batches."""

    def write(pickled: bytes, rows: list[str], context: Context, key: str | None = None):
        monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: context))
        columns = {"key": pa.array([key] * len(rows), pa.string()), "value": pa.array(rows, pa.string())}
        whole = pa.RecordBatch.from_pydict(columns)
        return pickle.loads(
            pickle.dumps(
                pickle.loads(pickled).write(iter([whole.slice(0, 1), whole.slice(1), whole.slice(0, 0)]))
            )
        )

    return write


@pytest.fixture
def sink(kafka):
    """Options of a sink for this test, with its topic."""
    queries.append(str(uuid4()))
    topic = kafka.topic(partitions=3)
    return {**kafka.options, "topic": topic, "name": kafka.name()}


def stream(options) -> source.StreamWriter:
    return ExactlyOnce(options).streamWriter(SCHEMA, False)


def run_batch(options, task, batch: int, rows: list[list[str]], query_id: str = ""):
    """Run a micro-batch from plan to commit, with one task for each list in ``rows``.

    Returns the commit messages of the tasks.
    """
    planned = pickle.dumps(stream(options))
    messages = [task(planned, some, Context(index, batch, query_id)) for index, some in enumerate(rows)]
    stream(options).commit(messages, batch)
    return messages


def values(kafka, options, isolation="read_committed"):
    return sorted(each.text for each in kafka.read(options["topic"], isolation))


def decision_of(options: Mapping[str, str]) -> Decision:
    decision = progress(options)
    assert decision is not None, "the sink has planned no batch"
    return decision


def test_batches_are_written_once_however_often_they_are_replayed(kafka, sink, task):
    run_batch(sink, task, 0, [["a", "b"], ["c"]])
    run_batch(sink, task, 0, [["c"], ["b", "a"], []])
    assert values(kafka, sink) == ["a", "b", "c"]
    run_batch(sink, task, 1, [["d"], [], ["e", "f"]])
    run_batch(sink, task, 2, [[], []])
    assert values(kafka, sink, "read_uncommitted") == ["a", "b", "c", "d", "e", "f"]
    decision = decision_of(sink)
    assert (decision.batch, decision.phase, decision.rows, decision.query_id) == (
        2,
        "decided",
        0,
        queries[-1],
    )
    # The replay of a decided batch makes no decision, so the next plan takes new ids.
    assert (decision.plan, decision.run) == (4, 3)


def test_nothing_is_visible_before_the_decision_and_all_after_it(kafka, sink, task):
    planned = pickle.dumps(stream(sink))
    messages = [task(planned, ["a"], Context(0, 0)), task(planned, ["b"], Context(1, 0))]
    assert values(kafka, sink) == []
    assert values(kafka, sink, "read_uncommitted") == ["a", "b"]
    assert decision_of(sink).phase == "planning"
    stream(sink).commit(messages, 0)
    assert values(kafka, sink) == ["a", "b"]


def test_the_writer_is_planned_once_and_only_when_it_is_pickled(kafka, sink, task):
    writer = stream(sink)
    assert progress(sink) is None
    first, second = pickle.dumps(writer), pickle.dumps(writer)
    assert pickle.loads(first).plan == pickle.loads(second).plan
    assert decision_of(sink).plan == 1


def test_a_commit_without_any_report_says_that_the_trigger_is_continuous(sink):
    """A commit without any report is an error that names the continuous trigger.

    In continuous processing Spark commits epochs whose rows it passed to no task of the sink.
    """
    with pytest.raises(SinkError, match=r"continuous trigger.*delete.*trigger\(processingTime="):
        stream(sink).commit([None, None], 0)


def test_a_batch_that_is_given_up_holds_no_reader_back(kafka, sink, task):
    planned = pickle.dumps(stream(sink))
    messages = [task(planned, ["a"], Context(0, 0)), None]
    stream(sink).abort(messages, 0)
    assert ongoing(sink) == []
    run_batch(sink, task, 0, [["a"], ["b"]])
    assert values(kafka, sink) == ["a", "b"]


def ongoing(options) -> list[str]:
    with Cluster(ClientSettings.from_options(options)) as cluster:
        return list(cluster.list_transactions(options["name"] + "-", ["Ongoing"]))


def test_a_task_that_fails_while_it_writes_aborts_its_own_transaction(kafka, sink, task, monkeypatch):
    planned = pickle.dumps(stream(sink))
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: Context(0, 0)))

    def rows():
        yield pa.RecordBatch.from_pydict({"key": ["k"], "value": ["a"]})
        raise RuntimeError("an error in a user's function")

    with pytest.raises(RuntimeError, match="an error in a user's function"):
        pickle.loads(planned).write(rows())
    assert ongoing(sink) == []
    messages = [task(planned, ["a"], Context(0, 0, attempt=1))]
    stream(sink).commit(messages, 0)
    assert values(kafka, sink) == ["a"]


class TestZombies:
    """A late attempt initialises the id of its successor, on a real cluster (test_protocol.py tests every step)."""

    @pytest.mark.parametrize("pooled", [False, True])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_an_attempt_wakes_before_its_init_when_its_successor_has_reported(
        self, kafka, sink, task, pooled, when, monkeypatch
    ):
        monkeypatch.setattr(planning, "SWEEP_INTERVAL_MS", 0)
        batch = 1 if pooled else 0
        expected = ["z"] if pooled else []
        if pooled:
            run_batch(sink, task, 0, [["z"]])
        planned = pickle.dumps(stream(sink))
        frozen = Context(0, batch)
        messages = [task(planned, ["a", "b"], Context(0, batch))]
        if when == "before":
            task(planned, ["a", "b"], frozen)
            stream(sink).commit(messages, batch)
        else:
            stream(sink).commit(messages, batch)
            # In the first batch, a task looks up the query's sink before it writes.
            with contextlib.nullcontext() if pooled else pytest.raises(DecisionMismatch):
                task(planned, ["a", "b"], frozen)
        assert values(kafka, sink)[: 2 + pooled] == ["a", "b", *expected]
        # The transaction that it has opened is aborted by the next plan that looks for open transactions.
        run_batch(sink, task, batch + 1, [["c"]])
        assert set(values(kafka, sink)) == {"a", "b", "c", *expected}
        assert len(values(kafka, sink)) == 3 + pooled

    def test_a_program_that_takes_a_reported_id_costs_a_replay(self, kafka, sink, task):
        planned = pickle.dumps(stream(sink))
        messages = [task(planned, ["a"], Context(0, 0)), task(planned, ["b"], Context(1, 0))]
        take(sink, messages[1].report.transactional_id)
        with pytest.raises(NotDecided, match="was already aborted"):
            stream(sink).commit(messages, 0)
        stream(sink).abort(messages, 0)
        assert ongoing(sink) == []
        run_batch(sink, task, 0, [["a"], ["b"]])
        assert values(kafka, sink) == ["a", "b"]

    def test_a_program_that_takes_it_after_the_decision_makes_it_loud(self, kafka, sink, task, monkeypatch):
        planned = pickle.dumps(stream(sink))
        messages = [task(planned, ["a"], Context(0, 0)), task(planned, ["b"], Context(1, 0))]
        from odradek.spark.sink import decision

        end = decision._end_all
        monkeypatch.setattr(
            decision,
            "_end_all",
            lambda *given: take(sink, messages[1].report.transactional_id) or end(*given),
        )
        with pytest.raises(MayBeLost, match="may be lost"):
            stream(sink).commit(messages, 0)
        stream(sink).abort(messages, 0)
        assert values(kafka, sink) == ["a"]
        for _ in range(2):
            with pytest.raises(
                MayBeLost, match="firstBatch=0@1 to write all of it again, or firstBatch=1@1 to"
            ):
                run_batch(sink, task, 0, [["a"], ["b"]])
        answered = {**sink, "firstBatch": "1@1"}
        run_batch(answered, task, 0, [["a"], ["b"]])
        run_batch(answered, task, 1, [["c"]])
        run_batch(answered, task, 2, [["d"]])
        assert values(kafka, sink) == ["a", "c", "d"]

    def test_a_topic_that_is_made_anew_after_the_decision_makes_it_loud(self, kafka, sink, task, monkeypatch):
        from odradek.spark.sink import decision

        run_batch(sink, task, 0, [["a"]])
        planned = pickle.dumps(stream(sink))
        messages = [task(planned, ["b"], Context(0, 1)), task(planned, ["c"], Context(1, 1))]

        def die(*given):
            raise KeyboardInterrupt

        monkeypatch.setattr(decision, "_end_all", die)
        with pytest.raises(KeyboardInterrupt):
            stream(sink).commit(messages, 1)
        monkeypatch.undo()
        make_anew(sink)
        with pytest.raises(MayBeLost, match=f"{sink['topic']} was deleted or created again since"):
            run_batch(sink, task, 1, [["b"], ["c"]])
        run_batch({**sink, "firstBatch": "1@2"}, task, 1, [["b"], ["c"]])
        run_batch({**sink, "firstBatch": "1@2"}, task, 1, [["b"], ["c"]])
        assert values(kafka, sink) == ["b", "c"]

    def test_an_older_driver_decides_nothing(self, kafka, sink, task):
        old = pickle.dumps(stream(sink))
        messages = [task(old, ["old"], Context(0, 0))]
        new = pickle.dumps(stream(sink))
        with pytest.raises(NotDecided):
            stream(sink).commit(messages, 0)
        stream(sink).abort(messages, 0)
        stream(sink).commit([task(new, ["new"], Context(0, 0))], 0)
        assert values(kafka, sink) == ["new"]


def make_anew(options) -> None:
    """Delete the topic, and create it again as soon as every broker has removed the topic."""
    admin = AdminClient({"bootstrap.servers": options["kafka.bootstrap.servers"]})
    admin.delete_topics([options["topic"]])[options["topic"]].result()

    while True:
        error = admin.create_topics([NewTopic(options["topic"], 3, 1)])[options["topic"]].exception()
        if error is None:
            return
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise error
        time.sleep(0.05)


def take(options, transactional_id: str) -> None:
    with Cluster(ClientSettings.from_options(options)) as cluster:
        cluster.init_producer_ids([transactional_id], 60_000)


class TestBatchWrites:
    def save(self, options, task, rows: list[list[str]], query_id: str | None = None) -> None:
        planned = pickle.dumps(ExactlyOnce(options).writer(SCHEMA, False))
        messages = [task(planned, some, Context(index, None, query_id)) for index, some in enumerate(rows)]
        pickle.loads(planned).commit(messages)

    def test_a_save_is_one_decision(self, kafka, sink, task):
        self.save(sink, task, [["a"], ["b"]])
        self.save(sink, task, [["c"]])
        assert values(kafka, sink) == ["a", "b", "c"]
        assert decision_of(sink).batch == 1

    def test_without_a_name_each_is_by_itself(self, kafka, sink, task):
        del sink["name"]
        self.save(sink, task, [["a"], ["b"]])
        self.save(sink, task, [["a"]])
        assert values(kafka, sink) == ["a", "a", "b"]

    def test_with_a_batch_id_the_same_save_again_does_nothing(self, kafka, sink, task):
        for batch, rows in ((0, ["a"]), (0, ["a"]), (1, ["b"]), (1, ["b"])):
            self.save({**sink, "batchId": str(batch)}, task, [rows], queries[-1])
        assert values(kafka, sink) == ["a", "b"]
        with pytest.raises(DecisionMismatch, match="firstBatch=7@3"):
            self.save({**sink, "batchId": "7"}, task, [["c"]], queries[-1])

    @pytest.mark.parametrize("hashed", ["true", "false"])
    def test_two_writes_of_one_name_and_batch_to_two_topics_are_no_repetition(
        self, kafka, sink, task, hashed
    ):
        """Two writes of one name and batch to two topics are an error, not a repetition.

        foreachBatch writes one batch to two topics: the second one would get no rows.
        """
        other, sink["contentHash"] = {**sink, "topic": kafka.topic()}, hashed
        self.save({**sink, "batchId": "0"}, task, [["a"]], queries[-1])
        with pytest.raises(
            DecisionMismatch,
            match=f"decided for {sink['topic']}, and a second write of this batch is for {other['topic']}",
        ):
            self.save({**other, "contentHash": hashed, "batchId": "0"}, task, [["a"]], queries[-1])
        assert (values(kafka, sink), values(kafka, other)) == (["a"], [])
        self.save({**other, "name": kafka.name(), "batchId": "0"}, task, [["a"]], queries[-1])
        assert values(kafka, other) == ["a"]

    def test_other_rows_of_the_same_batch_are_no_repetition(self, kafka, sink, task):
        self.save({**sink, "batchId": "0"}, task, [["a", "b"], ["c"]], queries[-1])
        for rows, sentence in (
            (["a", "b"], "had 3 rows and has 2 now"),
            (["a", "b", "d"], "3 rows are different ones"),
        ):
            with pytest.raises(DecisionMismatch, match=sentence):
                self.save({**sink, "batchId": "0"}, task, [rows], queries[-1])
        self.save({**sink, "batchId": "0"}, task, [["c"], ["b"], ["a"]], queries[-1])
        assert values(kafka, sink) == ["a", "b", "c"]

    def test_a_query_and_a_save_of_the_same_name_do_not_mix(self, kafka, sink, task):
        run_batch(sink, task, 0, [["a"]])
        with pytest.raises(DecisionMismatch, match="another query"):
            self.save(sink, task, [["b"]])

    def test_overwriting_is_refused(self, sink):
        with pytest.raises(SinkError, match="append"):
            ExactlyOnce(sink).writer(SCHEMA, True)


class TestErrors:
    OPTIONS: ClassVar = {"kafka.bootstrap.servers": "localhost:1", "name": "q", "topic": "t"}

    @pytest.mark.parametrize(
        ("schema", "sentence"),
        [
            ({"key": "string"}, "Required attribute 'value' not found"),
            ({"value": "integer"}, "value attribute type must be string or binary, not int"),
            ({"value": "string", "key": "integer"}, "key attribute type must be"),
            ({"value": "string", "partition": "long"}, "partition attribute type must be int, not bigint"),
            ({"value": "string", "headers": ArrayType(StringType())}, "headers attribute type must be"),
            ({"value": "string", "topic": "binary"}, "topic attribute type must be string"),
        ],
    )
    def test_columns(self, schema, sentence):
        with pytest.raises(SinkError, match=sentence):
            ExactlyOnce(self.OPTIONS).streamWriter(columns(**schema), False)

    def test_no_topic(self):
        given = {key: value for key, value in self.OPTIONS.items() if key != "topic"}
        with pytest.raises(SinkError, match="topic option required when no 'topic' attribute is present"):
            ExactlyOnce(given).streamWriter(SCHEMA, False)

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            ({"name": ""}, "needs a name that stays the same"),
            ({"name": "x" * 201}, "at most 200"),
            ({"firstBatch": "7"}, "firstBatch must be BATCH@PLAN"),
            ({"kafka.transaction.timeout.ms": "long"}, "kafka.transaction.timeout.ms must be a whole number"),
            ({"kafka.transactional.id": "mine"}, "kafka.transactional.id cannot be set"),
            ({"kafka.acks": "1"}, "kafka.acks cannot be set"),
        ],
    )
    def test_options(self, more, sentence):
        with pytest.raises(SinkError, match=sentence):
            ExactlyOnce({**self.OPTIONS, **more}).streamWriter(SCHEMA, False)

    def test_what_says_the_same_as_the_sink_is_no_error(self):
        same = {
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
            "kafka.transaction.timeout.ms": "60000",
        }
        writer = ExactlyOnce({**self.OPTIONS, **same}).streamWriter(SCHEMA, False)
        assert writer.options.protocol.transaction_timeout_ms == 60_000

    def test_the_name_is_the_option_else_the_query_s_else_of_the_checkpoint(self):
        def name(**given):
            options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", **given}
            return ExactlyOnce(options).streamWriter(SCHEMA, False).options.protocol.name

        assert name(name="n", queryName="q", checkpointLocation="/c") == "n"
        assert name(queryName="q", checkpointLocation="/c") == "q"
        assert (
            name(checkpointLocation="/c/") == name(checkpointLocation="/c") != name(checkpointLocation="/d")
        )

    def test_a_null_topic(self, kafka, sink, task, monkeypatch):
        given = {key: value for key, value in sink.items() if key != "topic"}
        schema = columns(topic="string", value="string")
        planned = pickle.dumps(ExactlyOnce(given).streamWriter(schema, False))
        monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: Context(0, 0)))
        rows = pa.RecordBatch.from_pydict({"topic": [sink["topic"], None], "value": ["a", "b"]})
        with pytest.raises(SinkError, match="null topic present in the data"):
            pickle.loads(planned).write(iter([rows]))
        assert ongoing(sink) == []

    def test_a_timeout_that_the_broker_does_not_allow(self, sink):
        with pytest.raises(SinkError, match=r"set the option kafka.transaction.timeout.ms to at most their"):
            pickle.dumps(stream({**sink, "kafka.transaction.timeout.ms": "900001"}))

    def test_a_group_that_a_consumer_uses(self, kafka, sink):
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": sink["name"]})
        consumer.commit(offsets=[TopicPartition(sink["topic"], 0, 5)], asynchronous=False)
        consumer.close()
        with pytest.raises(Exception, match="give the sink another name"):
            pickle.dumps(stream({**sink, "decisionTopic": sink["topic"]}))


def test_columns_go_where_spark_s_own_sink_puts_them(kafka, sink, monkeypatch):
    other = kafka.topic(partitions=2)
    given = {key: value for key, value in sink.items() if key != "topic"}
    schema = columns(topic="string", key="binary", value="binary", headers=HEADERS, partition="integer")
    planned = pickle.dumps(ExactlyOnce(given).streamWriter(schema, False))
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: Context(0, 0)))
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([sink["topic"], other, other]),
            pa.array([b"k", None, b"k"], pa.binary()),
            pa.array([b"1", b"2", None], pa.binary()),
            pa.array([[{"key": "h", "value": b"x"}], None, []], header),
            pa.array([2, 1, None], pa.int32()),
        ],
        names=["topic", "key", "value", "headers", "partition"],
    )
    message = pickle.loads(planned).write(iter([rows]))
    ExactlyOnce(given).streamWriter(schema, False).commit([message], 0)
    (first,) = kafka.read(sink["topic"])
    assert (first.partition, first.key, first.value, first.headers) == (2, b"k", b"1", (("h", b"x"),))
    there = kafka.read(other)
    assert sorted((each.key, each.value) for each in there if each.value) == [(None, b"2")]
    assert [each.key for each in there if each.value is None] == [b"k"], "a null value is a tombstone"


def test_connections_that_were_idle_for_long_are_not_used(kafka, sink, task, monkeypatch):
    run_batch(sink, task, 0, [["a"]])
    (before,) = [cluster for cluster, _ in source._idle.values()][-1:]
    run_batch(sink, task, 1, [["b"]])
    assert before in [cluster for cluster, _ in source._idle.values()]
    monkeypatch.setattr(source, "IDLE_SECONDS_MAX", -1.0)
    run_batch(sink, task, 2, [["c"]])
    assert before not in [cluster for cluster, _ in source._idle.values()]
    assert values(kafka, sink) == ["a", "b", "c"]


def test_a_record_of_many_tasks_is_cut_over_partitions(kafka, sink, task):
    planned = pickle.dumps(stream(sink))
    messages = [task(planned, ["x"], Context(index, 0)) for index in range(30)]
    from odradek.spark.sink import decision_record

    stream(sink).commit(messages, 0)
    assert len(decision_of(sink).transactions) == 30
    assert (
        len(decision_record.to_chunks(decision_record.SinkState(1, 1, 1, decision_record.Phase.DECIDED))) == 1
    )
    run_batch(sink, task, 1, [["y"]] * 30)
    assert values(kafka, sink) == ["x"] * 30 + ["y"] * 30
