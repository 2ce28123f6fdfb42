"""The errors of the client, each with a message for the user."""

from __future__ import annotations

from typing import Final, Literal

from protocol.errors import ErrorCode

__all__ = [
    "BadAddress",
    "KafkaError",
    "Kind",
    "NoResponse",
    "OutOfTime",
    "Refused",
    "ToolError",
    "Unreachable",
    "Unsupported",
    "check",
    "error_name",
    "is_retriable",
    "no_such",
]


Kind = Literal["topic", "group", "transactional id"]


class ToolError(Exception):
    """A command failed. The text is for the user."""

    unknown: tuple[Kind, str] | None = None
    """(kind, name) if the error is that the cluster has no topic, group or transactional id of this name; else None."""


class BadAddress(ToolError):
    """An invalid bootstrap server."""


class Refused(ToolError):
    """The broker rejected the client's certificate or login, or the client rejected the broker's certificate."""


class Unreachable(ToolError):
    """No broker responds at this address."""


class NoResponse(Unreachable):
    """A node did not respond in time, for instance because it is paused. A retry would wait as long again."""


class OutOfTime(ToolError):
    """The time limit of a command has passed. ``last`` is the last error that was retried, None if there was none."""

    def __init__(self, seconds: float, last: ToolError | None = None) -> None:
        super().__init__(f"no response within {seconds:g} s" + (f": {last}" if last else ""))
        self.last = last


class Unsupported(ToolError):
    """The broker does not announce an API, or no version of it that this client supports."""


class KafkaError(ToolError):
    """An error code in a response."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f": {message}" if message else ""))
        self.code = code


_RETRIABLE: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.concurrent_transactions,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.replica_not_available,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unstable_offset_commit,
    )
)


def is_retriable(code: int) -> bool:
    """Whether a retry may succeed, after new metadata or another FindCoordinator."""
    return code in _RETRIABLE


def error_name(code: int) -> str:
    """Kafka's name of an error code, such as ``NOT_LEADER_OR_FOLLOWER``."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error code {code}"


_UNKNOWN: Final = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.group_id_not_found,
    ErrorCode.transactional_id_not_found,
)


def check(code: int, what: str, message: str | None = None, *, named: tuple[Kind, str] | None = None) -> None:
    """Raise ``KafkaError`` unless the code is NONE. ``what`` describes the request; ``named`` is the kind and the name of
    the topic, group or transactional id in the request.
    """
    if code != 0:
        error = KafkaError(code, what, message)
        error.unknown = named if code in _UNKNOWN else None
        raise error


def no_such(kind: Kind, name: str, sentence: str | None = None) -> ToolError:
    """The error for a topic, group or transactional id that does not exist in the cluster."""
    error = ToolError(sentence or f"there is no {kind} {name}")
    error.unknown = kind, name
    return error
