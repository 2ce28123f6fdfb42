"""Writes records to the dead-letter queues of share groups (KIP-1191), as Kafka's DefaultShareGroupDLQManager.

A dead-letter queue that cannot be written loses records: they are archived all the same, and only a log line tells.
"""

from __future__ import annotations

import contextlib
from asyncio import sleep
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Domain
from broker.clock.sleeping import sleep_ms
from broker.logging import get_logger
from broker.loop.coroutines import Waiter
from broker.metadata.creation import NewTopic
from broker.metadata.results import ApiError
from broker.metadata.values import NO_LEADER
from broker.replicas.partition import Partition
from broker.share.partition import DeadLetters
from protocol.batch import CorruptBatch, RecordBatch, batches, build_batch
from protocol.errors import NONE, ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.named_tuple import NamedTuple
from storage.config import LogConfig

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import Topic
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager
    from broker.share.settings import ShareGroupSettings
    from broker.share.state import SharePartitionKey

AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
ENABLED: Final = "errors.deadletterqueue.group.enable"
"""Setting of a topic: share groups may write dead letters to it."""
CONFIGS: Final = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
"""Settings of a topic that is created for dead letters."""
ATTEMPTS_MAX: Final = 5
BACKOFF_MS: Final = 1000
"""Milliseconds before the second attempt; doubled for each further one."""
PRODUCE: Final = (0, 13)
TIMEOUT_MS: Final = 30_000
READ_BYTES: Final = 1024 * 1024
RETRIABLE: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
    ErrorCode.network_exception,
    ErrorCode.topic_already_exists,
    ErrorCode.throttling_quota_exceeded,
    ErrorCode.unknown_topic_or_partition,
)

log = get_logger()
Content = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Attempt(NamedTuple):
    """The attempt to write records of a share partition to a dead-letter queue, for views."""

    first_offset: int
    last_offset: int
    written_to: str
    """The partition of the queue that has the first of the records: ``dlq.g-0``; empty if none was written."""
    written_offset: int
    """Offset of the first record in that partition."""
    failure: str
    """Why not all records were written; empty if they were."""
    at_ms: int
    """The end of the attempt, in milliseconds since 1970."""


class _Failed(Exception):
    """Dead letters cannot be written. The message is the reason, for the log."""


