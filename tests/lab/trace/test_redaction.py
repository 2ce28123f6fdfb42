"""The trace removes every secret from frames, and nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE, METRICS_RESOURCE, TOPIC_RESOURCE
from lab.trace.redaction import SECRETS, WITH_SECRETS, redacted
from protocol.codec import client_codec, request_codec
from protocol.frame import parse_request_header, request_header, response_body_offset, response_header
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.index import APIS
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.versions import Side, WireField, at_version, versions_of
from tests.protocol.test_messages_bytes import kio_bytes, random_message

LOGGER_RESOURCE, SASL_AUTHENTICATE, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 8, 36, 33, 44
SIDES: Sequence[Side] = ("request", "response")
LIKE_A_SECRET = re.compile("auth_bytes|hmac|passw|salt|secret|credential_bytes")


def byte_fields(wire: Sequence[WireField]) -> Iterator[str]:
    for field in wire:
        if field.kind == "struct":
            yield from byte_fields(field.nested.__wire__)
        elif field.kind in ("bytes", "string"):
            yield field.name


def test_no_api_has_a_field_that_sounds_like_a_secret_and_is_none() -> None:
    found = {
        (key, name)
        for key in APIS
        for version in versions_of(key)
        for side in SIDES
        for name in byte_fields(at_version(key, version, side).__wire__)
        if LIKE_A_SECRET.search(name)
    }
    assert {name for _, name in found} == SECRETS
    assert {key for key, _ in found} == WITH_SECRETS - {ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS}


def framed(key: int, version: int, side: Side, body: bytes) -> bytes:
    header = request_header(key, version, 1, "c") if side == "request" else response_header(key, version, 1)
    return header + body


def read(key: int, version: int, side: Side, frame: bytes) -> Any:
    if side == "request":
        return request_codec(key, version).decode(frame, parse_request_header(frame).body_offset)
    return client_codec(key, version).decode(frame, response_body_offset(key, version, frame))


def flat(message: Any, wire: Sequence[WireField]) -> Iterator[tuple[str, Any]]:
    """Each field that is not a struct, with its value, in the order of the wire."""
    for field in wire:
        value = getattr(message, field.name)
        if field.kind != "struct":
            yield field.name, value
        else:
            for each in (value or ()) if field.is_array else (value,):
                yield from () if each is None else flat(each, field.nested.__wire__)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("key", sorted(WITH_SECRETS - {ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS}))
def test_of_a_secret_as_many_zeros_are_left_and_all_else_as_it_was(key: int, side: Side) -> None:
    rng, schema = random.Random(key), load_request_schema if side == "request" else load_response_schema
    secrets = 0
    for version in versions_of(key):
        for _ in range(10):
            frame = framed(key, version, side, kio_bytes(random_message(rng, schema(key, version))))
            left = redacted(key, version, frame, is_request=side == "request")
            assert len(left) == len(frame)
            wire = at_version(key, version, side).__wire__
            before, after = (list(flat(read(key, version, side, each), wire)) for each in (frame, left))
            hidden = [(name, bytes(len(value)) if name in SECRETS else value) for name, value in before]
            assert after == hidden
            secrets += before != after
    has_secrets = SECRETS & set(byte_fields(wire))
    assert bool(secrets) == bool(has_secrets)


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
def test_any_change_of_settings_can_be_redacted(key: int) -> None:
    """The trace removes the values of random settings, which are unknown and may be secrets. Only loggers and client metrics
    have no secrets."""
    rng = random.Random(key)
    for version in versions_of(key):
        for _ in range(10):
            frame = framed(
                key, version, "request", kio_bytes(random_message(rng, load_request_schema(key, version)))
            )
            left = redacted(key, version, frame, is_request=True)
            assert len(left) == len(frame)
            for resource in read(key, version, "request", left).resources:
                if resource.resource_type not in (LOGGER_RESOURCE, METRICS_RESOURCE):
                    assert {*"".join(each.value or "" for each in resource.configs)} <= {"*"}


def redacted_value(kind: int, name: str, value: str) -> str:
    config = AlterableConfig(name=name, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name="1", configs=[config])]
    )
    body = b"".join(client_codec(INCREMENTAL_ALTER_CONFIGS, 1).encode(request))
    frame = framed(INCREMENTAL_ALTER_CONFIGS, 1, "request", body)
    left = read(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        "request",
        redacted(INCREMENTAL_ALTER_CONFIGS, 1, frame, is_request=True),
    )
    return str(left.resources[0].configs[0].value)


@pytest.mark.parametrize(
    ("kind", "name", "is_shown"),
    [
        (BROKER_RESOURCE, "log.retention.ms", True),
        (BROKER_RESOURCE, "leader.replication.throttled.rate", True),
        (BROKER_RESOURCE, "listener.name.internal.max.connections", True),
        (BROKER_RESOURCE, "ssl.key.password", False),
        (BROKER_RESOURCE, "listener.name.internal.ssl.keystore.key", False),
        (BROKER_RESOURCE, "listener.name.internal.scram-sha-256.sasl.jaas.config", False),
        (BROKER_RESOURCE, "listener.name.internal.plain.max.connections", False),
        (BROKER_RESOURCE, "of.a.plugin", False),
        (TOPIC_RESOURCE, "cleanup.policy", True),
        (TOPIC_RESOURCE, "of.a.plugin", False),
        (GROUP_RESOURCE, "consumer.session.timeout.ms", True),
        (GROUP_RESOURCE, "of.a.plugin", False),
        (METRICS_RESOURCE, "interval.ms", True),
        (LOGGER_RESOURCE, "root", True),
        (99, "cleanup.policy", False),
    ],
)
def test_settings_that_kafka_logs_are_shown_and_no_others(kind: int, name: str, is_shown: bool) -> None:
    """The trace shows the values of those settings that Kafka's ``KafkaConfig.loggableValue`` logs, and of no other
    settings."""
    assert redacted_value(kind, name, "grün") == ("grün" if is_shown else "*" * 5)


def test_a_frame_of_another_api_is_the_same_object() -> None:
    frame = b"whatever it is"
    assert redacted(0, 13, frame, is_request=True) is frame


def test_a_tag_behind_a_secret_does_not_bring_it_back() -> None:
    """The trace removes the content of an unknown tagged field, such as a later version may add: it may be a secret."""
    body = b"".join(
        client_codec(SASL_AUTHENTICATE, 2).encode(SaslAuthenticateRequest(auth_bytes=b"password"))
    )
    frame = framed(SASL_AUTHENTICATE, 2, "request", body[:-1] + b"\x01\x05\x08password")
    left = redacted(SASL_AUTHENTICATE, 2, frame, is_request=True)
    assert (len(left), b"password" in left) == (len(frame), False)
    assert read(SASL_AUTHENTICATE, 2, "request", left).auth_bytes == bytes(8)


def test_of_what_cannot_be_read_the_header_is_left() -> None:
    header = request_header(SASL_AUTHENTICATE, 1, 7, "c")
    left = redacted(SASL_AUTHENTICATE, 1, header + b"\0\0\0\xffpassword", is_request=True)
    assert left == header + bytes(12)
