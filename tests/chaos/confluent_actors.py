"""Actors with confluent-kafka (librdkafka). Each is a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.actors import (
    ABORTS,
    ACKNOWLEDGED,
    CALL_S,
    PARTITIONS,
    PAUSE_S,
    SINK,
    SOURCE,
    TRANSACTION_TIMEOUT_MS,
    WORKERS,
    Stage,
    drawn_transaction,
)
from tests.chaos.checks import Moved
from tests.chaos.history import Outcome, Place, Seen, Send, Transaction, View
from tests.support.clients import FINDS_COORDINATORS, PATIENCE
from tests.support.deadlines import Deadline

BATCH = 20
ROUND_S = 0.5
GOODBYE_S = 1.0
"""Seconds to wait for the close of a producer that may be in the middle of a request."""


class GivenUp(Exception):
    """The run ended while a client was still retrying."""


def _insist(stage: Stage, call: Callable[[], object]) -> None:
    """Repeat a call while it fails with a retriable error."""
    while True:
        try:
            call()
            return
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
            if stage.given_up.is_set():
                raise GivenUp from failed


def _error(failed: BaseException) -> KafkaError:
    """The KafkaError of a failure, which the binding raises in several ways."""
    cause = failed.__cause__ if isinstance(failed, SystemError) and failed.__cause__ else failed
    error = cause.args[0] if isinstance(cause, KafkaException) else cause
    if not isinstance(error, KafkaError):
        raise failed
    return error


FAILURES: tuple[Any, ...] = (KafkaException, KafkaError, SystemError)
"""Errors of librdkafka's calls. A SystemError replaces the KafkaException if a callback ran in the same call."""


