"""The producer: the flights go into the topic in transactions, some of which are aborted and said again.

A program of its own, with nothing but confluent-kafka, as a user would write it. Where it stands in its file is the
offset of a group, committed in the same transaction as the flights: a restarted producer goes on exactly
there. What it does it says on its standard output, a word and a number a line; how far it may go it is told on its
standard input, so that there is still something to do when the job is killed.
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
"""Its offset in partition 0 of the topic is the number of the next flight; behind the last one, that the end is said."""
TRANSACTION_FLIGHTS = 1000
ABORT_EVERY = 7
"""Each transaction whose number is a multiple of this is aborted at the first attempt."""
TRANSACTION_TIMEOUT_MS = 30_000


class Leave:
    """How far the producer may go: what is told on standard input, a number a line."""

    def __init__(self) -> None:
        self._until = 0
        self._told = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            with self._told:
                self._until = max(self._until, int(line))
                self._told.notify()

    def wait_for(self, row: int) -> None:
        """Return when ``row`` may be said."""
        with self._told:
            self._told.wait_for(lambda: self._until > row)


class FlightProducer:
    def __init__(self, bootstrap: str, topic: str, partitions: int, leave: Leave) -> None:
        self.topic = topic
        self.partitions = partitions
        self.leave = leave
        common = {"bootstrap.servers": bootstrap, **PATIENCE}
        self.producer = Producer(
            {
                **common,
                "transactional.id": f"{topic}-producer",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "retry.backoff.ms": 20,
                "linger.ms": 5,
                # Where the Java clients put a key.
                "partitioner": "murmur2_random",
            }
        )
        # With read_committed an offset whose transaction is not decided yet is waited for.
        self.group = Consumer({**common, "group.id": GROUP, "isolation.level": "read_committed"})
        insist(lambda: self.producer.init_transactions(TIMEOUT_S))

    def run(self, departures: Sequence[Departure]) -> None:
        """Say what has not been said yet, and the end."""
        end = len(departures)
        row = self.position()
        say("ready", row)
        given_up = -1
        while row <= end:
            number = row // TRANSACTION_FLIGHTS
            upto = min((number + 1) * TRANSACTION_FLIGHTS, end)
            self.leave.wait_for(row)
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
                # The end is a position of its own: it is said once.
                row = upto if upto < end else end + 1
            else:
                given_up = number
        say("done", row)

    def transact(self, departures: Sequence[Departure], row: int, upto: int, commit: bool) -> None:
        """One transaction: flights ``row`` to ``upto``, after the last one the end, and the position behind them."""
        say("begin", row)
        self.producer.begin_transaction()
        for each in departures[row:upto]:
            self.produce(each.value, key=each.key)
        ends = upto == len(departures)
        if ends:
            for partition in range(self.partitions):
                self.produce(closing_value(), partition=partition)
        if not commit:
            # What waits in the client would not even reach the log.
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
        """The number of the next flight. An error is no answer."""
        [place] = self.group.committed([TopicPartition(self.topic, 0)], TIMEOUT_S)
        if place.error is not None:
            raise KafkaException(place.error)
        return max(int(place.offset), 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.spark.pipeline.producer")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--flights", type=int, help="only so many")
    options = parser.parse_args()
    departures = in_order(flights.lines(flights.data_file()), options.flights)
    try:
        FlightProducer(options.bootstrap, options.topic, options.partitions, Leave()).run(departures)
    except KafkaException as failure:
        print("failed", failure, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
