"""CIDR hosts of ACLs (KIP-1276), in the grammar of Kafka's ``CidrUtils``. Pure.

Other modules import this one on first use, since most brokers have no such ACL.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from protocol.named_tuple import NamedTuple

_CACHED_HOSTS_MAX: Final = 1_024
_IPV4: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
_OCTET_MAX: Final = 255
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,10})")
_INTEGER_MAX: Final = 2**31 - 1
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9a-fA-F])")


class Network(NamedTuple):
    """The addresses from ``first`` to ``last``, of IP version ``version`` (4 or 6)."""

    version: int
    first: int
    last: int

    def has(self, host: str) -> bool:
        """Whether the address of a client is in the network. As in Kafka, 0.0.0.0 is in no network."""
        version, address = _client_address(host)
        return version == self.version and self.first <= address <= self.last


@lru_cache(maxsize=_CACHED_HOSTS_MAX)
def _client_address(host: str) -> tuple[int, int]:
    """(IP version, address without scope) of a client; (0, 0) for 0.0.0.0, and if the host is not an address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return 0, 0
    return (0, 0) if host == "0.0.0.0" else (address.version, int(address))


def network_of(host: str) -> Network | None:
    """The network of an ACL's host; None if it is not valid CIDR notation: before 4.4-IV1 no host was checked."""
    try:
        return parse(host)
    except ValueError:
        return None


def parse(text: str) -> Network:
    """Parse CIDR notation, ignoring the address bits after the prefix. Raises ValueError with Kafka's message."""
    return _parse_ipv6(text) if ":" in text else _parse_ipv4(text)


def _parse_ipv4(text: str) -> Network:
    match = _IPV4.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *octets, prefix = map(int, match.groups())
    for value, value_max in (*((octet, _OCTET_MAX) for octet in octets), (prefix, 32)):
        if value > value_max:
            raise ValueError(f"Value [{value}] not in range [0,{value_max}]")
    return _network(4, int.from_bytes(bytes(octets), "big"), 32 - prefix)


def _parse_ipv6(text: str) -> Network:
    written, _, rest = text.partition("/")
    match = _INTEGER.fullmatch(rest)
    if match is None or int(match[2]) > _INTEGER_MAX:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    prefix = int(match[1] + match[2])
    if not 0 <= prefix <= 128:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    try:
        address = _ipv6_address(written)
    except ValueError:
        raise ValueError(f"Could not parse [{written}]") from None
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{written}] - not an IPv6 address")
    return _network(6, int(address), 128 - prefix)


def _ipv6_address(text: str) -> IPv6Address:
    """Parse an address as Java's ``InetAddress`` does: it accepts brackets, leading zeros and a scope.

    The scope has to be a number: whether Java accepts a name depends on the interfaces of the machine.
    """
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError
        text = text[1:-1]
    address, percent, scope = text.partition("%")
    if percent and (
        (number := _INTEGER.fullmatch(scope)) is None or number[1] or int(number[2]) > _INTEGER_MAX
    ):
        raise ValueError
    return IPv6Address(_LEADING_ZEROS.sub("", address))


def _network(version: int, address: int, host_bits: int) -> Network:
    hosts = (1 << host_bits) - 1
    return Network(version, address & ~hosts, address | hosts)
