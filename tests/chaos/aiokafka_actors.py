"""Actors with aiokafka. Each is a task of one event loop, which runs in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Awaitable
from random import Random
from typing import Any, TypeVar

from tests.chaos.actors import (
    ABORTS,
    ACKNOWLEDGED,
    CALL_S,
    PARTITIONS,
    PAUSE_S,
    SOLO,
    SOLO_SINK,
    SOURCE,
    TRANSACTION_TIMEOUT_MS,
    Stage,
    drawn_transaction,
)
from tests.chaos.checks import Moved
from tests.chaos.history import Outcome, Place, Seen, Send, View

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError, OffsetOutOfRangeError

T = TypeVar("T")
FAILURES = (KafkaError, asyncio.TimeoutError, AssertionError, asyncio.CancelledError)
"""Errors after which an actor continues. aiokafka's state machine raises AssertionError when it cannot continue, and
CancelledError comes from one of its own tasks, as no actor is cancelled."""
BATCH = 20
GOODBYE_S = 2.0
"""Seconds to wait for the stop of a client that may be in the middle of a request."""
REST_S = 0.02


async def _soon(call: Awaitable[T]) -> T:
    """Await a call with a timeout: aiokafka retries retriable errors without a limit."""
    return await asyncio.wait_for(call, CALL_S)


class _Producer:
    """A producer that is replaced by a new one after a fatal error."""

    def __init__(self, stage: Stage, who: str, *, transactional: bool = True) -> None:
        self.stage = stage
        self.who = who
        self._options: dict[str, Any] = {"enable_idempotence": True}
        if transactional:
            self._options |= {"transactional_id": who, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        self._producer: AIOKafkaProducer | None = None

    async def get(self) -> AIOKafkaProducer:
        while self._producer is None and not self.stage.given_up.is_set():
            made = AIOKafkaProducer(
                bootstrap_servers=self.stage.bootstrap,
                client_id=self.who,
                retry_backoff_ms=20,
                request_timeout_ms=5_000,
                metadata_max_age_ms=5_000,
                **self._options,
            )
            try:
                await _soon(made.start())
                self._producer = made
            except FAILURES as failure:
                await self.drop(made, failure)
                await asyncio.sleep(REST_S)
        if self._producer is None:
            raise TimeoutError("the run is over")
        return self._producer

    async def drop(
        self, producer: AIOKafkaProducer | None = None, failure: BaseException | None = None
    ) -> None:
        if failure is not None:
            self.stage.note(self.who, f"failed: {failure!r}")
        producer = producer or self._producer
        self._producer = None
        if producer is not None:
            with contextlib.suppress(*FAILURES):
                await asyncio.wait_for(producer.stop(), GOODBYE_S)


def _rest(stage: Stage, rng: Random) -> Awaitable[None]:
    return asyncio.sleep(rng.uniform(*PAUSE_S))


async def transfers(stage: Stage, who: str) -> None:
    """Run transactions over several partitions, and abort some of them."""
    rng = stage.rng(who)
    client = _Producer(stage, who)
    number = 0
    while not stage.ending.is_set():
        transaction = drawn_transaction(rng, who, number)
        number += 1
        aborts = rng.random() < ABORTS
        try:
            producer = await client.get()
            stage.history.transactions.append(transaction)
            await producer.begin_transaction()
            await _send(producer, transaction.sends)
            if aborts:
                await _soon(producer.abort_transaction())
            else:
                await _soon(producer.commit_transaction())
            transaction.outcome = Outcome.ABORTED if aborts else Outcome.COMMITTED
        except FAILURES as failure:
            await client.drop(failure=failure)
        await _rest(stage, rng)
    await _settle(client)


async def _settle(client: _Producer) -> None:
    """Start a new producer of the same transactional id, which aborts a transaction that the previous producer left open."""
    await client.drop()
    with contextlib.suppress(*FAILURES):
        await client.get()
    await client.drop()


async def _send(producer: AIOKafkaProducer, sends: list[Send]) -> None:
    waiting = []
    for send in sends:
        place = send.place
        future = await _soon(producer.send(place.topic, send.value.encode(), partition=place.partition))
        future.add_done_callback(lambda done, send=send: _delivered(send, done))
        waiting.append(future)
    await _soon(asyncio.gather(*waiting))


def _delivered(send: Send, done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and done.exception() is None:
        send.offset = done.result().offset


async def acknowledged(stage: Stage, who: str) -> None:
    """Run an idempotent producer without transactions, and a new one after a failure."""
    rng = stage.rng(who)
    number = instance = 0
    while not stage.ending.is_set():
        name = f"{who}.{instance}"
        instance += 1
        client = _Producer(stage, who, transactional=False)
        with contextlib.suppress(*FAILURES):
            producer = await client.get()
            failed = None
            while not stage.ending.is_set() and failed is None:
                sends = [
                    Send(name, f"{who}/{number + k}", Place(ACKNOWLEDGED, rng.randrange(2)))
                    for k in range(rng.randint(1, 5))
                ]
                number += len(sends)
                stage.history.sends += sends
                try:
                    await _send(producer, sends)
                except FAILURES as failure:
                    failed = failure
                await _rest(stage, rng)
            await client.drop(failure=failed)


async def solo(stage: Stage, who: str) -> None:
    """Consume, process and produce with assigned partitions: aiokafka sends no generation in TxnOffsetCommit."""
    client = _Producer(stage, who)
    rng = stage.rng(who)
    while not stage.ending.is_set():
        consumer: AIOKafkaConsumer | None = None
        try:
            # The producer starts first: its InitProducerId aborts the open transaction of the previous producer, so the
            # committed offsets at which the consumer begins are final.
            producer = await client.get()
            consumer = _consumer(stage, who, group=SOLO, committed_only=True)
            await _soon(consumer.start())
            await _begin_at_committed(consumer)
            while not stage.ending.is_set():
                await _move(producer, consumer)
                await _rest(stage, rng)
        except FAILURES as failure:
            await client.drop(failure=failure)
        finally:
            await _stop(consumer)
    await _settle(client)


async def _begin_at_committed(consumer: AIOKafkaConsumer) -> None:
    places = [TopicPartition(SOURCE, partition) for partition in range(PARTITIONS[SOURCE])]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, await _soon(consumer.committed(place)) or 0)


async def _move(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
    polled: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=200, max_records=BATCH)
    if not polled:
        return
    await producer.begin_transaction()
    waiting = []
    for place, records in polled.items():
        for each in records:
            result = Moved.process(each.value.decode()).encode()
            waiting.append(await _soon(producer.send(SOLO_SINK, result, partition=place.partition)))
    await _soon(asyncio.gather(*waiting))
    offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
    await _soon(producer.send_offsets_to_transaction(offsets, SOLO))
    await _soon(producer.commit_transaction())


def _consumer(stage: Stage, who: str, *, group: str | None, committed_only: bool) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=stage.bootstrap,
        client_id=who,
        group_id=group,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level="read_committed" if committed_only else "read_uncommitted",
        fetch_max_wait_ms=100,
        retry_backoff_ms=20,
        request_timeout_ms=5_000,
        metadata_max_age_ms=5_000,
    )


async def _stop(consumer: AIOKafkaConsumer | None) -> None:
    if consumer is not None:
        with contextlib.suppress(*FAILURES):
            await asyncio.wait_for(consumer.stop(), GOODBYE_S)


async def reader(stage: Stage, who: str, topics: list[str], *, committed_only: bool) -> None:
    """Consume from the beginning, at positions that the actor itself keeps and never resets."""
    view = View(who, committed_only)
    stage.history.views.append(view)
    at: dict[TopicPartition, int] = {
        TopicPartition(topic, partition): 0 for topic in topics for partition in range(PARTITIONS[topic])
    }
    while not stage.ending.is_set():
        consumer = _consumer(stage, who, group=None, committed_only=committed_only)
        try:
            await _soon(consumer.start())
            consumer.assign(list(at))
            for place, offset in at.items():
                consumer.seek(place, offset)
            while not stage.ending.is_set():
                polled: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=200, max_records=100)
                for place, records in polled.items():
                    seen = view.seen[Place(place.topic, place.partition)]
                    seen += [Seen(each.offset, each.value.decode()) for each in records]
                    at[place] = records[-1].offset + 1
        except OffsetOutOfRangeError as lost:
            view.errors.append(repr(lost))
            return
        except FAILURES as failure:
            stage.note(who, f"failed: {failure!r}")
            await asyncio.sleep(REST_S)
        finally:
            await _stop(consumer)


async def perform(stage: Stage) -> None:
    """Run all actors until they end."""
    # aiokafka logs a line for each connection that fails.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: stage.note("aiokafka", context["message"])
    )
    await asyncio.gather(
        transfers(stage, "aiokafka-transfers"),
        acknowledged(stage, "aiokafka-acknowledged"),
        solo(stage, "aiokafka-solo"),
        reader(stage, "aiokafka-committed", ["transfers", "sink"], committed_only=True),
        reader(stage, "aiokafka-everything", ["transfers", "acknowledged"], committed_only=False),
    )
