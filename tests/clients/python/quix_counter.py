"""A stream application on quixstreams that counts the records of each key exactly once, in a store with a changelog topic.

Run as ``quix_counter.py BOOTSTRAP GROUP STATE`` until SIGTERM.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State

# As in tests.support.clients: a broker that a test kills is restarted at once.
PATIENCE = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "connections.max.idle.ms": 1_500,
    "topic.metadata.refresh.interval.ms": 200,
}


def count(value: str, state: State) -> str:
    seen = int(state.get("seen", 0)) + 1
    state.set("seen", seen)
    return f"{value.partition('-')[0]} {seen}"


def main(bootstrap: str, group: str, folder: str) -> None:
    member: dict[str, Any] = {
        "session.timeout.ms": 1_500,
        "heartbeat.interval.ms": 100,
        "fetch.wait.max.ms": 20,
    }
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.1,
        state_dir=folder,
        consumer_extra_config=PATIENCE | member,
        # Each process has a transactional id of its own: this timeout aborts an open transaction of a killed process.
        producer_extra_config=PATIENCE | {"transaction.timeout.ms": 2_000, "linger.ms": 0},
        loglevel="WARNING",
    )
    source = app.topic("in", key_deserializer="str", value_deserializer="str")
    sink = app.topic("out", key_serializer="str", value_serializer="str")
    app.dataframe(source).apply(count, stateful=True).to_topic(sink)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