class DeadLetterQueues:
    """Writes the dead letters of one node: of the share partitions whose topic partition the node leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        peers: Peers | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._peers = peers

    async def send(
        self,
        key: SharePartitionKey,
        partition: Partition,
        letters: DeadLetters,
        settings: ShareGroupSettings,
        injected: ErrorCode = NONE,
    ) -> Attempt:
        """Write one record for each offset of ``letters``. Returns after the last attempt, also if all have failed.

        With ``injected``, the error of a fault rule, there is no attempt.
        """
        name = settings.dead_letter_topic
        attempt = Attempt(letters.first_offset, letters.last_offset, "", -1, "", 0)
        try:
            if injected is not NONE:
                raise _Failed(injected.name)
            topic = await self._topic(name)
            contents = _contents(partition, letters) if settings.dead_letter_copies_record else iter(())
            for batch in self._batches(
                key, partition.topic, letters, contents, self._log_config(topic).max_message_bytes
            ):
                index = key.partition % len(topic.partitions)
                offset = await self._produce(name, index, batch)
                if not attempt.written_to:
                    attempt = attempt._replace(written_to=f"{name}-{index}", written_offset=offset)
                await sleep(0)  # a rejected range may have millions of offsets
        except _Failed as failed:
            log.error(
                "records not written to the dead-letter queue",
                group=key.group_id,
                topic=partition.topic,
                partition=key.partition,
                first_offset=letters.first_offset,
                last_offset=letters.last_offset,
                dead_letter_topic=name,
                reason=str(failed),
            )
            attempt = attempt._replace(failure=str(failed))
        return attempt._replace(at_ms=self._clock.now_ms())

    # -- the topic ----------------------------------------------------------------------------------------------

    async def _topic(self, name: str) -> Topic:
        """Return the topic of the queue; create it if that is permitted. Raises `_Failed`."""
        for attempt in range(ATTEMPTS_MAX):
            await self._back_off(attempt)
            topic = self._permitted(name) or await self._created(name)
            if topic is not None:
                return topic
        raise _Failed("topic not created")

    async def _created(self, name: str) -> Topic | None:
        [created] = await self._metadata.replication_control.create_topics([NewTopic(name, configs=CONFIGS)])
        if isinstance(created, ApiError) and created.error not in RETRIABLE:
            raise _Failed(f"topic not created: {created.message or created.error.name}")
        return self._permitted(name)

    def _permitted(self, name: str) -> Topic | None:
        """Return the topic; None if it must be created. Raises `_Failed` if no group may write dead letters to it."""
        if name.startswith("__"):
            raise _Failed("topic name starts with '__'")
        prefix = self._config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise _Failed(f"topic name does not start with '{prefix}' ({PREFIX})")
        topic = self._metadata.topic(name)
        if topic is None and not self._config.errors_deadletterqueue_auto_create_topics_enable:
            raise _Failed(f"topic does not exist, and {AUTO_CREATE} is false")
        if topic is not None:
            config = self._log_config(topic)
            if not config.errors_deadletterqueue_group_enable:
                raise _Failed(f"{ENABLED} of the topic is false")
        return topic

    def _log_config(self, topic: Topic) -> LogConfig:
        return LogConfig.from_properties(topic.configs, self._config.log_defaults)

    # -- the records --------------------------------------------------------------------------------------------

    def _batches(
        self,
        key: SharePartitionKey,
        source: str,
        letters: DeadLetters,
        contents: Iterator[tuple[int, Content]],
        size_max: int,
    ) -> Iterator[bytes]:
        """Yield the batches with one record for each offset, each of at most ``size_max`` bytes.

        ``contents`` has the keys and values to copy, by offset. ``source`` is the topic of the original records.
        """
        pending: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]] = []
        size = 0
        now_ms = self._clock.now_ms()
        following = next(contents, None)
        for offset in range(letters.first_offset, letters.last_offset + 1):
            content: Content = (None, None)
            while following is not None and following[0] < offset:
                following = next(contents, None)
            if following is not None and following[0] == offset:
                content = following[1]
            headers = _headers(key, source, letters, offset)
            record = (now_ms, *content, headers)
            added = len(build_batch([record]))
            if added > size_max:
                record = (now_ms, None, None, headers)
                added = len(build_batch([record]))
            if pending and size + added > size_max:
                yield build_batch(pending)
                pending, size = [], 0
            pending.append(record)
            size += added
        if pending:
            yield build_batch(pending)

    # -- writing ------------------------------------------------------------------------------------------------

    async def _produce(self, topic: str, index: int, batch: bytes) -> int:
        """Return the offset of the batch, after as many attempts as necessary. Raises `_Failed`."""
        error = NONE
        for attempt in range(ATTEMPTS_MAX):
            await self._back_off(attempt)
            error, offset = await self._attempt(topic, index, batch)
            if error is NONE:
                return offset
            if error not in RETRIABLE:
                break
        raise _Failed(error.name)

    async def _attempt(self, name: str, index: int, batch: bytes) -> tuple[ErrorCode, int]:
        topic = self._metadata.topic(name)
        state = topic.partition(index) if topic is not None else None
        if topic is None or state is None or state.leader == NO_LEADER:
            return ErrorCode.not_leader_or_follower, -1
        if state.leader == self._replicas.node_id:
            return await self._append(name, index, batch)
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, topic_id=topic.topic_id, partition_data=[data])],
        )
        if self._peers is None:
            return ErrorCode.network_exception, -1
        client_id = f"broker-{self._replicas.node_id}-share-group-dlq-manager"
        response = await self._peers.send(state.leader, client_id, *PRODUCE, request)
        if response is None:
            return ErrorCode.network_exception, -1
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset

    async def _append(self, name: str, index: int, batch: bytes) -> tuple[ErrorCode, int]:
        """Append to a partition that this node leads. Returns NONE and the offset once the batch is committed."""
        leader = self._replicas.leader(name, index)
        if not isinstance(leader, Partition):
            return leader, -1
        result = leader.append(RecordBatch.parse(batch), required_acks=-1)
        if result.error is not NONE:
            return result.error, -1
        verdict: Waiter[ErrorCode] = Waiter()
        leader.on_committed(result.last_offset + 1, verdict.wake)
        late = partial(verdict.wake, ErrorCode.request_timed_out)
        timer = self._clock.call_later_ms(TIMEOUT_MS, late, Domain.REQUESTS)
        error = await verdict
        timer.cancel()
        return error, result.base_offset

    async def _back_off(self, attempt: int) -> None:
        if attempt:
            await sleep_ms(self._clock, BACKOFF_MS * 2 ** (attempt - 1), Domain.REQUESTS)


def _headers(
    key: SharePartitionKey, topic: str, letters: DeadLetters, offset: int
) -> list[tuple[str, bytes]]:
    """The headers of a dead letter, in Kafka's order. The headers of the original record are not copied."""
    values = {
        "topic": topic,
        "partition": key.partition,
        "offset": offset,
        "group": key.group_id,
        "delivery.count": letters.delivery_count,
        "message": letters.message,
    }
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in values.items()]


def _contents(partition: Partition, letters: DeadLetters) -> Iterator[tuple[int, Content]]:
    """Yield (offset, key and value) of the records of a range, as far as they can be read."""
    offset, before = letters.first_offset, -1
    with contextlib.suppress(CorruptBatch):
        while before < offset <= letters.last_offset:
            before = offset
            found = partition.read(offset, READ_BYTES, read_committed=False, whole_first_batch=True)
            for batch in batches(found.records):
                if not batch.is_control:
                    for record in batch.records():
                        yield record.offset, (record.key, record.value)
                offset = batch.last_offset + 1
