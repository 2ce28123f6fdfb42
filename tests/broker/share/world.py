"""A node with real logs, the share partitions of its groups, and a share coordinator that is a dictionary."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.apis.share_acknowledge import share_acknowledge
from broker.apis.share_fetch import share_fetch
from broker.metadata.values import GROUP_RESOURCE
from broker.node import Node
from broker.share.manager import SharePartitionManager
from broker.share.state import Outcome, SharePartitionKey, StateBatch, StoredState
from protocol.batch import batches
from protocol.errors import ErrorCode
from protocol.messages.share_acknowledge import AcknowledgementBatch as AcknowledgeBatch
from protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from tests.support.coroutines import handled
from tests.support.world import World

GROUP = "g"
MEMBER = "m1"
OTHER = "m2"
TOPIC = "t1"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
MAX_BYTES = 50 << 20

Batches = Sequence[tuple[int, int, Sequence[int]]]
"""(first offset, last offset, acknowledge types)."""


class FakePersister:
    """Stores the states of share partitions in memory. ``held`` makes reads and writes wait."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, StoredState] = {}
        self.written: list[StoredState] = []
        self.error: Outcome | None = None
        self.held: asyncio.Event | None = None

    async def _asked(self) -> Outcome:
        if self.held is not None:
            await asyncio.ensure_future(self.held.wait())
        return self.error or Outcome(ErrorCode.none)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[Outcome, StoredState]:
        outcome = await self._asked()
        if key not in self.states and outcome.error is ErrorCode.none:
            outcome = Outcome(ErrorCode.invalid_request, "Read operation on uninitialized share partition")
        return outcome, self.states.get(key, StoredState())

    async def write(self, key: SharePartitionKey, state: StoredState) -> Outcome:
        outcome = await self._asked()
        if outcome.error is ErrorCode.none:
            self.written.append(state)
            known = self.states.get(key, StoredState())
            by_offset = {
                offset: (batch.state, batch.delivery_count)
                for batch in (*known.batches, *state.batches)
                for offset in range(max(batch.first_offset, state.start_offset), batch.last_offset + 1)
            }
            self.states[key] = state._replace(batches=_joined(by_offset))
        return outcome


def _joined(by_offset: dict[int, tuple[int, int]]) -> list[StateBatch]:
    """State batches of adjacent offsets with the same state and delivery count."""
    batches: list[StateBatch] = []
    for offset, value in sorted(by_offset.items()):
        if batches and batches[-1].last_offset == offset - 1 and batches[-1][2:] == value:
            batches[-1] = batches[-1]._replace(last_offset=offset)
        else:
            batches.append(StateBatch(offset, offset, *value))
    return batches


