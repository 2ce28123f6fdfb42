"""Listeners: where the broker listens, and what it tells clients to connect to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from protocol.slotted import slotted
from storage.config_def import ConfigError

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_CONTROLLER_NAME = "CONTROLLER"


@slotted(frozen=True)
class Endpoint:
    """One listener. An empty host is every address; port 0 is one that the system picks when it is bound."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoints(texts: Iterable[str]) -> tuple[Endpoint, ...]:
    """`NAME://host:port` each, without a look at the protocol; names come out in capitals, as in Kafka."""
    return tuple(_parse_endpoint(text) for text in texts)


def _parse_endpoint(text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not match[1]:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint")
    port = int(match[3])
    if not 0 <= port <= 65535:
        raise ConfigError(f"Unable to parse {text} to a broker endpoint: the port must be from 0 to 65535")
    return Endpoint(match[1].upper(), match[2], port)


def shifted(text: str, steps: int) -> str:
    """The list of a further node: every port but 0 is so much higher. What cannot be parsed is left to the parser."""

    def move(entry: str) -> str:
        match = _ENDPOINT.fullmatch(entry.strip())
        if match is None or int(match[3]) == 0:
            return entry
        return f"{entry.strip()[: -len(match[3])]}{int(match[3]) + steps}"

    return ",".join(move(entry) for entry in text.split(","))


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,…` of listener.security.protocol.map."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = pair.rpartition(":")
        if not name or protocol.upper() not in PROTOCOLS:
            raise ConfigError.of(
                "listener.security.protocol.map",
                pair,
                f"expected NAME:PROTOCOL, with one of {', '.join(PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def with_protocols(endpoints: Sequence[Endpoint], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints with their protocols."""
    secured = []
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            raise ConfigError(
                f"No security protocol defined for listener {endpoint.name}: "
                f"add {endpoint.name}:PLAINTEXT to listener.security.protocol.map"
            )
        secured.append(replace(endpoint, security_protocol=protocol))
    return tuple(secured)


def without_names(endpoints: Sequence[Endpoint], names: Iterable[str]) -> tuple[Endpoint, ...]:
    unwanted = {name.upper() for name in names}
    return tuple(endpoint for endpoint in endpoints if endpoint.name not in unwanted)


def check_distinct(endpoints: Sequence[Endpoint]) -> None:
    """Each listener has a name and a port of its own; port 0 may repeat, each gets a different one."""
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ConfigError(f"Each listener must have a different name, listeners: {_joined(endpoints)}")
    # Kafka lets one IPv4 and one IPv6 address share a port; the host tells them apart here too.
    places = [
        (endpoint.host if ":" in endpoint.host else "", endpoint.port)
        for endpoint in endpoints
        if endpoint.port
    ]
    if len(set(places)) != len(places):
        raise ConfigError(f"Each listener must have a different port, listeners: {_joined(endpoints)}")


def advertise(listeners: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The advertised listeners when none are configured: a wildcard address means this machine."""
    return tuple(replace(each, host="localhost") if each.host in _WILDCARDS else each for each in listeners)


def check_advertised(advertised: Sequence[Endpoint], listeners: Sequence[Endpoint]) -> None:
    names = {listener.name for listener in listeners}
    if not {endpoint.name for endpoint in advertised} <= names:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(endpoint.name for endpoint in advertised)}. "
            f"The valid options based on the current configuration are {','.join(sorted(names))}"
        )
    if any(endpoint.host in ("0.0.0.0", "::") for endpoint in advertised):
        raise ConfigError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )


def listen_everywhere(advertised: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """The listeners that the apache/kafka image derives where only advertised.listeners is given."""
    return tuple(replace(endpoint, host="0.0.0.0") for endpoint in advertised)


def _joined(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(map(str, endpoints))
