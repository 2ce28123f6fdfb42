"""What the proxy changes in responses: the addresses of nodes, and the announced versions. Pure."""

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
"""Endpoint type of DescribeCluster for nodes that clients connect to; the other type is controllers."""
NODE_ENDPOINTS: Final[Mapping[int, int]] = {PRODUCE: 10, FETCH: 16, SHARE_FETCH: 0, SHARE_ACKNOWLEDGE: 0}
"""API key -> first version whose responses have the addresses of leaders (KIP-951)."""
WITH_ADDRESSES: Final[Mapping[int, int]] = {
    METADATA: 0,
    FIND_COORDINATOR: 0,
    DESCRIBE_CLUSTER: 0,
    **NODE_ENDPOINTS,
}
"""API key -> first version whose responses have addresses of nodes."""


class Named(NamedTuple):
    """A node's address in a response: the node id, and the part of the response with ``host`` and ``port``."""

    node_id: int
    part: Any


def has_addresses(api_key: int, version: int) -> bool:
    """Whether responses of this version may have addresses of nodes."""
    first = WITH_ADDRESSES.get(api_key)
    return first is not None and version >= first


def endpoints_in(api_key: int, version: int, response: Any) -> Iterator[Named]:
    """Every node address in a response."""
    if api_key == METADATA:
        for each in response.brokers:
            yield Named(each.node_id, each)
    elif api_key == DESCRIBE_CLUSTER:
        if response.endpoint_type == BROKERS:
            for each in response.brokers:
                yield Named(each.broker_id, each)
    elif api_key == FIND_COORDINATOR:
        # From version 4 on the response has many keys. An entry with an error has no node.
        for each in (response,) if version < 4 else response.coordinators:
            if each.node_id >= 0:
                yield Named(each.node_id, each)
    else:
        for each in response.node_endpoints:
            yield Named(each.node_id, each)


def clamped(announced: Sequence[Any], decoded: Mapping[int, range]) -> list[ApiVersion]:
    """The versions that a node announces and the proxy can decode. An API without such a version is left out.

    The lowest version of Produce is not changed: clients infer a broker's features from it, and send higher versions.
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
    """Highest version of an API that the node announces and the proxy can decode; None if there is none."""
    known = APIS.get(api_key)
    for each in announced:
        if each.api_key == api_key and known is not None:
            version = min(int(each.max_version), known[2])
            return version if version >= max(int(each.min_version), known[1]) else None
    return None
