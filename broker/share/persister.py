"""Stores the states of share partitions at their share coordinators, which are on this node or on others.

Kafka's ``DefaultStatePersister`` and ``PersisterStateManager``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.clock import Clock, Domain
from broker.clock.sleeping import sleep_ms
from broker.loop.coroutines import Waiter, fork, start_in_background
from broker.loop.life import NodeLife
from broker.metadata.results import ApiError
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.peers.senders import persister
from broker.share.messages import outcome_of
from broker.share.state import Initialization, Outcome, SharePartitionKey, StoredState
from broker.share.state_apis import (
    DELETE,
    INITIALIZE,
    NO_TOPIC_ID,
    READ,
    SUMMARY,
    WRITE,
    ShareStateApi,
    state_batches,
)
from protocol.errors import NONE, ErrorCode
from protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata
    from broker.peers import Peers
    from broker.share.coordinator.coordinator import ShareCoordinator

BACKOFF_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 30_000
BACKOFF_JITTER: Final = 0.2
ATTEMPTS: Final = 5
"""Maximum number of attempts to find the coordinator, and of requests to it."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.network_exception,
    }
)
"""A partition that does not exist is asked for again, too, as in Kafka: DescribeShareGroupOffsets of one takes 30 s."""
NO_RESPONSE: Final = outcome_of(ErrorCode.network_exception)


class _Question(NamedTuple):
    """A share partition that waits for the next request to its coordinator."""

    key: SharePartitionKey
    wanted: Any
    """The ``PartitionData`` of the request."""
    answered: Waiter[Any]
    """Gets the ``PartitionResult``, or None without a response."""


