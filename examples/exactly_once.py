"""Consume, transform, produce: each input counts once, even if the program or the broker is killed in between.

    odradek serve --topic numbers:4 --topic squares:4
    python examples/exactly_once.py

Plain confluent-kafka (`pip install confluent-kafka`); the same program runs unchanged on Apache Kafka.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer

RECORDS = 100


def fill(bootstrap: str) -> None:
    """Write the input, the numbers from 0, in one transaction, so that the topic contains all of them or none."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "numbers"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce("numbers", str(number))
    producer.commit_transaction()


def square(bootstrap: str) -> None:
    """Write the square of every number. Records and consumed offsets are committed together, or not at all."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "squares",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    # A second process with this id fences the first one, which can no longer write.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "squares"})
    producer.init_transactions()
    consumer.subscribe(["numbers"])
    moved = 0
    while moved < RECORDS:
        batch = consumer.consume(num_messages=25, timeout=1.0)
        if not batch:
            continue
        producer.begin_transaction()
        try:
            for message in batch:
                if message.error():
                    raise KafkaException(message.error())
                producer.produce("squares", str(int(message.value()) ** 2), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException as failure:
            producer.abort_transaction()
            raise SystemExit(f"aborted, nothing was moved: {failure}") from failure
        moved += len(batch)
    consumer.close()


def total(bootstrap: str) -> int:
    """The sum of all squares that a read_committed consumer sees."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe(["squares"])
    squares: list[int] = []
    while len(squares) < RECORDS:
        squares += [int(message.value()) for message in reader.consume(num_messages=RECORDS, timeout=1.0)]
    reader.close()
    return sum(squares)


def main() -> None:
    bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
    fill(bootstrap)
    square(bootstrap)
    expected = sum(number**2 for number in range(RECORDS))
    print(f"sum of squares: {total(bootstrap)}, expected {expected}")


if __name__ == "__main__":
    main()