class ShareWorld:
    """A node, and requests of members of share groups as they arrive at the handlers."""

    def __init__(self, path: Path, *, share_version: int = 2, **settings: str) -> None:
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        self.world = World(path, settings=overrides)
        self.clock = self.world.clock
        self.cluster = self.world.cluster
        self.cluster.features["share.version"] = share_version
        self.persister = FakePersister()
        self.restart()

    def restart(self) -> None:
        """Forget all share partitions and sessions, as the death of the process does."""
        node = self.node
        node.share = self.share = SharePartitionManager(
            node.config,
            node.clock,
            node.metadata,
            node.replicas,
            self.persister,
            node.peers,
            node.slices,
            node.life,
            node.injection,
        )

    @property
    def node(self) -> Node:
        return self.world.node

    def topic_id(self, topic: str = TOPIC) -> uuid.UUID:
        return self.cluster.topics[topic].topic_id

    def create(self, topic: str = TOPIC, partitions: int = 1, **configs: str) -> None:
        self.world.create(
            topic, partitions, **{name.replace("_", "."): value for name, value in configs.items()}
        )

    def produce(self, *counts: int, topic: str = TOPIC, index: int = 0) -> None:
        """Append a batch of each number of records."""
        for count in counts:
            self.world.produce(topic, index, *[b"x"] * count)

    def configure(self, group: str = GROUP, **settings: str) -> None:
        configs: Any = self.cluster.image.configs
        own = configs.setdefault((GROUP_RESOURCE, group), {})
        own.update({name.replace("_", "."): value for name, value in settings.items()})
        for listener in self.cluster._listeners:
            listener.on_config_changed(GROUP_RESOURCE, group)

    def initialize(self, *groups: str, topic: str = TOPIC, start_offset: int = -1) -> None:
        """Initialize all share partitions of a topic, as the group coordinator does."""
        for group in groups or (GROUP,):
            for state in self.cluster.topics[topic].partitions:
                key = SharePartitionKey(group, self.topic_id(topic), state.index)
                self.persister.states[key] = StoredState(2, 0, start_offset, -1 if start_offset < 0 else 0)

    def context(self, version: int = 2, connection: int = 1) -> Any:
        context = self.world.context(version)
        context.connection_id = connection
        return context

    # -- requests -----------------------------------------------------------------------------------------------

    def start_fetch(
        self,
        epoch: int,
        *indexes: int,
        acks: dict[int, Batches] | None = None,
        member: str | None = MEMBER,
        group: str | None = GROUP,
        topic: str = TOPIC,
        topic_id: uuid.UUID | None = None,
        forgotten: Sequence[int] = (),
        version: int = 2,
        connection: int = 1,
        **more: Any,
    ) -> Any:
        """Begin a ShareFetch. Returns its response, or a future of it if it waits."""
        parameters = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "max_records": 500,
            "batch_size": 500,
            **more,
        }
        partitions = [FetchPartition(partition_index=index) for index in indexes]
        partitions += [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in batches
                ],
            )
            for index, batches in (acks or {}).items()
        ]
        topic_id = topic_id or self.topic_id(topic)
        request = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=forgotten)]
            if forgotten
            else [],
            **parameters,
        )
        return handled(share_fetch, request, self.context(version, connection))

    async def fetch(self, epoch: int, *indexes: int, **more: Any) -> ShareFetchResponse:
        return await value_of(self.start_fetch(epoch, *indexes, **more))

    async def acquired(self, epoch: int, *indexes: int, **more: Any) -> list[tuple[int, int, int]]:
        """The acquired records of partition 0 in the response to a ShareFetch that must succeed."""
        return acquired(await self.fetch(epoch, *indexes, **more))

    async def acknowledge(
        self,
        epoch: int,
        acks: dict[int, Batches] | None = None,
        *,
        member: str | None = MEMBER,
        group: str | None = GROUP,
        topic_id: uuid.UUID | None = None,
        version: int = 2,
        connection: int = 1,
        renew: bool = False,
    ) -> ShareAcknowledgeResponse:
        topics = [
            AcknowledgeTopic(
                topic_id=topic_id or self.topic_id(),
                partitions=[
                    AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            AcknowledgeBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                            for first, last, types in batches
                        ],
                    )
                    for index, batches in (acks or {}).items()
                ],
            )
        ]
        request = ShareAcknowledgeRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=renew,
            topics=topics if acks else [],
        )
        return await value_of(handled(share_acknowledge, request, self.context(version, connection)))

    async def ack(self, epoch: int, *batches: tuple[int, int, Sequence[int]], **more: Any) -> int:
        """Acknowledge batches of partition 0. Returns its error code."""
        response = await self.acknowledge(epoch, {0: batches}, **more)
        assert response.error_code == ErrorCode.none, response
        return response.responses[0].partitions[0].error_code


async def value_of(outcome: Any) -> Any:
    return await outcome if isinstance(outcome, asyncio.Future) else outcome


async def turns() -> None:
    """Run all callbacks that are scheduled with ``call_soon``."""
    for _ in range(5):
        await asyncio.sleep(0)


def partitions_of(response: ShareFetchResponse) -> dict[int, PartitionData]:
    assert response.error_code == ErrorCode.none, response
    return {each.partition_index: each for topic in response.responses for each in topic.partitions}


def acquired(response: ShareFetchResponse, index: int = 0) -> list[tuple[int, int, int]]:
    data = partitions_of(response).get(index)
    if data is None:
        return []
    assert data.error_code == ErrorCode.none, data
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def records(response: ShareFetchResponse, index: int = 0) -> list[tuple[int, int]]:
    """(base offset, last offset) of the record batches of a partition."""
    data: Any = partitions_of(response)[index].records or b""
    return [(batch.base_offset, batch.last_offset) for batch in batches(data)]
