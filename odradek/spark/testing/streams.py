"""Wait until a streaming query has processed its data."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from odradek.deadlines import stretched
from odradek.spark.testing.kafka import NotInTime

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TIMEOUT_S = stretched(60.0)


def process_all(query: StreamingQuery, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until a query has processed all data that its sources have now. Raises the error of a query that fails.

    The function is ``StreamingQuery.processAllAvailable`` with a timeout. After the timeout it stops the query and raises
    ``NotInTime`` with the query's last progress.
    """
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            query.processAllAvailable()
        except BaseException as error:
            failed.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(timeout_s)
    if waiting.is_alive():
        progress: Any = query.lastProgress
        query.stop()
        raise NotInTime(f"the query had more to process after {timeout_s:g} s; its last progress: {progress}")
    if failed:
        raise failed[0]
