"""The producer: write the flights to the topic in transactions, and abort some of them and write them again.

It is a separate program that only needs confluent-kafka, as a user would write it. Its position in the file is the
offset of a group, committed in the same transaction as the flights, so a restarted producer continues exactly there. It
prints its actions on standard output, a word and a number per line. From standard input it reads the row up to which it
may write: the supervisor (``run.py``) raises this limit step by step, so that flights are left when the job is killed.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from odradek.demo import flights
from odradek.demo.worker import PATIENCE, TIMEOUT_S, insist, say
from odradek.spark.pipeline.departures import Departure, closing_value, in_order

GROUP = "flights-file"
"""Consumer group of the producer's position: its offset in partition 0 of the topic is the number of the next flight.

When the closing records are written too, the offset is the number of flights plus one.
"""
TRANSACTION_FLIGHTS = 1000
ABORT_EVERY = 7
"""Every seventh transaction is aborted when it is first written, and then written again."""
TRANSACTION_TIMEOUT_MS = 30_000


class RowLimit:
    """The row up to which (exclusive) the producer may write: the highest number read from stdin so far."""

    def __init__(self) -> None:
        self._until = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            with self._changed:
                self._until = max(self._until, int(line))
                self._changed.notify()

    def wait_for(self, row: int) -> None:
        """Wait until the limit that was read from stdin is above the row with the number ``row``."""
        with self._changed:
            self._changed.wait_for(lambda: self._until > row)


class FlightProducer:
    def __init__(self, bootstrap: str, topic: str, partitions: int, limit: RowLimit) -> None:
        self.topic = topic
        self.partitions = partitions
        self.limit = limit
        common = {"bootstrap.servers": bootstrap, **PATIENCE}
        self.producer = Producer(
            {
                **common,
                "transactional.id": f"{topic}-producer",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "retry.backoff.ms": 20,
                "linger.ms": 5,
                # the partition that the Java client would choose for the key
                "partitioner": "murmur2_random",
            }
        )
        # With read_committed the request waits until a transaction with the offset is decided.
        self.group = Consumer({**common, "group.id": GROUP, "isolation.level": "read_committed"})
        insist(lambda: self.producer.init_transactions(TIMEOUT_S))

    def run(self, departures: Sequence[Departure]) -> None:
        """Write the remaining flights, and the closing records."""
        end = len(departures)
        row = self.position()
        say("ready", row)
        given_up = -1
        while row <= end:
            number = row // TRANSACTION_FLIGHTS
            upto = min((number + 1) * TRANSACTION_FLIGHTS, end)
            self.limit.wait_for(row)
            wanted = number % ABORT_EVERY != ABORT_EVERY - 1 or number == given_up
            try:
                self.transact(departures, row, upto, commit=wanted)
            except KafkaException as failure:
                if not failure.args[0].txn_requires_abort():
                    raise
                insist(lambda: self.producer.abort_transaction(TIMEOUT_S))
                say("lost", number)
                continue
            if wanted:
                # After the closing records the position is one higher, so they are written once.
                row = upto if upto < end else end + 1
            else:
                given_up = number
        say("done", row)

    def transact(self, departures: Sequence[Departure], row: int, upto: int, commit: bool) -> None:
        """Write the flights ``row`` to ``upto`` (exclusive) in one transaction, which is aborted if ``commit`` is False.

        After the last flight, each partition gets a closing record. A committed transaction also contains the number of
        the next flight, as the offset of ``GROUP``.
        """
        say("begin", row)
        self.producer.begin_transaction()
        for each in departures[row:upto]:
            self.produce(each.value, key=each.key)
        ends = upto == len(departures)
        if ends:
            for partition in range(self.partitions):
                self.produce(closing_value(), partition=partition)
        if not commit:
            # Without flush, records that wait in the client would never be written to the log.
            self.producer.flush(TIMEOUT_S)
            insist(lambda: self.producer.abort_transaction(TIMEOUT_S))
            say("abort", row)
            return
        position = TopicPartition(self.topic, 0, upto + ends)
        member = self.group.consumer_group_metadata()
        insist(lambda: self.producer.send_offsets_to_transaction([position], member, TIMEOUT_S))
        insist(lambda: self.producer.commit_transaction(TIMEOUT_S))
        say("commit", upto)

    def produce(self, value: str, **where: object) -> None:
        while True:
            try:
                self.producer.produce(self.topic, value=value, **where)  # type: ignore[arg-type]
                break
            except BufferError:
                self.producer.poll(0.1)

    def position(self) -> int:
        """The number of the next flight. Raises ``KafkaException`` if it cannot be fetched."""
        [place] = self.group.committed([TopicPartition(self.topic, 0)], TIMEOUT_S)
        if place.error is not None:
            raise KafkaException(place.error)
        return max(int(place.offset), 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.spark.pipeline.producer")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--flights", type=int, help="only this number of flights")
    options = parser.parse_args()
    departures = in_order(flights.lines(flights.data_file()), options.flights)
    try:
        FlightProducer(options.bootstrap, options.topic, options.partitions, RowLimit()).run(departures)
    except KafkaException as failure:
        print("failed", failure, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
