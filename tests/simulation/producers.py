"""Producers that retry like Kafka's: same sequence, new lookup of coordinator and leader, abort, new InitProducerId."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.ledger import Broken, Spot
from tests.simulation.wire import (
    ASK_COORDINATOR_AGAIN,
    ASK_LEADER_AGAIN,
    GROUP,
    NONE,
    TRANSACTION,
    TRY_AGAIN,
    Gone,
    Wire,
)

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS = 0, 22, 24, 25, 26, 28
DELIVERY_S: Final = 60.0
"""Seconds for which a producer retries one call, such as ``send`` or ``end``, before it aborts the transaction."""
TRANSACTION_TIMEOUT_MS: Final = 40_000
WITHOUT_THE_FIRST: Final = 0.2
"""Probability that an idempotent producer first sends its batches without the first one."""
EXPIRATION_MS: Final = 20 * 3_600_000
"""Time after which a producer's state may have expired: a leader expires it after 24 hours
(``producer.id.expiration.ms``)."""
FATAL: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)


class MemberOf(NamedTuple):
    """Group member in TxnOffsetCommit. The defaults are those of a producer that is not a group member."""

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


NO_MEMBER: Final = MemberOf()


Wrote = Callable[[list[bytes], int], object]
"""Called for each acknowledged batch with its values and its base offset (-1 if the response had no offset)."""


class Batch(NamedTuple):
    """One batch of a partition, with its sequence."""

    values: list[bytes]
    request: ProduceRequest


class MustAbort(Exception):
    """The transaction cannot be committed any more, and the producer must abort it."""


class MustRestart(Exception):
    """The producer must call InitProducerId again."""

    @property
    def is_fenced(self) -> bool:
        """Whether another instance of the producer has a newer epoch."""
        return str(self) in (ErrorCode.producer_fenced.name, ErrorCode.invalid_producer_epoch.name)


class Producer:
    """A transactional producer, or without a transactional id an idempotent one."""

    def __init__(
        self, wire: Wire, transactional_id: str | None, *, level: int, wrote: Wrote = lambda *_: None
    ) -> None:
        self.wire = wire
        self._wrote = wrote
        self._id = transactional_id
        self._level = level
        """Transaction version: 2 for KIP-890 (one epoch for each transaction), 1 for the protocol before."""
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Spot, int] = {}
        self._begun_in: dict[Spot, UUID | None] = {}
        """By partition: the topic id (None: no such topic) at the time when the sequences were started at 0."""
        self._written_ms: dict[Spot, int] = {}
        """By partition: the time in ms at which its last batch was acknowledged."""
        self._written_at: dict[Spot, int] = {}
        """By partition: the base offset of its last acknowledged batch, -1 if the response had none."""
        self._known_ms: dict[tuple[int, Spot], int] = {}
        """By producer id and partition: the time of the last acknowledgement, in the clock domain of producer ids."""
        self._added: set[Spot] = set()
        self._begun = False
        self._in_doubt = False
        self._in_flight = 0
        self._sent_in_epoch = -1
        """Leader epoch in which the batches in flight were sent first."""

    # ---- requests

    async def init(self, *, bump: bool = False) -> None:
        """Send InitProducerId, which fences all earlier instances. With ``bump`` raise the epoch of this instance.

        A bump (KIP-360) sends the current producer id and epoch, so it fails if another instance has a newer epoch.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=self._producer_id if bump else -1,
            producer_epoch=self._epoch if bump else -1,
        )
        answer = await self._insist("init", INIT, 4 if self._level == 1 else 5, request, patient=True)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._written_ms.clear()
        self._over()
        self.wire.say(f"is {self._producer_id}/{self._epoch}")

    def bump(self) -> None:
        """Bump the epoch of an idempotent producer, without a request. Sequences restart at 0."""
        self._epoch += 1
        self._sequences.clear()
        self._written_ms.clear()
        self.wire.say(f"is {self._producer_id}/{self._epoch}")

    def _over(self) -> None:
        self._added.clear()
        self._begun = self._in_doubt = False

    async def send(self, spot: Spot, *batches: list[bytes]) -> None:
        """Send batches for one partition, all at once with acks=all, and retry in order until all are acknowledged."""
        topic, index = spot
        if self._id is not None and self._level == 1 and spot not in self._added:
            await self._add_partition(spot)
        self._begun = True
        if spot not in self._sequences:
            self._begun_in[spot] = self.wire.facts.topic_id(topic)
        sequence = self._sequences.get(spot, 0)
        sent = []
        self._in_flight = len(batches)
        self._sent_in_epoch = self.wire.facts.leader_epoch(topic, index)
        for values in batches:
            sent.append(Batch(values, self._produce_request(spot, values, sequence)))
            sequence += len(values)
        if len(sent) > 1 and self._is_known(spot) and self.wire.random.random() < WITHOUT_THE_FIRST:
            await self._send_without_the_first(topic, index, sent)
        async with _deadline():
            while sent := await self._try_to_send(topic, index, sent):
                await self.wire.back_off()
        self._sequences[spot] = sequence
        self._written_ms[spot] = self.wire.now_ms()
        self._known_ms[self._producer_id, spot] = self.wire.facts.ids_ms()

    def _is_known(self, spot: Spot) -> bool:
        """Whether the producer is idempotent and its last sequence in ``spot`` cannot have expired at the leader.

        A leader without the sequence accepts any sequence.
        """
        known_ms = self._known_ms.get((self._producer_id, spot))
        is_fresh = known_ms is not None and self.wire.facts.ids_ms() - known_ms < EXPIRATION_MS
        return self._id is None and is_fresh

    def _produce_request(self, spot: Spot, values: list[bytes], sequence: int) -> ProduceRequest:
        now_ms = self.wire.now_ms()
        batch = build_batch(
            [(now_ms, None, value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self._id is not None,
        )
        return ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                TopicProduceData(
                    name=spot[0], partition_data=[PartitionProduceData(index=spot[1], records=batch)]
                )
            ],
        )

    async def _send_without_the_first(self, topic: str, index: int, batches: list[Batch]) -> None:
        """Send all batches but the first, as if the leader had refused the first. The other batches are out of order
        and need a retry."""
        with suppress(Gone):
            answers = await self.wire.ask_leader_all(
                topic, index, PRODUCE, 12, [each.request for each in batches[1:]]
            )
            errors = [_produce_error(answer).name for answer in answers if not isinstance(answer, Gone)]
            self.wire.say(f"produce {topic}-{index} without the first: {errors}")

    async def _try_to_send(self, topic: str, index: int, batches: list[Batch]) -> list[Batch]:
        """Send the batches once, and return those that must be sent again; empty if all are written."""
        version = 11 if self._level == 1 else 12
        requests = [each.request for each in batches]
        # A leader that has no sequence of an idempotent producer accepts any, so it would refuse the first batch after
        # a later one. No client sends them in that order.
        is_ordered = self._id is not None or self._is_known((topic, index))
        repeatable = requests if is_ordered else requests[:1]
        try:
            answers = await self.wire.ask_leader_all(topic, index, PRODUCE, version, requests, repeatable)
        except Gone:
            self._in_doubt = True
            return batches
        again: list[Batch] = []
        for batch, answer in zip(batches, answers, strict=True):
            if self._is_written(topic, index, answer, is_next=not again):
                base_offset = answer.responses[0].partition_responses[0].base_offset
                self._written_at[topic, index] = base_offset
                self._wrote(batch.values, base_offset)
            else:
                again.append(batch)
        return again

    def _is_written(self, topic: str, index: int, answer: Any, *, is_next: bool) -> bool:
        """Whether the batch is written, by its response ``answer``: no error, or DUPLICATE_SEQUENCE_NUMBER.

        False if the batch must be sent again. Raises `MustAbort` or `MustRestart` for an error that allows no retry,
        and `Broken` for OUT_OF_ORDER_SEQUENCE_NUMBER without a reason. ``is_next``: whether all earlier batches are
        written; if they are not, that error is expected, and the batch is sent again.
        """
        if isinstance(answer, Gone):
            self._in_doubt = True
            return False
        error = _produce_error(answer)
        if error in (NONE, ErrorCode.duplicate_sequence_number):
            return True
        self.wire.say(f"produce {topic}-{index}: {error.name}")
        self._in_doubt = True
        if error is ErrorCode.out_of_order_sequence_number:
            return self._out_of_order(topic, index, is_next=is_next)
        if error in ASK_LEADER_AGAIN:
            self.wire.forget_leader(topic, index)
        elif error not in TRY_AGAIN and error not in ASK_COORDINATOR_AGAIN:
            raise MustRestart(error.name) if error in FATAL else MustAbort(error.name)
        return False

    def _out_of_order(self, topic: str, index: int, *, is_next: bool) -> bool:
        if not is_next:
            return False
        if self._id is not None and self.wire.latest_frame_ms >= self._written_ms.get((topic, index), 0):
            # A late batch has begun a verification, and its sequence is the lowest allowed one (KIP-890).
            raise MustAbort("a late batch was verified before this one")
        if self.wire.facts.topic_id(topic) != self._begun_in.get((topic, index)):
            raise MustAbort("the topic was created again")
        if self.wire.facts.log_start(topic, index) > max(self._written_at.get((topic, index), -1), 0):
            # A replica whose log began after a deletion has no sequence of deleted batches.
            raise MustAbort("the batch before this one was deleted")
        if self._in_flight == 1 or self._sent_in_epoch == self.wire.facts.leader_epoch(topic, index):
            # Batches are retried until they are acknowledged, so a leader with all written batches finds no gap.
            raise Broken(
                f"{self._id} {self._producer_id}/{self._epoch}: {topic}-{index} has a gap in the sequences"
            )
        # A new leader that loaded a producer snapshot has only the last batch of each producer in it, not the last five.
        raise MustAbort("an older batch than the leader's last one was sent again")

    @property
    def _transactional_id(self) -> str:
        assert self._id is not None, "the producer is transactional"
        return self._id

    async def _add_partition(self, spot: Spot) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=spot[0], partitions=[spot[1]])],
        )
        self._begun = True
        await self._insist("add partition", ADD_PARTITIONS, 3, request)
        self._added.add(spot)

    async def send_offsets(
        self, group: str, offsets: Mapping[Spot, int], member: MemberOf = NO_MEMBER
    ) -> None:
        """Send the group's offsets with TxnOffsetCommit. They take effect when the transaction is committed."""
        self._begun = True
        if self._level == 1:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            await self._insist("add offsets", ADD_OFFSETS, 3, request)
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, []).append(partition)
        await self._insist(
            "offsets",
            OFFSETS,
            3 if self._level == 1 else 5,
            TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=group,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                generation_id=member.epoch,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                topics=[
                    TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                    for topic, partitions in topics.items()
                ],
            ),
            group=group,
        )

    async def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction, if one is open. Raises ``MustRestart`` if the outcome is unknown."""
        if not self._begun:
            return
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        try:
            answer = await self._insist("end", END, 4 if self._level == 1 else 5, request)
        except MustAbort as error:
            raise MustRestart(str(error)) from error
        in_doubt = self._in_doubt
        self._over()
        if self._level == 2:
            if (answer.producer_id, answer.producer_epoch) != (self._producer_id, self._epoch):
                self._sequences.clear()
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        elif in_doubt and not committed:
            await self.init(bump=True)

    async def abort(self) -> None:
        """Abort the transaction; if that fails, call InitProducerId."""
        try:
            await self.end(committed=False)
        except (MustAbort, MustRestart):
            await self.live()

    async def live(self) -> None:
        """Call InitProducerId until it succeeds."""
        while True:
            try:
                await self.init()
                return
            except (MustAbort, MustRestart) as error:
                self.wire.say(f"init: {error}")
                await self.wire.back_off()

    async def send_and_forget(self, spot: Spot, values: list[bytes]) -> None:
        """Send a batch without waiting for the response.

        The transaction must be aborted, and the batch must not become visible.
        """
        if self._level == 1 and spot not in self._added:
            await self._add_partition(spot)
        self._begun = self._in_doubt = True
        request = self._produce_request(spot, values, self._sequences.get(spot, 0))
        await self.wire.send_and_forget(*spot, PRODUCE, 11 if self._level == 1 else 12, request)

    async def haunt(self, spot: Spot, values: list[bytes]) -> None:
        """Send and commit as a producer that does not know that it is fenced. None of the records may become visible."""
        self._in_flight = 1
        request = self._produce_request(spot, values, self._sequences.get(spot, 0))
        version = 11 if self._level == 1 else 12
        with suppress(Gone):
            (answer,) = await self.wire.ask_leader_all(*spot, PRODUCE, version, [request])
            if not isinstance(answer, Gone):
                error = _produce_error(answer)
                self.wire.say(f"fenced, and sends to {spot}: {error.name}")
            assert self._id is not None
            end = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=True,
            )
            key, version = END, 4 if self._level == 1 else 5
            ended = await self.wire.ask_coordinator(TRANSACTION, self._id, key, version, end)
            self.wire.say(f"fenced, and commits: {ErrorCode(ended.error_code).name}")
            init = InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
            )
            bumped = await self.wire.ask_coordinator(TRANSACTION, self._id, INIT, 4, init)
            self.wire.say(f"fenced, and asks for the next epoch: {ErrorCode(bumped.error_code).name}")

    # ---- retries

    async def _insist(
        self,
        what: str,
        key: int,
        version: int,
        request: Any,
        *,
        group: str | None = None,
        patient: bool = False,
    ) -> Any:
        kind, name = (GROUP, group) if group is not None else (TRANSACTION, self._id)
        async with _deadline(DELIVERY_S * 10 if patient else DELIVERY_S):
            while True:
                try:
                    if name is None:
                        answer = await self.wire.ask_any(key, version, request)
                    else:
                        answer = await self.wire.ask_coordinator(kind, name, key, version, request)
                except Gone:
                    await self.wire.back_off()
                    continue
                error = _error_of(answer)
                if error is NONE:
                    return answer
                self.wire.say(f"{what}: {error.name}")
                if error in ASK_COORDINATOR_AGAIN and name is not None:
                    self.wire.forget_coordinator(kind, name)
                elif error not in TRY_AGAIN and error not in ASK_LEADER_AGAIN:
                    raise MustRestart(error.name) if error in FATAL else MustAbort(error.name)
                await self.wire.back_off()


def _produce_error(answer: Any) -> ErrorCode:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def _error_of(answer: Any) -> ErrorCode:
    """The first error code in a response, at any depth; NONE if there is no error."""
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for result in topic.results_by_partition:
            if result.partition_error_code != NONE:
                return ErrorCode(result.partition_error_code)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            if partition.error_code != NONE:
                return ErrorCode(partition.error_code)
    return ErrorCode(getattr(answer, "error_code", 0))


class _deadline:
    """Context manager: raises ``MustAbort`` if the block takes longer than ``seconds``."""

    def __init__(self, seconds: float = DELIVERY_S) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *what: Any) -> None:
        try:
            await self._timeout.__aexit__(*what)
        except TimeoutError as error:
            raise MustAbort("the step did not succeed in time") from error
