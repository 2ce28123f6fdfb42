"""Which parts of responses the proxy changes, and which it leaves unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from protocol.frame import parse_request_header
from protocol.messages.api_versions import ApiVersion
from protocol.messages.index import APIS
from protocol.versions import at_version, message_name, versions_of
from proxy.forwarding import Received, acks_of
from proxy.rewriting import (
    BROKERS,
    PRODUCE,
    WITH_ADDRESSES,
    clamped,
    endpoints_in,
    has_addresses,
    highest_common,
)
from tests.support import raw

NOT_BROKERS = {
    "begin_quorum_epoch": "controllers, among themselves",
    "describe_quorum": "controllers",
    "end_quorum_epoch": "controllers, among themselves",
    "fetch_snapshot": "controllers, among themselves",
    "update_raft_voter": "controllers, among themselves",
    "vote": "controllers, among themselves",
    "streams_group_heartbeat": "instances of the application",
    "streams_group_describe": "instances of the application",
}
"""API -> owners of the addresses in its responses, for APIs without addresses of brokers for clients."""


def structs_with_hosts(struct: Any) -> Iterator[Any]:
    names = {wire.name for wire in struct.__wire__}
    if {"host", "port"} <= names:
        yield struct
    for wire in struct.__wire__:
        if wire.nested is not None:
            yield from structs_with_hosts(wire.nested)


@pytest.mark.parametrize("key", APIS)
def test_every_response_that_names_an_address_is_rewritten_or_is_not_about_brokers(key: int) -> None:
    name = APIS[key][0]
    having = [
        version
        for version in versions_of(key)
        if next(structs_with_hosts(at_version(key, version, "response")), None) is not None
    ]
    rewritten = [version for version in versions_of(key) if has_addresses(key, version)]
    assert (having != [] and rewritten == []) if name in NOT_BROKERS else (having == rewritten)


@pytest.mark.parametrize("key", WITH_ADDRESSES)
def test_every_address_in_a_response_is_found(key: int) -> None:
    name = APIS[key][0]
    module = import_module(f"protocol.messages.{name}")
    for version in versions_of(key):
        if not has_addresses(key, version):
            continue
        response = at_version(key, version, "response")
        parts: list[Any] = []

        def filled(struct: Any, parts: list[Any] = parts) -> Any:
            value = struct.__union__()
            for wire in struct.__wire__:
                if wire.nested is not None and wire.is_array:
                    setattr(value, wire.name, [filled(wire.nested)])
            if {"host", "port"} <= {wire.name for wire in struct.__wire__}:
                parts.append(value)
            return value

        message = filled(response)
        assert isinstance(message, getattr(module, f"{message_name(name)}Response"))
        found = [each.part for each in endpoints_in(key, version, message)]
        assert [id(each) for each in found] == [id(each) for each in parts], f"{name} v{version}"


def test_controllers_and_coordinators_that_are_not_there_keep_their_addresses() -> None:
    coordinators = import_module("protocol.messages.find_coordinator")
    gone = coordinators.Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15)
    assert list(endpoints_in(10, 4, coordinators.FindCoordinatorResponse(coordinators=[gone]))) == []
    clusters = import_module("protocol.messages.describe_cluster")
    controller = clusters.DescribeClusterBroker(broker_id=3000, host="controller", port=9093)
    response = clusters.DescribeClusterResponse(endpoint_type=BROKERS + 1, brokers=[controller])
    assert list(endpoints_in(60, 1, response)) == []


def announced(**versions: tuple[int, int]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=raw.API_KEYS[name], min_version=low, max_version=high)
        for name, (low, high) in versions.items()
    ]


def test_versions_are_those_of_both_sides() -> None:
    decoded = {PRODUCE: range(3, 14), 1: range(4, 19), 3: range(14)}
    upstream = announced(produce=(0, 12), fetch=(17, 30), metadata=(14, 15), heartbeat=(0, 4))
    found = [(each.api_key, each.min_version, each.max_version) for each in clamped(upstream, decoded)]
    # Clients conclude from the lowest version of Produce which compression codecs they may use.
    assert found == [(PRODUCE, 0, 12), (1, 17, 18)]


@pytest.mark.parametrize(
    ("versions", "common"),
    [((0, 4), 4), ((2, 99), 4), ((5, 6), None)],
)
def test_the_proxy_asks_in_the_highest_version_of_both(versions: tuple[int, int], common: int | None) -> None:
    assert highest_common(announced(heartbeat=versions), raw.API_KEYS["heartbeat"]) == common
    assert highest_common([], raw.API_KEYS["heartbeat"]) is None


@pytest.mark.parametrize("version", versions_of(PRODUCE))
@pytest.mark.parametrize("transactional_id", [None, "", "orders", "ö" * 200])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks_are_read_from_the_bytes_of_a_produce(
    version: int, transactional_id: str | None, acks: int
) -> None:
    body: dict[str, Any] = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [],
    }
    frame = raw.encode_request("produce", version, body, 7)
    received = Received(memoryview(frame), parse_request_header(frame).body_offset)
    assert acks_of(received, version) == acks
