"""The new settings that AlterConfigs and IncrementalAlterConfigs result in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from broker.config import broker_config
from broker.config.patterns import full_match
from broker.metadata import ApiError
from broker.metadata.altering import Operation, Resource, altered, replaced
from broker.metadata.image import Image
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE, Topic
from protocol.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation
ORDERS = Resource(TOPIC_RESOURCE, "orders")
GROUP = Resource(GROUP_RESOURCE, "g")
METRICS = Resource(METRICS_RESOURCE, "m")
CONFIG = broker_config()


@pytest.fixture
def image() -> Image:
    topic = Topic("orders", uuid.uuid4(), configs={"retention.ms": "1", "cleanup.policy": "compact"})
    return Image(
        topics={"orders": topic},
        configs={(BROKER_RESOURCE, ""): {"log.cleaner.threads": "2"}},
    )


def change(
    image: Image, resource: Resource, **operations: tuple[Operation, str | None]
) -> Mapping[str, str | None]:
    named = {name.replace("_", "."): operation for name, operation in operations.items()}
    return altered(image, CONFIG, resource, named, full_match)


def test_only_differing_values_are_set_and_unset(image: Image) -> None:
    assert change(image, ORDERS, retention_ms=(SET, "2"), cleanup_policy=(DELETE, None)) == {
        "retention.ms": "2",
        "cleanup.policy": None,
    }
    assert change(image, ORDERS, retention_ms=(SET, "1"), flush_ms=(DELETE, None)) == {}


def test_unchanged_values_of_brokers_are_written_too(image: Image) -> None:
    everywhere = Resource(BROKER_RESOURCE, "")
    assert change(image, everywhere, log_cleaner_threads=(SET, "2")) == {"log.cleaner.threads": "2"}


def test_before_metadata_version_4_3_no_directory_is_cordoned(image: Image) -> None:
    image.features["metadata.version"] = 29
    with pytest.raises(ApiError) as refused:
        change(image, Resource(BROKER_RESOURCE, "1"), cordoned_log_dirs=(SET, "*"))
    assert (refused.value.error, refused.value.message) == (
        ErrorCode.invalid_config,
        "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
    )


@pytest.mark.parametrize(
    ("operation", "value", "result"),
    [
        (APPEND, "delete", "compact,delete"),
        (APPEND, "compact,delete,delete", "compact,delete"),
        (SUBTRACT, "compact", ""),
        (SUBTRACT, "delete", None),
    ],
)
def test_append_and_subtract_change_lists(
    image: Image, operation: Operation, value: str, result: str | None
) -> None:
    expected = {} if result is None else {"cleanup.policy": result}
    assert change(image, ORDERS, cleanup_policy=(operation, value)) == expected


def test_a_list_that_is_not_set_begins_with_its_default(image: Image) -> None:
    image.topics["orders"].configs.clear()
    assert change(image, ORDERS, cleanup_policy=(APPEND, "compact")) == {"cleanup.policy": "delete,compact"}


def test_a_replacement_unsets_values_that_it_does_not_contain(image: Image) -> None:
    wanted = {"retention.ms": "1", "flush.ms": "5"}
    assert replaced(image, CONFIG, ORDERS, wanted, full_match) == {"flush.ms": "5", "cleanup.policy": None}


@pytest.mark.parametrize(
    ("resource", "name", "operation", "value", "error", "message"),
    [
        (ORDERS, "no.such", SET, "1", ErrorCode.invalid_config, "Unknown topic config name: no.such"),
        (
            ORDERS,
            "retention.ms",
            APPEND,
            "1",
            ErrorCode.invalid_config,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ORDERS,
            "retention.ms",
            SET,
            "1" * 32_768,
            ErrorCode.invalid_config,
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
        (
            Resource(TOPIC_RESOURCE, ""),
            "retention.ms",
            SET,
            "1",
            ErrorCode.invalid_request,
            "Default topic resources are not allowed.",
        ),
        (
            Resource(TOPIC_RESOURCE, "no-such"),
            "retention.ms",
            SET,
            "1",
            ErrorCode.unknown_topic_or_partition,
            "The topic 'no-such' does not exist.",
        ),
        (
            Resource(BROKER_RESOURCE, "7"),
            "log.cleaner.threads",
            SET,
            "1",
            ErrorCode.broker_id_not_registered,
            "No node with id 7 found.",
        ),
        (
            GROUP,
            "consumer.session.timeout.ms",
            SET,
            "1",
            ErrorCode.invalid_config,
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            GROUP,
            "share.delivery.count.limit",
            SET,
            "11",
            ErrorCode.invalid_config,
            "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
        ),
        *(
            (GROUP, name, SET, value, ErrorCode.invalid_config, message)
            for name, value, message in (
                (
                    "streams.num.standby.replicas",
                    "3",
                    "streams.num.standby.replicas must be less than or equal to 2",
                ),
                (
                    "streams.task.offset.interval.ms",
                    "1",
                    "streams.task.offset.interval.ms must be greater than or equal to 15000",
                ),
                (
                    "streams.assignor.name",
                    "x",
                    "streams.assignor.name 'x' is not a registered task assignor. Registered assignors are: [sticky].",
                ),
                (
                    "streams.rack.aware.assignment.tags",
                    "a,b, a",
                    "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
                ),
                (
                    "errors.deadletterqueue.topic.name",
                    "__x",
                    "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
                ),
            )
        ),
        (
            GROUP,
            "streams.rack.aware.assignment.tags",
            APPEND,
            "a",
            ErrorCode.invalid_config,
            "Can't APPEND to key streams.rack.aware.assignment.tags because its type is not LIST.",
        ),
        (GROUP, "no.such", SET, "1", ErrorCode.invalid_config, "Unknown group config name: no.such"),
        (
            METRICS,
            "no.such",
            SET,
            "1",
            ErrorCode.invalid_request,
            "Unknown client metrics configuration: no.such",
        ),
        (
            METRICS,
            "interval.ms",
            SET,
            "99",
            ErrorCode.invalid_request,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            METRICS,
            "match",
            SET,
            "client_id=[",
            ErrorCode.invalid_config,
            "Illegal client matching pattern: client_id=[",
        ),
    ],
)
def test_invalid_values_are_rejected_with_kafka_s_messages(
    image: Image,
    resource: Resource,
    name: str,
    operation: Operation,
    value: str,
    error: ErrorCode,
    message: str,
) -> None:
    with pytest.raises(ApiError) as refused:
        altered(image, CONFIG, resource, {name: (operation, value)}, full_match)
    assert (refused.value.error, refused.value.message) == (error, message)


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        ("earliest", True),
        ("by_duration:PT1H30M", True),
        ("by_duration:P1DT0.5S", True),
        ("by_duration:P", False),
    ],
)
def test_where_a_share_group_begins(image: Image, value: str, is_good: bool) -> None:
    try:
        changes = change(image, GROUP, share_auto_offset_reset=(SET, value))
    except ApiError:
        changes = {}
    assert bool(changes) is is_good
