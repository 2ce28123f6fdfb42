"""Log levels, which IncrementalAlterConfigs sets (KIP-412). They apply to this process only, and are not persisted.

The rules are those of Kafka's ``RuntimeLoggerManager``. There is one logger, the root: the whole broker logs at one level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.logging import level, set_level
from broker.metadata import ApiError
from broker.metadata.altering import Operation
from broker.requests.authorization import may_on_cluster
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from broker.requests.config_changes import Entry, Wanted

ROOT: Final = "root"
# Log4j's levels, each with the least verbose level of ours that shows at least as much.
LEVELS: Final = {
    "DEBUG": "debug",
    "ERROR": "error",
    "FATAL": "error",
    "INFO": "info",
    "TRACE": "debug",
    "WARN": "warning",
}


def change_loggers(each: Wanted, context: RequestContext, *, validate_only: bool) -> None:
    """Set the requested log levels. Raises ``ApiError``, and sets no level, if one of the changes is invalid."""
    if not may_on_cluster(context, "ALTER_CONFIGS"):
        raise ApiError(ErrorCode.cluster_authorization_failed)
    _check_node_id(each.resource.name, context.node.node_id)
    for entry in each.entries:
        _check(entry)
    if not validate_only:
        for entry in each.entries:
            set_level(LEVELS[entry.value or ""])


def shown_level() -> str:
    """The log's level, by its Log4j name."""
    return {"warning": "WARN"}.get(level(), level().upper())


def _check_node_id(name: str, node_id: int) -> None:
    if not name.removeprefix("-").removeprefix("+").isdecimal():
        raise ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise ApiError(
            ErrorCode.invalid_request, f"Unexpected node id. Expected {node_id}, but received {int(name)}"
        )


def _check(entry: Entry) -> None:
    if entry.operation not in (Operation.SET, Operation.DELETE):
        is_known = entry.operation in (Operation.APPEND, Operation.SUBTRACT)
        verb = (
            f"{Operation(entry.operation).name} operation"
            if is_known
            else f"Unknown operation type {entry.operation}"
        )
        raise ApiError(ErrorCode.invalid_request, f"{verb} is not allowed for the BROKER_LOGGER resource")
    if entry.name != ROOT:
        raise ApiError(ErrorCode.invalid_config, f"Logger {entry.name} does not exist!")
    if entry.operation == Operation.DELETE:
        raise ApiError(
            ErrorCode.invalid_request, f"Removing the log level of the {ROOT} logger is not allowed"
        )
    if entry.value not in LEVELS:
        valid = f"Valid log levels are {', '.join(LEVELS)}"
        raise ApiError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {entry.name} to {entry.value} as it is not a supported log level. {valid}",
        )
