"""Steps shared by IncrementalAlterConfigs and AlterConfigs: the checks of the broker, then the change by the controller.

As in Kafka's ``ConfigAdminManager``, the broker that receives a request checks the form of the request, and the changes to
the broker's own settings. All other changes go to the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.config.agreement import check_cordoned
from broker.config.definitions import alterable_configs
from broker.config.dynamic import check, check_change, is_dynamic, is_valid, with_dynamic
from broker.metadata import ApiError
from broker.metadata.altering import ConfigChanges, Operation, Resource, own_configs, with_members
from broker.metadata.image import Image
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from broker.requests.authorization import may_on_cluster
from broker.requests.metadata_views import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError, ConfigType, to_text

if TYPE_CHECKING:
    from broker.node.context import RequestContext

LOGGER_RESOURCE: Final = 8
KINDS: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, METRICS_RESOURCE, GROUP_RESOURCE)

_RIGHTS: Final = {
    TOPIC_RESOURCE: ("TOPIC", ErrorCode.topic_authorization_failed, "Topic authorization failed."),
    GROUP_RESOURCE: ("GROUP", ErrorCode.group_authorization_failed, "Group authorization failed."),
}
_OF_CLUSTER: Final = ("CLUSTER", ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


_OPERATIONS: Final = frozenset(Operation)


class Entry(NamedTuple):
    name: str
    operation: int
    value: str | None


class Wanted(NamedTuple):
    """One resource of a request that alters configurations, with the changes of its settings."""

    resource: Resource
    entries: Sequence[Entry]


Decision = Callable[[Image], ConfigChanges]
CheckKind = Callable[[Wanted], None]


async def alter(
    wanted: Sequence[Wanted],
    context: RequestContext,
    decision: Callable[[Wanted], Decision],
    handled: Callable[[Wanted], bool],
    *,
    validate_only: bool,
) -> list[ApiError | None]:
    """Apply the changes and return one result for each resource, in the order of the request; None means success.

    ``handled`` applies the changes of a resource for which the controller is not needed, and returns whether it
    has done so. For all other resources ``decision`` returns a function that computes the controller's change from
    the metadata image.
    """
    results: list[ApiError | None] = list(_twice(wanted))
    left: list[int] = []
    for at, each in enumerate(wanted):
        if results[at] is None:
            try:
                _check_form(each)
                if not handled(each):
                    _check_rights(each.resource, context)
                    left.append(at)
            except ApiError as refusal:
                results[at] = refusal
    if any(entry.operation not in _OPERATIONS for at in left for entry in wanted[at].entries):
        # Kafka's controller throws on an unknown operation, which fails the whole request.
        for at in left:
            results[at] = ApiError(ErrorCode.unknown_server_error)
        return results
    control = context.node.metadata.config_control
    decided = await control.alter(
        [(wanted[at].resource, decision(wanted[at])) for at in left], validate_only=validate_only
    )
    for at, result in zip(left, decided, strict=True):
        results[at] = result
    return results


def _twice(wanted: Sequence[Wanted]) -> Iterable[ApiError | None]:
    times = Counter(each.resource for each in wanted)
    refusal = ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
    return (refusal if times[each.resource] > 1 else None for each in wanted)


def _check_form(each: Wanted) -> None:
    names = [entry.name for entry in each.entries]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    without = [
        entry.name for entry in each.entries if entry.value is None and entry.operation != Operation.DELETE
    ]
    if without:
        raise ApiError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(without)}")


def _check_rights(resource: Resource, context: RequestContext) -> None:
    kind, error, message = _RIGHTS.get(resource.kind, _OF_CLUSTER)
    name = resource.name if resource.kind in _RIGHTS else CLUSTER_NAME
    if not context.authorize("ALTER_CONFIGS", kind, name):
        raise ApiError(error, message)


# -- broker configs ---------------------------------------------------------------------------------------------


def check_broker(each: Wanted, context: RequestContext, *, replaces: bool) -> None:
    """Raise ``ApiError`` if the client may not change settings of brokers, or this broker cannot apply the change.

    A resource without a name is the default of all brokers. ``replaces`` is True if the settings replace all
    earlier settings of the resource (AlterConfigs).
    """
    if not may_on_cluster(context, "ALTER_CONFIGS"):
        raise ApiError(ErrorCode.cluster_authorization_failed)
    name = each.resource.name
    if name:
        _check_own_id(name, context.node.node_id)
    wanted = dict(_entries(each)) if replaces else _with_operations(each, context)
    node = context.node
    static, layers = node.settings.static, node.settings.layers
    after = layers._replace(own=wanted) if name else layers._replace(cluster=wanted)
    try:
        check(wanted, per_broker=bool(name))
        changed = with_dynamic(static, after)
        check_cordoned(changed.values, str(node.replicas.directory.path.absolute()))
        check_change(node.config, changed)
        if node.check_listeners is not None:
            node.check_listeners(changed)
    except ConfigError as error:
        # Kafka returns INVALID_REQUEST here, not INVALID_CONFIG (KAFKA-13609).
        raise ApiError(ErrorCode.invalid_request, str(error)) from None


def _entries(each: Wanted) -> Iterable[tuple[str, str]]:
    return ((entry.name, entry.value) for entry in each.entries if entry.value is not None)


def _check_own_id(name: str, node_id: int) -> None:
    if not name.removeprefix("-").removeprefix("+").isdecimal():
        raise ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise ApiError(
            ErrorCode.invalid_request, f"Unexpected broker id, expected {node_id}, but received {name}"
        )


def _with_operations(each: Wanted, context: RequestContext) -> Mapping[str, str]:
    """Settings of the broker after the requested operations. Invalid values that an earlier release stored are left out."""
    current = own_configs(context.node.metadata.image, each.resource)
    wanted = {name: value for name, value in current.items() if is_dynamic(name) and is_valid(name, value)}
    for entry in each.entries:
        if entry.operation not in _OPERATIONS:
            raise ApiError(ErrorCode.invalid_request, f"Unknown operations type {entry.operation}")
        operation = Operation(entry.operation)
        if operation is Operation.DELETE:
            wanted.pop(entry.name, None)
        elif operation is Operation.SET:
            wanted[entry.name] = entry.value or ""
        else:
            wanted[entry.name] = _with_members(operation, entry, wanted.get(entry.name))
    return wanted


def _with_members(operation: Operation, entry: Entry, current: str | None) -> str:
    key = alterable_configs().get(entry.name)
    if key is None:
        raise ApiError(ErrorCode.invalid_config, f"Unknown config name: {entry.name}")
    if key.config_type is not ConfigType.LIST:
        verb = operation.name.lower()
        raise ApiError(
            ErrorCode.invalid_config, f"Config value {verb} is not allowed for config key: {entry.name}"
        )
    default = to_text(key.default) if current is None else current
    return with_members(default, operation, entry.value or "")
