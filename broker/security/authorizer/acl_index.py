"""Index of the ACLs of one resource type by resource name. Pure.

Kafka searches a sorted set, from the resource's name to shorter and shorter prefixes of the name. Here there are two
hash maps, one of literal names and one of prefixes. A search looks into the second map once for each length that at
least one prefix has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from broker.metadata.acls import ALLOW, OPERATIONS, PREFIXED, WILDCARD, Acl
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.metadata.cidr import Network

ALL: Final = "ALL"


class Entry(NamedTuple):
    """An ACL without its pattern and principal (``AccessControlEntry``)."""

    host: str
    operation: str
    is_deny: bool
    network: Network | None
    """The addresses of a CIDR host (KIP-1276); None for other hosts."""

    def is_of_host(self, host: str) -> bool:
        return self.host in (WILDCARD, host) or (self.network is not None and self.network.has(host))

    def has(self, operation: str) -> bool:
        return self.operation in (ALL, operation)


Entries = dict[str, set[Entry]]
"""Principal -> the ACL entries of that principal. Neither the dictionary nor a set in it is ever empty."""


class AclIndex:
    """The ACLs of one resource type."""

    __slots__ = ("_lengths", "_literal", "_prefixed", "_prefixes_of_length")

    def __init__(self) -> None:
        self._literal: dict[str, Entries] = {}
        self._prefixed: dict[str, Entries] = {}
        self._prefixes_of_length: Counter[int] = Counter()
        self._lengths: tuple[int, ...] = ()
        """Lengths of all prefixes of resource names that have ACLs, in ascending order."""

    @property
    def literal(self) -> Mapping[str, Entries]:
        """ACL entries by literal resource name; the wildcard `*` is one of the names."""
        return self._literal

    @property
    def prefixed(self) -> Mapping[str, Entries]:
        """ACL entries by prefix of resource names."""
        return self._prefixed

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixed)

    def add(self, acl: Acl) -> None:
        names = self._names(acl)
        if acl.resource_name not in names:
            names[acl.resource_name] = {}
            self._count_prefix(acl, 1)
        names[acl.resource_name].setdefault(acl.principal, set()).add(_entry(acl))

    def remove(self, acl: Acl) -> None:
        names = self._names(acl)
        principals = names[acl.resource_name]
        principals[acl.principal].remove(_entry(acl))
        if not principals[acl.principal]:
            del principals[acl.principal]
        if not principals:
            del names[acl.resource_name]
            self._count_prefix(acl, -1)

    def _names(self, acl: Acl) -> dict[str, Entries]:
        return self._prefixed if acl.pattern_type == PREFIXED else self._literal

    def _count_prefix(self, acl: Acl, change: int) -> None:
        if acl.pattern_type == PREFIXED:
            self._prefixes_of_length[len(acl.resource_name)] += change
            self._lengths = tuple(sorted(+self._prefixes_of_length))

    def matching(self, name: str) -> Iterator[Entries]:
        """Yield the entries of each pattern that matches a resource name.

        As in Kafka, the wildcard `*` does not match a longer name that begins with `*`, such as `*a`: Kafka
        compares the beginning of the names first, and then skips `*` as a literal name that is only a prefix of
        `*a`.
        """
        literal = self._literal
        if name in literal:
            yield literal[name]
        if WILDCARD in literal and not name.startswith(WILDCARD):
            yield literal[WILDCARD]
        for length in self._lengths:
            if length > len(name):
                return
            entries = self._prefixed.get(name[:length])
            if entries is not None:
                yield entries


def _entry(acl: Acl) -> Entry:
    network = None
    if "/" in acl.host:
        from broker.metadata.cidr import network_of

        network = network_of(acl.host)
    operation = OPERATIONS.get(acl.operation, "UNKNOWN")
    return Entry(acl.host, operation, acl.permission_type != ALLOW, network)