class Persister:
    """Sends requests for share partitions. Retries until the coordinator has answered or the attempts are used up.

    At most one request of each API is in flight to another node, for each group. What is asked in the meantime goes into
    the next one.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        metadata: ClusterMetadata,
        coordinator: ShareCoordinator,
        *,
        peers: Peers | None = None,
        random: Random | None = None,
        life: NodeLife | None = None,
    ) -> None:
        """``coordinator`` is this node's share coordinator. ``peers`` is None if there are no other nodes."""
        self._node_id = node_id
        self._clock = clock
        self._metadata = metadata
        self._coordinator = coordinator
        self._peers = peers
        self._random = random or Random()
        self._life = life or NodeLife()
        self._waiting: dict[tuple[int, ShareStateApi], dict[str, list[_Question]]] = {}
        """(node id, API) -> group id -> questions. Bounded by the share partitions that this node leads or coordinates."""
        self._under_way: set[tuple[int, ShareStateApi]] = set()

    # -- the five operations ------------------------------------------------------------------------------------

    async def initialize(self, group_id: str, partitions: Sequence[Initialization]) -> list[Outcome]:
        wanted = [
            (
                each.topic_id,
                initialize_share_group_state.PartitionData(
                    partition=each.partition, state_epoch=each.state_epoch, start_offset=each.start_offset
                ),
            )
            for each in partitions
        ]
        return [outcome for outcome, _ in await self._ask_all(INITIALIZE, group_id, wanted)]

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[Outcome, StoredState]:
        """Return the stored state, with ``leader_epoch``: the coordinator refuses writes of earlier leaders from now on."""
        wanted = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        outcome, result = await self._ask(READ, key, wanted)
        if result is None:
            return outcome, StoredState()
        batches = state_batches(result.state_batches)
        return outcome, StoredState(result.state_epoch, leader_epoch, result.start_offset, batches=batches)

    async def write(self, key: SharePartitionKey, state: StoredState) -> Outcome:
        """Write a change. ``state.batches`` are those that have changed."""
        wanted = write_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=WRITE.state_batches(state.batches),
        )
        outcome, _ = await self._ask(WRITE, key, wanted)
        return outcome

    async def delete(self, group_id: str, partitions: Sequence[tuple[UUID, int]]) -> list[Outcome]:
        wanted = [
            (topic_id, delete_share_group_state.PartitionData(partition=index))
            for topic_id, index in partitions
        ]
        return [outcome for outcome, _ in await self._ask_all(DELETE, group_id, wanted)]

    async def summaries(
        self, group_id: str, partitions: Sequence[tuple[UUID, int, int]]
    ) -> list[tuple[Outcome, StoredState]]:
        """Return the states without batches, for (topic id, partition, leader epoch)."""
        wanted = [
            (
                topic_id,
                read_share_group_state_summary.PartitionData(partition=index, leader_epoch=leader_epoch),
            )
            for topic_id, index, leader_epoch in partitions
        ]
        return [
            (outcome, StoredState() if result is None else _summary(result))
            for outcome, result in await self._ask_all(SUMMARY, group_id, wanted)
        ]

    # -- attempts -----------------------------------------------------------------------------------------------

    async def _ask_all(
        self, api: ShareStateApi, group_id: str, wanted: Sequence[tuple[UUID, Any]]
    ) -> list[tuple[Outcome, Any]]:
        asked = [
            fork(self._ask(api, SharePartitionKey(group_id, topic_id, each.partition), each), self._life)
            for topic_id, each in wanted
        ]
        return [await each for each in asked]

    async def _ask(self, api: ShareStateApi, key: SharePartitionKey, wanted: Any) -> tuple[Outcome, Any]:
        """Ask the coordinator of a share partition. Return the outcome and, without an error, the ``PartitionResult``."""
        attempt = 0
        while True:
            node_id = await self._find(key)
            if node_id is None:
                message = "Exhausted max retries to find coordinator without success."
                return Outcome(
                    ErrorCode.coordinator_not_available, f"Error in find coordinator. {message}"
                ), None
            attempt += 1
            outcome, result = await self._send(node_id, api, key, wanted)
            if outcome.error is NONE:
                return outcome, result
            retriable = outcome.error in RETRIABLE
            if not retriable or attempt == ATTEMPTS:
                exhausted = f"Exhausted max retries to complete {api.operation} RPC without success."
                reason = exhausted if retriable else outcome.message
                return Outcome(outcome.error, f"Error in {api.operation} RPC. {reason}"), None
            await self._back_off(attempt)

    async def _find(self, key: SharePartitionKey) -> int | None:
        """Return the node that coordinates a share partition; None if it is not available after all attempts."""
        for attempt in range(1, ATTEMPTS + 1):
            if self._metadata.topic(SHARE_GROUP_STATE) is None:
                # Kafka sends FindCoordinator, which creates the topic.
                with suppress(ApiError):
                    await self._metadata.auto_topic_creation.ensure_internal_topic(SHARE_GROUP_STATE)
            leader = self._leader(key)
            if leader is not None:
                return leader
            if attempt < ATTEMPTS:
                await self._back_off(attempt)
        return None

    def _leader(self, key: SharePartitionKey) -> int | None:
        topic = self._metadata.topic(SHARE_GROUP_STATE)
        index = self._coordinator.partition_for(key.coordinator_key)
        state = None if topic is None else topic.partition(index)
        if state is None or state.leader < 0:
            return None
        is_alive = state.leader == self._node_id or (
            self._peers is not None and self._peers.is_alive(state.leader)
        )
        return state.leader if is_alive else None

    async def _back_off(self, attempt: int) -> None:
        """Sleep before the attempt after ``attempt``, as long as Kafka's ``ExponentialBackoff``."""
        jitter = self._random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        delay_ms = min(BACKOFF_MS * 2**attempt * jitter, BACKOFF_MAX_MS)
        await sleep_ms(self._clock, delay_ms, Domain.GROUPS)

    # -- one attempt --------------------------------------------------------------------------------------------

    async def _send(
        self, node_id: int, api: ShareStateApi, key: SharePartitionKey, wanted: Any
    ) -> tuple[Outcome, Any]:
        if node_id == self._node_id or self._peers is None:
            result = await self._coordinator.handle_one(api, key, wanted)
        else:
            response = await self._queue(node_id, api, key, wanted)
            if response is None:
                return NO_RESPONSE, None
            result = _results(response).get((key.topic_id, key.partition))
        if result is None:
            operation = api.operation
            message = f"Failed to {operation} for share partition: {key.coordinator_key}"
            return Outcome(ErrorCode.unknown_server_error, message), None
        return Outcome(ErrorCode(result.error_code), result.error_message), result

    def _queue(self, node_id: int, api: ShareStateApi, key: SharePartitionKey, wanted: Any) -> Waiter[Any]:
        question = _Question(key, wanted, Waiter())
        line = node_id, api
        self._waiting.setdefault(line, {}).setdefault(key.group_id, []).append(question)
        if line not in self._under_way:
            start_in_background(self._send_all(node_id, api), self._life)
        return question.answered

    async def _send_all(self, node_id: int, api: ShareStateApi) -> None:
        """Send one request after the other, of each group, while questions wait for the node."""
        assert self._peers is not None
        line = node_id, api
        self._under_way.add(line)
        try:
            while groups := self._waiting.pop(line, None):
                sent = [
                    (
                        questions,
                        self._peers.send(
                            node_id,
                            persister(self._node_id),
                            api.key,
                            api.version,
                            api.request(group_id, [(each.key.topic_id, each.wanted) for each in questions]),
                        ),
                    )
                    for group_id, questions in groups.items()
                ]
                for questions, answered in sent:
                    response = await answered
                    for each in questions:
                        each.answered.wake(response)
        finally:
            self._under_way.discard(line)


def _results(response: Any) -> dict[tuple[UUID, int], Any]:
    return {
        (topic.topic_id or NO_TOPIC_ID, each.partition): each
        for topic in response.results
        for each in topic.partitions
    }


def _summary(result: Any) -> StoredState:
    return StoredState(
        result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
    )
