"""Tests of ``test_sink_source`` that also run on Apache Kafka."""

import pytest

from odradek.spark.testing.kafka import Kafka
from tests.spark.sink.test_sink_source import (
    TestBatchWrites,
    TestZombies,
    sink,
    task,
    test_a_batch_that_is_given_up_holds_no_reader_back,
    test_a_record_of_many_tasks_is_cut_over_partitions,
    test_a_task_that_fails_while_it_writes_aborts_its_own_transaction,
    test_batches_are_written_once_however_often_they_are_replayed,
    test_columns_go_where_spark_s_own_sink_puts_them,
    test_nothing_is_visible_before_the_decision_and_all_after_it,
)
from tests.support import kafka_oracle

__all__ = [
    "TestBatchWrites",
    "TestZombies",
    "sink",
    "task",
    "test_a_batch_that_is_given_up_holds_no_reader_back",
    "test_a_record_of_many_tasks_is_cut_over_partitions",
    "test_a_task_that_fails_while_it_writes_aborts_its_own_transaction",
    "test_batches_are_written_once_however_often_they_are_replayed",
    "test_columns_go_where_spark_s_own_sink_puts_them",
    "test_nothing_is_visible_before_the_decision_and_all_after_it",
]

pytestmark = [pytest.mark.java, pytest.mark.more]


@pytest.fixture(scope="module")
def apache_kafka():
    with kafka_oracle.kafka() as oracle:
        yield f"{oracle.host}:{oracle.port}"


@pytest.fixture
def kafka(apache_kafka, request):
    mine = Kafka(apache_kafka, prefix=request.node.name)
    yield mine
    mine.close()
