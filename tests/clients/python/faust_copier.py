"""A stream application on faust-streaming that copies records in transactions, each to the partition with the same index.

Run as ``faust_copier.py BOOTSTRAP GROUP STATE`` until SIGTERM. It has no table: after a rebalance faust uses the last stable
offset of its consumer as the end of a changelog, which is -1 before the first fetch. Its members then fail repeatedly with
"The persisted offset for changelog topic partition is higher than the last offset" or "Offset must be a positive integer",
and count some records again, with Apache Kafka 4.3.1 too. A single process restores its table with both brokers.
"""

from __future__ import annotations

import sys
from typing import Any

import faust


def make(bootstrap: str, group: str, folder: str) -> faust.App:
    app = faust.App(
        group,
        broker=f"aiokafka://{bootstrap}",
        datadir=folder,
        web_enabled=False,
        processing_guarantee="exactly_once",
        topic_partitions=4,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=2.0,
        broker_heartbeat_interval=0.2,
        broker_commit_interval=0.1,
        broker_commit_every=5,
    )
    source = app.topic("in", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")
    sink = app.topic("out", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")

    @app.agent(source)
    async def copy(stream: Any) -> None:
        async for key, value in stream.items():
            await sink.send(key=key, value=value, partition=int(key[1:]))

    # faust takes the transactional id for a result from the partitions in its consumer's metadata: a result for a topic
    # that the application does not consume is written outside any transaction.
    @app.agent(sink)
    async def read_on(stream: Any) -> None:
        async for _ in stream:
            pass

    return app


if __name__ == "__main__":
    app = make(*sys.argv[1:])
    app.finalize()
    faust.Worker(app, loglevel="WARN", quiet=True).execute_from_commandline()
