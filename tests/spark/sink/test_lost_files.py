"""After a query has lost files, groups or its name, a restart stops with an error, or continues with each row once.

The tests run on Odradek's broker and on Apache Kafka. `test_protocol.py` tests the protocol alone, with a crash at every
step: TestLostFiles, TestLostRecords."""

import contextlib
import shutil
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from odradek import Broker
from odradek.spark.sink.checkpoint import MARK
from odradek.spark.sink.columns import RecordBatches, RecordBatchSum
from odradek.spark.sink.decision import commit_batch
from odradek.spark.sink.names import Label, from_checkpoint
from odradek.spark.sink.options import DECISION_TOPIC, TRANSACTION_TIMEOUT_MS
from odradek.spark.sink.plan import Settings, plan_batch
from odradek.spark.sink.task import run_task
from odradek.spark.testing.kafka import Kafka
from odradek.spark.wire import ClientSettings, Cluster
from tests.spark.sink.losses import Losses, batches, remove
from tests.support import kafka_oracle
from tests.support.deadlines import HANG_S

pytestmark = pytest.mark.spark

slow = pytest.mark.slow
PLANNED_ANEW = "Spark has planned another one in its place"


# Spark's setting: whether it refuses to start a query whose checkpoint lacks its metadata.
VERIFIED = "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled"
EXPIRING_OFFSETS = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
EXPIRING = {
    **EXPIRING_OFFSETS,
    "transactional.id.expiration.ms": 60_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 1000,
}


@pytest.fixture(scope="module")
def apache_kafka():
    with kafka_oracle.kafka() as oracle:
        yield f"{oracle.host}:{oracle.port}"


@pytest.fixture(params=["odradek", pytest.param("apache", marks=[pytest.mark.java, slow])])
def broker_kind(request):
    return request.param


@pytest.fixture
def kafka(broker_kind, request):
    """A client (`Kafka`) of the broker that all tests share: Odradek's, or Apache Kafka."""
    broker = request.getfixturevalue("kafka_broker") if broker_kind == "odradek" else None
    servers = broker.bootstrap_servers if broker else request.getfixturevalue("apache_kafka")
    with contextlib.closing(Kafka(servers, broker, prefix=request.node.name)) as mine:
        yield mine


@pytest.fixture
def start(broker_kind):
    """A function that starts a broker with the given settings for this test alone, and returns its client (`Kafka`)."""
    with contextlib.ExitStack() as stack:

        def start(settings) -> Kafka:
            if broker_kind == "odradek":
                broker = stack.enter_context(Broker(settings=settings))
                return Kafka(broker.bootstrap_servers, broker)
            oracle = stack.enter_context(kafka_oracle.kafka(settings))
            return Kafka(f"{oracle.host}:{oracle.port}")

        yield start


@pytest.fixture
def story(spark, kafka, tmp_path):
    return Losses(spark, kafka, tmp_path)