class _Transactional:
    """A transactional producer that is replaced by a new one after a fatal error."""

    def __init__(self, stage: Stage, who: str) -> None:
        self.stage = stage
        self.who = who
        self._producer: Producer | None = None

    def producer(self) -> Producer:
        if self._producer is None:
            made = Producer(
                {
                    **PATIENCE,
                    **FINDS_COORDINATORS,
                    "bootstrap.servers": self.stage.bootstrap,
                    "client.id": self.who,
                    "transactional.id": self.who,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "retry.backoff.ms": 20,
                    "linger.ms": 0,
                }
            )
            _insist(self.stage, lambda: made.init_transactions(CALL_S))
            self._producer = made
        return self._producer

    def commit(self) -> None:
        _insist(self.stage, lambda: self.producer().commit_transaction(CALL_S))

    def recover(self, failure: BaseException) -> bool:
        """Abort the transaction. The next transaction uses a new producer. Returns whether the abort succeeded.

        At an abort librdkafka purges the messages that have no response yet, and reuses their sequence numbers, in
        the same epoch, for the next transaction's records. If the leader has appended a purged batch, it treats
        the new batch as a duplicate, as in Kafka.
        """
        self.stage.note(self.who, f"failed: {failure!r}")
        with contextlib.suppress(*FAILURES):
            if _error(failure).txn_requires_abort():
                self.abort()
                self.drop()
                return True
            if _error(failure).fatal():
                self.stage.history.fatal.append(f"{self.who}: {_error(failure)}")
        self.drop()
        return False

    def abort(self) -> None:
        _insist(self.stage, lambda: self.producer().abort_transaction(CALL_S))

    def drop(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(*FAILURES):
                self._producer.purge()
                self._producer.flush(GOODBYE_S)
        self._producer = None


def transfers(stage: Stage, who: str) -> None:
    """Run transactions over several partitions, and abort some of them."""
    rng = stage.rng(who)
    client = _Transactional(stage, who)
    number = 0
    with contextlib.suppress(GivenUp):
        while not stage.ending.wait(rng.uniform(*PAUSE_S)):
            transaction = drawn_transaction(rng, who, number)
            number += 1
            aborts = rng.random() < ABORTS
            try:
                producer = client.producer()
            except FAILURES as failure:
                client.recover(failure)
                continue
            stage.history.transactions.append(transaction)
            try:
                producer.begin_transaction()
                _send(producer, transaction.sends)
                if aborts:
                    client.abort()
                else:
                    client.commit()
                transaction.outcome = Outcome.ABORTED if aborts else Outcome.COMMITTED
            except FAILURES as failure:
                if client.recover(failure):
                    transaction.outcome = Outcome.ABORTED
        # A new producer of the same transactional id aborts a transaction that the last one left open.
        client.drop()
        client.producer()
    client.drop()


def _send(producer: Producer, sends: list[Send]) -> None:
    for send in sends:
        producer.produce(
            send.place.topic,
            send.value,
            partition=send.place.partition,
            on_delivery=partial(_delivered, send),
        )
    producer.flush(CALL_S)


def _delivered(send: Send, error: KafkaError | None, message: Any) -> None:
    if error is None:
        send.offset = message.offset()


def acknowledged(stage: Stage, who: str) -> None:
    """Run an idempotent producer without transactions, and a new one after a fatal error."""
    rng = stage.rng(who)
    number = instance = 0
    while not stage.ending.is_set():
        name = f"{who}.{instance}"
        instance += 1
        producer = _idempotent(stage, who)
        with _noting(stage, name):
            while not stage.ending.wait(rng.uniform(*PAUSE_S)):
                sends = [
                    Send(name, f"{who}/{number + k}", Place(ACKNOWLEDGED, rng.randrange(2)))
                    for k in range(rng.randint(1, 5))
                ]
                number += len(sends)
                stage.history.sends += sends
                for send in sends:
                    _produce(producer, send)
                producer.poll(0)
            while producer.flush(ROUND_S) and not stage.given_up.is_set():
                pass
        with contextlib.suppress(*FAILURES):
            producer.purge()
            producer.flush(GOODBYE_S)


def _produce(producer: Producer, send: Send) -> None:
    producer.produce(
        send.place.topic,
        send.value,
        partition=send.place.partition,
        on_delivery=lambda error, message: _delivered(send, error, message),
    )


def _idempotent(stage: Stage, who: str, **more: Any) -> Producer:
    return Producer(
        {
            **PATIENCE,
            "bootstrap.servers": stage.bootstrap,
            "client.id": who,
            "enable.idempotence": True,
            "retry.backoff.ms": 20,
            "linger.ms": 2,
            **more,
        }
    )


@contextlib.contextmanager
def _noting(stage: Stage, who: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as failure:
        stage.note(who, f"failed: {failure!r}")
        stage.history.fatal.append(f"{who}: {failure!r}")


def source(stage: Stage, who: str) -> None:
    """Produce the input of the jobs: transactions of one record for each partition, some of them aborted."""
    rng = stage.rng(who)
    client = _Transactional(stage, who)
    number = 0
    with contextlib.suppress(GivenUp):
        while not stage.ending.wait(rng.uniform(*PAUSE_S)):
            places = [Place(SOURCE, partition) for partition in range(PARTITIONS[SOURCE])]
            transaction = Transaction(
                who, [Send(who, f"{who}/{number}/{place.partition}", place) for place in places]
            )
            number += 1
            try:
                producer = client.producer()
                stage.history.transactions.append(transaction)
                producer.begin_transaction()
                _send(producer, transaction.sends)
                if rng.random() < ABORTS:
                    client.abort()
                    transaction.outcome = Outcome.ABORTED
                else:
                    client.commit()
                    transaction.outcome = Outcome.COMMITTED
            except FAILURES as failure:
                if client.recover(failure):
                    transaction.outcome = Outcome.ABORTED
        client.drop()
        client.producer()
    client.drop()


class _Worker:
    """Group member that consumes, processes and produces, and commits its offsets in the same transaction."""

    def __init__(self, stage: Stage, who: str) -> None:
        self.stage = stage
        self.client = _Transactional(stage, who)
        self.consumer = Consumer(
            {
                **PATIENCE,
                "bootstrap.servers": stage.bootstrap,
                "client.id": who,
                "group.id": WORKERS,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 100,
            }
        )

    def positions(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        places: list[TopicPartition] = []

        def ask() -> None:
            places[:] = self.consumer.committed(partitions, CALL_S) if partitions else []
            for place in places:
                if place.error is not None:
                    raise KafkaException(place.error)
                place.offset = max(place.offset, 0)

        _insist(self.stage, ask)
        return places

    def start(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Assign with explicit offsets: if librdkafka looked them up while partitions are revoked, it would fetch records
        # twice.
        while True:
            try:
                return consumer.assign(self.positions(partitions))
            except KafkaException as failure:
                self.stage.note(self.client.who, f"has no positions yet: {failure!r}")
                if self.stage.given_up.is_set():
                    raise GivenUp from failure

    def leave(self) -> None:
        """Unassign before closing the consumer.

        During a close librdkafka 2.16 may lose the request to unassign, and then waits forever with the interpreter's lock.
        """
        self.consumer.unsubscribe()
        deadline = Deadline(CALL_S)
        while self.consumer.assignment() and not deadline.is_over:
            self.consumer.poll(0.05)
        self.consumer.close()

    def work(self) -> None:
        self.consumer.subscribe([SOURCE], on_assign=self.start)
        while not self.stage.ending.is_set():
            try:
                producer = self.client.producer()
                messages = [each for each in self.consumer.consume(BATCH, 0.2) if each.error() is None]
                if messages:
                    self.transact(producer, messages)
            except FAILURES as failure:
                self.client.recover(failure)
                self.go_back()

    def transact(self, producer: Producer, messages: list[Any]) -> None:
        producer.begin_transaction()
        positions: dict[tuple[str, int], int] = {}
        for message in messages:
            producer.produce(SINK, Moved.process(message.value().decode()), partition=message.partition())
            positions[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(*place, offset) for place, offset in positions.items()]
        member = self.consumer.consumer_group_metadata()
        _insist(self.stage, lambda: producer.send_offsets_to_transaction(offsets, member, CALL_S))
        self.client.commit()

    def go_back(self) -> None:
        """Seek to the committed offsets, which a commit with an unknown outcome may have moved."""
        # An open transaction keeps offsets pending until a new producer of its transactional id aborts it.
        while not self.stage.given_up.is_set():
            try:
                self.client.producer()
                for place in self.positions(self.consumer.assignment()):
                    self.consumer.seek(place)
                return
            except FAILURES as failure:
                self.client.recover(failure)


def worker(stage: Stage, who: str) -> None:
    """Run a group member, with a new consumer after each fatal error."""
    member = _Worker(stage, who)
    try:
        with contextlib.suppress(GivenUp):
            member.work()
            member.client.drop()
            member.client.producer()
    finally:
        member.client.drop()
        member.leave()


def reader(stage: Stage, who: str, topics: list[str], *, committed_only: bool) -> None:
    """Consume from the beginning, at positions that the actor itself keeps and never resets."""
    view = View(who, committed_only)
    stage.history.views.append(view)
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": stage.bootstrap,
            "client.id": who,
            "group.id": who,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign(
        [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in topics
            for partition in range(PARTITIONS[topic])
        ]
    )
    while not stage.ending.is_set():
        for message in consumer.consume(100, 0.2):
            _look(view, message)
    consumer.close()


UNHEARD_OF = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
"""Errors that no consumer may get: they mean that its position was lost."""


def _look(view: View, message: Any) -> None:
    error = message.error()
    if error is None:
        place = Place(message.topic(), message.partition())
        view.seen[place].append(Seen(message.offset(), message.value().decode()))
    elif error.code() in UNHEARD_OF:
        view.errors.append(f"{message.topic()}-{message.partition()}: {error}")
