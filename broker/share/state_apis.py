"""The five requests to a share coordinator: their messages, which have one shape.

Each request names a group and partitions of topics, each response has a result for each of these partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from broker.share.state import Outcome, StateBatch
from protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from protocol.named_tuple import NamedTuple

NO_TOPIC_ID: Final = UUID(int=0)


class ShareStateApi(NamedTuple):
    """One of the five APIs."""

    key: int
    version: int
    """The version that brokers send: the highest one."""
    operation: str
    """The name in Kafka's error messages."""
    messages: ModuleType
    name: str
    """Prefix of the classes in ``messages``."""

    def request(self, group_id: str, partitions: Sequence[tuple[UUID, Any]]) -> Any:
        """Create a request from (topic id, ``PartitionData``)."""
        by_topic: dict[UUID, list[Any]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, []).append(partition)
        topic_of = getattr(self.messages, f"{self.name}Data")
        topics = [topic_of(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()]
        return self._message("Request")(group_id=group_id, topics=topics)

    def response(self, results: Mapping[UUID, Sequence[Any]]) -> Any:
        """Create a response from the results (``PartitionResult``) by topic id."""
        result_of = getattr(self.messages, f"{self.name}Result")
        return self._message("Response")(
            results=[result_of(topic_id=topic_id, partitions=found) for topic_id, found in results.items()]
        )

    def result(self, partition: int, outcome: Outcome, **fields: object) -> Any:
        return self.messages.PartitionResult(
            partition=partition, error_code=outcome.error, error_message=outcome.message, **fields
        )

    def refusal(self, request: Any, outcome: Outcome) -> Any:
        """Create a response with the same error for each partition of the request."""
        results: dict[UUID, list[Any]] = {}
        for topic in request.topics:
            results[topic.topic_id or NO_TOPIC_ID] = [
                self.result(each.partition, outcome) for each in topic.partitions
            ]
        return self.response(results)

    def state_batches(self, batches: Iterable[StateBatch]) -> list[Any]:
        """The batches as messages of a request or response that has such."""
        return [
            self.messages.StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in batches
        ]

    def _message(self, kind: str) -> Any:
        return getattr(self.messages, f"{self.name.replace('State', 'ShareGroupState')}{kind}")


INITIALIZE: Final = ShareStateApi(83, 0, "initialize state", initialize_share_group_state, "InitializeState")
READ: Final = ShareStateApi(84, 0, "read state", read_share_group_state, "ReadState")
WRITE: Final = ShareStateApi(85, 1, "write state", write_share_group_state, "WriteState")
DELETE: Final = ShareStateApi(86, 0, "delete state", delete_share_group_state, "DeleteState")
SUMMARY: Final = ShareStateApi(
    87, 1, "read state summary", read_share_group_state_summary, "ReadStateSummary"
)


def state_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    """The batches of a message, or of a record of the share coordinator."""
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    )
