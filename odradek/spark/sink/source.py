"""The data source that Spark calls, in three kinds of processes.

- A short-lived Python process of the driver makes a writer and pickles it: the batch is planned there.
- Python workers unpickle the writer and write.
- Another short-lived process of the driver makes a new writer (streaming) or unpickles the planned one (batch), and decides.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from odradek.spark.sink.checkpoint import Checkpoint
from odradek.spark.sink.columns import RecordBatches, RecordBatchSum, check_schema
from odradek.spark.sink.decision import abort_batch, commit_batch
from odradek.spark.sink.errors import SinkError
from odradek.spark.sink.names import Label
from odradek.spark.sink.options import SinkOptions
from odradek.spark.sink.plan import Plan, plan_batch
from odradek.spark.sink.task import Report, run_task
from odradek.spark.wire import BadSettings, ClientSettings, Cluster

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

FORMAT = "odradek.exactly_once"
# The query id of batch writes; a streaming query has a UUID.
BATCH_WRITES = "batch"
_USE_MICRO_BATCHES = "Use trigger(processingTime=...) or trigger(availableNow=True)."


@dataclass
class Message(WriterCommitMessage):
    """The message that Spark carries from a task to the driver."""

    report: Report


# In processes that Spark uses again, only connections are kept for later tasks and plans. A broker closes
# idle ones (connections.max.idle.ms, 10 minutes), and a request to a closed connection looks like a lost response.
IDLE_SECONDS_MAX = 60.0
_idle: dict[ClientSettings, tuple[Cluster, float]] = {}


@contextlib.contextmanager
def _connected(settings: ClientSettings) -> Iterator[Cluster]:
    cluster, since = _idle.pop(settings, (None, 0.0))
    if cluster is not None and time.monotonic() - since > IDLE_SECONDS_MAX:
        cluster.close()
        cluster = None
    cluster = cluster or Cluster(settings)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    _idle[settings] = cluster, time.monotonic()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Planned:
    """A writer that plans its batch when it is pickled for the tasks: only the process that plans pickles its writer.

    The process that commits creates a writer too, which must not plan: a plan would fence the driver of the batch.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the writer twice: once with the function for the tasks, and once alone.
        if self.plan is None:
            self.plan = self._plan()
        return self.__dict__

    def _plan(self) -> Plan:
        try:
            with _connected(self.options.client) as cluster:
                return plan_batch(cluster, self.options.protocol, _now_ms())
        except BadSettings as error:
            if error.code != "INVALID_TRANSACTION_TIMEOUT":
                raise
            raise SinkError(
                f"The brokers reject a transaction timeout of {self.options.protocol.transaction_timeout_ms} ms: set "
                "the option kafka.transaction.timeout.ms to at most their transaction.max.timeout.ms, and after a "
                "crash start the query again within that time."
            ) from error

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write all rows of a task into one transaction, which stays open."""
        context = TaskContext.get()
        if context is None or self.plan is None:
            raise SinkError("This writer works only in a Spark task, after its batch was planned.")
        plan, options = self.plan, self.options
        with _connected(options.client) as cluster:
            report = run_task(
                cluster,
                plan,
                Label(context.partitionId(), context.taskAttemptId()),
                self._batch(context, plan),
                context.getLocalProperty("sql.streaming.queryId") or BATCH_WRITES,
                iterator,
                RecordBatchSum(options.topic, options.protocol.hashed),
                lambda each, producer: RecordBatches(cluster, each, producer, options.topic),
            )
        return Message(report)

    def _batch(self, context: TaskContext, plan: Plan) -> int:
        raise NotImplementedError

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        reports = _reports(messages)
        if len(reports) != len(messages):
            raise SinkError("Spark has not passed on the report of every task, so the batch is not decided.")
        with _connected(self.options.client) as cluster:
            commit_batch(cluster, reports, _now_ms())

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with _connected(self.options.client) as cluster:
            abort_batch(cluster, _reports(messages))


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[Report]:
    return [message.report for message in messages if isinstance(message, Message)]


class StreamWriter(_Planned, DataSourceStreamArrowWriter):
    """A writer that commits each micro-batch as one decision.

    In continuous processing Spark 4.2 never calls ``write``: its ContinuousWriteRDD passes single rows, which the
    writer for Python drops without an error. Spark only logs an error that ``commit`` raises. So the plan of such
    a query raises the error."""

    def _plan(self) -> Plan:
        location = self.options.protocol.checkpoint
        if Checkpoint(location).has_unwritten_batch() is False:
            raise SinkError(
                f"The sink writes micro-batches only, and the checkpoint {location} has none that is recorded and not yet "
                f"written: the query has a continuous trigger (or another driver uses the checkpoint). {_USE_MICRO_BATCHES}"
            )
        return super()._plan()

    def _batch(self, context: TaskContext, plan: Plan) -> int:
        batch = context.getLocalProperty("streaming.sql.batchId")
        if batch is None:
            raise SinkError(
                "Spark does not pass the number of the micro-batch to the task, and the sink cannot write without it."
            )
        return int(batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if messages and all(each is None for each in messages):
            raise SinkError(
                "The sink writes micro-batches only, and no task has called it: the query has a continuous trigger, and "
                "none of its rows is written. Stop the query, and delete from the directory 'offsets' of its "
                "checkpoint all files with a higher number than the last one in 'commits'. "
                f"{_USE_MICRO_BATCHES}"
            )
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchWriter(_Planned, DataSourceArrowWriter):
    """A writer that commits each batch write as one decision.

    With the options ``name`` and ``batchId`` a repeated write of the same batch writes nothing."""

    def _batch(self, context: TaskContext, plan: Plan) -> int:
        return plan.next_batch if self.options.batch is None else self.options.batch

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class ExactlyOnce(DataSource):
    """The data source ``format("odradek.exactly_once")`` (docs/spark/sink.md)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise SinkError("A topic cannot be overwritten: use mode append.")
        options = SinkOptions.of(self.options, batch_write=True)
        check_schema(schema, options.topic)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a writer. In output mode complete (``overwrite``) rows are appended too, as in Spark's own sink."""
        options = SinkOptions.of(self.options)
        check_schema(schema, options.topic)
        return StreamWriter(options)
