"""A Spark listener for the finished batches of queries with this sink."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from odradek.spark.sink.source import FORMAT

log = logging.getLogger(__name__)

BATCHES_KEPT = 1000
# Spark 4 describes every sink in Python by the name of its own class.
_PYTHON_SINK = "PythonTable"


@dataclass(frozen=True)
class BatchProgress:
    """A batch that Spark has finished: its transactions are committed. ``rows`` is the number of input rows."""

    query_id: str
    query_name: str | None
    batch: int
    rows: int
    duration_ms: int


class ExactlyOnceListener(StreamingQueryListener):
    """A listener that collects and logs the finished batches of queries with this sink.

    Register it by ``spark.streams.addListener(ExactlyOnceListener())``.

    Spark does not tell a listener which Python sink a query has. ``names`` lists the queries to listen to; without
    ``names``, the listener collects batches of all queries with a sink in Python.
    """

    def __init__(self, names: Collection[str] | None = None, batches_kept: int = BATCHES_KEPT) -> None:
        self._names = names
        self._batches: deque[BatchProgress] = deque(maxlen=batches_kept)
        self._failures: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def batches(self) -> list[BatchProgress]:
        """The last batches, the newest at the end. They include batches without rows that Spark ran to update its state."""
        with self._lock:
            return list(self._batches)

    @property
    def failures(self) -> dict[str, str]:
        """The error messages of failed queries, by query id."""
        with self._lock:
            return dict(self._failures)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._lock:
            self._failures.pop(str(event.id), None)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if not self._is_meant(progress):
            return
        batch = BatchProgress(
            str(progress.id),
            progress.name,
            progress.batchId,
            progress.numInputRows,
            int(progress.batchDuration),
        )
        with self._lock:
            if batch not in self._batches:
                self._batches.append(batch)
        log.info(
            "batch %d of %s: %d rows in %d ms", batch.batch, batch.query_name, batch.rows, batch.duration_ms
        )

    def _is_meant(self, progress: StreamingQueryProgress) -> bool:
        if self._names is not None:
            return progress.name in self._names
        return any(each in progress.sink.description for each in (FORMAT, _PYTHON_SINK))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing, because an idle query has finished no batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception is not None:
            with self._lock:
                self._failures[str(event.id)] = event.exception
            log.error("query %s has failed: %s", event.id, event.exception.partition("\n")[0])
