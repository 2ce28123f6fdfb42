"""The messages of Kafka's ``Errors`` for the errors of share groups and of their coordinators. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.share.state import Outcome
from protocol.errors import ErrorCode

_MESSAGES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.coordinator_load_in_progress: "The coordinator is loading and hence can't process requests.",
    ErrorCode.coordinator_not_available: "The coordinator is not available.",
    ErrorCode.fenced_leader_epoch: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.fenced_state_epoch: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.invalid_group_id: "The group id is invalid.",
    ErrorCode.leader_not_available: (
        "There is no leader for this topic-partition as we are in the middle of a leadership election."
    ),
    ErrorCode.network_exception: "The server disconnected before a response was received.",
    ErrorCode.non_empty_group: "The group is not empty.",
    ErrorCode.not_coordinator: "This is not the correct coordinator.",
    ErrorCode.not_leader_or_follower: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the topic "
        "partition."
    ),
    ErrorCode.offset_not_available: (
        "The leader high watermark has not caught up from a recent leader election so the offsets cannot be guaranteed "
        "to be monotonically increasing."
    ),
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.unknown_server_error: (
        "The server experienced an unexpected error when processing the request."
    ),
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
    ErrorCode.unsupported_version: "The version of API is not supported.",
}


def message_of(error: ErrorCode) -> str | None:
    return _MESSAGES.get(error)


def outcome_of(error: ErrorCode) -> Outcome:
    return Outcome(error, message_of(error))
