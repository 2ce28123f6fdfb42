"""What the proxy changes in responses: the addresses of nodes, and the versions that it announces. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.messages.api_versions import ApiVersion
from protocol.messages.index import APIS
from protocol.named_tuple import NamedTuple

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79

BROKERS: Final = 1
"""The endpoint type of DescribeCluster whose nodes clients connect to; the others are controllers."""
NODE_ENDPOINTS: Final[Mapping[int, int]] = {PRODUCE: 10, FETCH: 16, SHARE_FETCH: 0, SHARE_ACKNOWLEDGE: 0}
"""The first version whose responses name leaders with their addresses (KIP-951)."""
WITH_ADDRESSES: Final[Mapping[int, int]] = {
    METADATA: 0,
    FIND_COORDINATOR: 0,
    DESCRIBE_CLUSTER: 0,
    **NODE_ENDPOINTS,
}
"""The first version whose responses have addresses, by API."""


class Named(NamedTuple):
    """Where a response names a node: the part of the response, with ``host`` and ``port``."""

    node_id: int
    part: Any


def has_addresses(api_key: int, version: int) -> bool:
    """May a response of this version name nodes with their addresses?"""
    first = WITH_ADDRESSES.get(api_key)
    return first is not None and version >= first


def endpoints_in(api_key: int, version: int, response: Any) -> Iterator[Named]:
    """Every node that a response names with its address."""
    if api_key == METADATA:
        for each in response.brokers:
            yield Named(each.node_id, each)
    elif api_key == DESCRIBE_CLUSTER:
        if response.endpoint_type == BROKERS:
            for each in response.brokers:
                yield Named(each.broker_id, each)
    elif api_key == FIND_COORDINATOR:
        # From version 4 on the answer is about many keys. One that says an error names no node.
        for each in (response,) if version < 4 else response.coordinators:
            if each.node_id >= 0:
                yield Named(each.node_id, each)
    else:
        for each in response.node_endpoints:
            yield Named(each.node_id, each)


def clamped(announced: Sequence[Any], decoded: Mapping[int, range]) -> list[ApiVersion]:
    """The versions that a node announces and the proxy decodes; APIs of which none is left are not announced.

    The lowest version of Produce stays as it is announced: clients read from it what a broker can do, and send higher ones.
    """
    found = []
    for each in announced:
        versions = decoded.get(each.api_key)
        if versions is None:
            continue
        low, high = max(each.min_version, versions[0]), min(each.max_version, versions[-1])
        if low <= high:
            low = each.min_version if each.api_key == PRODUCE else low
            found.append(ApiVersion(api_key=each.api_key, min_version=low, max_version=high))
    return found


def highest_common(announced: Sequence[Any], api_key: int) -> int | None:
    """The version in which a node is asked: the highest that it announces and the proxy decodes."""
    known = APIS.get(api_key)
    for each in announced:
        if each.api_key == api_key and known is not None:
            version = min(int(each.max_version), known[2])
            return version if version >= max(int(each.min_version), known[1]) else None
    return None
