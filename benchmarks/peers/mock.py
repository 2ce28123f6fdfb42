"""``python -m benchmarks.peers.mock``: run librdkafka's mock cluster until the process is stopped."""

from __future__ import annotations

import signal

from confluent_kafka import Producer


def main() -> None:
    host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = host.list_topics(timeout=30).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