class TestOffsets:
    """Files of the checkpoint's ``offsets`` are lost. Batch 1 has 100 rows, half as many as a batch may have.

    Batch 1 is decided and committed, but Spark has not recorded this yet.
    """

    @pytest.fixture
    def story(self, story):
        story.produce(300)
        story.dies("end.all", batch=1)
        assert (batches(story.offsets), batches(story.commits)) == ([0, 1], [0])
        return story

    def test_the_file_of_a_decided_batch_is_lost_and_there_are_more_rows(self, story):
        remove(story.offsets, 1)
        story.produce(150)
        question = story.asked(PLANNED_ANEW, "it had 100 rows and has 200 now", "Restore offsets/1")
        # Spark has written another file in the failed run.
        assert batches(story.offsets) == [0, 1]
        story.answer(question, 1)
        assert story.run() == ""
        assert story.none_lost()
        assert sum(story.written().values()) == story.rows + 100, (
            "batch 1 is written again, as the error message says"
        )

    @slow
    def test_the_file_is_restored(self, story):
        saved = story.save("saved")
        remove(story.offsets, 1)
        story.produce(150)
        for _ in range(2):
            story.asked(PLANNED_ANEW)
        remove(story.offsets, 1)
        shutil.copy(saved / "offsets" / "1", story.offsets)
        story.goes_on()

    @slow
    def test_its_rows_are_planned_as_they_were(self, story):
        remove(story.offsets, 1)
        story.goes_on()

    @slow
    def test_the_rows_are_counted_where_they_are_not_summed(self, story):
        remove(story.offsets, 1)
        story.produce(150)
        story.job = story.job.but(options={"contentHash": "false"})
        story.asked(PLANNED_ANEW, "it had 100 rows and has 200 now")

    @slow
    def test_another_driver_was_the_last_to_write_it(self, story):
        """The sink rejects batch 1 of both drivers after a second driver has planned it with more rows.

        The file ``offsets/1`` of the second driver then replaces the file of the first driver.
        """
        other = story.job.but(checkpoint=str(story.save("other")))
        remove(other.directory / "offsets", 1)
        story.produce(150)
        mine, story.job = story.job, other
        story.asked(PLANNED_ANEW)
        story.job = mine
        for each in ("1", ".1.crc"):
            shutil.copy(other.directory / "offsets" / each, story.offsets)
        story.asked(PLANNED_ANEW, "it had 100 rows and has 200 now")


@slow
class TestOffsetsOfTwoPartitions:
    """A batch takes rows from two partitions in proportion to their remaining rows.

    So rows that are written later change how many rows each partition has in a batch that is planned again.
    """

    @pytest.fixture
    def story(self, spark, kafka, tmp_path):
        story = Losses(spark, kafka, tmp_path, partitions=2)
        story.job = story.job.but(per_batch=100)
        for partition in (0, 1):
            story.produce(150, partition)
        return story

    @pytest.mark.parametrize("hashed", [True, False], ids=["summed", "counted"])
    def test_as_many_other_rows_are_planned(self, story, hashed):
        story.job = story.job.but(options={"contentHash": str(hashed).lower()})
        story.dies("end.all", batch=1)
        remove(story.offsets, 1)
        story.produce(300, 1)
        story.asked(PLANNED_ANEW, f"its 100 rows are {'different ones' if hashed else 'of other offsets'}")


class TestOldCheckpoints:
    @pytest.fixture
    def story(self, story):
        story.produce(300)
        assert story.run() == ""
        return story

    @slow
    @pytest.mark.parametrize("more", [0, 150])
    def test_a_copy_of_before_the_last_batch(self, story, more):
        saved = story.save("saved")
        story.produce(100)
        story.goes_on()
        story.restore(saved)
        story.produce(more)
        if more:
            question = story.asked(PLANNED_ANEW, "it had 100 rows and has 200 now")
            story.answer(question, 2)
            assert story.run() == ""
            assert story.none_lost()
        else:
            story.goes_on()

    @slow
    def test_a_copy_of_in_the_last_batch(self, story, tmp_path):
        """The query continues from a copy of the checkpoint that has the offsets of the last batch, but not its commit."""
        story.produce(100)
        story.dies("task.flushed", batch=2)
        assert (batches(story.offsets), batches(story.commits)) == ([0, 1, 2], [0, 1])
        saved = story.save("saved")
        story.goes_on()
        story.restore(saved)
        story.produce(150)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("more", [0, 150])
    def test_a_copy_of_two_batches_before(self, story, more):
        saved = story.save("saved")
        for _ in range(2):
            story.produce(100)
            story.goes_on()
        story.produce(more)
        newest = story.save("newest")
        story.restore(saved)
        story.asked("the checkpoint is an old one", "Restore the newest", "The query is at batch 2")
        story.restore(newest)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("lost", [(1,), (0, 1)], ids=["last", "all"])
    def test_commits_are_lost(self, story, lost):
        remove(story.commits, *lost)
        story.goes_on()
        story.produce(100)
        story.goes_on()

    @slow
    def test_the_newest_offsets_and_commits_are_lost(self, story):
        story.produce(400)
        story.goes_on()
        assert batches(story.commits) == [0, 1, 2, 3]
        for directory in (story.offsets, story.commits):
            remove(directory, 2, 3)
        story.asked("the checkpoint is an old one", "The query is at batch 2")


