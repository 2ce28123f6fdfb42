"""Used by OffsetCommit and TxnOffsetCommit: checks of topics and partitions, and the results of a commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

from broker.groups.commits import OffsetToCommit
from broker.node.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestTopic
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic

RequestTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic

R = TypeVar("R")


class CommitResults(Generic[R]):
    """The results of a commit, by topic: first the refused partitions, then those that the coordinator decided.

    ``response``, ``topic`` and ``partition`` are the API's classes of the response, its topics and partitions.
    """

    def __init__(self, response: type[R], topic: type[Any], partition: type[Any]) -> None:
        self._response, self._topic, self._partition = response, topic, partition
        self._topics: dict[tuple[str, UUID | None], list[Any]] = {}

    def add(self, name: str, topic_id: UUID | None, partition: int, error: ErrorCode) -> None:
        result = self._partition(partition_index=partition, error_code=error)
        self._topics.setdefault((name, topic_id), []).append(result)

    def refuse(self, topic: RequestTopic, name: str, topic_id: UUID | None, error: ErrorCode) -> None:
        self._topics.setdefault((name, topic_id), [])
        for partition in topic.partitions:
            self.add(name, topic_id, partition.partition_index, error)

    def refuse_all(self, topics: Iterable[RequestTopic], error: ErrorCode) -> R:
        """Return the response with ``error`` for all requested partitions, whether they exist or not."""
        for topic in topics:
            self.refuse(topic, topic.name, topic.topic_id, error)
        return self.response()

    def committed(
        self, topics: Iterable[RequestTopic], offsets: Sequence[OffsetToCommit], errors: Sequence[ErrorCode]
    ) -> R:
        """Return the response with the coordinator's error for each offset. ``topics`` are those of the request.

        A topic that is in the request twice is in the response twice, unless a partition of the request was
        refused: then Kafka adds the coordinator's results to the topics of the refused partitions.
        """
        if self._topics:
            for offset, error in zip(offsets, errors, strict=True):
                self.add(offset.topic, offset.topic_id, offset.partition, error)
            return self.response()
        left = iter(errors)
        return self._response(
            topics=[  # type: ignore[call-arg]
                self._topic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._partition(partition_index=each.partition_index, error_code=next(left))
                        for each in topic.partitions
                    ],
                )
                for topic in topics
                if topic.partitions
            ]
        )

    def response(self) -> R:
        return self._response(
            topics=[  # type: ignore[call-arg]
                self._topic(name=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in self._topics.items()
            ]
        )


def existing(
    topics: Iterable[RequestTopic], context: RequestContext, results: CommitResults[Any], *, uses_id: bool
) -> list[OffsetToCommit]:
    """Return the offsets of authorized, existing partitions. Adds an error to ``results`` for each other partition.

    ``uses_id``: the request's version identifies topics by id.
    """
    metadata, offsets = context.node.metadata, []
    for asked in topics:
        topic = metadata.topic_by_id(asked.topic_id) if uses_id else metadata.topic(asked.name)
        if topic is None and uses_id:
            results.refuse(asked, "", asked.topic_id, ErrorCode.unknown_topic_id)
            continue
        name = asked.name if topic is None else topic.name
        if context.node.authorizer is not None and not context.authorize("READ", "TOPIC", name):
            results.refuse(asked, name, asked.topic_id, ErrorCode.topic_authorization_failed)
            continue
        if topic is None:
            results.refuse(asked, name, None, ErrorCode.unknown_topic_or_partition)
            continue
        for partition in asked.partitions:
            index = partition.partition_index
            if not 0 <= index < len(topic.partitions):
                results.add(name, topic.topic_id, index, ErrorCode.unknown_topic_or_partition)
                continue
            offset = OffsetToCommit(
                name,
                index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata,
                topic.topic_id,
            )
            offsets.append(offset)
    return offsets
