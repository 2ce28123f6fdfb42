"""Changes of settings by AlterConfigs and IncrementalAlterConfigs (Kafka's ``ConfigurationControlManager``). Pure.

    changes = altered(image, config, resource, {"retention.ms": (Operation.SET, "1000")}, full_match)
    # {"retention.ms": "1000"}: the argument of `records_for_config_change`

Either all changes of a resource are made, or none. The error messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from broker.config.definitions import alterable_configs
from broker.config.group_configs import check_group_configs, group_configs
from broker.config.metrics_configs import METRICS_CONFIGS, BadRequest, check_metrics_configs
from broker.config.patterns import Matches
from broker.metadata.features import CORDONED_FROM, is_elr_enabled, metadata_version
from broker.metadata.image import Image
from broker.metadata.results import ApiError
from broker.metadata.topics import invalid_topic_name
from broker.metadata.values import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    METRICS_RESOURCE,
    MIN_IN_SYNC_REPLICAS,
    TOPIC_RESOURCE,
)
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from storage.config import ALL_TOPIC_CONFIGS, ConfigError, LogConfig
from storage.config_def import ConfigKey, ConfigType, to_text

if TYPE_CHECKING:
    from broker.config import BrokerConfig

VALUE_CHARACTERS_MAX: Final = 32_767

CompilePattern = Callable[[str], Matches]
ConfigChanges = dict[str, str | None]
"""Setting -> new value; None removes the setting."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    kind: int
    """Type of the resource: `TOPIC_RESOURCE`, `BROKER_RESOURCE`, `METRICS_RESOURCE` or `GROUP_RESOURCE`."""
    name: str


def own_configs(image: Image, resource: Resource) -> Mapping[str, str]:
    """Return the settings that are set on the resource itself, as text by name; empty if there are none."""
    if resource.kind == TOPIC_RESOURCE:
        topic = image.topics.get(resource.name)
        return {} if topic is None else topic.configs
    return image.configs.get(resource, {})


def altered(
    image: Image,
    config: BrokerConfig,
    resource: Resource,
    operations: Mapping[str, tuple[Operation, str | None]],
    compile_pattern: CompilePattern,
) -> ConfigChanges:
    """Return the changes of an IncrementalAlterConfigs: one operation for each setting. Raises ``ApiError``."""
    current = own_configs(image, resource)
    wanted: ConfigChanges = {
        name: _result(resource, name, operation, value, current.get(name))
        for name, (operation, value) in operations.items()
    }
    changes = _differing(resource, wanted, current)
    _check(image, config, resource, changes, compile_pattern)
    return changes


def replaced(
    image: Image,
    config: BrokerConfig,
    resource: Resource,
    wanted: Mapping[str, str],
    compile_pattern: CompilePattern,
) -> ConfigChanges:
    """Return the changes of an AlterConfigs: set these settings and remove all others. Raises ``ApiError``."""
    current = own_configs(image, resource)
    changes = _differing(resource, wanted, current)
    changes |= dict.fromkeys(name for name in current if name not in wanted)
    _check(image, config, resource, changes, compile_pattern)
    return changes


def _differing(
    resource: Resource, wanted: Mapping[str, str | None], current: Mapping[str, str]
) -> ConfigChanges:
    """Return the settings whose value differs from the current value.

    For a broker, return all settings: even a record with an equal value makes the broker reload its key stores
    (KAFKA-14136).
    """
    return {
        name: value
        for name, value in wanted.items()
        if resource.kind == BROKER_RESOURCE or current.get(name) != value
    }


def _result(
    resource: Resource, name: str, operation: Operation, value: str | None, current: str | None
) -> str | None:
    if operation is Operation.SET:
        return value
    if operation is Operation.DELETE:
        return None
    # Kafka's controller does not know the types of group settings, so it refuses APPEND and SUBTRACT for all of them.
    key = None if resource.kind == GROUP_RESOURCE else key_of(resource, name)
    if key is None or key.config_type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.invalid_config,
            f"Can't {operation.name} to key {name} because its type is not LIST.",
        )
    assert value is not None, "the request was checked"
    return with_members(to_text(key.default) if current is None else current, operation, value)