class TestOtherFiles:
    @pytest.fixture
    def story(self, story):
        story.produce(300)
        return story

    @slow
    @pytest.mark.parametrize("step", ["task.flushed", "end.all"])
    def test_the_metadata_is_lost(self, story, step):
        """Without the file ``metadata`` Spark does not start the query.

        With a setting, Spark starts the query with a new id, which the sink rejects.
        """
        story.dies(step, batch=1)
        saved = story.save("saved")
        for each in ("metadata", ".metadata.crc"):
            (story.job.directory / each).unlink()
        story.refused("STREAMING_CHECKPOINT_MISSING_METADATA_FILE")
        story.spark.conf.set(VERIFIED, "false")
        try:
            story.asked("belongs to another query")
        finally:
            story.spark.conf.unset(VERIFIED)
        story.restore(saved)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("batch", [0, 1])
    def test_the_first_offsets_of_the_source_are_lost(self, story, batch):
        story.dies("end.all", batch)
        remove(story.job.directory / "sources" / "0", 0)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("step", ["task.flushed", "end.all"])
    def test_the_state_is_lost(self, story, step):
        story.job = story.job.but(rows="distinct")
        story.dies(step, batch=1)
        saved = story.save("saved")
        shutil.rmtree(story.job.directory / "state")
        story.refused("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
        story.restore(saved)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("batch", [0, 1])
    def test_the_whole_checkpoint_is_lost(self, story, batch):
        story.dies("end.all", batch)
        saved = story.save("saved")
        shutil.rmtree(story.job.directory)
        question = story.asked("belongs to another query", "its checkpoint is a new one")
        story.restore(saved)
        story.goes_on()
        assert "firstBatch=0@" in question


def lose_group(story):
    story.delete_groups(story.job.name)


def lose_both_groups(story):
    story.delete_groups(story.job.name, story.query_group)


def change_name(story):
    story.job = story.job.but(name=f"{story.job.name}-renamed")


def change_decision_topic(story):
    story.job = story.job.but(options={"decisionTopic": story.kafka.topic(2)})


def forget(story):
    (story.job.directory / MARK).unlink()


def both(*losses):
    def lose(story):
        for each in losses:
            each(story)

    return lose


def committed(story) -> str:
    return f"it has committed transactions ({story.job.name}-1-0"


def of_checkpoint(story) -> str:
    return f"its checkpoint was written by the sink {story.job.name} (decisionTopic __consumer_offsets)"


def of_query(story) -> str:
    return (
        f"the first batch of this query was decided by the sink {story.job.name} "
        "(decisionTopic __consumer_offsets)"
    )


def on_other_topic(story) -> str:
    return "it has a decision record on __consumer_offsets (the option decisionTopic)"


class TestRecords:
    """The sink's record is lost or not found. Batch 0 is decided and committed, but Spark has not recorded it yet."""

    @pytest.fixture
    def story(self, story):
        story.produce(300)
        return story

    @pytest.mark.parametrize(
        ("loss", "reason"),
        [
            pytest.param(lose_group, committed, id="group", marks=slow),
            pytest.param(lose_both_groups, committed, id="both groups", marks=slow),
            pytest.param(both(lose_both_groups, forget), committed, id="groups and mark", marks=slow),
            pytest.param(change_name, of_checkpoint, id="name", marks=slow),
            pytest.param(both(forget, change_name), of_query, id="name and mark", marks=slow),
            pytest.param(change_decision_topic, of_checkpoint, id="decision topic", marks=slow),
            pytest.param(
                both(forget, change_decision_topic), on_other_topic, id="decision topic and mark", marks=slow
            ),
        ],
    )
    def test_the_first_batch_is_asked_about(self, story, loss, reason):
        story.dies("end.all", batch=0)
        before, expected = story.job, reason(story)
        loss(story)
        question = story.asked(expected, "firstBatch=0@0", "firstBatch=1@0")
        assert expected in story.asked(), "the next start has the same error"
        if story.job == before:
            story.answer(question, 1)
        else:
            story.job = before
        story.goes_on()

    @slow
    @pytest.mark.parametrize("loss", [change_name, change_decision_topic], ids=["name", "decision topic"])
    def test_a_new_name_or_topic_can_be_kept(self, story, loss):
        story.dies("end.all", batch=0)
        loss(story)
        story.answer(story.asked(), 1)
        story.goes_on()
        story.job = story.job.but(options={**story.job.options, "firstBatch": "1@0"})
        story.produce(100)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("marked", [True, False], ids=["local", "unread"])
    @pytest.mark.parametrize("change", ["moved", "named"])
    def test_a_query_without_a_name(self, story, change, marked, tmp_path):
        """A query without a name gets its sink's name from the location of the checkpoint."""
        story.job = story.job.but(name=None)
        story.dies("end.all", batch=0)
        before, name = story.job, from_checkpoint(story.job.checkpoint)
        if not marked:
            forget(story)
        if change == "moved":
            story.job = story.job.but(checkpoint=str(story.job.directory.rename(tmp_path / "moved")))
        else:
            story.job = story.job.but(name=story.kafka.name())
        story.asked(f"by the sink {name} (decisionTopic __consumer_offsets)")
        story.job = story.job.but(name=before.name, options={"name": name})
        story.goes_on()

    @slow
    def test_the_decision_topic_is_deleted(self, story):
        """After the decision topic was deleted, the query stops with an error, and continues with ``firstBatch``.

        Kafka deletes the topic's committed offsets: the decision record, and the binding of the query to its sink.
        """
        topic = story.kafka.topic(2)
        story.job = story.job.but(options={"decisionTopic": topic})
        story.dies("end.all", batch=0)
        story.kafka.admin.delete_topics([topic])[topic].result()
        story.kafka.eventually(lambda: not story.has_offsets(story.job.name), "its offsets are deleted")
        # Brokers have created the topic again, by auto.create.topics.enable.
        question = story.asked(committed(story))
        story.answer(question, 1)
        story.goes_on()

    @slow
    @pytest.mark.parametrize("ids", [False, True], ids=["offsets", "offsets and ids"])
    def test_seven_days_pass(self, spark, start, broker_kind, tmp_path, ids):
        """After its offsets (and transactional ids) have expired, a query stops with an error.

        It continues with ``firstBatch``. On Apache Kafka this takes a minute, because its clock cannot be advanced.
        """
        settings = EXPIRING if ids else EXPIRING_OFFSETS
        kafka = start({} if broker_kind == "odradek" else settings)
        story = Losses(spark, kafka, tmp_path)
        story.produce(300)
        story.dies("end.all", batch=0)
        if broker_kind == "odradek":
            kafka.broker.clock.advance("8d", only=["groups", *(["transactions", "ids"] if ids else [])])
        groups: tuple[Any, ...] = (story.job.name, story.query_group)
        kafka.eventually(lambda: not any(map(story.has_offsets, groups)), "offsets have expired", HANG_S)
        if ids:
            kafka.eventually(lambda: not story.transactional_ids(), "ids have expired", HANG_S)
        question = story.asked(
            "its checkpoint shows that it has planned a batch before" if ids else committed(story)
        )
        story.answer(question, 1)
        story.goes_on()


class TestNotDeterministic:
    """A query that is not deterministic: each replay makes other rows of the same input."""

    @slow
    def test_a_replay_is_known_by_its_offsets(self, story):
        story.job = story.job.but(rows="random")
        story.produce(300)
        story.dies("end.all", batch=1)
        assert "is not deterministic" in story.run_apart()
        story.check()

    @slow
    def test_another_number_of_rows_from_the_same_offsets_is_a_question(self, story):
        story.job = story.job.but(rows="sampled", per_batch=2000)
        story.produce(3000)
        story.dies("end.all", batch=1)
        before = story.written()
        question = story.asked(
            "Its offsets are the same: the query is not deterministic, or its source has changed"
        )
        story.answer(question, 2)
        assert story.run() == ""
        assert story.written() == before
        assert set(before.values()) == {1}

    @slow
    def test_where_the_checkpoint_cannot_be_read_the_rows_can_be_counted(self, story):
        story.job = story.job.but(rows="random", by_conf=True)
        story.produce(300)
        story.dies("end.all", batch=1)
        story.asked(PLANNED_ANEW, "its 100 rows are different ones", "set the option contentHash=false")
        story.job = story.job.but(options={"contentHash": "false"})
        story.goes_on()


@slow
@pytest.mark.parametrize("step", ["decision.made", "end.first", "end.all"])
def test_decisions_have_one_partition(spark, start, tmp_path, step):
    """The sink works if ``__consumer_offsets`` has only one partition.

    The commit before each read of the decision record then goes to the partition of the record itself.
    """
    story = Losses(spark, start({"offsets.topic.num.partitions": 1}), tmp_path, partitions=2)
    for partition in (0, 1):
        story.produce(150, partition)
    story.dies(step, batch=1)
    story.goes_on()
    story.produce(100)
    story.goes_on()


@slow
@pytest.mark.parametrize("names", [1, 2])
def test_a_batch_is_written_to_two_topics(spark, kafka, tmp_path, names):
    """`foreachBatch` writes a batch to two topics: if the writes have the same ``name``, the second one is an error."""
    source, topics, name = kafka.topic(), [kafka.topic(), kafka.topic()], kafka.name()
    kafka.produce(source, [f"{number:04}" for number in range(100)])

    def write(rows, batch_id):
        for number, topic in enumerate(topics):
            sink = {"topic": topic, "name": f"{name}-{number if names == 2 else 0}", "batchId": batch_id}
            writer = rows.select("value").write.format("odradek.exactly_once").mode("append")
            writer.options(**kafka.options, **sink).save()

    def run() -> str:
        rows = spark.readStream.format("kafka").options(
            **kafka.options, subscribe=source, startingOffsets="earliest"
        )
        query = rows.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        try:
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        return ""

    if names == 1:
        assert f"was decided for {topics[0]}, and a second write of this batch is for {topics[1]}" in run()
        assert [len(kafka.read(topic)) for topic in topics] == [100, 0]
    else:
        assert run() == run() == ""
        assert [len(set(kafka.read(topic))) for topic in topics] == [100, 100]


@slow
def test_a_copy_that_lost_holds_no_reader_back(kafka):
    """A speculative copy of a task that lost to the first attempt leaves no transaction that blocks readers.

    The copy is killed with an open transaction, and no further batch comes.
    """
    topic, name, query_id = kafka.topic(), kafka.name(), str(uuid4())
    settings = Settings(name, DECISION_TOPIC, TRANSACTION_TIMEOUT_MS)

    def write(cluster, plan, label, batch, value):
        rows = iter([pa.record_batch({"value": pa.array([value])})])
        of = RecordBatchSum(topic, True)
        return run_task(
            cluster,
            plan,
            label,
            batch,
            query_id,
            rows,
            of,
            lambda name, producer: RecordBatches(cluster, name, producer, topic),
        )

    with contextlib.ExitStack() as stack:
        client = ClientSettings.from_options(kafka.options)
        driver, first, second = (stack.enter_context(Cluster(client)) for _ in range(3))
        plan = plan_batch(driver, settings, 0)
        commit_batch(driver, [write(first, plan, Label(0, 1), 0, "a")], 0)
        plan = plan_batch(driver, settings, 0)
        won, lost = (
            write(each, plan, Label(0, attempt), 1, "b") for each, attempt in ((first, 2), (second, 3))
        )
        assert (won.pooled, lost.pooled) == (True, False)
        commit_batch(driver, [won], 0)
    kafka.produce(topic, ["another producer's"])
    assert [each.text for each in kafka.read(topic)] == ["a", "b", "another producer's"]