def with_members(current: str | None, operation: Operation, value: str) -> str:
    """Add members to a comma-separated list, or remove them.

    >>> with_members("a,b", Operation.APPEND, "b,c"), with_members("a,b", Operation.SUBTRACT, "a,x")
    ('a,b,c', 'b')
    """
    members = [each for each in (current or "").split(",") if each]
    for each in value.split(","):
        if operation is Operation.APPEND and each not in members:
            members.append(each)
        elif operation is Operation.SUBTRACT and each in members:
            members.remove(each)
    return ",".join(members)


def key_of(resource: Resource, name: str) -> ConfigKey | None:
    """Return the definition of a resource's setting; None if Kafka has no such setting."""
    tables: Mapping[int, Mapping[str, ConfigKey]] = {
        TOPIC_RESOURCE: ALL_TOPIC_CONFIGS,
        BROKER_RESOURCE: alterable_configs(),
        METRICS_RESOURCE: METRICS_CONFIGS,
        GROUP_RESOURCE: group_configs(),
    }
    return tables[resource.kind].get(name)


# -- checks, in Kafka's order -----------------------------------------------------------------------------------


def _check(
    image: Image,
    config: BrokerConfig,
    resource: Resource,
    changes: ConfigChanges,
    compile_pattern: CompilePattern,
) -> None:
    for name, value in changes.items():
        if resource.kind == BROKER_RESOURCE:
            _check_of_broker(image, resource.name, name, value)
        if value is not None and len(value) > VALUE_CHARACTERS_MAX:
            too_long = f"it exceeds the maximum value size of {VALUE_CHARACTERS_MAX} bytes."
            raise ApiError(
                ErrorCode.invalid_config, f"The configuration value cannot be added because {too_long}"
            )
    merged = {**own_configs(image, resource), **changes}
    values = {name: value for name, value in merged.items() if value is not None}
    try:
        _check_values(config, resource, values, compile_pattern)
    except BadRequest as error:
        raise ApiError(ErrorCode.invalid_request, str(error)) from None
    except ConfigError as error:
        raise ApiError(ErrorCode.invalid_config, str(error)) from None
    _check_existence(image, resource)


def _check_of_broker(image: Image, broker: str, name: str, value: str | None) -> None:
    reason = None
    if name == MIN_IN_SYNC_REPLICAS and is_elr_enabled(image.features):
        if broker:
            reason = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        elif value is None:
            reason = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    elif name == "cordoned.log.dirs" and metadata_version(image.features) < CORDONED_FROM:
        reason = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    if reason is not None:
        raise ApiError(ErrorCode.invalid_config, reason)


def _check_values(
    config: BrokerConfig, resource: Resource, values: Mapping[str, str], compile_pattern: CompilePattern
) -> None:
    if resource.kind == TOPIC_RESOURCE:
        if not resource.name:
            raise BadRequest("Default topic resources are not allowed.")
        invalid = invalid_topic_name(resource.name)
        if invalid is not None:
            raise ApiError(ErrorCode.invalid_topic_exception, invalid)
        LogConfig.from_properties(values, config.log_defaults)
    elif resource.kind == BROKER_RESOURCE:
        _check_broker_name(resource.name)
    elif resource.kind == METRICS_RESOURCE:
        check_metrics_configs(resource.name, values, compile_pattern)
    else:
        if not resource.name:
            raise BadRequest("Default group resources are not allowed.")
        check_group_configs(values, config)


def _check_broker_name(name: str) -> None:
    if not name:
        return
    if not name.removeprefix("-").removeprefix("+").isdecimal():
        raise BadRequest("Unable to parse broker name as a base 10 number.")
    if int(name) < 0:
        raise BadRequest("Invalid negative broker ID.")


def _check_existence(image: Image, resource: Resource) -> None:
    if resource.kind == TOPIC_RESOURCE and resource.name not in image.topics:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist.")
    if resource.kind == BROKER_RESOURCE and resource.name and int(resource.name) not in image.brokers:
        raise ApiError(ErrorCode.broker_id_not_registered, f"No node with id {resource.name} found.")
